"""Swift types as the type stubs write them: what an argument accepts, and what comes back."""

from __future__ import annotations

from mlc_torch.enums import MLCPaddingPolicy, MLCPoolingType
from mlc_torch.enums.kinds import MLCOptionSet
from mlc_torch.spelling import CLASSES
from mlc_torch.spelling.signature import split_top

_GIVEN = {
    "Int": "_Int",
    "Float": "_Float",
    "Bool": "bool",
    "String": "str",
    "NSNumber": "_Float",
    "Data": "_Buffer",
    "UnsafeMutableRawPointer": "_Buffer",
    "UnsafeRawPointer": "_Buffer",
    "any MTLDevice": "_torch.device | str | _Int",
    "MLCGraphCompletionHandler": "MLCGraphCompletionHandler",
    "Any": "Any",
}
_RETURNED = {
    "Int": "int",
    "Float": "float",
    "TimeInterval": "float",
    "Bool": "bool",
    "String": "str",
    "NSNumber": "int",
    "Data": "memoryview",
    "UnsafeMutableRawPointer": "memoryview",
    "any MTLDevice": "_torch.device",
    "Void": "None",
    "Self": "Self",
    "(height: Int, width: Int)": "_HeightWidth",
    "(y: Int, x: Int)": "_YX",
}


def given(swift: str, *, raw_values: bool = False) -> str:
    """What an argument accepts. Selectors also take the raw values that Objective-C's constants are."""
    if swift.endswith("?"):
        return f"{given(swift[:-1], raw_values=raw_values)} | None"
    if swift in _GIVEN:
        return _GIVEN[swift]
    if swift.startswith("["):
        key_value = split_top(swift[1:-1], ":")
        if len(key_value) == 2:
            return f"Mapping[str, {given(key_value[1], raw_values=raw_values)}]"
        return f"Sequence[{given(swift[1:-1], raw_values=raw_values)}]"
    if "->" in swift:
        return "Callable[[Any, int], object]"
    if swift.startswith("("):
        return "Sequence[_Int]"
    if swift == "MLCTensorData":
        return f"{swift} | _Buffer"  # arrays and torch tensors serve as they are
    cls = _class(swift)
    if issubclass(cls, MLCOptionSet):
        return f"{swift} | Sequence[{swift}]" + (" | int" if raw_values else "")
    is_enumeration = issubclass(cls, (int, MLCPaddingPolicy, MLCPoolingType))
    return f"{swift} | int" if raw_values and is_enumeration else swift


def returned(swift: str) -> str:
    """What a member gives back."""
    if swift in _RETURNED:
        return _RETURNED[swift]
    if swift.endswith("?"):
        return f"{returned(swift[:-1])} | None"
    if swift.startswith("["):
        key_value = split_top(swift[1:-1], ":")
        return f"dict[str, {returned(key_value[1])}]" if len(key_value) == 2 else f"list[{returned(swift[1:-1])}]"
    if swift.startswith("("):
        fields = [field.partition(":")[2].strip() for field in split_top(swift[1:-1])]
        return f"tuple[{', '.join(map(returned, fields))}]"
    return _class(swift).__name__


def _class(swift: str) -> type:
    if swift not in CLASSES:
        raise SystemExit(
            f"a declaration names the Swift type {swift!r}, which is neither a class of ours nor in {__file__}"
        )
    return CLASSES[swift]
