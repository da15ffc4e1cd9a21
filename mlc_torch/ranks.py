"""The processes that train one graph together, over torch.distributed. The only room that talks to other processes.

It is loaded where a device that selects several compute devices is made under torchrun, and nowhere else.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from mlc_torch.operations import operation
from mlc_torch.refusals import MLCRefusal, RanksLost, log, refuse

_STARTED_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_DEFAULT_TIMEOUT = 60.0


def was_started() -> bool:
    """Whether torchrun, or something that speaks as it does, started this process, or its program has joined others itself."""
    return all(os.environ.get(name) for name in _STARTED_BY_TORCHRUN) or _has_joined_others()


def _has_joined_others() -> bool:
    return dist.is_initialized() and dist.get_world_size() > 1


def place_on_machine(gpus: int) -> int:
    """Which of the processes of its machine this is. Where nobody has said it, each machine has one for each of its GPUs."""
    said = os.environ.get("LOCAL_RANK")
    if said is None and _has_joined_others():
        return dist.get_rank() % gpus
    return int(said or 0)


def timeout() -> float:
    """How many seconds a process waits for another: ``MLC_TORCH_RANKS_TIMEOUT``."""
    given = os.environ.get("MLC_TORCH_RANKS_TIMEOUT", "").strip()
    try:
        seconds = float(given) if given else _DEFAULT_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        refuse(f"MLC_TORCH_RANKS_TIMEOUT must be a number of seconds above 0, got {given!r}")
    return seconds


class Channel(NamedTuple):
    """What the messages of a graph travel through: three groups of torch's.

    A message that meets one of another size ends a process that speaks gloo. So ranks that are at different calls, or at
    different graphs, must not meet at all: then they wait in vain, and are told.
    """

    forward: Any
    """For the sums within a forward pass, and for what a forward pass by itself ends with."""
    backward: Any
    """For the sums within a backward pass."""
    gradients: Any
    """For gradients, which are on their way while the backward pass goes on."""


_WAITS_WITHOUT_PYTHON_S_LOCK = "2.13"
"""The first torch of which we know that a group that ends lets others run; in 2.6 it does not."""

_CHANNELS = 4
"""Each takes threads and sockets. Of more graphs than these some share one."""


class Ranks:
    """Who takes part: this process is ``rank`` of ``world``."""

    def __init__(self, seconds: float, device: torch.device, store: Any = None, outlives_all: bool = False) -> None:
        self.rank, self.world, self.backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
        self._limit = timedelta(seconds=seconds)
        self._store = store
        """Where ranks leave words for each other; a program that joins them by itself has its own, and we none."""
        self._notes = store if outlives_all else None
        """Where a rank that gives up says at what, for those that give up after it."""
        self._calls = 0
        """How often the ranks were to meet: between the same two meetings they are at the same place of the program."""
        self._saved: dict[str, tuple[int, int]] = {}
        """The last save of each file: behind how many meetings, and which of those behind that one."""
        # Words go between hosts, whatever the tensors do.
        self._words = dist.new_group(timeout=self._limit, backend="gloo")
        self._channels = [self._new_channel()]
        self._channel = self._channels[0]
        if self.is_recordable:
            # What connects at its first use has to have been used before a CUDA graph is recorded.
            for group in (self._channel.forward, self._channel.gradients):
                dist.all_reduce(torch.zeros(1, device=device), group=group)
        self.lost: RanksLost | None = None
        self.owed: Any = None
        """The call under way, as long as the others wait for this rank's part of it."""
        self.doing = "a sum"
        """What this rank last began, in words."""
        self.graphs = 0
        """How many graphs were compiled: all ranks compile the same ones, and so give them the same numbers."""
        self.lock = threading.RLock()
        """Held for a call: two graphs at a time would mix up what they send."""

    def _new_group(self) -> Any:
        return dist.new_group(timeout=self._limit)

    def _new_channel(self) -> Channel:
        if self.is_recordable:  # a communicator more would take memory of the GPU
            return Channel(dist.group.WORLD, dist.group.WORLD, self._new_group())
        # None is the whole world's: a program that made that one gave it another limit, and may send through it.
        return Channel(self._new_group(), self._new_group(), self._new_group())

    @property
    def is_recordable(self) -> bool:
        """Whether a CUDA graph can hold the sums. Then nothing that the others said is known before it has run."""
        return self.backend == "nccl"

    def rows(self, batch: int) -> tuple[int, int]:
        """Where this process's share of a batch begins, and how many samples it has."""
        first = batch * self.rank // self.world
        return first, batch * (self.rank + 1) // self.world - first

    def connect(self, number: int) -> None:
        """Open the channel of the graph of this number, on all ranks together."""
        while not self.is_recordable and len(self._channels) <= number % _CHANNELS:
            with self.telling():
                self._channels.append(self._new_channel())

    def part(self) -> None:
        """Let go of the groups, whose threads end with them: one that still runs when Python has ended takes the process with it
        ("terminate called without an active exception"; torch 2.13, busy machine: one of 32 launches, and none of 64 since)."""
        if torch.__version__ < _WAITS_WITHOUT_PYTHON_S_LOCK:
            # It would wait for a thread that waits for that lock, to let go of what it has just sent (2 of 28 times 17 pairs).
            time.sleep(0.2)
        self._words, self._channels = None, []
        del self._channel

    def enter(self, number: int, call: str) -> None:
        """From here on messages are those of ``call`` of the graph of this number."""
        self._calls += 1
        self._channel = self._channels[0 if self.is_recordable else number % _CHANNELS]
        self.doing = f"{call} of graph {number + 1}"

    def start_sum(self, flat: torch.Tensor, forward: bool = False) -> Any:
        """Begin to add up ``flat`` over all processes, in place; ``wait`` ends it. ``forward``: behind a forward pass."""
        group = self._channel.forward if forward else self._channel.gradients
        with self.telling():
            return dist.all_reduce(flat, group=group, async_op=True)

    def wait(self, work: Any) -> None:
        with self.telling():
            work.wait()

    def sum_inside(self, x: torch.Tensor, backward: bool) -> None:
        """Add up ``x`` over all processes, in place, in the middle of a phase."""
        with self.telling():
            dist.all_reduce(x, group=self._channel.backward if backward else self._channel.forward)

    def from_first(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give every process the values of rank 0."""
        group = self._channels[0].forward
        with self.telling():
            works = [dist.broadcast(t, group=group, group_src=0, async_op=True) for t in tensors]
            for work in works:
                work.wait()

    def told(self, what: Any) -> list[Any]:
        """What each process says, by rank."""
        self._calls += 1
        said: list[Any] = [None] * self.world
        with self.telling():
            dist.all_gather_object(said, what, group=self._words)
        return said

    def agree(self, what: list[str] | None) -> bool:
        """Refuse on every rank, with the first line that differs, unless all ranks say the same.

        A rank that could not get so far says ``None``, so that the others do not wait for it, and is told whether rank 0
        did not either.
        """
        said = self.told(what)
        silent = [r for r, lines in enumerate(said) if lines is None]
        if silent and what is not None:
            refuse_all(f"rank {silent[0]} refused, so no rank goes on; its own log says why")
        for other, lines in enumerate(said):
            if silent or lines == said[0]:
                continue
            pairs = [*zip(said[0], lines, strict=False), (f"{len(said[0])} lines", f"{len(lines)} lines")]
            here, there = next((a, b) for a, b in pairs if a != b)
            refuse_all(f"the ranks compile different graphs: rank 0 has {here!r}, rank {other} has {there!r}")
        return 0 in silent

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Around a checkpoint that rank 0 writes and the others leave to it: whoever loads it waits until it is there."""
        file = os.path.realpath(path)
        calls, number = self._saved.get(file, (0, 0))
        # Rank 0 may save for itself as well: a mere count of saves would not say which of them all ranks have come to.
        self._saved[file] = save = self._calls, number + 1 if calls == self._calls else 1
        self._say_of(file, save, _BEGUN)
        try:
            yield
        finally:
            self._say_of(file, save, _DONE)  # as well as it went: who waits can only load what is there

    def _say_of(self, file: str, save: tuple[int, int], how: int) -> None:
        if self._store is None or self.rank or self.lost is not None:
            return
        with suppress(RuntimeError):  # the file is what matters; whoever keeps the store may be gone
            self._store.set(_SAVED + file, f"{save[0]} {save[1]} {how}")

    def await_written(self, path: Path) -> None:
        """Wait until rank 0 has done the last save of this file that this rank has come to, or the limit is over.

        Whoever loads what all have just saved would find the one before it. (A rank may have asked for one that rank 0 did not
        want; then the last one is what all load.)
        """
        if self._store is None or not self.rank:
            return
        until = time.monotonic() + self._limit.total_seconds()
        self.doing = "load_checkpoint"
        with self.telling():
            while not self._is_written(os.path.realpath(path)):
                if time.monotonic() > until:
                    log.error(
                        "rank 0 has not written %r since this rank asked for it; it is loaded as it is", str(path)
                    )
                    return
                time.sleep(0.02)

    def _is_written(self, file: str) -> bool:
        awaited = self._saved.get(file)
        if not self._store.check([_SAVED + file]):
            return awaited is None
        *save, how = map(int, self._store.get(_SAVED + file).split())
        return how == _DONE and (awaited is None or tuple(save) >= awaited)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What torch.distributed raises becomes ``RanksLost``, now and from now on."""
        if self.lost is not None:
            raise RanksLost(*self.lost.args)
        try:
            yield
        except RuntimeError as error:
            self.lost = _lost(f"rank {self.rank} of {self.world}, in {self.doing}", error, self._others(error))
            raise self.lost from error
        except (ValueError, TypeError) as error:  # the latter from torch 2.6, as it is about to tell of the former
            if dist.is_initialized() and not any(_UNKNOWN in str(e) for e in (error, error.__context__)):
                raise
            # Not for good: it may be made again. (Ours outlive it, but for torch 2.6.)
            raise RanksLost(
                f"rank {self.rank} of {self.world}, in {self.doing}: the program has destroyed torch.distributed's process "
                "group, over which the ranks meet; destroy it behind the last call, or start again from the last checkpoint"
            ) from error

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Around what the others wait for. An error there is theirs too, or they are told; Ctrl-C is this rank's alone."""
        try:
            yield
        except Exception:
            raise
        except BaseException as interruption:
            self.break_off(interruption)
            raise

    def break_off(self, error: BaseException) -> None:
        """This rank leaves a call that the others wait for, for good: it cannot know how far they are."""
        how = type(error).__name__
        self.lost = RanksLost(
            f"rank {self.rank} of {self.world} was ended by {how} in {self.doing}, which the others wait for; "
            "start again from the last checkpoint"
        )
        self.leave_note(f"was ended by {how} in {self.doing}")

    def leave_note(self, what: str) -> None:
        """Say to those that will miss this rank what it did last."""
        if self._notes is not None:
            with suppress(RuntimeError):  # whoever keeps the notes may be gone too
                self._notes.set(f"left/{self.rank}", what)

    def _others(self, error: RuntimeError) -> str:
        """What those did that gave up before, in words."""
        self.leave_note(f"{_WAITED} {self.doing}")
        if self._notes is None:
            return ""
        keys = {rank: f"left/{rank}" for rank in range(self.world) if rank != self.rank}
        with suppress(RuntimeError):
            for _ in range(20 if "imed out" in str(error) else 0):  # then the others may be about to give up as well
                if self._notes.check(list(keys.values())):
                    break
                time.sleep(0.05)
            said = {rank: self._notes.get(key).decode() for rank, key in keys.items() if self._notes.check([key])}
            # Who waited for the same call as this rank did not keep it waiting.
            return ", ".join(f"rank {n} {what}" for n, what in said.items() if what != f"{_WAITED} {self.doing}")
        return ""


def refuse_all(reason: str) -> NoReturn:
    """Refuse what every rank refuses alike: one log line is enough."""
    why = MLCRefusal(reason)
    why.is_common = True
    raise why


class _OneVoice(logging.Filter):
    """Rank 0 speaks for all. What another rank alone was refused, and errors, it says itself, with its rank."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args if isinstance(record.args, tuple) else ()
        own = any(isinstance(a, MLCRefusal) and not a.is_common for a in args)
        if record.levelno < logging.ERROR and not own:
            return False
        record.msg = f"rank {self.rank}: {record.msg}"
        return True


_UNKNOWN = "is not registered"
"""What torch says of a group where the one of all processes has been destroyed, and there is another."""
_WAITED, _ENDED = "waited in", "has ended"
_SAVED = "checkpoint "
_BEGUN, _DONE = range(2)


def _lost(who: str, error: Exception, others: str = "") -> RanksLost:
    why = str(error).strip().partition("\n")[0].partition(" This is typically")[0]
    why = re.sub(r"^\[[^]]*\] ", "", why)  # the line of gloo's source
    remedy = "start again from the last checkpoint"
    if _ENDED in others:
        remedy = f"look at its output, give all ranks the same number of batches, and {remedy}"
    elif _WAITED in others:
        remedy = f"make the same calls in the same order on all ranks, and {remedy}"
    return RanksLost(f"{who}: {others or 'another process is gone or too late'} ({why}); {remedy}")


_joined: Ranks | None = None
_joining = threading.Lock()


def joined() -> Ranks | None:
    return _joined


def join(device: torch.device) -> Ranks:
    """Join the processes that torchrun started: over nccl where ``device`` is a CUDA device, else over gloo.

    ``MLC_TORCH_RANKS_BACKEND`` names another of torch's backends. A program that has joined them itself has chosen one.
    """
    global _joined
    with _joining:
        if _joined is None:
            _joined = _join(device)
            log.info("%d processes train together, over %s", _joined.world, _joined.backend)
            if _joined.rank:
                log.addFilter(_OneVoice(_joined.rank))
        return _joined


def _join(device: torch.device) -> Ranks:
    seconds = timeout()
    limit = timedelta(seconds=seconds)
    store = None
    # torchrun keeps one store for all attempts, and what the last one left there leads nowhere.
    own_part = f"mlc_torch/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        if not dist.is_initialized():
            store, rank, world = next(rendezvous("env://", timeout=limit))
            store = PrefixStore(own_part, store)
            backend = os.environ.get("MLC_TORCH_RANKS_BACKEND") or ("nccl" if device.type == "cuda" else "gloo")
            # nccl connects at once, since nothing can be connected while a CUDA graph is recorded.
            at_once = device if backend == "nccl" else None
            dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit, device_id=at_once)
            atexit.register(_leave)
        else:
            with suppress(AttributeError):  # no promise of torch's
                store = PrefixStore(own_part, dist.distributed_c10d._get_default_store())
        # Elsewhere than with torchrun the first process keeps it, and whoever outlives that one would find nobody.
        outlives_all = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return Ranks(seconds, device, store, outlives_all)
    except RuntimeError as error:
        rank = dist.get_rank() if dist.is_initialized() else os.environ.get("RANK")
        raise _lost(f"rank {rank} could not join the others", error) from error


def _leave() -> None:
    # With a process lost there is nobody to take leave of, and torch would wait.
    if dist.is_initialized() and (_joined is None or _joined.lost is None):
        if _joined is not None:
            _joined.leave_note(_ENDED)
            _joined.part()
        dist.destroy_process_group()


# A sum that autograd and the recorder see as one operation

Sums = tuple[list[torch.Size], list[torch.Size]]
"""The shapes of the sums of a forward and of a backward pass, in order."""

_silent: list[Sums | None] = []
_taken = [0, 0]


@contextmanager
def silently() -> Iterator[Sums]:
    """Within this block nobody is asked: recording must not need the others. Gives the sums that would be taken."""
    sums: Sums = ([], [])
    _silent.append(sums)
    try:
        yield sums
    finally:
        _silent.pop()


@contextmanager
def recorded() -> Iterator[None]:
    """Within this block sums are written into a recording, also where nobody is asked otherwise: nothing is sent yet."""
    _silent.append(None)
    try:
        yield
    finally:
        _silent.pop()


def begin_sums() -> None:
    """Count the sums of a call from here on."""
    _taken[:] = 0, 0


def count_sums(forward: int, backward: int) -> None:
    """A recording has taken these, which nobody could count."""
    _taken[:] = forward, backward


def sums_taken() -> tuple[int, int]:
    """How many sums of the forward and of the backward pass this call has come to."""
    return _taken[0], _taken[1]


@operation("sum_over_ranks(Tensor x, bool backward) -> Tensor", like=lambda x, backward: torch.empty_like(x))
def _sum_over_ranks(x: torch.Tensor, backward: bool) -> torch.Tensor:
    total = x.contiguous().clone()
    silent = _silent[-1] if _silent else None
    if silent is not None:
        silent[backward].append(total.shape)
    elif _joined is not None:
        _taken[backward] += 1
        _joined.sum_inside(total, backward)
    return total


sum_over_ranks = torch.ops.mlc_torch.sum_over_ranks
# Every rank takes every sum, also one whose result it has no use for.
torch.fx.node.has_side_effect(sum_over_ranks.default)
