"""A second lane of work on a GPU: gradients that nobody waits for are computed beside those that the layers before need.

A backward pass is a chain of the gradients of what lies between the layers, and few of its kernels fill a GPU. The gradients
of weights hang off that chain: nothing but the update reads them. They run on a stream of their own, and the recording
joins both at its end. The same kernels compute the same numbers. (H200, a training step with and without, ms: LeNet .24 and
.29, ResNet-20 2.54 and 2.87, a transformer block .23 and .28.)
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import cuda, fx

from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.recorder import NotRecordable
from mlc_torch.engine.recording import stream_for
from mlc_torch.engine.standing import is_made_once
from mlc_torch.engine.trace import Recording
from mlc_torch.engine.views import bytes_of, is_view, written_by

aten = torch.ops.aten

_AHEAD = 4
"""So many pieces of work the side lane may lag behind; what they read is held as long."""
_LAYS_OUT = aten.clone.default
"""What may follow a gradient that hangs off the chain."""
_PARTED = {aten.convolution_backward.default: 10, aten.native_layer_norm_backward.default: 7}
"""Operations that compute gradients of the source and of the weights, each by kernels of its own, and which of their arguments
says what is asked for."""


class Laned(Planned):
    """The planned phases for a GPU, to be recorded: the backward one has a second lane."""

    def __init__(self, plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode) -> None:
        self._lane = Lane(plan.device)
        super().__init__(plan, feeds, constants, injected, mode)

    def _arranged(self, recording: Recording) -> Recording:
        if any(node.target is aten._cudnn_rnn.default for node in recording.forward):
            raise NotRecordable("cuDNN's LSTM wants its weights side by side")
        return replace(recording, backward=set_aside(recording.backward, self._lane))

    def gradient(self, injected: Tensors) -> Gradients:
        self._lane.begin()
        made = super().gradient(injected)
        self._lane.join()
        return made

    def settle(self) -> None:
        """It has run once, and is recorded next."""
        self._lane.settle()


class Lane:
    """A stream beside the one that is current."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._own: cuda.Stream | None = None
        self._running: deque[tuple[cuda.Event, Any]] = deque()
        self._most = 0
        """The largest piece of memory that its work has asked for, in bytes."""

    @property
    def _stream(self) -> cuda.Stream:
        """Made when it is needed: there are few of them."""
        if self._own is None:
            self._own = stream_for(self, self._device)
        return self._own

    def begin(self) -> None:
        """Forget what a recording that broke off has left."""
        self._running.clear()

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Queue work behind all that the current stream has so far.

        What the work reads may be given to somebody else as soon as it is let go of, so it is held until the current stream
        has waited for the work.
        """
        current = cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with cuda.stream(self._stream):
            if self._most and not self._running:
                # Convolutions want working memory that grows on the way back; what is there for the largest does for all.
                torch.empty(self._most, dtype=torch.uint8, device=self._stream.device)
            made = function(*args, **kwargs)
        self._running.append((self._stream.record_event(), (args, kwargs)))
        if len(self._running) > _AHEAD:
            done, _ = self._running.popleft()
            current.wait_event(done)
        return made

    def join(self) -> None:
        """Let the current stream wait for everything."""
        if self._running:
            cuda.current_stream(self._stream.device).wait_stream(self._stream)
        self._running.clear()

    def settle(self) -> None:
        """Learn from what has run so far how much memory the work wants at most."""
        if self._own is None:
            return
        try:
            segments = cuda.memory_snapshot()
        except RuntimeError:  # not every allocator of torch's can tell
            return
        own = [s for s in segments if s["stream"] == self._own.cuda_stream and s["segment_type"] == "large"]
        own = [s for s in own if tuple(s.get("segment_pool_id", (0, 0))) == (0, 0)]  # not of a recording that is gone
        self._most = max((b["size"] for s in own for b in s["blocks"] if b["state"] == "inactive"), default=0)


class Aside:
    """An operation on a lane, called as the operation itself."""

    def __init__(self, lane: Lane, operation: Callable[..., Any]) -> None:
        self._lane, self._operation = lane, operation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._lane.run(self._operation, args, kwargs)


def set_aside(nodes: Sequence[fx.Node], lane: Lane) -> list[fx.Node]:
    """The nodes of a backward pass, those that hang off its chain on ``lane`` and as early as they can begin.

    Where one writes into what others see, as torch's gradient of an assignment to a part does, all stay as they are.
    """
    if any(_writes_what_others_see(node) for node in nodes):
        return list(nodes)
    nodes = [part for node in nodes for part in _parted(node)]
    goes_on: set[fx.Node] = set()
    for node in reversed(nodes):
        if any(user in goes_on or (_computes(user) and user.target is not _LAYS_OUT) for user in node.users):
            goes_on.add(node)
    chain = [number for number, node in enumerate(nodes) if _computes(node) and node in goes_on]
    if not chain:
        return nodes  # there would be nothing beside the others
    hanging = {node for node in nodes if _computes(node) and node not in goes_on}
    behind = [node for node in nodes[chain[-1] :] if node in hanging and hanging.isdisjoint(node.all_input_nodes)]
    if behind:
        hanging.remove(max(behind, key=_reads))  # the chain has nothing else left to do
    turns: dict[fx.Node, int] = {}
    for number, node in enumerate(nodes):
        turns[node] = number
        if node in hanging:
            turns[node] = max((turns[given] for given in node.all_input_nodes if given in turns), default=number)
            node.target = Aside(lane, node.target)  # type: ignore[arg-type]
    return sorted(nodes, key=turns.__getitem__)  # which keeps the order of those that are even


def _writes_what_others_see(node: fx.Node) -> bool:
    written = written_by(node) or ()  # functions of ours write into what nobody else wants
    return not all(map(_is_alone, written))


def _is_alone(node: fx.Node) -> bool:
    """Whether a value has one user, and so has whatever it only looks at."""
    if len(node.users) != 1:
        return False
    return not is_view(node) or _is_alone(node.all_input_nodes[0])


def _computes(node: fx.Node) -> bool:
    only_looks = node.target is operator.getitem or is_view(node) or is_made_once(node)
    return node.op == "call_function" and not only_looks


def _reads(node: fx.Node) -> int:
    """The bytes of the largest tensor that a node reads."""
    return max((bytes_of(given) for given in node.all_input_nodes if "lies" in given.meta), default=0)


def _parted(node: fx.Node) -> list[fx.Node]:
    """A gradient of source and weights as two: first that of the weights, which can then begin with the other one."""
    operation: Any = node.target
    place = _PARTED.get(operation)
    if place is None:
        return [node]
    given: Any = node.args
    of_source, *of_weights = given[place]
    if not of_source or not any(of_weights):
        return [node]
    with node.graph.inserting_before(node):
        asked = (*given[:place], [False, *of_weights], *given[place + 1 :])
        first = node.graph.call_function(operation, asked, node.kwargs)
    first.meta |= node.meta
    node.args = (*given[:place], [True, *(False for _ in of_weights)], *given[place + 1 :])
    for user in list(node.users):
        if user.args[1] != 0:
            user.replace_input_with(node, first)
    return [first, node]
