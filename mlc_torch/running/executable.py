"""What inference and training graphs share: declaring inputs and outputs, compiling, feeding, finishing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any, NoReturn

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.graph.graph import MLCGraph
from mlc_torch.graph.locks import Locks
from mlc_torch.nodes.feeding import (
    LINKED,
    Data,
    batch_axes,
    checked_constants,
    declared_batch,
    describe_feeds,
    needed_bytes,
)
from mlc_torch.nodes.node import Node, check, in_order, unique_layers
from mlc_torch.nodes.sequences import with_lengths
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.running.clock import Clock
from mlc_torch.running.completion import CompletionQueue, Handler, Queued, Targets, deliver, fill, is_torch_s, refused
from mlc_torch.running.planner import PlanRequest, make_plan
from mlc_torch.running.signatures import COMPILE, DATA, TENSORS
from mlc_torch.seeing.memory import Memory
from mlc_torch.seeing.profile import Profile
from mlc_torch.spelling import declare
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.state import newest_change

_CPU = torch.device("cpu")
_PROFILING, _SYNCHRONOUS = Run.profiling.value, Run.synchronous.value


class ExecutableGraph(MLCGraph, inherits_initializers=False):
    """A graph over other graphs that can be compiled and executed."""

    @classmethod
    def _over(cls, graphObjects: list[MLCGraph], **more: Any) -> Any:
        return cls._make(
            nodes=[],
            device=None,
            graphObjects=list(graphObjects),
            inputs={},
            labels={},
            label_weights={},
            outputs={},
            options=None,
            use_inductor=False,
            sessions={},
            lengths={},
            linked=[],
            warned=set(),
            forced_options=0,
            compiled=None,
            samples=None,
            users=set(),
            quick={},
            lock=Locks(graph._lock for graph in graphObjects),
            queue=CompletionQueue(),
            **more,
        )

    def _all_nodes(self) -> list[Node]:
        return in_order([node for graph in self._graphObjects for node in graph._all_nodes()] + self._nodes)

    def _changed(self) -> None:
        self._sessions = {}
        self._samples: int | None = None
        self._quick: dict[str, Callable[..., Any]] = {}

    def _names(self) -> dict[int, tuple[str, str]]:
        declared = [*self._declared(), ("output", self._outputs)]
        return {id(cell): (kind, name) for kind, cells in declared for name, cell in cells.items()}

    # Seeing it (ours)

    def memory(self) -> Memory:
        """What the graph holds on its device: parameters, statistics, optimizer state, gradients, results and so on."""
        with self._lock:
            return Memory(self)

    def profile(self, work: Callable[[], Any] | None = None) -> Profile:
        """Time by layer: ``with graph.profile() as report:``, or of what ``work`` executes if it is given."""
        report = Profile(self)
        if work is not None:
            with report:
                work()
        return report

    # Declaring

    def _declare_inputs(
        self,
        inputs: Mapping[str, MLCTensor],
        labels: Mapping[str, MLCTensor] | None = None,
        weights: Mapping[str, MLCTensor] | None = None,
    ) -> bool:
        with self._lock:
            self._inputs |= {name: t._cell for name, t in inputs.items()}
            self._labels |= {name: t._cell for name, t in (labels or {}).items()}
            self._label_weights |= {name: t._cell for name, t in (weights or {}).items()}
            self._changed()
        return True

    @declare(f"addOutputs(_ outputs: {TENSORS}) -> Bool", "addOutputs:")
    def _add_outputs(self, outputs):
        with self._lock:
            self._outputs |= {name: t._cell for name, t in outputs.items()}
            self._changed()
        return True

    # Compiling

    @declare(f"compile({COMPILE}) -> Bool", "compileWithOptions:device:")
    @declare(
        f"compile({COMPILE}, inputTensors: {TENSORS}?, inputTensorsData: {DATA}?) -> Bool",
        "compileWithOptions:device:inputTensors:inputTensorsData:",
    )
    @declare(f"compile({COMPILE}, use_inductor: Bool) -> Bool", ours=True)
    def _compile(self, device, options=Compile(0), inputTensors=None, inputTensorsData=None, use_inductor=False):
        """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
        with self._lock:
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
                for cell in (*(use.cell for use in layer.parameter_uses), *layer.buffer_cells):
                    cell.place(device, writable=True)
                layer._deviceType = device._type
            for graph in (self, *self._graphObjects):
                graph._device = device
            self._options, self._compiled, self._use_inductor = options, there, use_inductor
            self._take_up(device)
            self._warned.clear()
            self._changed()
            if self._missing() is None:
                self._ready()
        return True

    def _link_with(self, graphs: Sequence[ExecutableGraph]) -> bool:
        for graph in (self, *graphs):
            with graph._lock:
                graph._linked = [g for g in (self, *graphs) if g is not graph]
                graph._changed()
        return True

    def _take_up(self, device: MLCDevice) -> None:
        """What was asked for "from the next compile on"."""

    def _planned_nodes(self, variant: str = "") -> list[Node]:
        """The nodes that run: those of the last compile. Nodes that came later wait for the next."""
        nodes = ExecutableGraph._all_nodes(self) if self._compiled is None else self._compiled
        return with_lengths(self._nodes_to_run(nodes, variant), self._inputs, self._lengths)

    def _nodes_to_run(self, nodes: list[Node], variant: str = "") -> list[Node]:
        """What is run of these nodes. Variants leave some out."""
        return nodes

    def _fed(self, variant: str = "") -> list[tuple[str, Mapping[str, TensorState]]]:
        """What a call is given data for: kind, names and tensors, in the order of the plan's fed slots.

        A tensor that was declared and that no node reads needs no data.
        """
        nodes = self._planned_nodes(variant)
        read = {id(c) for node in nodes for c in node.reads}
        fed: list[tuple[str, Mapping[str, TensorState]]] = [
            (kind, {name: c for name, c in cells.items() if id(c) in read}) for kind, cells in self._declared()
        ]
        if self._linked:
            fed.append((LINKED, self._imported(nodes)))
        return fed

    def _imported(self, nodes: list[Node]) -> dict[str, TensorState]:
        """What these nodes read of the results of linked graphs, as far as it was not declared as an input."""
        known = {id(c) for _, cells in self._declared() for c in cells.values()}
        known |= {id(c) for node in nodes for c in node.results}
        linked = self._linked_results() - known
        return {str(c.tensor_id): c for node in nodes for c in node.reads if id(c) in linked}

    def _declared(self) -> list[tuple[str, Mapping[str, TensorState]]]:
        return [("input", self._inputs), ("label", self._labels), ("label weight", self._label_weights)]

    def _fed_cells(self, variant: str = "") -> list[TensorState]:
        return [cell for _, cells in self._fed(variant) for cell in cells.values()]

    def _missing(self, variant: str = "") -> str | None:
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

    def _plan_request(self, nodes: list[Node], variant: str) -> PlanRequest:
        debugged = bool(self._options & Compile.debugLayers)
        readable = list(self._outputs.values())
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

    def _optimizer_for(self, variant: str) -> MLCOptimizer | None:
        return None

    def _ready(self, variant: str = "") -> Session:
        """The session of the compiled graph, renewed where something it rests on has changed."""
        if self._options is None:
            refuse("the graph is not compiled; call compile(options:device:) first")
        session = self._sessions.get(variant)
        if session is not None and session.is_current(newest_change()):
            return session
        missing = self._missing(variant)
        if missing is not None:
            refuse(missing)
        nodes = self._planned_nodes(variant)
        request = self._plan_request(nodes, variant)
        self._check_devices(nodes)
        limited = checked_constants(nodes, self._fed_cells(variant))
        plan = make_plan(nodes, self._fed_cells(variant), self._device, request)
        standing = _standing_cells(nodes, plan)
        for cell in standing:
            cell.place(self._device, writable=True)  # read-only memory may have been bound since the last compile
        kept = set(plan.readable)
        first = plan.fed_count + plan.constant_count
        made = Session(
            plan,
            self._result_cell(nodes),
            unkept=[c for slot, c in enumerate(plan.cells) if slot >= first and slot not in kept],
            cells=[*standing, *limited],
            optimizer=self._optimizer_for(variant),
            options=self._options,
            use_inductor=self._use_inductor,
        )
        made.feeds = describe_feeds(self._fed(variant), nodes, self._declared_batch())
        made.checked = newest_change()
        self._sessions[variant] = made
        self._quick = {}  # they know the session that this one replaces
        return made

    def _check_devices(self, nodes: list[Node]) -> None:
        target = self._device.torch_device
        for cell in (use.cell for layer in unique_layers(nodes) for use in layer.parameter_uses):
            if cell.value is None or cell.value.device != target:
                where = cell.value.device if cell.value is not None else "the host"
                refuse(
                    f"tensor {cell.label!r} now lives on {where}, the graph was compiled for {target}; compile it again"
                )

    # Feeding

    def _declared_batch(self) -> int:
        if self._samples is None:
            nodes = self._planned_nodes()
            inputs = self._inputs | self._imported(nodes) if self._linked else self._inputs
            self._samples = declared_batch(inputs, self._labels, nodes)
        return self._samples

    def _batch(self, batchSize: int) -> tuple[int, int]:
        """The batch that was declared, and the one that this call runs."""
        full = self._declared_batch()
        if batchSize < 0:
            refuse(f"batchSize must not be negative, got {batchSize}")
        if full and batchSize > full:
            refuse(f"batchSize is {batchSize}, the inputs hold {full} samples")
        return full, batchSize or full

    def _batches(self, cells, batchSize):
        full = self._declared_batch()
        if batchSize in (0, full):
            return [0] * len(cells)
        axes = batch_axes(self._planned_nodes())
        if not full or batchSize < 0 or batchSize > full:
            return super()._batches(cells, batchSize)
        return [batchSize if axes.get(id(c), 0) == 0 and c.shape[0] == full else 0 for c in cells]

    # Finishing

    def _publish(self, session: Session) -> TensorState:
        """Give the readable tensors their values; gives the one that the handler gets."""
        device = self._device
        for cell, value in zip(session.readable, session.values, strict=True):
            cell.publish(value if value.shape == cell.shape else _into_full(cell, value), device)
        return session.result

    def _output_targets(self, outputsData: Data | None, full: int, batch: int) -> Targets:
        """The caller's output buffers, checked, with the tensors that will fill them."""
        if not outputsData:
            return ()
        targets = []
        for name, data in outputsData.items():
            cell = self._outputs.get(name)
            if cell is None:
                refuse(f"outputsData names {name!r}; addOutputs declared: {', '.join(self._outputs) or 'nothing'}")
            short = batch != full and cell.shape[0] == full
            needed_bytes(name, cell, data, batch if short else 0)
            if data.readonly:
                refuse(f"the buffer for output {name!r} is read-only")
            targets.append((cell, data.view(cell.dtype, (batch, *cell.shape[1:]) if short else cell.shape)))

        return targets

    def _broke_off(self) -> None:
        """A phase ended in the middle."""

    def _execute(
        self, member: str, options: Run, handler: Handler | None, work: Callable[[], tuple[TensorState | None, Targets]]
    ) -> bool:
        """Run ``work`` under the graph's lock, then the handler. A refusal reaches the handler and then the door."""
        bits = options._value_
        self._users.add(get_ident())
        try:
            with self._lock:
                device = self._device.torch_device if self._device is not None else _CPU
                clock = Clock(device) if bits & _PROFILING else None
                result, targets = work()
                if clock is not None:
                    clock.stop()
                if device.type == "cpu":
                    queued = None
                    for cell, target in targets:
                        fill(target, cell.value)
                    shared = len(self._users) > 1 or hasattr(handler, "keeps_result")
                    if handler is not None and result is not None and shared:
                        # Another thread may run the graph before the result is read.
                        result = result.frozen(result.value)
                else:
                    queued = Queued(device, result, targets, handler, clock)
        except Exception as error:  # noqa: BLE001 - raised again, as a refusal where it is one
            self._failed(error, member, handler)
        if queued is not None:
            return queued.finish(self._queue, bool(bits & _SYNCHRONOUS))
        if handler is not None:
            seconds = clock.seconds() if clock is not None else 0.0
            deliver(handler, None if result is None else MLCTensor._of(result), None, seconds)
        return True

    def _failed(self, error: Exception, member: str, handler: Handler | None) -> NoReturn:
        """Tell the handler, and raise: what torch could not compute as a refusal, what a program's hook raised as it is."""
        if isinstance(error, MLCRefusal):
            refused(handler, error, f"{type(self).__name__}.{member}")
            raise error
        self._broke_off()
        if not is_torch_s(error):
            raise error
        refusal = MLCRefusal(f"torch cannot compute this: {str(error).partition(chr(10))[0]}")
        refused(handler, refusal, f"{type(self).__name__}.{member}")
        raise refusal from error


def _standing_cells(nodes: list[Node], plan: Plan) -> list[TensorState]:
    """The tensors whose memory a session rests on."""
    cells = [
        c for layer in unique_layers(nodes) for c in (*(u.cell for u in layer.parameter_uses), *layer.buffer_cells)
    ]
    cells += [t.cell for t in plan.trained]
    return list({id(c): c for c in cells}.values())


def _into_full(cell: TensorState, value: torch.Tensor) -> torch.Tensor:
    """A short batch's result inside the tensor's full shape; the other samples keep their bytes."""
    if value.numel() == math.prod(cell.shape):
        return value.reshape(cell.shape)
    old = cell.value
    if old is not None and old.device == value.device and tuple(old.shape) == cell.shape:
        full = old.clone()
    else:
        full = value.new_zeros(cell.shape)
    full[tuple(slice(0, n) for n in value.shape)] = value
    return full
