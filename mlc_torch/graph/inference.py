"""``MLCInferenceGraph``: runs layers forward, in inference mode, with the weights as they are."""

from __future__ import annotations

from collections.abc import Mapping

from mlc_torch.engine.as_module import SharedGraphModule
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.graph.asynchronous import awaited
from mlc_torch.graph.executable import ExecutableGraph
from mlc_torch.graph.feeding import take
from mlc_torch.graph.nodes import Node
from mlc_torch.graph.quick import INFER, quick_ways
from mlc_torch.layers import MLCLossLayer
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, has_quick_way, prop

_SKIP, _BY_LAYER = Run.skipWritingInputDataToDevice.value, Run.perLayerProfiling.value
_DATA = "[String : MLCTensorData]"
_TENSORS = "[String : MLCTensor]"
_LABELS = f"lossLabelsData: {_DATA}?, lossLabelWeightsData: {_DATA}?"
_HOW = "batchSize: Int, options: MLCExecutionOptions = [], completionHandler: MLCGraphCompletionHandler? = nil) -> Bool"
_COMPILE = "options: MLCGraphCompilationOptions = [], device: MLCDevice"


class MLCInferenceGraph(ExecutableGraph):
    """Runs the layers of its graph objects, and its own, forward."""

    @declare("init(graphObjects: [MLCGraph])", "graphWithGraphObjects:")
    def _create(cls, graphObjects):
        return cls._over(graphObjects)

    @declare(f"addInputs(_ inputs: {_TENSORS}) -> Bool", "addInputs:")
    @declare(
        f"addInputs(_ inputs: {_TENSORS}, lossLabels: {_TENSORS}?, lossLabelWeights: {_TENSORS}?) -> Bool",
        "addInputs:lossLabels:lossLabelWeights:",
    )
    def _add_inputs(self, inputs, lossLabels=None, lossLabelWeights=None):
        return self._declare_inputs(inputs, lossLabels, lossLabelWeights)

    @declare(f"addOutputs(_ outputs: {_TENSORS}) -> Bool", "addOutputs:")
    def _add_outputs(self, outputs):
        return self._declare_outputs(outputs)

    @declare(f"compile({_COMPILE}) -> Bool", "compileWithOptions:device:")
    @declare(
        f"compile({_COMPILE}, inputTensors: {_TENSORS}?, inputTensorsData: {_DATA}?) -> Bool",
        "compileWithOptions:device:inputTensors:inputTensorsData:",
    )
    @declare(f"compile({_COMPILE}, use_inductor: Bool) -> Bool", ours=True)
    def _compile_graph(self, device, options=Compile(0), inputTensors=None, inputTensorsData=None, use_inductor=False):
        """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
        return self._compile(options, device, inputTensors, inputTensorsData, use_inductor)

    @declare("link(with graphs: [MLCInferenceGraph]) -> Bool", "linkWithGraphs:")
    def _link(self, graphs):
        """Tensors that one of the graphs computes and another reads carry their value across."""
        for graph in (self, *graphs):
            with graph._lock:
                graph._linked = [g for g in (self, *graphs) if g is not graph]
                graph._changed()
        return True

    @prop("Int")
    def deviceMemorySize(self):
        """Bytes of the nodes' results; 0 until the graph is compiled (measured, evidence.md H.7)."""
        if self._options is None:
            return 0
        return sum(c.descriptor.nbytes for node in self._planned_nodes() for c in node.results)

    # Running

    @declare(f"execute(inputsData: {_DATA}, {_HOW}", "executeWithInputsData:batchSize:options:completionHandler:")
    @declare(
        f"execute(inputsData: {_DATA}, outputsData: {_DATA}?, {_HOW}",
        "executeWithInputsData:outputsData:batchSize:options:completionHandler:",
    )
    @declare(
        f"execute(inputsData: {_DATA}, {_LABELS}, {_HOW}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:",
    )
    @declare(
        f"execute(inputsData: {_DATA}, {_LABELS}, outputsData: {_DATA}?, {_HOW}",
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
            bits = options._value_ | self._always
            skip = bits & _SKIP
            data = (None, None, None) if skip else (inputsData, lossLabelsData, lossLabelWeightsData)
            feeds = take(session.feeds, data, None if batch == full else batch)
            session.forward(feeds, False, False, full == batch, bool(bits & _BY_LAYER))
            if not self._quick and not self._linked:
                self._quick = quick_ways(self, session, full)
            return self._publish(session), targets

        return self._execute(INFER, options, completionHandler, work)

    @declare(
        f"async execute(inputsData: {_DATA}, lossLabelsData: {_DATA}? = nil, lossLabelWeightsData: {_DATA}? = nil, "
        f"outputsData: {_DATA}? = nil, batchSize: Int, options: MLCExecutionOptions = []) "
        "-> (result: MLCTensor?, executionTime: TimeInterval)"
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
            if not isinstance(node.layer, MLCLossLayer)
            or all(id(c) in declared or c.host is not None for c in node.labels)
        ]

    def to_module(self, *, loss: bool = False) -> SharedGraphModule:
        """As ``MLCGraph.to_module``; the module, and any that a ``TorchLayer`` was made of, comes in inference mode."""
        return super().to_module(loss=loss).eval()
