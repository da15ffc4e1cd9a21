"""What inference and training graphs share: declaring inputs and outputs, compiling, getting ready for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.graph.graph import MLCGraph
from mlc_torch.graph.locks import Locks
from mlc_torch.graph.surroundings import undisturbed
from mlc_torch.nodes.feeding import LINKED, Feed, batch_axes, checked_constants, declared_batch, describe_feeds
from mlc_torch.nodes.node import Node, check, in_order, own_states, unique_layers
from mlc_torch.nodes.sequences import with_lengths
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.running.completion import CompletionQueue
from mlc_torch.running.memory_guard import check_memory
from mlc_torch.running.planner import PlanRequest, make_plan
from mlc_torch.running.results import into_full
from mlc_torch.running.signatures import COMPILE, DATA, TENSORS
from mlc_torch.running.state import Compiled, Declared, Runs, Variant
from mlc_torch.running.users import Users
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.seeing.memory import Memory
from mlc_torch.seeing.profile import Profile
from mlc_torch.spelling import declare
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.memory import refusing_lack_of_memory
from mlc_torch.tensor.state import changes

_PLAIN = Compile.debugLayers | Compile.disableLayerFusion

Feeds = Sequence[Feed]


class ExecutableGraph(MLCGraph, inherits_initializers=False):
    """A graph over other graphs that can be compiled and executed."""

    _trains = False
    _declared: Declared
    _compiled: Compiled | None
    _runs: Runs
    _linked: Sequence[ExecutableGraph]
    _feeds: dict[Variant, Feeds]
    _results: dict[Variant, MLCTensor]

    @classmethod
    def _over(cls, graphObjects: list[MLCGraph], **more: Any) -> Any:
        return cls._make(
            nodes=[],
            device=None,
            graphObjects=list(graphObjects),
            declared=Declared(),
            compiled=None,
            runs=Runs(),
            linked=[],
            feeds={},
            results={},
            users=Users(),
            lock=Locks(graph._lock for graph in graphObjects),
            queue=CompletionQueue(),
            **more,
        )

    def _all_nodes(self) -> list[Node]:
        return in_order([node for graph in self._graphObjects for node in graph._all_nodes()] + self._nodes)

    def _changed(self) -> None:
        self._runs.forget()

    def _forget_runs(self) -> None:
        self._runs.forget()
        self._runs.last = self._runs.active = None

    # Seeing it (ours)

    def memory(self) -> Memory:
        """What the graph holds on its device: parameters, statistics, optimizer state, gradients, results and so on."""
        with self._lock.held():
            return Memory(self._facts())

    def profile(self, work: Callable[[], Any] | None = None) -> Profile:
        """Time by layer: ``with graph.profile() as report:``, or of what ``work`` executes if it is given."""
        report = Profile(self._facts, self._force_options)
        if work is not None:
            with report:
                work()
        return report

    def _force_options(self, options: int) -> None:
        """These hold for every call from now on, until they are taken back with 0."""
        if options and self._runs.forced_options:
            raise RuntimeError("this graph is being profiled already")
        self._runs.forced_options = options

    def _facts(self) -> GraphFacts:
        declared, runs, nodes = self._declared, self._runs, self._all_nodes()
        sessions = [*runs.sessions.values(), *([] if runs.last is None else [runs.last])]
        return GraphFacts(
            type(self).__name__,
            nodes,
            frozenset(id(n.layer) for n in nodes if self._is_loss(n.layer)),
            executable=True,
            declared=tuple(declared.named()),
            linked=frozenset(self._linked_results()),
            trains=self._trains,
            stopped=frozenset(self._stopped_cells()),
            trained_tensors=tuple(p._tensor._cell for p in self._parameters_to_train()),
            optimizer=self._update_rule(),
            device=None if self._device is None else self._device.torch_device,
            session=runs.sessions.get(Variant.whole),
            sessions=tuple({id(s): s for s in sessions}.values()),
            idle=self._why_idle(),
        )

    def _why_idle(self) -> str:
        """Why no gear is chosen, where none is."""
        if self._compiled is None:
            return "not compiled"
        return self._missing() or "chosen anew at the next execute, since the graph has changed"

    # Declaring

    def _declare_inputs(
        self,
        inputs: Mapping[str, MLCTensor],
        labels: Mapping[str, MLCTensor] | None = None,
        weights: Mapping[str, MLCTensor] | None = None,
    ) -> bool:
        with self._lock.held():
            declared = self._declared
            declared.inputs |= {name: t._cell for name, t in inputs.items()}
            declared.labels |= {name: t._cell for name, t in (labels or {}).items()}
            declared.label_weights |= {name: t._cell for name, t in (weights or {}).items()}
            self._changed()
        return True

    @declare(f"addOutputs(_ outputs: {TENSORS}) -> Bool", "addOutputs:", nil=("outputs",))
    def _add_outputs(self, outputs):
        with self._lock.held():
            self._declared.outputs |= {name: t._cell for name, t in (outputs or {}).items()}
            self._changed()
        return True

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
        if device is None:  # nil has an answer in Objective-C (measured, evidence.md H.2)
            if self._compiled is None:
                refuse("the device is nil, and the graph has not been compiled before")
            device = self._device
        with self._lock.held(), undisturbed(device.torch_device), refusing_lack_of_memory():
            there = ExecutableGraph._all_nodes(self)
            nodes = self._nodes_to_run(there)
            if not nodes:
                refuse("the graph has no layers")
            for node in nodes:
                check(node)
            for name, tensor in (inputTensors or {}).items():
                if name in (inputTensorsData or {}):
                    tensor._cell.upload(inputTensorsData[name], device)
            for layer in unique_layers(nodes):
                for cell in own_states(layer):
                    cell.place(device, writable=True)
                layer._deviceType = device._type
            for graph in (self, *self._graphObjects):
                graph._device = device
            self._compiled = Compiled(there, options, use_inductor)
            self._take_up(device)
            self._runs.warned.clear()
            self._runs.looked = False
            self._changed()
            if self._missing() is None:
                self._session(Variant.whole)
        return True

    def _raise_late_failure(self) -> None:
        """What a completion handler raised on its thread is raised by the next call, before it does anything."""
        if self._queue.failures:
            self._queue.raise_failure()

    def _link_with(self, graphs: Sequence[ExecutableGraph]) -> bool:
        for graph in (self, *graphs):
            with graph._lock.held():
                graph._linked = [g for g in (self, *graphs) if g is not graph]
                graph._changed()
        return True

    def _take_up(self, device: MLCDevice) -> None:
        """What was asked for "from the next compile on"."""

    def _planned_nodes(self, variant: Variant = Variant.whole) -> list[Node]:
        """The nodes that run: those of the last compile. Nodes that came later wait for the next."""
        nodes = ExecutableGraph._all_nodes(self) if self._compiled is None else self._compiled.nodes
        return with_lengths(self._nodes_to_run(nodes, variant), self._declared.inputs, self._runs.lengths)

    def _nodes_to_run(self, nodes: list[Node], variant: Variant = Variant.whole) -> list[Node]:
        """What is run of these nodes. Variants leave some out."""
        return nodes

    def _fed(self, variant: Variant) -> list[tuple[str, Mapping[str, TensorState]]]:
        """What a call is given data for: kind, names and tensors, in the order of the plan's fed slots.

        A tensor that was declared and that no node reads needs no data.
        """
        nodes = self._planned_nodes(variant)
        read = {id(c) for node in nodes for c in node.reads}
        fed: list[tuple[str, Mapping[str, TensorState]]] = [
            (kind, {name: c for name, c in cells.items() if id(c) in read}) for kind, cells in self._declared.fed()
        ]
        if self._linked:
            fed.append((LINKED, self._imported(nodes)))
        return fed

    def _imported(self, nodes: list[Node]) -> dict[str, TensorState]:
        """What these nodes read of the results of linked graphs, as far as it was not declared as an input."""
        known = {id(c) for _, cells in self._declared.fed() for c in cells.values()}
        known |= {id(c) for node in nodes for c in node.results}
        linked = self._linked_results() - known
        return {str(c.tensor_id): c for node in nodes for c in node.reads if id(c) in linked}

    def _fed_cells(self, variant: Variant) -> list[TensorState]:
        return [cell for _, cells in self._fed(variant) for cell in cells.values()]

    def _missing(self, variant: Variant = Variant.whole) -> str | None:
        """What the graph still lacks to run, in words."""
        nodes = self._planned_nodes(variant)
        there = {id(c) for c in self._fed_cells(variant)} | {id(c) for node in nodes for c in node.results}
        missing = {id(c): c for node in nodes for c in node.reads if id(c) not in there}
        linked = self._linked_results()
        bare = [c for c in missing.values() if c.host is None and c.value is None and id(c) not in linked]
        if not bare:
            return None
        names = ", ".join(f"{c.label} {list(c.shape)}" for c in bare)
        return f"no data for {names}: declare it with addInputs, or give the tensor data"

    def _linked_results(self) -> set[int]:
        """The tensors that linked graphs compute."""
        return {id(c) for graph in self._linked for node in graph._all_nodes() for c in node.results}

    def _plan_request(self, nodes: list[Node], options: Compile, variant: Variant) -> PlanRequest:
        debugged = bool(options & Compile.debugLayers)
        readable = [*self._declared.outputs.values(), *self._declared.kept.values()]
        readable += [c for n in nodes if debugged and n.layer._isDebuggingEnabled for c in n.results]
        readable += self._exported(nodes)
        return PlanRequest(readable=[*readable, self._result_cell(nodes)], linked=self._linked_results())

    def _exported(self, nodes: list[Node]) -> list[TensorState]:
        """Results of this graph that linked graphs read."""
        read = {id(c) for g in self._linked for n in g._all_nodes() for c in n.reads}
        return [c for n in nodes for c in n.results if id(c) in read]

    def _result_cell(self, nodes: list[Node]) -> TensorState:
        """What the completion handler gets."""
        return nodes[-1].results[0]

    def _rule_for(self, variant: Variant) -> MLCOptimizer | None:
        """The optimizer that a session of this variant updates with."""
        return None

    # Results that are asked for late

    def _hand_out(self, cells: list[TensorState]) -> None:
        """From now on each run keeps these results; what the last run can still tell of them is filled in at once."""
        with self._lock.held():
            new = [c for c in cells if id(c) not in self._declared.kept]
            if not new:
                return
            self._declared.kept |= {id(c): c for c in new}
            session = self._runs.last or self._runs.active
            if session is None or not session.values:
                return
            known = {id(c) for c in session.readable}
            late = [c for c in new if id(c) not in known and id(c) in session.plan.slots]
            if late:
                with undisturbed(self._device.torch_device):
                    self._fill_late(session, late)
            self._runs.forget()

    def _fill_late(self, session: Session, cells: list[TensorState]) -> None:
        for cell, value in zip(cells, session.values_again(cells), strict=True):
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
        self._check_devices(nodes)
        limited = checked_constants(nodes, fed)
        plan = make_plan(nodes, fed, self._device, self._plan_request(nodes, compiled.options, variant))
        check_memory(plan, self._rule_for(variant))
        standing = {id(c): c for layer in unique_layers(nodes) for c in own_states(layer)}
        standing |= {id(t.cell): t.cell for t in plan.trained}
        for cell in standing.values():
            cell.place(self._device, writable=True)  # read-only memory may have been bound since the last compile
        kept, first = set(plan.readable), plan.fed_count + plan.constant_count
        made = Session(
            plan,
            self._result_cell(nodes),
            rests_on=[*standing.values(), *limited],
            unkept=[c for slot, c in enumerate(plan.cells) if slot >= first and slot not in kept],
            rule=self._rule_for(variant),
            always_plain="compiled with debugLayers or disableLayerFusion" if compiled.options & _PLAIN else None,
            use_inductor=compiled.use_inductor,
        )
        self._results[variant] = MLCTensor._of(made.result)  # or each handler's result would be a handle of its own
        self._feeds[variant] = describe_feeds(self._fed(variant), nodes, self._declared_batch())
        self._prepare(made, nodes, variant)
        self._runs.sessions[variant] = made
        return made

    def _prepare(self, session: Session, nodes: list[Node], variant: Variant) -> None:
        """Make what the first run would have to wait for."""

    def _check_devices(self, nodes: list[Node]) -> None:
        target = self._device.torch_device
        for cell in (use.cell for layer in unique_layers(nodes) for use in layer.parameter_uses):
            if cell.value is None or cell.value.device != target:
                where = cell.value.device if cell.value is not None else "the host"
                refuse(
                    f"tensor {cell.label!r} now lives on {where}, the graph was compiled for {target}; compile it again"
                )

    def _declared_batch(self) -> int:
        runs = self._runs
        if runs.samples is None:
            nodes, inputs = self._planned_nodes(), self._declared.inputs
            if self._linked:
                inputs = inputs | self._imported(nodes)
            runs.samples = declared_batch(inputs, self._declared.labels, nodes)
        return runs.samples

    def _batch(self, batch_size: int, full: int) -> int:
        """How many samples a call runs that gives another number than was declared."""
        if batch_size < 0:
            refuse(f"batchSize must not be negative, got {batch_size}")
        if full and batch_size > full:
            refuse(f"batchSize is {batch_size}, the inputs hold {full} samples")
        return batch_size or full

    def _batches(self, cells: list[TensorState], batchSize: int) -> list[int]:
        full = self._declared_batch()
        if batchSize in (0, full):
            return [0] * len(cells)
        axes = batch_axes(self._planned_nodes())
        if not full or batchSize < 0 or batchSize > full:
            return super()._batches(cells, batchSize)
        return [batchSize if axes.get(id(c), 0) == 0 and c.shape[0] == full else 0 for c in cells]

    def _look_at_result(self, value: torch.Tensor) -> None:
        """A result has come to the host."""

    def _broke_off(self) -> None:
        """A phase ended in the middle."""
        if self._runs.active is not None:
            self._runs.active.fail()
        self._runs.last = self._runs.active = None
