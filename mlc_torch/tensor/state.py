"""What stands behind an ``MLCTensor``: its identity, its host memory and its value on a device.

Graphs refer to these states (a variable that holds one is usually called ``cell``), programs to ``MLCTensor`` handles. A
state knows its handle only weakly, so that a compiled graph can tell which results a program can still ask for, and keep
only those.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from mlc_torch.device import MAIN_MEMORY, MLCDevice, queueing
from mlc_torch.going_back import undone_if_broken_off
from mlc_torch.refusals import refuse
from mlc_torch.spelling import MLCObject
from mlc_torch.tensor.addresses import LITTLE, memory_at, memory_type
from mlc_torch.tensor.bound_memory import BoundMemory
from mlc_torch.tensor.data import TORCH_TYPES, MLCTensorData, seen_as_bytes
from mlc_torch.tensor.descriptor import MLCTensorDescriptor
from mlc_torch.tensor.kept_state import Kept
from mlc_torch.tensor.staged import staged_for
from mlc_torch.torch_private.modes import really

_ids = itertools.count()


View = Callable[[torch.Tensor], torch.Tensor]


class _Changes:
    """Counts whenever a tensor gets a handle or moves, so that compiled graphs see in one look that nothing happened."""

    __slots__ = ("_count", "newest")

    def __init__(self) -> None:
        self._count, self.newest = itertools.count(1), 0

    def note(self) -> None:
        self.newest = next(self._count)


changes = _Changes()


class SamplesBound(NamedTuple):
    """How many of a tensor's samples were ever bound, and how many it holds."""

    number: int
    total: int


class TensorState:
    """One tensor of a program."""

    __slots__ = (
        "_handle",
        "_views",
        "_watchers",
        "bound",
        "bound_state",
        "descriptor",
        "device",
        "dtype",
        "gradient_of",
        "host",
        "is_frozen",
        "is_parameter",
        "kept_states",
        "label",
        "nbytes",
        "optimizer_data",
        "optimizer_device_data",
        "partly",
        "shape",
        "snapshot",
        "steps",
        "tensor_id",
        "value",
        "version",
        "waiting_state",
        "why_empty",
    )

    def __init__(self, descriptor: MLCTensorDescriptor, host: MLCTensorData | None = None) -> None:
        if not descriptor._shape:
            refuse("the descriptor was made by new() and has no shape; make it with one")
        self.descriptor = descriptor
        self.dtype, self.shape, self.nbytes = TORCH_TYPES[descriptor._dataType], descriptor._shape, descriptor._nbytes
        self.tensor_id = next(_ids)
        self.label = f"data{self.tensor_id}"
        self.host = host
        self.value: torch.Tensor | None = None
        self.device: MLCDevice | None = None
        self.bound: BoundMemory | None = None
        """Where data that is bound to it is copied to, if that is the same memory each time."""
        self.partly: tuple[torch.Tensor, SamplesBound] | None = None
        """A value of which not all samples were ever bound: see ``samples_bound``."""
        self.snapshot: memoryview | None = None
        self.gradient_of: TensorState | None = None
        """The tensor whose gradient a training graph fills this one with; no node has to produce it."""
        self.optimizer_data: list[MLCTensorData] = []
        self.optimizer_device_data: list[Any] = []
        """What the tensor shows: the memory that was bound last, and the state of the optimizer that came last."""
        self.kept_states: weakref.WeakKeyDictionary[Any, Kept] | None = None
        """What each optimizer keeps of it."""
        self.bound_state: Kept | None = None
        """What was bound last: ``synchronizeOptimizerData`` finds it when its optimizer is gone, too."""
        self.waiting_state: Kept | None = None
        """What was bound through it, until an optimizer makes an update."""
        self.steps: weakref.WeakKeyDictionary[Any, Any] | None = None
        """How far each of them is with it."""
        self.version = 0
        self.is_frozen = False
        """Whether it is the value of one run, kept for its handler: no graph knows it."""
        self.is_parameter = False
        """Whether an optimizer may work on it: then it lies in the memory that is bound to it."""
        self.why_empty: str | None = None
        """Why nothing can be read of it now, where that needs saying."""
        self._handle: weakref.ref[MLCObject] | None = None
        self._views: list[tuple[weakref.ref[torch.Tensor], View]] = []
        """The torch parameters and buffers that look into its memory, and how; some of them may be gone."""
        self._watchers: list[Callable[[], None]] = []

    def handle(self) -> MLCObject | None:
        """The ``MLCTensor`` that somebody still holds, if any."""
        return self._handle() if self._handle is not None else None

    def held_by(self, handle: MLCObject) -> None:
        """``handle`` is how programs see this tensor from now on."""
        self._handle = weakref.ref(handle)
        if not self.is_frozen:
            changes.note()

    def changed(self) -> None:
        """What compiled graphs know of this tensor is out of date: its memory, its optimizer state, its updating."""
        self.version += 1
        changes.note()

    # Host memory

    def give_host(self, data: MLCTensorData, who: str) -> None:
        """Take ``data`` as this tensor's memory; all its bytes must be there."""
        self._must_hold(data, who)
        self.host, self.snapshot = data._kept(), None

    def _must_hold(self, data: MLCTensorData, who: str) -> None:
        data._must_fit(self.dtype, self.shape, who)
        data._must_stay(self.dtype, who)
        needed = self.descriptor._nbytes
        if data._length < needed:
            size = self.dtype.itemsize
            refuse(
                f"{who} holds {data._length} bytes ({data._length // size} elements), a tensor of shape "
                f"{list(self.shape)} needs {needed} ({needed // size} elements)"
            )

    @really
    def host_view(self) -> torch.Tensor | None:
        """The host memory as a torch tensor over the same bytes."""
        return None if self.host is None else self.host._view(self.dtype, self.shape)

    def current(self) -> torch.Tensor | None:
        """The value where it lies: on the device, else in host memory; ``None`` for a tensor without data."""
        return self.value if self.value is not None else self.host_view()

    def bytes(self) -> memoryview | None:
        """What ``tensor.data`` shows: the whole host buffer, or the value a graph computed."""
        value = self.value
        # A few numbers in order, which many programs read after each call. Read by their address, no mode or transformation
        # around the caller changes them. (Of a perceptron, x86: 1.2 µs, and 2.0 by the way below.)
        if self.host is None and self.snapshot is None and value is not None and value.is_cpu:
            little = 0 < (size := value.nbytes) <= LITTLE
            if little and value.is_contiguous() and not value.is_neg():
                return memoryview(memory_type(size).from_address(value.data_ptr()).raw)
        return self._bytes()

    @really
    def _bytes(self) -> memoryview | None:
        if self.host is not None:
            if self.value is not None and self.value.is_cpu:
                self.download()
            return self.host._bytes.toreadonly()
        if self.snapshot is not None and _has_moved(self.snapshot):
            self.snapshot = None
        if self.snapshot is None and self.value is not None:
            found = host_bytes(self.value)
            if self.nbytes <= LITTLE and self.value.is_cpu:
                return found  # a copy, which would not show what a program writes into ``tensor.torch``
            self.snapshot = found
        return self.snapshot

    # Device memory

    def placed(self, *, writable: bool = False) -> torch.Tensor:
        """This tensor's value where it is; one that was on no device yet is brought to the CPU."""
        return self.place(self.device or MLCDevice._cpu(), writable=writable)

    @really
    def place(self, device: MLCDevice, *, writable: bool = False) -> torch.Tensor:
        """This tensor's value on ``device``, brought there if it is not yet.

        On the CPU the value *is* the host memory. Memory that Python marks read-only is copied once the value is to be
        written: Apple writes into it regardless, and Python must not (a divergence).
        """
        target = device.torch_device
        if self.value is None or self.value.device != target:
            self.download()  # the device that is left holds what training made of the value
            source = self.host_view()
            if source is None:
                source = self.value if self.value is not None else allocate(self.descriptor, torch.zeros)
            self._rehome(source if source.device == target else upload(source, target))
        assert self.value is not None
        if writable and target.type == "cpu" and (self.host is None or self.host._readonly):
            self._rehome(self.value.clone() if self.host is not None else self.value)
            self.host = MLCTensorData._over(self.value)
        self.device = device
        return self.value

    def _rehome(self, value: torch.Tensor, host: MLCTensorData | None = None) -> None:
        """Make ``value`` the memory of this tensor, and of every torch parameter that looks into it; ``host``, where it is given,
        is the same for the program. Whatever strikes in the middle, all of them are where they were."""
        shown = [(parameter, known) for known in self._views if (parameter := known[0]()) is not None]
        before = (self.value, self.host, [(parameter, parameter.data) for parameter, _ in shown])
        now = (value, self.host if host is None else host, [(parameter, view(value)) for parameter, (_, view) in shown])
        undone_if_broken_off(lambda: self._lie_in(*now), lambda: self._lie_in(*before))
        self._views = [known for _, known in shown]
        for watcher in self._watchers:
            watcher()

    def _lie_in(self, value: torch.Tensor | None, host: MLCTensorData | None, parameters: list[Any]) -> None:
        self.changed()  # interrupted, too, graphs look again
        self.value, self.host, self.snapshot = value, host, None
        for parameter, memory in parameters:
            parameter.data = memory
        self.changed()

    def watched_by(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` whenever this tensor's memory has moved."""
        self._watchers.append(watcher)

    @really
    def follow(self, memory: torch.Tensor) -> None:
        """The same value lies in ``memory`` now: somebody has moved it there."""
        self._rehome(memory.view(self.shape))

    def show(self, parameter: torch.Tensor, view: View) -> None:
        """Let ``parameter`` look into this tensor's memory through ``view``, now and wherever the memory moves."""
        self._views = [known for known in self._views if known[0]() is not None]
        self._views.append((weakref.ref(parameter), view))
        if self.value is not None:
            parameter.data = view(self.value)

    def is_seen_by(self, parameter: torch.Tensor) -> bool:
        """Whether ``parameter``, which was shown, still looks into this tensor's memory."""
        for reference, view in self._views:
            if reference() is parameter and self.value is not None:
                memory = view(self.value)
                return (memory.data_ptr(), memory.dtype, memory.shape) == (
                    parameter.data_ptr(),
                    parameter.dtype,
                    parameter.shape,
                )
        return False

    @property
    def is_shown(self) -> bool:
        """Whether a torch parameter or buffer looks into this tensor's memory."""
        return bool(self._views) and any(reference() is not None for reference, _ in self._views)

    def publish(self, value: torch.Tensor, device: MLCDevice) -> None:
        """A graph computed this tensor."""
        self.value, self.device, self.snapshot, self.why_empty = value, device, None, None

    @really
    def take_copy(self, copy: torch.Tensor, device: MLCDevice) -> None:
        """A copy of data that was bound: the memory that the tensor had is the caller's alone from now on."""
        self.publish(copy, device)
        if self.host is not None:
            if device._kind != "cpu":
                with queueing(copy.device):
                    copy = copy.clone() if copy.is_cpu else copy.cpu()
            self.host = MLCTensorData._over(copy)

    def empty(self, why: str) -> None:
        """Nothing can be read of this tensor, and here is why."""
        self.value, self.snapshot, self.why_empty = None, None, why

    def samples_bound(self) -> SamplesBound | None:
        """Which part of what the tensor holds was ever bound; ``None`` for all of it."""
        if self.partly is not None and self.partly[0] is not self.value:
            self.partly = None  # all of it was bound since, or computed
        return None if self.partly is None else self.partly[1]

    def frozen(self, value: torch.Tensor | None) -> TensorState:
        """This tensor with a value that later work does not change: the same ID and label, memory of its own."""
        if value is None:
            return self
        made = object.__new__(TensorState)
        # Name by name, since a loop over them takes three times as long, and this may be done in every call.
        made.descriptor, made.dtype, made.shape, made.nbytes = self.descriptor, self.dtype, self.shape, self.nbytes
        made.tensor_id, made.label, made.version = self.tensor_id, self.label, self.version
        made.device, made.gradient_of, made.why_empty = self.device, self.gradient_of, self.why_empty
        made.optimizer_data, made.optimizer_device_data = self.optimizer_data, self.optimizer_device_data
        made.kept_states, made.waiting_state, made.steps = self.kept_states, self.waiting_state, self.steps
        made.bound_state = self.bound_state
        made.host, made.value, made.snapshot, made.bound, made.partly = None, value, None, None, None
        made._handle, made._views, made._watchers, made.is_frozen, made.is_parameter = None, [], [], True, False
        return made

    @really
    def upload(self, data: MLCTensorData, device: MLCDevice, who: str = "the data") -> None:
        """Bind ``data``, which a refusal calls ``who``, and bring it to ``device``."""
        self._must_hold(data, who)
        self.partly = None
        data = data._kept()
        view = data._view(self.dtype, self.shape)
        if device.torch_device.type == "cpu":
            self._rehome(view, data)
        elif self.value is not None and self.value.device == device.torch_device:
            self.host, self.snapshot = data, None
            with queueing(self.value.device):
                self.value.copy_(view)  # the address stays, so that captured work goes on reading it
            if not self.dtype.is_floating_point:
                self.changed()  # indices: graphs look at them before they reach the device
        else:
            self._rehome(upload(view, device.torch_device), data)
        self.device = device

    @really
    def download(self) -> None:
        """Bring the device's value back into host memory."""
        if self.value is None:
            if self.host is None and self.why_empty is not None:
                refuse(self.why_empty)
            return
        if self.host is None:
            if not self.value.is_cpu:
                self.snapshot = host_bytes(self.value)
            return
        if self.value.is_cpu:
            if not self.nbytes or self.host._address == self.value.data_ptr():
                return
            # Moved to memory that processes share, as torch does with what is sent to another one.
            if not self.host._readonly:
                self.host._bytes[: self.nbytes] = seen_as_bytes(self.value.detach().contiguous())[0]
                return
        with queueing(self.value.device):
            if self.host._readonly:
                self.host = MLCTensorData._over(self.value.detach().cpu().clone())
            else:
                self.host._view(self.dtype, self.shape).copy_(self.value.detach())

    @really
    def copy_to(self, target: memoryview, length: int) -> None:
        """Copy the first ``length`` bytes of the value into ``target``."""
        source = host_bytes(self.value) if self.value is not None else self.bytes()
        if source is None:
            refuse("the tensor holds no data")
        if not 0 <= length <= source.nbytes:
            refuse(f"length is {length} bytes, the tensor holds {source.nbytes}")
        if target.nbytes < length:
            refuse(f"length is {length} bytes, the buffer holds {target.nbytes}")
        if not length:
            return  # an empty buffer says that it is read-only
        if target.readonly:
            refuse("the buffer is read-only")
        target[:length] = source[:length]


@really
def upload(view: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of host memory on ``device``. The memory has been read when this returns, also where the copy is queued."""
    if device.type != "cuda" or view.device.type != "cpu":
        return view.to(device, copy=True)
    staged = staged_for(view, device)
    with queueing(device):
        return staged.to(device, non_blocking=True)  # torch keeps the staging memory until the copy is done


@really
def host_bytes(value: torch.Tensor) -> memoryview:
    """A torch tensor's elements as bytes: its own memory on the CPU, a copy elsewhere, and where they are few."""
    if not value.is_cpu or value.is_neg():
        with queueing(value.device):
            value = value.detach().cpu().contiguous().resolve_neg()
    elif not value.is_contiguous():
        value = value.contiguous()
    size = value.nbytes
    if not size:
        return memoryview(b"")
    if size <= LITTLE:  # a gradient of so few bytes may lie where the next pass writes
        return memoryview(memory_type(size).from_address(value.data_ptr()).raw)
    # A third of the time that a NumPy array would take.
    return memoryview(memory_at(value.data_ptr(), size, value)).cast("B").toreadonly()


def _has_moved(view: memoryview) -> bool:
    """Whether the tensor that ``host_bytes`` has shown the memory of lies elsewhere now."""
    return isinstance(view.obj, ctypes.Array) and view.obj.owner.data_ptr() != ctypes.addressof(view.obj)  # type: ignore[attr-defined]


@really
def allocate(descriptor: MLCTensorDescriptor, make: Callable[..., torch.Tensor] = torch.empty) -> torch.Tensor:
    """Host memory for a tensor; more than the machine has is refused rather than left to the system to kill us over."""
    if descriptor._nbytes > MAIN_MEMORY:
        refuse(f"shape {descriptor.shape} needs {descriptor._nbytes} bytes, this machine has {MAIN_MEMORY}")
    try:
        return make(descriptor._shape, dtype=TORCH_TYPES[descriptor._dataType], device="cpu")
    except (RuntimeError, MemoryError) as error:
        refuse(f"no memory for {descriptor._nbytes} bytes ({error})")
