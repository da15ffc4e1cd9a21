"""The plain gear: module by module under autograd. It is what every other gear is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from mlc_torch.device import queueing
from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plan import Plan, Step, combine, is_known
from mlc_torch.going_back import undone
from mlc_torch.printable import printable
from mlc_torch.refusals import refuse
from mlc_torch.tensor.addresses import LITTLE
from mlc_torch.tensor.state import upload
from mlc_torch.torch_private.autograd import backward, wake_autograd
from mlc_torch.torch_private.lstm import called_in_place

MARK = "mlc::"
"""Before a layer's label in the names that a profile shows."""

WHERE = "in layer"
"""How the note begins that says where a module raised something."""

Call = Callable[[Step, list[torch.Tensor]], Any]


def call_module(step: Step, sources: list[torch.Tensor]) -> Any:
    if step.recurrent:
        return called_in_place(step.recurrent, lambda: step.module(*sources))
    return step.module(*sources)


def run_forward(
    plan: Plan,
    feeds: Tensors,
    constants: Tensors,
    call: Call = call_module,
    before: Callable[[Step], Any] | None = None,
) -> list[torch.Tensor | None]:
    """Every step in order; gives the slots, those that nobody needs any more emptied."""
    env: list[Any] = [*feeds, *constants]
    env += [None] * (len(plan.cells) - len(env))
    stopped, hooks, differentiates = plan.stopped, plan.hooks, torch.is_grad_enabled()
    watched = {*plan.wanted, *hooks} if differentiates else set()
    if differentiates:
        for item in plan.trained:
            if item.slot is not None:
                env[item.slot] = env[item.slot].detach().requires_grad_()
        for slot in plan.wanted:
            env[slot] = _leaf(env[slot])
    samples = None if plan.counted is None else env[plan.counted[0]].shape[plan.counted[1]]
    for number, step in enumerate(plan.steps):
        sources = [env[s].detach() if s in stopped else env[s] for s in step.sources]
        for position, axis in step.rows if samples is not None else ():
            if sources[position].shape[axis] > samples:
                sources[position] = sources[position].narrow(axis, 0, samples)
        for position, limit in step.guarded:
            sources[position] = sources[position].clamp(0, limit - 1)
        if watched and not watched.isdisjoint(step.sources) and any(map(_may_write, step.module.modules())):
            sources = [s.clone() for s in sources]  # what is written to afterwards has no gradient of its own
        try:
            if before is not None:
                with before(step):
                    made = call(step, sources)
            else:
                made = call(step, sources)
        except Exception as error:
            shapes = " and ".join(str(list(s.shape)) for s in sources)
            error.add_note(f"{WHERE} {step.label!r} over sources of shapes {shapes}")
            raise
        if len(step.results) == 1:
            env[step.results[0]] = made[0] if isinstance(made, (tuple, list)) else made
        else:
            if len(made) != len(step.results):
                refuse(
                    f"layer {step.label!r} gives {len(made)} results for this batch, {len(step.results)} were declared"
                )
            for slot, value in zip(step.results, made, strict=True):
                env[slot] = value
        if watched:
            for slot in watched.intersection(step.results):
                others = [*sources, *(env[s] for s in step.results if s != slot)]
                env[slot] = value = _leaf(_apart_from(others, env[slot]))
                if value is not None and value.requires_grad:
                    for hook in hooks.get(slot, ()):
                        value.register_hook(hook)
        for slot in plan.last_use[number]:
            env[slot] = None
    return env


def _leaf(value: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor whose gradient is wanted. Where nothing that is trained lies behind it, that is only there if it is a leaf."""
    if value is None or value.requires_grad or not value.is_floating_point():
        return value
    return value.detach().requires_grad_()


def _apart_from(others: list[Any], value: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor by itself, where a module hands on what it was given or gives the same twice: each has its own gradient."""
    return value.view_as(value) if value is not None and any(value is other for other in others) else value


def run_gradient(
    plan: Plan,
    env: Sequence[torch.Tensor | None],
    injected: Tensors,
    leaves: Tensors | None = None,
) -> Gradients:
    """The gradients of the trained tensors and of the wanted slots. ``leaves`` stand in for the plan's own."""
    leaves = plan.leaves if leaves is None else leaves
    roots, upstream = [], []
    for slot in plan.losses:
        value = env[slot]
        if value is not None and value.requires_grad:
            roots.append(value)
            upstream.append(torch.ones_like(value))
    for slot, gradient in zip(plan.injected, injected, strict=True):
        value = env[slot]
        if value is not None and value.requires_grad:
            roots.append(value)
            upstream.append(gradient.reshape(value.shape))
    slots = dict.fromkeys([*plan.wanted, *(t.slot for t in plan.trained if t.slot is not None), *plan.hooks])
    asked = [(s, v) for s in slots if (v := env[s]) is not None and v.requires_grad]
    found: tuple[torch.Tensor | None, ...] = (None,) * (len(leaves) + len(asked))
    if roots and found:
        found = backward(roots, upstream, [*leaves, *(value for _, value in asked)])
        # nn.Embedding(sparse=True) gives the rows that it read; optimizers here move all of them.
        found = tuple([g.to_dense() if g is not None and g.is_sparse else g for g in found])
        found = (*map(_after_hooks, leaves, found), *found[len(leaves) :])
    of_slot = {slot: g for (slot, _), g in zip(asked, found[len(leaves) :], strict=True)}
    totals = combine(plan.trained, found[: len(leaves)], of_slot)
    return totals, [of_slot.get(slot) for slot in plan.wanted]


def _after_hooks(leaf: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor | None:
    """A parameter's gradient, as its hooks leave it that torch calls when ``.grad`` is there (``register_hook``'s were called).

    Here gradients go past ``.grad``: this one is there for the hooks alone, and afterwards what the program has there.
    """
    hooks = leaf._post_accumulate_grad_hooks
    if not hooks or gradient is None:
        return gradient
    before, given = leaf.grad, gradient.clone()  # a hook may change it in place; it may be another parameter's, too

    def call() -> torch.Tensor | None:
        leaf.grad = given
        for hook in tuple(hooks.values()):
            hook(leaf)
        return leaf.grad

    def go_back() -> None:
        leaf.grad = before

    return undone(call, go_back)


def lent_values(values: Tensors, given: Tensors) -> list[int]:
    """Which values lie in memory that was given, or are views of it: fed tensors, which on the CPU may be the caller's own, and a
    module's parameters, which training will change."""
    lent = {t.untyped_storage().data_ptr() for t in given if t.device.type == "cpu"}
    return [i for i, v in enumerate(values) if v.device.type == "cpu" and v.untyped_storage().data_ptr() in lent]


class set_training:
    """Puts modules into training or inference mode for a while, touching only those whose mode differs."""

    def __init__(self, plan: Plan, training: bool) -> None:
        self.changed = [m for root in plan.modules for m in root.modules() if m.training != training]
        self.training = training

    def __enter__(self) -> None:
        for module in self.changed:
            module.training = self.training

    def __exit__(self, *error: Any) -> None:
        for module in self.changed:
            module.training = not self.training


class Plain:
    """Runs the phases of one plan in one mode, for any shapes."""

    name = "plain"

    def __init__(self, plan: Plan, mode: Mode, why: str = "", profile: bool = False) -> None:
        self.plan, self.mode, self.why = plan, mode, why
        self._marks = (lambda step: torch.profiler.record_function(MARK + printable(step.label))) if profile else None
        self._env: list[torch.Tensor | None] | None = None
        unknown = [step.module for step in plan.steps if any(map(_may_write, step.module.modules()))]
        self._may_write = bool(unknown)
        self._own = [tensor for module in unknown for tensor in (*module.parameters(), *module.buffers())]
        if plan.device.type == "cuda":
            with queueing(plan.device):
                wake_autograd(plan.device)

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        with queueing(self.plan.device):
            return self._run_forward(feeds, constants)

    def _run_forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        self._env = None  # the last pass's memory is free for this one
        plan = self.plan
        feeds = [self._brought(f) for f in feeds]
        if self._may_write:
            constants = [c.clone() for c in constants]
        training = set_training(plan, self.mode.trains)
        try:
            with training, torch.set_grad_enabled(self.mode.differentiates):
                env = run_forward(plan, feeds, constants, before=self._marks)
        except BaseException:  # a Ctrl-C may have struck between the block and the ``__exit__`` that ends it
            training.__exit__()
            raise
        if self.mode.differentiates:
            self._env = env
        values = [env[slot].detach() for slot in plan.readable]  # type: ignore[union-attr]
        for number in lent_values(values, [*feeds, *constants, *self._own]):
            values[number] = values[number].clone()
        return values

    def _brought(self, feed: torch.Tensor) -> torch.Tensor:
        """On the device; little data in memory of its own: modules and hooks may hold on to what they are given, and the
        next call's data comes to where this one's is. Much, too, where a module may write into it."""
        if feed.device != self.plan.device:
            return upload(feed, self.plan.device)
        return feed.clone() if self._may_write or (feed.is_cpu and feed.nbytes <= LITTLE) else feed

    def release(self) -> None:
        """Let go of what the last forward pass kept."""
        self._env = None

    def gradient(self, injected: Tensors) -> Gradients:
        assert self._env is not None
        env, self._env = self._env, None
        with queueing(self.plan.device):
            return run_gradient(self.plan, env, injected)


def _may_write(module: nn.Module) -> bool:
    """Whether a module is asked to work in place, or is one that nobody here knows."""
    return bool(getattr(module, "inplace", False)) or not is_known(module)
