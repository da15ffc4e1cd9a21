"""Where a graph runs, out of the devices that torch sees, and the platform's random seed."""

from __future__ import annotations

import functools
import os
import platform
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.enums import MLCDeviceType
from mlc_torch.forks import free_in_child_lock
from mlc_torch.refusals import log, refuse
from mlc_torch.spelling import MLCObject, declare, prop
from mlc_torch.spelling.arguments import describe

if TYPE_CHECKING:
    from mlc_torch.ranks import Ranks

QUEUEING = threading.RLock()
"""Held while work is given to a CUDA device, and while a recording of such work is made.

A recording of cuDNN's LSTM takes in streams that CUDA orders with its default stream, where everything else runs: what
another thread puts there meanwhile ends the recording, and fails itself.
"""


def queueing(device: torch.device) -> AbstractContextManager[Any]:
    """To be held while ``device`` is given work: nobody records meanwhile. Always the last lock that is taken."""
    return QUEUEING if device.type == "cuda" else nullcontext()


_met: Any = threading.local()


def meet(device: torch.device) -> None:
    """Let this thread have a GPU's context before it multiplies matrices: where a product is the first thing that a thread does
    there, as in a phase whose data another one has bound, torch 2.11 warns that there was none."""
    if device not in _met.__dict__:
        torch.cuda.current_stream(device).query()
        _met.__dict__[device] = True


def _present() -> list[torch.device]:
    if _cpu_stands_in():
        return [torch.device("cpu")]
    found = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        found.append(torch.device("mps", 0))
    return found


def _cpu_stands_in() -> bool:
    """With ``MLC_TORCH_GPU=cpu`` a program that insists on a GPU gets a device of that type that computes on the CPU."""
    wanted = os.environ.get("MLC_TORCH_GPU", "").strip()
    if wanted not in ("", "cpu"):
        refuse(f"MLC_TORCH_GPU={wanted!r} is not known; cpu is, for a GPU that computes on the CPU")
    if wanted:
        _tell_of_the_stand_in()
    return bool(wanted)


@functools.cache
def _tell_of_the_stand_in() -> None:
    log.warning("MLC_TORCH_GPU=cpu: what asks for a GPU is computed on the CPU")


def hardware(device: torch.device) -> tuple[str, int]:
    """What a device calls itself, and its memory in bytes."""
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        return about.name, about.total_memory
    return f"{platform.processor() or platform.machine()} {device.type.upper()}", MAIN_MEMORY


MAIN_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**62
"""Bytes of this machine; where nobody can be asked, more than any has."""


def offered() -> list[torch.device]:
    """The accelerators this process may use, best first. ``MLC_TORCH_DEVICE`` narrows the choice: ``cpu``, ``cuda:1``."""
    found = _present()
    allowed = os.environ.get("MLC_TORCH_DEVICE", "").strip()
    if not allowed:
        return found
    try:
        return _named(allowed, found)
    except RuntimeError:
        refuse(f"MLC_TORCH_DEVICE={allowed!r} names no device; use cpu, cuda, cuda:0 or mps")


def _named(name: torch.device | str, there: list[torch.device]) -> list[torch.device]:
    """Those that ``name`` means; torch's ``RuntimeError`` where it knows no such name."""
    wanted = torch.device(name)
    if str(wanted) != str(name):  # torch keeps 8 bits of an index, and makes cuda:0 of "cuda:256"
        return []
    return [d for d in there if d.type == wanted.type and wanted.index in (None, d.index)]


def _best_gpu() -> torch.device:
    gpus = offered()
    if not gpus:
        seen, limit = ", ".join(map(str, _present())), os.environ.get("MLC_TORCH_DEVICE")
        if seen:
            refuse(f"no GPU here: torch sees {seen}, which MLC_TORCH_DEVICE={limit} leaves out")
        refuse("no GPU here: torch sees neither CUDA nor MPS")
    return gpus[0]


_BY_NAME = {"cpu": " (MLCDevice.cpu())", **dict.fromkeys(("gpu", "cuda", "mps"), " (MLCDevice.gpu())")}


class MLCDevice(MLCObject):
    """A device that graphs are compiled for: the CPU, or a GPU that PyTorch can use (CUDA, else MPS)."""

    type = prop("MLCDeviceType", "The type of this device; for ``any``, the type that was picked.")
    actualDeviceType = prop("MLCDeviceType", "The type of the device that computes; the same as ``type``.")
    _kind: str
    torch_device: torch.device
    """Where torch computes. Ours."""
    _is_shared: bool
    _feeds_own_share = False
    _synchronizes_batch_norm = True

    @staticmethod
    def _meant_by(value: object) -> str:
        """The end of an error message: how a device is made of what was given in its place."""
        name = str(value).partition(":")[0].lower()
        if isinstance(value, MLCDeviceType):
            return f" (MLCDevice(type={value!r}))"
        return _BY_NAME.get(name, "")

    @property
    def feeds_own_share(self) -> bool:
        """Of several processes, whether each is given its own samples rather than the whole batch; set before compile."""
        return self._feeds_own_share

    @feeds_own_share.setter
    def feeds_own_share(self, value: bool) -> None:
        self._feeds_own_share = _truth("feeds_own_share", value)

    @property
    def synchronizes_batch_norm(self) -> bool:
        """Of several processes, whether batch normalization sees the samples of all of them; set before compile."""
        return self._synchronizes_batch_norm

    @synchronizes_batch_norm.setter
    def synchronizes_batch_norm(self, value: bool) -> None:
        self._synchronizes_batch_norm = _truth("synchronizes_batch_norm", value)

    @property
    def rank(self) -> int:
        """Which of the processes that share each batch this one is; 0 where there is one alone."""
        ranks = self._ranks
        return 0 if ranks is None else ranks.rank

    @property
    def rank_count(self) -> int:
        """How many processes share each batch."""
        ranks = self._ranks
        return 1 if ranks is None else ranks.world

    @property
    def _ranks(self) -> Ranks | None:
        """The processes that train together with this one, over this device."""
        if not self._is_shared:
            return None
        from mlc_torch.ranks import joined

        return joined()

    @prop("[any MTLDevice]")
    def gpuDevices(self):
        """The GPUs in use, as ``torch.device``; empty on the CPU."""
        return list(self._gpus)

    @classmethod
    def _on(cls, gpus: list[torch.device]) -> MLCDevice:
        kind = MLCDeviceType.gpu if gpus else MLCDeviceType.cpu
        if len(gpus) > 1:
            log.info(
                "of %d GPUs the first, %s, is used; torchrun --nproc-per-node=%d starts a process for each",
                len(gpus),
                gpus[0],
                len(gpus),
            )
        made = cls._make(type=kind, actualDeviceType=kind, gpus=tuple(gpus))
        made.__dict__["torch_device"] = place = gpus[0] if gpus else torch.device("cpu")
        made.__dict__["_kind"] = place.type  # which torch makes a new string of whenever it is asked
        made.__dict__["_is_shared"] = False  # here, since every call asks, and what the class has is found last
        return made

    @declare("init()", "init")
    @declare("static cpu() -> Self", "cpuDevice")
    def _cpu(cls):
        """The CPU."""
        return cls._on([])

    @declare("static gpu() -> Self?", "gpuDevice")
    def _gpu(cls):
        """The first GPU, or ``None`` where there is none."""
        return cls._on([_best_gpu()])

    @declare("static ane() -> Self?", "aneDevice")
    def _ane(cls):
        """The Apple Neural Engine: always ``None``, because PyTorch cannot reach it."""
        refuse("the Apple Neural Engine cannot be reached from PyTorch; use cpu() or gpu()")

    @declare("init?(type: MLCDeviceType)", "deviceWithType:")
    @declare(
        "init?(type: MLCDeviceType, selectsMultipleComputeDevices: Bool)",
        "deviceWithType:selectsMultipleComputeDevices:",
    )
    def _of_type(cls, type, selectsMultipleComputeDevices=False):
        """A device of this type, or ``None`` where there is none; ``any`` picks the best one present."""
        if type is MLCDeviceType.ane:
            return cls._ane()
        if selectsMultipleComputeDevices and _is_one_of_several():
            return cls._of_this_rank([] if type is MLCDeviceType.cpu else offered(), type is MLCDeviceType.gpu)
        if type is MLCDeviceType.cpu:
            return cls._cpu()
        gpus = offered() if type is MLCDeviceType.any else [_best_gpu()]
        if selectsMultipleComputeDevices:
            return cls._on(offered())
        return cls._on(gpus[:1])

    @declare("init?(gpuDevices gpus: [any MTLDevice])", "deviceWithGPUDevices:")
    def _of_gpus(cls, gpus):
        """These GPUs, each a ``torch.device``, its name, or an index."""
        if not gpus:
            refuse("gpuDevices is empty")
        named = [_named_gpu(gpu) for gpu in gpus]
        if len(named) > 1 and _is_one_of_several():
            return cls._of_this_rank(named, True)
        return cls._on(named)

    @classmethod
    def _of_this_rank(cls, gpus: list[torch.device], needs_gpu: bool) -> MLCDevice:
        """The device of this process among those that torchrun started, which join each other here."""
        from mlc_torch.ranks import join, place_on_machine

        if needs_gpu and not gpus:
            _best_gpu()
        if any(gpu.type == "mps" for gpu in gpus):
            refuse(f"several processes share CUDA devices or the CPU, not {gpus[0]}; use MLCDeviceType.cpu")
        if gpus:
            local = place_on_machine(len(gpus))
            shares = gpus[0].type != "cuda"
            if local >= len(gpus) and not shares and os.environ.get("MLC_TORCH_RANKS_BACKEND", "nccl") == "nccl":
                refuse(f"this is process {local} of its machine, which offers {len(gpus)} GPUs; start as many at most")
            gpus = [gpus[local % len(gpus)]]
        made = cls._on(gpus)
        join(made.torch_device)
        made._is_shared = True
        return made

    def _shown(self):
        return ["type", *(["gpuDevices"] if self._gpus else [])]


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"MLCDevice.{name}: expected a Bool, got {value!r}")
    return value


def _is_one_of_several() -> bool:
    """Whether torchrun started this process, or its program has joined others itself; asked where most are alone."""
    torch_s = sys.modules.get("torch.distributed")
    has_group = torch_s is not None and torch_s.is_available() and torch_s.is_initialized()
    if "WORLD_SIZE" not in os.environ and not has_group:
        return False
    from mlc_torch.ranks import was_started

    return was_started()


def _named_gpu(name: torch.device | str | int) -> torch.device:
    there = offered()
    if isinstance(name, int):
        if not 0 <= name < len(there):
            refuse(f"gpuDevices names GPU {name}; there are {len(there)}")
        return there[name]
    try:
        meant = _named(name, there)
    except RuntimeError:
        refuse(f"gpuDevices names {name!r}, which torch does not know")
    if not meant:
        refuse(f"gpuDevices names {str(name)!r}; there is {', '.join(map(str, there)) or 'no GPU'}")
    return meant[0]


class MLCPlatform(MLCObject):
    """The random seed of the library, which random initializers and dropout follow."""

    @declare("static setRNGSeedTo(_ seed: NSNumber)", "setRNGSeedTo:")
    def _set_seed(cls, seed):
        """Set the seed. PyTorch's own random generators are not touched."""
        if not isinstance(seed, int):
            refuse(f"the seed must be a whole number, got {seed}")
        randomness.reseed(int(seed))

    @declare("static getRNGseed() -> NSNumber?", "getRNGseed")
    def _get_seed(cls):
        """The seed that was set, or ``None``."""
        return randomness.seed


Position = tuple[int | None, dict[torch.device, torch.Tensor]]
"""The platform's seed, and the state of each device's stream."""


class Randomness:
    """The platform's random numbers, apart from torch's own generators, which nothing here touches.

    Once a seed is set, each random initializer restarts from it (measured, evidence.md C9), while dropout draws on
    from one running stream a device. Without a seed both start from fresh entropy.
    """

    def __init__(self) -> None:
        self.seed: int | None = None
        self._streams: dict[torch.device, torch.Generator] = {}
        self._lock = free_in_child_lock()  # a signal handler may draw numbers, too, in the middle of this

    # A block that holds the lock stands on the line of its ``with``: see ``Locks`` in graph/locks.py.

    def reseed(self, seed: int | None) -> None:
        checked = None if seed is None else checked_seed(seed)  # before anything follows it
        with self._lock: self._reseed(checked)  # noqa: E701  # fmt: skip

    def _reseed(self, seed: int | None) -> None:
        self.seed = seed
        for stream in self._streams.values():
            start(stream, seed)

    def position(self) -> Position:
        """The seed, and where every stream stands."""
        with self._lock: return self._position()  # noqa: E701  # fmt: skip

    def _position(self) -> Position:
        # By itself: from Python 3.12 on the steps of a comprehension are lines of the function that it stands in.
        return self.seed, {device: stream.get_state() for device, stream in self._streams.items()}

    def go_back(self, position: Position) -> None:
        """To where all this stood. It can be repeated."""
        with self._lock: self._go_back(*position)  # noqa: E701  # fmt: skip

    def _go_back(self, seed: int | None, states: dict[torch.device, torch.Tensor]) -> None:
        self.seed = seed
        for device, stream in self._streams.items():
            if device in states:
                stream.set_state(states[device])
            else:  # made since; whoever holds it keeps it, and it begins as one that is made now
                start(stream, seed)

    def begin_in_child(self) -> None:
        """After a fork: without a seed nobody draws what the parent draws."""
        if self.seed is None:
            for device, stream in self._streams.items():
                if device.type == "cpu":  # a forked child has no CUDA
                    start(stream, None)

    def restarted(self) -> torch.Generator:
        """The generator of one random initializer."""
        return start(torch.Generator(), self.seed)

    def stream(self, device: torch.device) -> torch.Generator:
        """The running stream that dropout on ``device`` draws from."""
        with self._lock: return self._stream(device)  # noqa: E701  # fmt: skip

    def _stream(self, device: torch.device) -> torch.Generator:
        if device not in self._streams:
            self._streams[device] = start(torch.Generator(device), self.seed)
        return self._streams[device]


def checked_seed(seed: Any) -> int:
    """A seed that torch's generators take."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise TypeError(f"the seed must be a whole number, got {describe(seed)}")
    number = int(seed)
    if not -(2**63) <= number < 2**64:
        refuse(f"the seed must lie between -2**63 and 2**64 - 1, got {number}")
    return number


def start(generator: torch.Generator, seed: int | None) -> torch.Generator:
    """Begin again from ``seed``, or from fresh entropy."""
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)


randomness = Randomness()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=randomness.begin_in_child)
