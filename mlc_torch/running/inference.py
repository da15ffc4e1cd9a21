"""``MLCInferenceGraph``: runs layers forward, in inference mode, with the weights as they are."""

from __future__ import annotations

from mlc_torch.engine.mode import Mode
from mlc_torch.engine.session import Session
from mlc_torch.engine.shared_module import SharedGraphModule
from mlc_torch.nodes.feeding import take
from mlc_torch.nodes.node import Node
from mlc_torch.running.asynchronous import awaited
from mlc_torch.running.completion import Targets
from mlc_torch.running.executable import ExecutableGraph
from mlc_torch.running.request import BY_LAYER, NO_DATA, SKIPS_WRITING, Request, packs_request
from mlc_torch.running.results import output_targets, publish, with_inputs
from mlc_torch.running.road import travel
from mlc_torch.running.signatures import DATA, HANDLER, LABELS_DATA, OPTIONS, TENSORS, TIMED
from mlc_torch.running.state import Variant
from mlc_torch.running.training_warnings import warn_computed, warn_unmade, warn_unread
from mlc_torch.running.usual import usual_inference
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.state import changes

_HOW = f"batchSize: Int, {OPTIONS}, {HANDLER}"
_INFER, _WHOLE = Mode.infer, Variant.whole
_SIZES = 64
"""How many batch sizes of a graph may be usual."""


class MLCInferenceGraph(ExecutableGraph):
    """Runs the layers of its graph objects, and its own, forward."""

    @declare("init(graphObjects: [MLCGraph])", "graphWithGraphObjects:")
    def _create(cls, graphObjects):
        """An inference graph over the layers of these graphs."""
        return cls._over(graphObjects)

    @declare(f"addInputs(_ inputs: {TENSORS}) -> Bool", "addInputs:", nil=("inputs",))
    @declare(
        f"addInputs(_ inputs: {TENSORS}, lossLabels: {TENSORS}?, lossLabelWeights: {TENSORS}?) -> Bool",
        "addInputs:lossLabels:lossLabelWeights:",
        nil=("inputs",),
    )
    def _add_inputs(self, inputs, lossLabels=None, lossLabelWeights=None):
        """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
        return self._declare_inputs(inputs or {}, lossLabels, lossLabelWeights)

    @declare("link(with graphs: [MLCInferenceGraph]) -> Bool", "linkWithGraphs:")
    def _link(self, graphs):
        """Tensors that one of the graphs computes and another reads carry their value across."""
        return self._link_with(graphs)

    @prop("Int")
    def deviceMemorySize(self):
        """Bytes of the nodes' results; 0 until the graph is compiled (measured, evidence.md H.7)."""
        if self._compiled is None:
            return 0
        return sum(c.descriptor._nbytes for node in self._planned_nodes() for c in node.results)

    # Running

    @declare(f"execute(inputsData: {DATA}, {_HOW}", "executeWithInputsData:batchSize:options:completionHandler:")
    @declare(
        f"execute(inputsData: {DATA}, outputsData: {DATA}?, {_HOW}",
        "executeWithInputsData:outputsData:batchSize:options:completionHandler:",
    )
    @declare(
        f"execute(inputsData: {DATA}, {LABELS_DATA}, {_HOW}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:",
    )
    @declare(
        f"execute(inputsData: {DATA}, {LABELS_DATA}, outputsData: {DATA}?, {_HOW}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:outputsData:batchSize:options:completionHandler:",
    )
    @packs_request(travel, usual=True)
    def _run(self, request: Request) -> tuple[TensorState, Targets]:
        """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
        runs, (_, options, _, wanted, data, outputs, _) = self._runs, request
        full = runs.samples if runs.samples is not None else self._declared_batch()
        batch = full if wanted == full else self._batch(wanted, full)
        targets = output_targets(outputs, self, full, batch) if outputs else ()
        session = runs.sessions.get(_WHOLE)
        if session is None or session.checked != changes.newest:
            session = self._session(_WHOLE)
        runs.active = session
        whole, bits = batch == full, options | runs.forced_options
        if bits & SKIPS_WRITING:
            data = NO_DATA
        if self._linked:
            self._check_links(_WHOLE, batch)
        feeds = take(self._feeds[_WHOLE], data, None if whole else batch)
        if targets and runs.returns_inputs:
            targets = with_inputs(targets, session, feeds)
        session.forward(feeds, _INFER, whole, bool(bits & BY_LAYER))
        usual = runs.usuals.get(batch)
        if usual is None and (whole or (batch in runs.sizes and len(runs.usuals) < _SIZES)):
            usual = usual_inference(self, session, self._feeds[_WHOLE], full, batch, self._results[_WHOLE])
            if usual is not None:
                runs.usuals[batch] = usual
        if usual is not None:
            runs.usual, runs.usual_of = usual, session
        runs.sizes.add(batch)
        return publish(session, self._device), targets

    @declare(
        f"async execute(inputsData: {DATA}, lossLabelsData: {DATA}? = nil, lossLabelWeightsData: {DATA}? = nil, "
        f"outputsData: {DATA}? = nil, batchSize: Int, {OPTIONS}) "
        f"{TIMED}"
    )
    @packs_request(awaited)
    def _run_async(self, request: Request) -> tuple[TensorState, Targets]:
        """``await`` gives the result and the seconds it took; a refusal is raised."""
        return self._run(request)

    def _prepare(self, session: Session, nodes: list[Node], variant: Variant) -> None:
        warn_unread(self._runs.warned, nodes, [("input", self._declared.inputs)])  # labels may serve a loss elsewhere
        warn_computed(self._runs.warned, nodes, self._declared.fed())
        warn_unmade(self._runs.warned, nodes, self._declared.outputs, session.plan)
        self._runs.forget_usual()
        session.prepare(_INFER)

    def _nodes_to_run(self, nodes: list[Node], variant: Variant = _WHOLE) -> list[Node]:
        """Loss nodes run only where their labels were declared."""
        declared = {id(c) for c in self._declared.labels.values()}
        return [
            node
            for node in nodes
            if not self._is_loss(node.layer) or all(id(c) in declared or c.host is not None for c in node.labels)
        ]

    def to_module(self, *, loss: bool = False) -> SharedGraphModule:
        """As ``MLCGraph.to_module``; the module, and any that a ``TorchLayer`` was made of, comes in inference mode."""
        return super().to_module(loss=loss).eval()
