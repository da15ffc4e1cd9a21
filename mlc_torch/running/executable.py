"""What inference and training graphs share: compiling, and getting ready for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.mode import Phase
from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.going_back import undone_if_broken_off
from mlc_torch.graph.locks import locked
from mlc_torch.graph.surroundings import undisturbed
from mlc_torch.nodes.feeding import warn_unbound
from mlc_torch.nodes.feeds import Feed, checked_constants, describe_feeds
from mlc_torch.nodes.node import Node, check, check_memory_kind, check_modules, own_states, unique_layers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.running.declaring import DeclaringGraph
from mlc_torch.running.memory_guard import check_memory
from mlc_torch.running.midst import refuse_in_the_midst
from mlc_torch.running.planner import PlanRequest, make_plan
from mlc_torch.running.results import into_full
from mlc_torch.running.road import Work
from mlc_torch.running.signatures import COMPILE, DATA, TENSORS
from mlc_torch.running.state import Compiled, Variant
from mlc_torch.spelling import declare
from mlc_torch.tensor import MLCTensor, MLCTensorData, TensorState
from mlc_torch.tensor.lack_of_memory import refusing_lack_of_memory
from mlc_torch.tensor.state import changes
from mlc_torch.torch_private.modes import ambience, is_traced, restore_ambience

if TYPE_CHECKING:
    from mlc_torch.ranks import Ranks

_PLAIN = Compile.debugLayers | Compile.disableLayerFusion

Feeds = Sequence[Feed]


class ExecutableGraph(DeclaringGraph, inherits_initializers=False):
    """A graph that can be compiled and executed."""

    # Compiling

    @declare(f"compile({COMPILE}) -> Bool", "compileWithOptions:device:", nil=("device",))
    @declare(
        f"compile({COMPILE}, inputTensors: {TENSORS}?, inputTensorsData: {DATA}?) -> Bool",
        "compileWithOptions:device:inputTensors:inputTensorsData:",
        nil=("device",),
    )
    @declare(f"compile({COMPILE}, use_inductor: Bool) -> Bool", ours=True)
    def _compile(self, device, options=Compile(0), inputTensors=None, inputTensorsData=None, use_inductor=False):
        """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
        self._raise_late_failure()
        refuse_in_the_midst(self)
        if device is None:  # nil has an answer in Objective-C (measured, evidence.md H.2)
            if self._compiled is None:
                refuse("the device is nil, and the graph has not been compiled before")
            device = self._device
        if is_traced():
            refuse("a graph cannot be compiled inside torch.jit.trace, which would write down what compiling tries out")
        before, given = ambience(), (device, options, use_inductor, inputTensors or {}, inputTensorsData or {})

        def work() -> None:
            with self._meeting(device):
                self._lock.holding(self._compile_undisturbed, *given)

        undone_if_broken_off(work, lambda: restore_ambience(before))
        return True

    def _compile_undisturbed(self, device: MLCDevice, *given: Any) -> None:
        with undisturbed(device.torch_device), refusing_lack_of_memory():
            self._compile_for(device, *given)

    def _compile_for(
        self,
        device: MLCDevice,
        options: Compile,
        use_inductor: bool,
        tensors: Mapping[str, MLCTensor],
        given: Mapping[str, MLCTensorData],
    ) -> None:
        there = DeclaringGraph._all_nodes(self)
        nodes = self._nodes_to_run(there)
        if not nodes:
            refuse("the graph has no layers")
        for node in nodes:
            check(node)
        check_modules(nodes)
        warn_unbound(given, tensors)
        for name, tensor in tensors.items():
            if name in given:
                tensor._cell.upload(given[name], device, f"data for {name!r}")
        for layer in unique_layers(nodes):
            for cell in own_states(layer):
                cell.place(device, writable=True)
            layer._compiled_for(device)
        for graph in (self, *self._graphObjects):
            graph._compiled_for(device)
        self._compiled = Compiled(there, options, use_inductor)
        self._take_up(device)
        self._runs.warned.clear()
        self._runs.looked = False
        self._changed()
        if self._missing() is None:
            self._session(Variant.whole)

    def _meeting(self, device: MLCDevice) -> AbstractContextManager[None]:
        """Around a compile: where several processes compile together, they see to it that all do the same."""
        return nullcontext()

    def _raise_late_failure(self) -> None:
        """What a completion handler raised on its thread is raised by the next call, before it does anything."""
        if self._queue.failures:
            self._queue.raise_failure()

    def _take_up(self, device: MLCDevice) -> None:
        """Apply what members were told to do "from the next compile on"."""

    def _plan_request(self, nodes: list[Node], options: Compile, variant: Variant) -> PlanRequest:
        debugged = bool(options & Compile.debugLayers)
        readable = [*self._declared.outputs.values(), *self._declared.kept.values()]
        readable += [c for n in nodes if debugged and n.layer._isDebuggingEnabled for c in n.results]
        readable += self._exported(nodes)
        return PlanRequest(
            readable=[*readable, self._result_cell(nodes)],
            linked=self._linked_results(),
            axes=self._sample_axes(),
            batch=self._declared_batch(),
        )

    def _rule_for(self, variant: Variant) -> MLCOptimizer | None:
        """The optimizer that a session of this variant updates with."""
        return None

    # Results that are asked for late

    def _hand_out(self, cells: list[TensorState]) -> None:
        """Asked of the graph that runs, it is for its own runs alone."""
        self._keep(cells, fills=True)

    def _has_run(self) -> bool:
        """Whether there is a last run that may still tell something."""
        session = self._runs.last or self._runs.active
        return session is not None and bool(session.values)

    @locked
    def _keep(self, cells: list[TensorState], fills: bool) -> None:
        """From now on each run keeps these results; if it ``fills`` them, what the last run can still tell is there at once."""
        kept, session = self._declared.kept, self._runs.last or self._runs.active
        new = [c for c in cells if id(c) not in kept]
        if fills and session is not None and session.values:
            with self._in_peace():  # refused before anything is noted
                # One that is kept and has no value was asked for since that run, of the graph that records the layers.
                self._fill([c for c in cells if c in new or c.value is None], session)
        kept |= {id(c): c for c in new}
        if new:
            self._runs.forget()

    def _in_peace(self) -> AbstractContextManager[Any]:
        """What is asked for late is computed as in a run, whatever surrounds the caller."""
        return undisturbed(torch.device("cpu") if self._device is None else self._device.torch_device)

    def _fill(self, cells: list[TensorState], session: Session) -> None:
        known = {id(c) for c in session.readable}
        for cell in cells:
            if id(cell) in known and cell.value is None:  # another graph over the same layers let go of it
                self._publish_late(cell, session.value_of(cell))
        late = [c for c in cells if id(c) not in known and id(c) in session.plan.slots]
        if late:
            self._fill_late(session, late)

    def _fill_late(self, session: Session, cells: list[TensorState]) -> None:
        for cell, value in zip(cells, session.values_again(cells), strict=True):
            self._publish_late(cell, value)

    def _publish_late(self, cell: TensorState, value: torch.Tensor | None) -> None:
        if value is None:
            cell.empty(
                f"the last run did not keep the result {cell.label!r}, which nobody had asked for; the next one does"
            )
        else:
            cell.publish(value if value.shape == cell.shape else into_full(cell, value), self._device)

    # Getting ready for a run

    def _session(self, variant: Variant) -> Session:
        """The session of the compiled graph, renewed where something it rests on has changed."""
        session = self._runs.sessions.get(variant)
        if session is not None and (session.checked == changes.newest or session.is_current()):
            return session
        if self._compiled is None:
            refuse("the graph is not compiled; call compile(options:device:) first")
        missing = self._missing(variant)
        if missing is not None:
            refuse(missing)
        return self._new_session(variant, self._compiled)

    def _new_session(self, variant: Variant, compiled: Compiled) -> Session:
        nodes, fed = self._planned_nodes(variant), self._fed_cells(variant)
        ranks = self._ranks(variant)
        if ranks is not None:
            from mlc_torch.nodes.samples import with_weights  # where torchrun started the program

            nodes = with_weights(nodes)
        self._check_devices(nodes)
        check_modules(nodes)
        limited = checked_constants(nodes, fed)
        plan = make_plan(nodes, fed, self._device, self._plan_request(nodes, compiled.options, variant))
        check_memory(plan, self._rule_for(variant))
        if plan.differentiates:
            check_memory_kind(nodes, (*plan.leaves, *plan.buffers))
        standing = {id(c): c for layer in unique_layers(nodes) for c in own_states(layer)}
        standing |= {id(t.cell): t.cell for t in plan.trained}
        for cell in standing.values():
            cell.place(self._device, writable=True)  # read-only memory may have been bound since the last compile
        kept, first = set(plan.readable), plan.fed_count + plan.constant_count
        feeds = describe_feeds(self._fed(variant), nodes, self._sample_axes(), self._declared.fed())
        kind: Callable[..., Session] = Session
        if ranks is not None and plan.differentiates:
            from mlc_torch.running.sharing import shared_session

            kind = shared_session(self, ranks, nodes, plan, feeds)
        unkept = [c for slot, c in enumerate(plan.cells) if slot >= first and slot not in kept]
        lost = {id(c) for c in unkept}
        for cell in self._runs.shown.get(variant, ()):
            if id(cell) in lost and cell.host is None:
                cell.value = cell.snapshot = None  # of a run of ours: who asks for it later must not find that
        made = kind(
            plan,
            self._result_cell(nodes),
            rests_on=[*standing.values(), *limited],
            unkept=unkept,
            rule=self._rule_for(variant),
            always_plain="compiled with debugLayers or disableLayerFusion" if compiled.options & _PLAIN else None,
            use_inductor=compiled.use_inductor,
            standing=[None if feed.standing is None else feed.standing.tensor for feed in feeds],
        )
        if (earlier := self._runs.sessions.get(variant)) is not None:
            made.take_over(earlier)
        self._runs.shown[variant] = made.readable
        self._results[variant] = MLCTensor._of(made.result)  # held here, so that every handler gets the same handle
        self._feeds[variant] = feeds
        self._runs.returns_inputs = self._declared.returns_inputs()
        self._prepare(made, nodes, variant)
        self._runs.sessions[variant] = made
        return made

    def _together(self, work: Work) -> Work:
        """``work`` itself; where several processes share each batch, wrapped so that a failure does not leave them waiting."""
        return work

    def _ranks(self, variant: Variant) -> Ranks | None:
        """The processes that share the batches of this variant with this one."""
        return None

    def _prepare(self, session: Session, nodes: list[Node], variant: Variant) -> None:
        """Make what the first run would have to wait for."""

    def _check_devices(self, nodes: list[Node]) -> None:
        target = self._device.torch_device
        for cell in (use.cell for layer in unique_layers(nodes) for use in layer._parameter_uses):
            if cell.value is None or cell.value.device != target:
                where = cell.value.device if cell.value is not None else "the host"
                refuse(
                    f"tensor {cell.label!r} now lives on {where}, the graph was compiled for {target}; compile it again"
                )

    def _look_at_result(self, value: torch.Tensor, phase: Phase | None = None) -> None:
        """A result has come to the host."""

    def _broke_off(self) -> None:
        """A phase ended in the middle."""
        if self._runs.active is not None:
            self._runs.active.fail()
        self._runs.last = self._runs.active = None
