"""What a script sees of Foundation: bytes, arrays, dictionaries and errors, which are Python's own types as well.

``tensor.data()`` is an :class:`NSData`, which has ``bytes()`` and ``length()`` and stays a buffer that NumPy reads in place.
An array stays a ``list``, a dictionary a ``dict``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from mlc_torch.objc.key_values import Keyed, value_for_key
from mlc_torch.refusals import MLCRefusal
from mlc_torch.whole_files import write_whole


class StandIn(type):
    """A class of ours in place of Foundation's, with the few selectors that scripts for ML Compute use."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(_missing(cls, name), name=name, obj=cls)


def _missing(cls: type, name: str) -> str:
    return f"{cls.__name__} has no {name!r} here: it is a stand-in for Foundation's, by {__package__}"


class _Made(Keyed, metaclass=StandIn):
    """``alloc().init()`` and ``new()``: an empty object."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_missing(type(self), name), name=name, obj=self)

    @classmethod
    def alloc(cls) -> Self:
        return cls()

    @classmethod
    def new(cls) -> Self:
        return cls.alloc()

    def init(self) -> Self:
        return self


def _first(memory: Any, length: int) -> memoryview:
    """The first bytes of a buffer. Objective-C would read on behind its end."""
    given = memoryview(memory)
    if not 0 <= length <= given.nbytes:
        raise ValueError(f"length {length} is not within the {given.nbytes} bytes that were given")
    return given.cast("B")[:length] if length else memoryview(b"")


class _Empty:
    """``NSData.data()`` makes an empty one; an array's own ``data`` is its memory."""

    def __get__(self, made: np.ndarray | None, cls: Any) -> Any:
        return cls.alloc if made is None else np.ndarray.data.__get__(made)


class NSData(np.ndarray, _Made):
    """Bytes. A read-only array of ``uint8`` over the same memory, since subclasses of ``memoryview`` cannot be made."""

    data: Any = _Empty()

    @classmethod
    def over(cls, memory: Any) -> Self:
        """``memory`` as it lies there."""
        made: Any = np.frombuffer(memory, np.uint8) if len(memory) else np.zeros(0, np.uint8)
        return made.view(cls)

    @classmethod
    def alloc(cls) -> Self:
        return cls.over(b"")

    def initWithBytes_length_(self, memory: Any, length: int) -> Self:
        return self.dataWithBytes_length_(memory, length)

    @classmethod
    def dataWithBytes_length_(cls, memory: Any, length: int) -> Self:
        """A copy of the first ``length`` bytes."""
        return cls._read_only(bytearray(_first(memory, length)))

    @classmethod
    def dataWithData_(cls, data: Any) -> Self:
        return cls.dataWithBytes_length_(data, memoryview(data).nbytes)

    @classmethod
    def dataWithBytesNoCopy_length_(cls, memory: Any, length: int) -> Self:
        return cls.over(_first(memory, length))

    @classmethod
    def dataWithContentsOfFile_(cls, path: str) -> Self | None:
        try:
            return cls._read_only(bytearray(Path(path).read_bytes()))
        except OSError:
            return None  # Foundation's answer to a file that cannot be read

    @classmethod
    def _read_only(cls, memory: bytearray) -> Self:
        made = cls.over(memory)
        made.flags.writeable = False
        return made

    def bytes(self: Any) -> memoryview:
        """The memory itself."""
        return memoryview(self)

    def length(self) -> int:
        return self.nbytes

    def getBytes_length_(self, memory: Any, length: int) -> Any:
        """The first ``length`` bytes, written into ``memory``, or returned where it is ``None``."""
        if memory is None:
            return self[:length].tobytes()
        memoryview(memory).cast("B")[:length] = self.bytes()[:length]
        return None

    def subdataWithRange_(self, range_: tuple[int, int]) -> Any:
        start, length = range_
        if start < 0 or length < 0 or start + length > self.nbytes:
            raise IndexError(f"range ({start}, {length}) is not within {self.nbytes} bytes")
        return NSData._read_only(bytearray(self[start : start + length].tobytes()))

    def writeToFile_atomically_(self, path: str, atomically: bool) -> bool:
        try:
            if atomically:
                write_whole(Path(path), self.tobytes())
            else:
                Path(path).write_bytes(self.tobytes())
        except OSError:
            return False
        return True

    def isEqualToData_(self, other: Any) -> bool:
        return self == other

    def description(self) -> str:
        return repr(self)

    # As Foundation's, not as an array's: equal by their bytes, true unless empty.

    def __eq__(self, other: Any) -> bool:
        try:
            return self.tobytes() == memoryview(other).tobytes()
        except TypeError:
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.tobytes())

    def __bool__(self) -> bool:
        return self.nbytes > 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.nbytes} bytes>"

    __str__ = __repr__


class NSMutableData(NSData):
    """Bytes that can be written; a NumPy array, so that it serves as memory of an ``MLCTensorData``."""

    @classmethod
    def dataWithLength_(cls, length: int) -> Self:
        made: Any = np.zeros(length, np.uint8)
        return made.view(cls)

    @classmethod
    def _read_only(cls, memory: bytearray) -> Self:
        return cls.over(memory)

    @classmethod
    def dataWithCapacity_(cls, capacity: int) -> Self:
        """An empty one. How much will come is for Foundation to know."""
        return cls.alloc()

    def mutableBytes(self) -> memoryview:
        return self.bytes()


class NSArray(list, _Made):
    """A list that also answers as Foundation's array. Key-value coding asks each of its objects."""

    @classmethod
    def array(cls) -> Self:
        return cls()

    @classmethod
    def arrayWithArray_(cls, items: Any) -> Self:
        return cls(items)

    @classmethod
    def arrayWithObject_(cls, item: Any) -> Self:
        return cls([item])

    @classmethod
    def arrayWithObjects_(cls, *items: Any) -> Self:
        """Up to the nil that ends the arguments in Objective-C."""
        return cls(items[: items.index(None)] if None in items else items)

    def initWithArray_(self, items: Any) -> Self:
        return self.arrayWithArray_(items)

    def count(self, *item: Any) -> int:
        """How many objects there are; with an object, how often it is among them, as Python's lists say."""
        return super().count(*item) if item else len(self)

    def objectAtIndex_(self, index: int) -> Any:
        return self[self._within(index)]

    def _within(self, index: int) -> int:
        """A place in the array; there are none that are counted from its end."""
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is beyond the bounds of an array of {len(self)}")
        return index

    def firstObject(self) -> Any:
        return self[0] if self else None

    def lastObject(self) -> Any:
        return self[-1] if self else None

    def containsObject_(self, item: Any) -> bool:
        return item in self

    def indexOfObject_(self, item: Any) -> int:
        return self.index(item) if item in self else sys.maxsize  # NSNotFound

    def isEqualToArray_(self, other: Any) -> bool:
        return self == other

    def objectEnumerator(self) -> Iterator[Any]:
        return iter(self)

    def description(self) -> str:
        return repr(self)

    def valueForKey_(self, key: str) -> Any:
        return NSArray(value_for_key(item, key) for item in self)


class NSMutableArray(NSArray):
    """A list that can be changed in Foundation's words, too."""

    @classmethod
    def arrayWithCapacity_(cls, capacity: int) -> Self:
        return cls()

    def initWithCapacity_(self, capacity: int) -> Self:
        return self

    def addObject_(self, item: Any) -> None:
        self.append(item)

    def addObjectsFromArray_(self, items: Any) -> None:
        self.extend(items)

    def insertObject_atIndex_(self, item: Any, index: int) -> None:
        self.insert(index if index == len(self) else self._within(index), item)

    def replaceObjectAtIndex_withObject_(self, index: int, item: Any) -> None:
        self[self._within(index)] = item

    def removeLastObject(self) -> None:
        del self[self._within(len(self) - 1)]

    def removeAllObjects(self) -> None:
        self.clear()

    def removeObjectAtIndex_(self, index: int) -> None:
        del self[self._within(index)]


class NSDictionary(dict, _Made):
    """A dict that also answers as Foundation's dictionary."""

    @classmethod
    def dictionary(cls) -> Self:
        return cls()

    @classmethod
    def dictionaryWithDictionary_(cls, items: Any) -> Self:
        return cls(items)

    @classmethod
    def dictionaryWithObject_forKey_(cls, item: Any, key: Any) -> Self:
        return cls({key: item})

    @classmethod
    def dictionaryWithObjects_forKeys_(cls, items: Any, keys: Any) -> Self:
        return cls(zip(keys, items, strict=True))

    def initWithDictionary_(self, items: Any) -> Self:
        return self.dictionaryWithDictionary_(items)

    def count(self) -> int:
        return len(self)

    def objectForKey_(self, key: Any) -> Any:
        return self.get(key)

    def allKeys(self) -> NSArray:
        return NSArray(self)

    def allValues(self) -> NSArray:
        return NSArray(self.values())

    def isEqualToDictionary_(self, other: Any) -> bool:
        return self == other

    def description(self) -> str:
        return repr(self)

    def valueForKey_(self, key: str) -> Any:
        return self.get(key)


class NSMutableDictionary(NSDictionary):
    """A dict that can be changed in Foundation's words, too."""

    @classmethod
    def dictionaryWithCapacity_(cls, capacity: int) -> Self:
        return cls()

    def initWithCapacity_(self, capacity: int) -> Self:
        return self

    def addEntriesFromDictionary_(self, items: Any) -> None:
        self.update(items)

    def removeAllObjects(self) -> None:
        self.clear()

    def setObject_forKey_(self, item: Any, key: Any) -> None:
        self[key] = item

    def setValue_forKey_(self, value: Any, key: str) -> None:
        self[key] = value

    def removeObjectForKey_(self, key: Any) -> None:
        self.pop(key, None)


class NSError(Keyed):
    """Why something was refused. The framework's own domains and codes are not known; ours say whose they are."""

    def __init__(self, why: Exception) -> None:
        self.refusal = why

    def domain(self) -> str:
        return type(self.refusal).__module__.partition(".")[0]

    def code(self) -> int:
        """There is only one kind."""
        return 1

    def localizedDescription(self) -> str:
        return str(self.refusal)

    def localizedFailureReason(self) -> str:
        return self.refusal.reason if isinstance(self.refusal, MLCRefusal) else str(self.refusal)

    def userInfo(self) -> NSDictionary:
        return NSDictionary(
            NSLocalizedDescription=self.localizedDescription(), NSLocalizedFailureReason=self.localizedFailureReason()
        )

    def description(self) -> str:
        return f'Error Domain={self.domain()} Code={self.code()} "{self.localizedDescription()}"'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NSError) and self.refusal is other.refusal

    def __hash__(self) -> int:
        return hash(id(self.refusal))

    def __str__(self) -> str:
        return self.localizedDescription()

    def __repr__(self) -> str:
        return f"<NSError: {self.description()}>"
