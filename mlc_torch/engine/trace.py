"""Captures a plan ahead of time: forward and backward as two straight lists of ATen operations.

The modules run once under autograd on copies of their tensors, and everything torch does is written down. What was done
before the gradient began is the forward pass, the rest the backward pass. At run time autograd is not involved.
(torch's own tracer would do, but loading it takes seconds, and a small graph should compile in a fraction of one.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.as_written import uncompiled
from mlc_torch.engine.following import Next, what_follows
from mlc_torch.engine.gear import Tensors
from mlc_torch.engine.images import call_over_images
from mlc_torch.engine.layouts import called
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import lent_values, run_forward, run_gradient, set_training
from mlc_torch.engine.plan import Plan, Step
from mlc_torch.engine.recorder import NotRecordable, Recorder, where_it_lies
from mlc_torch.engine.undo import way_back
from mlc_torch.engine.values_read import without_values
from mlc_torch.engine.views import drop_unread, root_of, share_copies, written_by
from mlc_torch.layers.noise import Noise


@dataclass(frozen=True)
class Draw:
    """A dropout mask that the forward pass needs; it is drawn beforehand and comes in from outside."""

    noise: Noise
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def mask(self) -> torch.Tensor:
        return self.noise.mask(self.shape, self.dtype, self.device)


@dataclass(frozen=True)
class Recording:
    """What was written down: one graph, and which of its nodes belong to which phase."""

    graph: fx.Graph
    constants: dict[str, torch.Tensor]
    placeholders: dict[str, list[fx.Node]]
    forward: list[fx.Node]
    backward: list[fx.Node]
    readable: list[fx.Node]
    lent: list[int]
    """Which of the readable values are what was fed, and must be copied to be kept."""
    gradients: list[fx.Node | None]
    wanted: list[fx.Node | None]
    draws: list[Draw]
    written: Sequence[int] = ()
    """Which of the feeds and constants a module of the program writes into: a copy of them, then."""


def record(plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode) -> Recording:
    """Run the plan once and write down what torch does."""
    training = set_training(plan, mode.trains)
    go_back = way_back(plan, training)
    try:
        return _recorded(plan, feeds, constants, injected, mode, training)
    except BaseException:
        go_back()
        raise


def _recorded(
    plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode, training: set_training
) -> Recording:
    recorder = Recorder()
    with torch.no_grad():
        given = {
            "parameters": [p.detach().clone() for p in plan.parameters],
            "buffers": [b.detach().clone() for b in plan.buffers],
            "feeds": [f.detach().clone() for f in feeds],
            "constants": [c.detach().clone() for c in constants],
            "injected": [g.detach().clone() for g in injected],
        }
    lay = _lay(plan, given["parameters"] + given["buffers"])
    placeholders = {kind: [recorder.placeholder(t) for t in tensors] for kind, tensors in given.items()}
    for node in placeholders["parameters"]:
        node.meta["stands"] = True  # the same tensor in every pass, though its memory may move
    placeholders["masks"] = []
    draws: list[Draw] = []

    def intercept(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        with recorder.paused():
            mask = torch.ones(shape, dtype=dtype, device=device)
        placeholders["masks"].append(recorder.placeholder(mask))
        draws.append(Draw(noise, shape, dtype, device))
        return mask

    trained = {id(leaf) for leaf in plan.leaves}
    stand_in: dict[int, torch.Tensor] = {}
    for original, copy in zip(plan.parameters, given["parameters"], strict=True):
        stand_in[id(original)] = copy.requires_grad_(mode.differentiates and id(original) in trained)
    stand_in |= dict(zip(map(id, plan.buffers), given["buffers"], strict=True))
    noises = {id(n): n for step in plan.steps for n in step.noises}.values()
    with ExitStack() as stack:
        stack.enter_context(training)
        for noise in noises:
            stack.enter_context(noise.intercepted(intercept))
        stack.enter_context(torch.set_grad_enabled(mode.differentiates))
        stack.enter_context(uncompiled(plan))
        stack.enter_context(recorder)
        stack.enter_context(without_values(plan, mode.differentiates))
        call = functional(stand_in, plan.device, what_follows(plan, mode.differentiates))
        env = run_forward(plan, given["feeds"], given["constants"], call=call)
        readable = [recorder.node_of(env[slot]) for slot in plan.readable]
        forward = list(recorder.graph.nodes)
        values: list[Any] = [env[slot] for slot in plan.readable]
        lent = lent_values(values, [t for part in ("feeds", "constants", "parameters", "buffers") for t in given[part]])
        gradients: list[Any] = []
        wanted: list[Any] = []
        if mode.differentiates:
            leaves = [stand_in[id(leaf)] for leaf in plan.leaves]
            gradients, wanted = run_gradient(plan, env, given["injected"], leaves)
    _must_lie_still(lay)
    outputs: list[list[Any]] = [readable, *([recorder.node_of(g) for g in part] for part in (gradients, wanted))]
    recorder.graph.output(outputs)
    share_copies(recorder.graph, forward)
    drop_unread(recorder.graph)
    ahead, calls = set(forward), [n for n in recorder.graph.nodes if n.op in ("call_function", "get_attr")]
    return Recording(
        graph=recorder.graph,
        constants=recorder.constants,
        placeholders=placeholders,
        forward=[n for n in calls if n in ahead],
        backward=[n for n in calls if n not in ahead],
        readable=outputs[0],
        lent=lent,
        written=_written(recorder.graph, placeholders["feeds"] + placeholders["constants"]),
        gradients=outputs[1],
        wanted=outputs[2],
        draws=draws,
    )


def _lay(plan: Plan, copies: Tensors) -> list[tuple[torch.Tensor, Any]]:
    """Where copies of a plan's own tensors lie, but for recurrent weights: ``flatten_parameters`` moves them."""
    movable = {id(p) for step in plan.steps for part in step.recurrent for p in part.parameters()}
    pairs = zip([*plan.parameters, *plan.buffers], copies, strict=True)
    return [(copy, where_it_lies(copy)) for original, copy in pairs if id(original) not in movable]


def _must_lie_still(lay: Sequence[tuple[torch.Tensor, Any]]) -> None:
    """A module gives a tensor of its own other memory (``buffer.data = ...``, ``buffer.set_``) past everybody who looks on."""
    for tensor, before in lay:
        if where_it_lies(tensor) != before:
            raise NotRecordable("a module gives a parameter or a buffer other memory (its .data, or set_)")


def _written(graph: fx.Graph, given: Sequence[fx.Node]) -> list[int]:
    """Which of these nodes something writes into. (What is written by way of ``tensor.data`` counts no version of the tensor.)"""
    written = {root_of(into) for node in graph.nodes for into in written_by(node) or ()}
    return [number for number, node in enumerate(given) if node in written]


def functional(
    stand_in: dict[int, torch.Tensor], device: torch.device, following: Mapping[Step, Next]
) -> Callable[[Step, list[torch.Tensor]], Any]:
    """Calls a module with other tensors in place of its own. ``following``: what becomes of convolutions' results."""

    def call(step: Step, sources: list[torch.Tensor]) -> Any:
        own = {
            f"{path}.{name}" if path else name: stand_in[id(tensor)]
            for path, module in step.module.named_modules()
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
            if tensor is not None
        }
        if arranged:
            return call_over_images(step.module, own, sources, following.get(step, Next.OTHER))
        return called(step.module, own, sources)

    arranged = device.type == "cpu"
    return call
