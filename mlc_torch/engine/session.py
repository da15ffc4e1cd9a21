"""A plan in use: which gear runs it, and what the last phase left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.gear import Gear, Tensors
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.trace import NotRecordable
from mlc_torch.engine.updater import Updater
from mlc_torch.enums import MLCGraphCompilationOptions
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import in_one_line, log, refuse
from mlc_torch.tensor import TensorState

if TYPE_CHECKING:
    from mlc_torch.engine.compiled import Compiled

NoiseStates = list[tuple[torch.Generator, torch.Tensor]]

_PLAIN_OPTIONS = MLCGraphCompilationOptions.debugLayers | MLCGraphCompilationOptions.disableLayerFusion


class Session:
    """Runs the three phases of one plan, and remembers which of them have been run."""

    def __init__(
        self,
        plan: Plan,
        result: TensorState,
        unkept: Sequence[TensorState],
        cells: Sequence[TensorState],
        optimizer: MLCOptimizer | None,
        options: MLCGraphCompilationOptions,
        use_inductor: bool = False,
    ) -> None:
        self.plan, self.result, self.unkept = plan, result, unkept
        self.updater = Updater(optimizer, plan.trained, plan.device) if optimizer is not None else None
        self.cells = list(cells)
        self.versions = [c.version for c in self.cells]
        self.checked = 0
        self.feeds: Sequence[Any] = ()
        """How the graph feeds the plan's slots; the graph's own business."""
        self.separate = False
        self.samples = 0
        """How many samples the last separate forward pass ran."""
        self.turn = 0
        """When the last forward pass ran, among those of other graphs; the graphs' own business."""
        self.gear: Gear | None = None
        self.prepared: Gear | None = None
        self.readable = [plan.cells[slot] for slot in plan.readable]
        self._plain_options, self._use_inductor = bool(options & _PLAIN_OPTIONS), use_inductor
        self._gears: dict[Any, Gear] = {}
        self._seen: set[Any] = set()
        modules = [m for root in plan.modules for m in root.modules()]
        self._parameters = plan.parameters if plan.differentiates else ()
        self._noises = [noise for step in plan.steps for noise in step.noises]
        count = 4 if plan.differentiates else 2  # without a gradient the others are never called
        self._hooks = tuple(
            hooks
            for m in modules
            for hooks in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks)[:count]
        )
        self._forget()

    def _forget(self) -> None:
        self.values: Tensors = ()
        self.gradients: Sequence[torch.Tensor | None] = ()
        self.wanted: Sequence[torch.Tensor | None] = ()
        self.went_forward = self.has_gradients = self.updated = False
        self._again: tuple[Tensors, Tensors, NoiseStates] | None = None
        self._injected: Tensors = ()

    def is_current(self, change: int) -> bool:
        """Whether the tensors still lie where they did, and nobody holds a result that is not kept."""
        if change == self.checked:
            return True
        if self.versions != [c.version for c in self.cells] or any(c.handle() is not None for c in self.unkept):
            return False
        self.checked = change
        return True

    def constants(self) -> list[torch.Tensor]:
        values = []
        for cell in self.plan.constants:
            if cell.value is None:
                refuse(
                    f"tensor {cell.label!r} has no value yet; run executeForward of the graph that computes it first"
                )
            values.append(cell.value.contiguous())
        return values

    # Choosing a gear

    def prepare(self, training: bool, differentiates: bool) -> None:
        """Make the gear for the declared shapes ahead of the first run."""
        cells = self.plan.cells[: self.plan.fed_count]
        if any(c.value is None for c in self.plan.constants):
            return  # linked graphs have not run yet
        feeds = [torch.zeros(c.shape, dtype=c.dtype) for c in cells]
        self.gear = self.prepared = self._gear(feeds, training, differentiates, full=True)

    def value_of(self, cell: TensorState) -> torch.Tensor | None:
        """The value of a tensor in the last forward pass, if it was kept."""
        slot = self.plan.slots.get(id(cell))
        return self.values[self.plan.readable.index(slot)] if slot in self.plan.readable and self.values else None

    def why_plain(self) -> str | None:
        """The reason for running module by module, or ``None``."""
        if self._plain_options:
            return "compiled with debugLayers or disableLayerFusion"
        if not self.is_hooked():
            return None
        if self.plan.hooks:
            return "gradient hooks are registered"
        return "hooks are registered on " + ("a layer's module" if any(self._hooks) else "a parameter")

    def is_hooked(self) -> bool:
        """Whether a program wants to be called in the middle of a phase."""
        return bool(self.plan.hooks or any(self._hooks) or any(p._backward_hooks for p in self._parameters))

    def _gear(self, feeds: Tensors, training: bool, differentiates: bool, full: bool) -> Gear:
        """The fast gear for these shapes; shapes that were not declared get one when they come a second time."""
        why = self.why_plain()
        key = (training, differentiates, None if full else tuple(f.shape for f in feeds))
        if why is not None:
            return self._plain(training, differentiates, why)
        gear = self._gears.get(key)
        if gear is not None:
            return gear
        if not full and key not in self._seen:
            self._seen.add(key)
            return Plain(self.plan, training, differentiates, "a batch size seen for the first time")
        gear = self._gears[key] = self._fast(feeds, training, differentiates)
        return gear

    def _plain(self, training: bool, differentiates: bool, why: str, profile: bool = False) -> Plain:
        key = ("plain", training, differentiates, profile)
        gear = self._gears.get(key)
        if not isinstance(gear, Plain):
            gear = self._gears[key] = Plain(self.plan, training, differentiates, profile=profile)
        gear.why = why
        return gear

    @torch.inference_mode(False)
    def _fast(self, feeds: Tensors, training: bool, differentiates: bool) -> Gear:
        """Made outside of inference mode, where operations would show themselves to the recorder undivided."""
        plan, constants = self.plan, self.constants()
        injected = [
            torch.zeros(plan.cells[s].shape, dtype=plan.cells[s].dtype, device=plan.device) for s in plan.injected
        ]
        on_device = [f.to(plan.device) for f in feeds]
        inner: Plain | Compiled = Plain(plan, training, differentiates)
        why = ""
        if self._use_inductor:
            from mlc_torch.engine.compiled import Compiled, has_something_to_fuse  # who asks for it pays for loading it

            try:
                if differentiates or has_something_to_fuse(plan, on_device, constants):
                    inner = Compiled(plan, on_device, constants, injected, training, differentiates)
                else:
                    why = "TorchInductor would have nothing to fuse"
                    log.info("%s; the graph runs without", why)
            except Exception as error:  # noqa: BLE001 - no compiler, or a layer it cannot take: the graph runs without
                why = f"TorchInductor could not compile it: {in_one_line(error)}"
                log.warning("%s; the graph runs without", why)
        try:
            if plan.device.type == "cuda":
                replays = differentiates and self.updater is not None and self.updater.optimizer.replayable
                updater = self.updater if replays else None
                made: Gear = Captured(plan, feeds, constants, injected, inner, differentiates, updater)
            elif isinstance(inner, Plain):
                made = Planned(plan, on_device, constants, injected, training, differentiates)
            else:
                made = inner
        except Exception as error:  # noqa: BLE001 - whatever keeps a plan from being captured, it still runs
            why = str(error) if isinstance(error, NotRecordable) else in_one_line(error)
            log.info("the graph runs module by module: %s", why)
            return Plain(plan, training, differentiates, why)
        made.why = why or made.why
        return made

    # The phases

    def run(
        self, feeds: Tensors, injected: Tensors, training: bool, differentiates: bool, full: bool, profile: bool
    ) -> None:
        """All phases in one call."""
        self.forward(feeds, training, differentiates, full, profile)
        if differentiates:
            self.gradient(injected)
            if self.updater is not None:
                self.update(self.updater.optimizer)

    def again(self, device: MLCDevice) -> Callable[[list[torch.Tensor]], None]:
        """What ``run`` does for the declared shapes, past every choice: ``is_current`` and ``is_hooked`` were asked.

        The readable tensors get their values.
        """
        function = self.prepared.function() if self.prepared is not None else None
        if self.plan.differentiates or self.plan.constant_count:
            function = None
        gear, readable, run = self.prepared, self.readable, function or self._run_again

        def run_and_publish(feeds: list[torch.Tensor]) -> None:
            self.gear, self.values = gear, (values := run(feeds))
            for number, cell in enumerate(readable):  # zip(..., strict=True) takes 2 µs to begin
                cell.publish(values[number], device)

        return run_and_publish

    def _run_again(self, feeds: Tensors) -> Tensors:
        gear, plan = self.prepared, self.plan
        assert gear is not None
        self.gear, self.separate, self._again = gear, False, None
        values = gear.forward(feeds, self.constants() if plan.constant_count else ())
        if plan.differentiates:
            self.gradients, self.wanted = gear.gradient(())
            self.went_forward, self.has_gradients = False, True
            if self.updater is not None:
                self.update(self.updater.optimizer)
        return values

    def forward_again(self, feeds: Tensors, device: MLCDevice) -> None:
        """What a separate ``forward`` does for the declared shapes, past every choice, and publishes it."""
        gear = self.prepared
        assert gear is not None
        constants = self.constants() if self.plan.constant_count else ()
        self.gear, self.separate, self._again = gear, True, (feeds, constants, self._noise_states())
        self.gradients = self.wanted = ()
        self.values = values = gear.forward(feeds, constants)
        self.went_forward, self.has_gradients, self.updated = True, False, False
        for number, cell in enumerate(self.readable):
            cell.publish(values[number], device)

    def forward(self, feeds: Tensors, training: bool, differentiates: bool, full: bool, profile: bool) -> None:
        constants = self.constants() if self.plan.constant_count else ()
        self._forget()
        if self.separate and differentiates:
            self._again = feeds, constants, self._noise_states()
        if profile:
            gear: Gear = self._plain(training, differentiates, "profiling layer by layer", profile=True)
        else:
            gear = self._gear(feeds, training, differentiates, full)
        self.gear = gear
        self.values = gear.forward(feeds, constants)
        self.went_forward = differentiates

    def gradient(self, injected: Tensors) -> None:
        assert self.gear is not None
        self._injected = injected = [g.contiguous() for g in injected]
        self.gradients, self.wanted = self.gear.gradient(injected)
        self.went_forward, self.has_gradients = False, True

    def update(self, optimizer: MLCOptimizer) -> None:
        if self.updater is None or self.updater.optimizer is not optimizer:
            self.updater = Updater(optimizer, self.plan.trained, self.plan.device)
        if isinstance(self.gear, Captured) and optimizer.replayable:
            self.gear.update(self.updater)
        else:
            self.updater.begin()
            self.updater.apply(self.gradients)
        self.updated = True

    # Gradients of tensors inside the graph

    def gradient_of(self, slot: int) -> torch.Tensor | None:
        return self.wanted[self.plan.wanted.index(slot)] if self.has_gradients and slot in self.plan.wanted else None

    def gradients_again(self, slots: Sequence[int]) -> None:
        """Compute gradients that nobody had asked for when the gradient phase ran.

        The forward pass is run once more on the same data, with the same dropout and without moving statistics. After an
        update its weights are gone, and the gradients have to wait for the next gradient phase.
        """
        if self._again is None or self.updated:
            return
        feeds, constants, noise = self._again
        plan = replace(self.plan, wanted=tuple(dict.fromkeys([*self.plan.wanted, *slots])))
        gear = Plain(plan, training=True, differentiates=True)
        with _undisturbed(plan, noise):
            gear.forward(feeds, constants)
            _, self.wanted = gear.gradient(self._injected)
        self.plan = plan

    def _noise_states(self) -> NoiseStates:
        if not self._noises:
            return []
        streams = {id(s): s for noise in self._noises for s in [noise.stream(self.plan.device)]}
        return [(stream, stream.get_state()) for stream in streams.values()]


@contextmanager
def _undisturbed(plan: Plan, noise: NoiseStates) -> Iterator[None]:
    """Dropout draws what it drew at ``noise``; afterwards statistics and streams are as if nothing had happened."""
    buffers = [b.clone() for b in plan.buffers]
    streams = [(stream, stream.get_state()) for stream, _ in noise]
    for stream, state in noise:
        stream.set_state(state)
    try:
        yield
    finally:
        for stream, state in streams:
            stream.set_state(state)
        with torch.no_grad():
            for buffer, old in zip(plan.buffers, buffers, strict=True):
                buffer.copy_(old)
