"""Random graphs and random calls: the library may refuse, but raises nothing but TypeError for wrong types, and never hangs."""

from __future__ import annotations

import signal
import threading
import warnings
from contextlib import contextmanager, suppress

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlc_torch import (
    MLCActivationDescriptor,
    MLCActivationLayer,
    MLCActivationType,
    MLCAdamOptimizer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCComparisonLayer,
    MLCComparisonOperation,
    MLCConcatenationLayer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCDataType,
    MLCDropoutLayer,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCFullyConnectedLayer,
    MLCGatherLayer,
    MLCGramMatrixLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCInstanceNormalizationLayer,
    MLCLayerNormalizationLayer,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCPaddingLayer,
    MLCPoolingDescriptor,
    MLCPoolingLayer,
    MLCPoolingType,
    MLCReductionLayer,
    MLCReductionType,
    MLCReshapeLayer,
    MLCRMSPropOptimizer,
    MLCSelectionLayer,
    MLCSGDOptimizer,
    MLCSliceLayer,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCSplitLayer,
    MLCTensor,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
    MLCTransposeLayer,
    MLCUpsampleLayer,
    last_refusal,
)
from tests.graph.programs import cpu, hyper

SIZE = st.integers(1, 4)
SHAPE = st.one_of(
    st.lists(SIZE, min_size=2, max_size=2),
    st.lists(SIZE, min_size=4, max_size=4),
    st.lists(SIZE, min_size=1, max_size=4),
)
TYPE = st.sampled_from([MLCDataType.float32] * 8 + [MLCDataType.int32, MLCDataType.boolean, MLCDataType.float16])
NUMPY = {
    MLCDataType.float32: np.float32,
    MLCDataType.int32: np.int32,
    MLCDataType.boolean: np.bool_,
    MLCDataType.float16: np.float16,
}
OPTIONS = st.integers(0, 31)
BINARY = {"add", "subtract", "multiply", "divide", "pow", "multiplyNoNaN", "divideNoNaN", "min", "max"}


def memory(shape, type_=MLCDataType.float32, extra: int = 0, seed: int = 0) -> MLCTensorData:
    count = max(1, int(np.prod(shape)) + extra)
    values = np.random.default_rng(seed).uniform(0, 1.9, count).astype(NUMPY[type_])
    return MLCTensorData(bytesNoCopy=values, length=values.nbytes)


def held(*shape: int) -> MLCTensor:
    return MLCTensor(shape=list(shape), data=memory(shape, seed=3), dataType=MLCDataType.float32)


@st.composite
def layers(draw, source: MLCTensor):
    """A layer that may fit ``source``; None where its own initializer refused."""
    shape = source.descriptor.shape
    channels = shape[1] if len(shape) > 1 and draw(st.integers(0, 5)) else draw(SIZE)
    last = shape[-1] if draw(st.integers(0, 5)) else draw(SIZE)
    out = draw(SIZE)
    kernel = draw(st.tuples(SIZE, SIZE))
    dimension = draw(st.integers(0, 3))
    makers = {
        "activation": lambda: MLCActivationLayer(
            descriptor=MLCActivationDescriptor(
                type=draw(st.sampled_from([t for t in MLCActivationType if t.value < 21]))
            )
        ),
        "arithmetic": lambda: MLCArithmeticLayer(
            operation=draw(st.sampled_from([o for o in MLCArithmeticOperation if o.value < 30]))
        ),
        "comparison": lambda: MLCComparisonLayer(
            operation=draw(st.sampled_from([o for o in MLCComparisonOperation if o.value < 12]))
        ),
        "concatenation": lambda: MLCConcatenationLayer(dimension=dimension),
        "convolution": lambda: MLCConvolutionLayer(
            weights=held(1, channels * out, *kernel),
            biases=held(1, out, 1, 1),
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=kernel,
                inputFeatureChannelCount=channels,
                outputFeatureChannelCount=out,
                strides=draw(st.tuples(SIZE, SIZE)),
            ),
        ),
        "dense": lambda: MLCFullyConnectedLayer(
            weights=held(1, last * out, 1, 1),
            biases=held(1, out, 1, 1),
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=(1, 1), inputFeatureChannelCount=last, outputFeatureChannelCount=out
            ),
        ),
        "batch norm": lambda: MLCBatchNormalizationLayer(
            featureChannelCount=channels,
            mean=held(1, channels, 1, 1),
            variance=held(1, channels, 1, 1),
            beta=None,
            gamma=held(1, channels, 1, 1),
            varianceEpsilon=1e-3,
        ),
        "instance norm": lambda: MLCInstanceNormalizationLayer(
            featureChannelCount=channels, beta=held(1, channels, 1, 1), gamma=None, varianceEpsilon=1e-3
        ),
        "layer norm": lambda: MLCLayerNormalizationLayer(
            normalizedShape=shape[1:] or shape, beta=None, gamma=held(*(shape[1:] or shape)), varianceEpsilon=1e-3
        ),
        "dropout": lambda: MLCDropoutLayer(rate=draw(st.floats(0, 0.9)), seed=draw(st.integers(0, 3))),
        "embedding": lambda: MLCEmbeddingLayer(
            descriptor=MLCEmbeddingDescriptor(embeddingCount=3, embeddingDimension=out), weights=held(3, out)
        ),
        "gather": lambda: MLCGatherLayer(dimension=dimension),
        "gram": lambda: MLCGramMatrixLayer(scale=0.5),
        "lstm": lambda: MLCLSTMLayer(
            descriptor=MLCLSTMDescriptor(inputSize=last, hiddenSize=2, layerCount=1),
            inputWeights=[held(2, last)] * 4,
            hiddenWeights=[held(2, 2)] * 4,
            biases=[held(2)] * 4,
        ),
        "matmul": lambda: MLCMatMulLayer(
            descriptor=MLCMatMulDescriptor(alpha=1.0, transposesX=draw(st.booleans()), transposesY=draw(st.booleans()))
        ),
        "padding": lambda: MLCPaddingLayer(zeroPadding=draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))),
        "pooling": lambda: MLCPoolingLayer(
            descriptor=MLCPoolingDescriptor(
                type=draw(st.sampled_from([MLCPoolingType.max, MLCPoolingType.l2Norm])),
                kernelSizes=kernel,
                strides=draw(st.tuples(SIZE, SIZE)),
            )
        ),
        "reduction": lambda: MLCReductionLayer(
            reductionType=draw(st.sampled_from([r for r in MLCReductionType if r.value < 10])), dimension=dimension
        ),
        "reshape": lambda: MLCReshapeLayer(shape=draw(st.one_of(SHAPE, st.just([shape[0], -1]), st.just([-1])))),
        "selection": MLCSelectionLayer,
        "slice": lambda: MLCSliceLayer(
            start=[0] * len(shape),
            end=[draw(SIZE) for _ in shape],
            stride=draw(st.one_of(st.none(), st.just([1] * len(shape)))),
        ),
        "softmax": lambda: MLCSoftmaxLayer(operation=draw(st.sampled_from(MLCSoftmaxOperation)), dimension=dimension),
        "split": lambda: MLCSplitLayer(splitCount=draw(SIZE), dimension=dimension),
        "transpose": lambda: MLCTransposeLayer(dimensions=draw(st.permutations(range(len(shape))))),
        "upsample": lambda: MLCUpsampleLayer(shape=[draw(SIZE) * 2, draw(SIZE) * 2]),
    }
    return makers[draw(st.sampled_from(sorted(makers)))]()


@st.composite
def others(draw, layer, source: MLCTensor, tensors: list[MLCTensor]):
    """The sources after the first: mostly as many as the layer takes, and of a shape that fits."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.lists(st.sampled_from(tensors), max_size=2))
    if isinstance(layer, MLCGatherLayer):
        return [MLCTensor(shape=[2], fillWithData=0, dataType=MLCDataType.int32)]
    if isinstance(layer, (MLCMatMulLayer, MLCConcatenationLayer, MLCSelectionLayer)):
        return [draw(st.sampled_from([source, *tensors]))] * (1 + isinstance(layer, MLCSelectionLayer))
    if isinstance(layer, MLCArithmeticLayer):
        binary = layer.operation.name in BINARY
        return [draw(st.sampled_from([source, source, *tensors]))] if binary else []
    if isinstance(layer, MLCComparisonLayer):
        return [] if layer.operation.name == "logicalNOT" else [draw(st.sampled_from([source, *tensors]))]
    return []


@st.composite
def graphs(draw):
    """A graph, its inputs and every tensor in it."""
    graph = MLCGraph()
    inputs = {}
    tensors = []
    for number in range(draw(st.integers(1, 2))):
        type_ = draw(TYPE)
        made = MLCTensor(shape=draw(SHAPE), dataType=type_)
        inputs[f"x{number}"] = made
        tensors.append(made)
    if draw(st.booleans()):
        tensors.append(held(*draw(SHAPE)))
    for _ in range(draw(st.integers(1, 5))):
        source = draw(st.sampled_from(tensors[-2:]))
        layer = draw(layers(source))
        if layer is None:
            continue
        sources = [source, *draw(others(layer, source, tensors))]
        result = graph.node(layer, sources=sources, **draw(st.sampled_from([{}, {"disableUpdate": True}])))
        if result is not None:
            tensors += graph.resultTensors(for_=layer)
    return graph, inputs, tensors


@contextmanager
def in_time(seconds: int = 30):
    """Something that hangs becomes a failure where the platform has an alarm."""
    armed = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if not armed:
        yield
        return

    def ring(*_):
        raise TimeoutError("the call did not return")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


def not_torch_s_fault() -> bool:
    """A graph that compiled runs on data that fits, but for what torch has no kernels for: half precision on the CPU."""
    said = str(last_refusal())
    return "torch cannot compute" not in said or "Half" in said


def feeds(draw, tensors) -> dict[str, MLCTensorData]:
    given = {}
    for name, t in tensors.items():
        fate = draw(st.integers(0, 9))
        if fate:
            d = t.descriptor
            given[name] = memory(d.shape, d.dataType, extra=-1 if fate == 1 else fate * (fate > 7), seed=fate)
    return given


@QUICK
@given(st.data())
def test_random_graphs_infer(data):
    with in_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph, inputs, tensors = data.draw(graphs())
        inference = MLCInferenceGraph(graphObjects=[graph])
        if data.draw(st.integers(0, 9)):
            inference.addInputs(inputs)
        outputs = {"y": tensors[-1]}
        if data.draw(st.booleans()):
            inference.addOutputs(outputs)
        compiled = inference.compile(options=data.draw(st.integers(0, 15)), device=cpu())
        assert compiled in (True, False)
        exact = {n: memory(t.descriptor.shape, t.descriptor.dataType) for n, t in inputs.items()}
        answer = inference.execute(inputsData=exact, batchSize=0)
        assert answer or not_torch_s_fault()
        for _ in range(data.draw(st.integers(0, 3))):
            answers = []
            answer = inference.execute(
                inputsData=feeds(data.draw, inputs),
                outputsData=data.draw(
                    st.sampled_from([None, {}, {"y": memory([300], tensors[-1].descriptor.dataType)}])
                ),
                batchSize=data.draw(st.integers(-1, 5)),
                options=data.draw(OPTIONS),
                completionHandler=lambda *g, a=answers: a.append(g),
            )
            assert answer in (True, False) and len(answers) == 1 and (answers[0][1] is None) == answer
        assert "digraph" in inference.summarizedDOTDescription and inference.deviceMemorySize >= 0
        repr(inference)


@QUICK
@given(st.data())
def test_random_graphs_train(data):
    draw = data.draw
    with in_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph, inputs, tensors = draw(graphs())
        last = tensors[-1]
        kind = draw(st.sampled_from([k for k in MLCLossType if k.value < 9]))
        scored = MLCLossLayer(
            descriptor=MLCLossDescriptor(type=kind, reductionType=draw(st.sampled_from(list(MLCReductionType)[:3])))
        )
        rule = draw(st.sampled_from([None, MLCSGDOptimizer, MLCAdamOptimizer, MLCRMSPropOptimizer]))
        optimizer = None if rule is None else rule(descriptor=hyper(0.01))
        training = MLCTrainingGraph(
            graphObjects=[graph], lossLayer=scored if draw(st.integers(0, 3)) else None, optimizer=optimizer
        )
        labels = {"t": MLCTensor(shape=last.descriptor.shape if draw(st.integers(0, 7)) else draw(SHAPE), dataType=1)}
        every = inputs | labels
        calls = {
            "addInputs": lambda: training.addInputs(inputs, lossLabels=labels),
            "addOutputs": lambda: training.addOutputs({"y": last}),
            "compile": lambda: training.compile(options=draw(st.integers(0, 15)), device=cpu()),
            "execute": lambda: training.execute(
                inputsData=feeds(draw, inputs),
                lossLabelsData=feeds(draw, labels),
                lossLabelWeightsData=None,
                batchSize=draw(st.integers(-1, 5)),
                options=draw(OPTIONS),
            ),
            "bind": lambda: training.bindAndWriteData(
                feeds(draw, every), forInputs=every, to=cpu(), batchSize=draw(st.integers(-1, 4)), synchronous=True
            ),
            "forward": lambda: training.executeForward(batchSize=draw(st.integers(0, 3)), options=draw(OPTIONS)),
            "gradient": lambda: training.executeGradient(batchSize=draw(st.integers(0, 3))),
            "update": lambda: training.executeOptimizerUpdate(),
            "ask": lambda: [training.sourceGradientTensors(for_=layer) for layer in training.layers],
            "results": lambda: [training.resultTensors(for_=layer) for layer in training.layers],
            "stop": lambda: training.stopGradient(for_=[draw(st.sampled_from(tensors))]),
            "train": lambda: training.setTrainingTensorParameters(
                [MLCTensorParameter(tensor=draw(st.sampled_from(tensors)))]
            ),
            "user": lambda: training.allocateUserGradient(for_=last),
            "optimizer": lambda: training.compileOptimizer(MLCSGDOptimizer(descriptor=hyper(0.01))),
            "link": lambda: training.link(with_=[training]),
            "input gradient": lambda: training.gradientTensor(forInput=next(iter(inputs.values()))),
            "synchronize": training.synchronizeUpdates,
            "texts": lambda: (training.summarizedDOTDescription, repr(training), training.deviceMemorySize),
            "node": lambda: training.node(MLCActivationLayer.tanh, source=last),
        }
        if draw(st.integers(0, 5)):
            training.addInputs(inputs, lossLabels=labels)
            training.compile(options=[], device=cpu())
            exact = {n: memory(t.descriptor.shape, t.descriptor.dataType) for n, t in every.items()}
            answer = training.execute(inputsData=exact, lossLabelsData=exact, lossLabelWeightsData=None, batchSize=0)
            assert answer or not_torch_s_fault()
        for name in draw(st.lists(st.sampled_from(sorted(calls)), max_size=12)):
            calls[name]()


@QUICK
@given(st.data())
def test_wrong_types_are_type_errors_and_nothing_else(data):
    draw = data.draw
    junk = st.one_of(
        st.none(), st.integers(), st.text(max_size=3), st.floats(), st.binary(max_size=3), st.just([]), st.just({})
    )
    graph, x = MLCGraph(), MLCTensor(shape=[2, 2])
    y = graph.node(MLCActivationLayer.relu, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    training.addInputs({"x": x}, lossLabels=None)
    training.compile(options=[], device=cpu())
    calls = [
        lambda: graph.node(draw(junk), source=draw(st.one_of(junk, st.just(x)))),
        lambda: graph.split(source=x, splitCount=draw(junk), dimension=draw(junk)),
        lambda: graph.concatenate(sources=draw(junk), dimension=draw(junk)),
        lambda: training.addInputs(draw(junk), lossLabels=draw(junk)),
        lambda: training.compile(options=draw(junk), device=draw(st.one_of(junk, st.just(cpu())))),
        lambda: training.execute(
            inputsData=draw(junk), lossLabelsData=draw(junk), lossLabelWeightsData=draw(junk), batchSize=draw(junk)
        ),
        lambda: training.executeForward(batchSize=draw(junk), options=draw(junk)),
        lambda: training.executeGradient(batchSize=0, completionHandler=draw(junk)),
        lambda: training.stopGradient(for_=draw(junk)),
        lambda: training.gradientData(forParameter=draw(junk), layer=draw(junk)),
        lambda: training.bindOptimizerData(draw(junk), deviceData=draw(junk), with_=draw(junk)),
        lambda: MLCTrainingGraph(graphObjects=draw(junk), lossLayer=draw(junk), optimizer=draw(junk)),
        lambda: MLCInferenceGraph(graphObjects=draw(junk)),
    ]
    with in_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(TypeError):
            draw(st.sampled_from(calls))()
    assert y is not None
