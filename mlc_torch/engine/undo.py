"""Going back: what a pass was given, and what a step that ended in the middle must find again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeVar

import torch

from mlc_torch.engine.as_written import as_written
from mlc_torch.engine.gear import Tensors
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import set_training
from mlc_torch.engine.plan import Plan
from mlc_torch.going_back import undone
from mlc_torch.layers.noise import Noise
from mlc_torch.refusals import in_one_line, log, pass_on_signals
from mlc_torch.tensor.addresses import LITTLE
from mlc_torch.torch_private.lists import copy_all
from mlc_torch.torch_private.lstm import own_weights_again
from mlc_torch.torch_private.modes import ambience, restore_ambience

T = TypeVar("T")

NoiseStates = list[tuple[torch.Generator, torch.Tensor]]
"""Random streams, and where they stood."""


class Kept(NamedTuple):
    """What a pass was given: with it, results and gradients that nobody had asked for can still be computed."""

    feeds: Tensors
    constants: Tensors
    noise: NoiseStates
    mode: Mode


Shapes = tuple[torch.Size, ...]


def shapes_of(feeds: Tensors) -> Shapes:
    return tuple([f.shape for f in feeds])


def first_of(memory: torch.Tensor | None, feed: torch.Tensor) -> torch.Tensor:
    """What a pass was fed, at the beginning of ``memory`` if there is any, else where it is."""
    if memory is None or memory is feed:
        return feed
    return (memory if memory.shape == feed.shape else memory[: len(feed)]).copy_(feed)


_MUCH = 1 << 20
_FIRST_RUNS = 8


def inferences_kept(size: int) -> float:
    """How many inferences keep a copy of ``size`` bytes of inputs, for results that somebody asks for later.

    The program may write into its arrays before it asks. Who looks into a network does so after its first runs, and a
    copy of much data in every run would be felt: so all of them for little data, else the first ones.
    """
    return math.inf if size <= LITTLE else _FIRST_RUNS if size <= _MUCH else 0


def noise_states(noises: Iterable[Noise], device: torch.device) -> NoiseStates:
    """Where the random streams stand that these draw from, each stream once."""
    streams = {id(s): s for noise in noises for s in [noise.stream(device)]}
    return [(stream, stream.get_state()) for stream in streams.values()]


_steps = itertools.count()
_newest: dict[int, int] = {}
"""Which step was the last to begin with the running statistics at an address, or with a random stream."""


class Undo:
    """Running statistics and random streams as they were when a training step began.

    A step of another graph over the same layers may begin before this one ends, and stands whatever becomes of this one.
    """

    def __init__(self, plan: Plan) -> None:
        self._buffers = list(plan.buffers)
        self._places: list[int] = []
        self._kept = [b.detach().clone() for b in self._buffers]
        self._noise: NoiseStates = []
        self._number = -1
        self._is_set = False
        self.step = 0
        """The update that was next when the training step began."""

    def keep(self, noise: NoiseStates, step: int) -> None:
        self._is_set, self._noise, self.step = False, noise, step
        if self._kept:
            self._places = [b.data_ptr() for b in self._buffers]
            copy_all(self._kept, self._buffers)
        self._number = next(_steps)
        _newest.update(dict.fromkeys([*self._places, *(id(stream) for stream, _ in noise)], self._number))
        self._is_set = True

    def forget(self) -> None:
        self._is_set = False

    def buffers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The running statistics, and what they were."""
        return self._buffers, self._kept

    def restore(self) -> None:
        """Go back. Interrupted, it can be repeated: only at its end there is nothing left to go back to."""
        if not self._is_set:
            return
        # Others were bound anew in the middle of the step, and hold what the program wants.
        still = [
            b.data_ptr() == place and _newest.get(place) == self._number
            for b, place in zip(self._buffers, self._places, strict=True)
        ]
        noise = [(stream, state) for stream, state in self._noise if _newest.get(id(stream)) == self._number]
        try:
            _put_back([*compress(self._buffers, still)], [*compress(self._kept, still)], noise)
        except Exception as error:  # noqa: BLE001 - why the step ended is what the program has to hear
            pass_on_signals(error)
            log.warning("what a step that ended in the middle had moved could not be put back: %s", in_one_line(error))
        self._is_set = False


def leaving_no_trace(plan: Plan, noise: NoiseStates, work: Callable[[], T]) -> T:
    """What ``work`` gives if dropout draws what it drew at ``noise``; statistics and streams are then as if nothing had happened.

    Statistics are exchanged for copies: a pass that waits for its gradient may have kept them, and nobody has written to them.
    """
    modules = {id(m): m._buffers for root in plan.modules for m in root.modules()}.values()
    own = [(held, name, b) for held in modules for name, b in held.items() if b is not None]
    copies, kept = ({id(b): b.clone() for _, _, b in own} for _ in range(2))
    written = {id(b): b._version for _, _, b in own}
    streams = [(stream, stream.get_state()) for stream, _ in noise]
    around = ambience()

    def go_back() -> None:
        restore_ambience(around)
        for held, name, b in own:
            held[name] = b
        others = [b for _, _, b in own if b._version != written[id(b)]]  # which a module reaches in a way of its own
        _put_back(others, [kept[id(b)] for b in others], streams)

    def in_their_place() -> T:
        for held, name, b in own:
            held[name] = copies[id(b)]
        for stream, state in noise:
            stream.set_state(state)
        return work()

    return undone(in_their_place, go_back)


def _put_back(buffers: Sequence[torch.Tensor], kept: Sequence[torch.Tensor], noise: NoiseStates) -> None:
    with torch.no_grad():
        for buffer, old in zip(buffers, kept, strict=True):
            buffer.copy_(old)
    for stream, state in noise:
        stream.set_state(state)


def way_back(plan: Plan, training: set_training) -> Callable[[], None]:
    """What puts everything back that a recording changes for its time.

    Its blocks do that too, but a Ctrl-C, or what a program's signal handler raises, may strike between a block and the
    ``__exit__`` that ends it. And who called may go on, content with less than a recording.
    """
    before, depth = ambience(), as_written.depth()
    modules = [m for root in plan.modules for m in root.modules()]
    held: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for m in modules:
        held += [(m._parameters, dict(m._parameters)), (m._buffers, dict(m._buffers))]

    def go_back() -> None:
        restore_ambience(before)
        as_written.settle(depth)
        for tensors, own in held:
            tensors.update(own)  # torch's functional_call may have left its stand-ins there
        for root in plan.modules:
            own_weights_again(root)
        for step in plan.steps:
            for noise in step.noises:
                noise.release()
        training.__exit__()

    return go_back
