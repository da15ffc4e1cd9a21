"""``MLCInferenceGraph``: runs layers forward, in inference mode, with the weights as they are."""

from __future__ import annotations

from collections.abc import Mapping

from mlc_torch.engine.as_module import SharedGraphModule
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.nodes.feeding import take
from mlc_torch.nodes.node import Node
from mlc_torch.refusals import refuse
from mlc_torch.running.asynchronous import awaited
from mlc_torch.running.executable import ExecutableGraph
from mlc_torch.running.quick import INFER, quick_ways
from mlc_torch.running.signatures import DATA, HANDLER, LABELS_DATA, OPTIONS, TENSORS, TIMED
from mlc_torch.spelling import declare, has_quick_way, prop

_SKIP, _BY_LAYER = Run.skipWritingInputDataToDevice.value, Run.perLayerProfiling.value
_HOW = f"batchSize: Int, {OPTIONS}, {HANDLER}"


class MLCInferenceGraph(ExecutableGraph):
    """Runs the layers of its graph objects, and its own, forward."""

    @declare("init(graphObjects: [MLCGraph])", "graphWithGraphObjects:")
    def _create(cls, graphObjects):
        return cls._over(graphObjects)

    @declare(f"addInputs(_ inputs: {TENSORS}) -> Bool", "addInputs:")
    @declare(
        f"addInputs(_ inputs: {TENSORS}, lossLabels: {TENSORS}?, lossLabelWeights: {TENSORS}?) -> Bool",
        "addInputs:lossLabels:lossLabelWeights:",
    )
    def _add_inputs(self, inputs, lossLabels=None, lossLabelWeights=None):
        return self._declare_inputs(inputs, lossLabels, lossLabelWeights)

    @declare("link(with graphs: [MLCInferenceGraph]) -> Bool", "linkWithGraphs:")
    def _link(self, graphs):
        """Tensors that one of the graphs computes and another reads carry their value across."""
        return self._link_with(graphs)

    @prop("Int")
    def deviceMemorySize(self):
        """Bytes of the nodes' results; 0 until the graph is compiled (measured, evidence.md H.7)."""
        if self._options is None:
            return 0
        return sum(c.descriptor.nbytes for node in self._planned_nodes() for c in node.results)

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
    @has_quick_way
    def _run(
        self,
        inputsData: Mapping,
        batchSize: int,
        options: Run = Run(0),
        completionHandler=None,
        outputsData=None,
        lossLabelsData=None,
        lossLabelWeightsData=None,
    ):
        def work():
            if (lossLabelsData and not self._labels) or (lossLabelWeightsData and not self._label_weights):
                refuse("data for loss labels was given, and addInputs declared no loss labels")
            full, batch = self._batch(batchSize)
            targets = self._output_targets(outputsData, full, batch)
            session = self._ready()
            bits = options._value_ | self._forced_options
            skip = bits & _SKIP
            data = (None, None, None) if skip else (inputsData, lossLabelsData, lossLabelWeightsData)
            feeds = take(session.feeds, data, None if batch == full else batch)
            session.forward(feeds, False, False, full == batch, bool(bits & _BY_LAYER))
            if not self._quick and not self._linked:
                self._quick = quick_ways(self, session, full)
            return self._publish(session), targets

        return self._execute(INFER, options, completionHandler, work)

    @declare(
        f"async execute(inputsData: {DATA}, lossLabelsData: {DATA}? = nil, lossLabelWeightsData: {DATA}? = nil, "
        f"outputsData: {DATA}? = nil, batchSize: Int, {OPTIONS}) "
        f"{TIMED}"
    )
    def _run_async(self, inputsData, batchSize, options=Run(0), **data):
        return awaited(self._run, inputsData=inputsData, batchSize=batchSize, options=options, **data)

    def _ready(self, variant: str = ""):
        known = self._sessions.get(variant)
        session = super()._ready(variant)
        if session is not known:
            session.prepare(training=False, differentiates=False)
        return session

    def _nodes_to_run(self, nodes: list[Node], variant: str = "") -> list[Node]:
        """Loss nodes run only where their labels were declared."""
        declared = {id(c) for c in self._labels.values()}
        return [
            node
            for node in nodes
            if not self._is_loss(node.layer) or all(id(c) in declared or c.host is not None for c in node.labels)
        ]

    def to_module(self, *, loss: bool = False) -> SharedGraphModule:
        """As ``MLCGraph.to_module``; the module, and any that a ``TorchLayer`` was made of, comes in inference mode."""
        return super().to_module(loss=loss).eval()
