"""``gradientData(forParameter:layer:)``: for every layer with parameters against autograd of its formula, and nil elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCBatchNormalizationLayer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCGroupNormalizationLayer,
    MLCInstanceNormalizationLayer,
    MLCLayerNormalizationLayer,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCMultiheadAttentionDescriptor,
    MLCMultiheadAttentionLayer,
    MLCReductionType,
    MLCTensor,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph import formulas
from tests.graph.programs import (
    Program,
    array,
    conv,
    cpu,
    dense,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    tensor,
    values,
)

EPSILON = 1e-3


@dataclass(frozen=True)
class Case:
    """A layer, its parameters in the shapes of its formula, and that formula."""

    name: str
    make: Callable[..., object]
    """Makes the layer from its parameter tensors."""
    parameters: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
    """The shape of each parameter's tensor, and the shape that the formula reads."""
    sources: Sequence[np.ndarray]
    formula: Callable[..., torch.Tensor]
    """Takes the sources, then the parameters."""


def _convolution(descriptor) -> Callable[..., MLCConvolutionLayer]:
    return lambda w, b: MLCConvolutionLayer(weights=w, biases=b, descriptor=descriptor)


def _norm(cls, *given, **more) -> Callable[..., object]:
    return lambda gamma, beta: cls(*given, gamma=gamma, beta=beta, varianceEpsilon=EPSILON, **more)


def _batch_norm(gamma, beta) -> MLCBatchNormalizationLayer:
    mean, variance = (tensor(np.full(4, v, np.float32), [1, 4, 1, 1]) for v in (0, 1))
    return MLCBatchNormalizationLayer(
        featureChannelCount=4, mean=mean, variance=variance, beta=beta, gamma=gamma, varianceEpsilon=EPSILON
    )


def _lstm(*tensors) -> MLCLSTMLayer:
    return MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=3, hiddenSize=2, layerCount=1),
        inputWeights=list(tensors[:4]),
        hiddenWeights=list(tensors[4:8]),
        biases=list(tensors[8:]),
    )


def _attention(*tensors) -> MLCMultiheadAttentionLayer:
    descriptor = MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=2)
    return MLCMultiheadAttentionLayer(
        descriptor=descriptor, weights=list(tensors[:4]), biases=list(tensors[4:]), attentionBiases=None
    )


IMAGE = values(2, 4, 5, 5)
PER_CHANNEL = [((1, 4, 1, 1), (4,)), ((1, 4, 1, 1), (4,))]
PROJECTION = (1, 2, 2, 4)

CASES = [
    Case(
        "fully connected",
        lambda w, b: MLCFullyConnectedLayer(weights=w, biases=b, descriptor=conv(4, 3, 1)),
        [((1, 12, 1, 1), (3, 4)), ((1, 3, 1, 1), (3,))],
        [values(5, 4)],
        formulas.dense,
    ),
    Case(
        "convolution",
        _convolution(conv(4, 3)),
        [((1, 12, 3, 3), (3, 4, 3, 3)), ((1, 3, 1, 1), (3,))],
        [IMAGE],
        formulas.conv,
    ),
    Case(
        "transposed convolution",
        _convolution(
            MLCConvolutionDescriptor(
                transposeWithKernelWidth=3, kernelHeight=3, inputFeatureChannelCount=4, outputFeatureChannelCount=3
            )
        ),
        [((1, 12, 3, 3), (3, 4, 3, 3)), ((1, 3, 1, 1), (3,))],
        [IMAGE],
        formulas.transposed_conv,
    ),
    Case(
        "depthwise convolution",
        _convolution(
            MLCConvolutionDescriptor(
                depthwiseWithKernelWidth=3, kernelHeight=3, inputFeatureChannelCount=4, channelMultiplier=2
            )
        ),
        [((1, 8, 3, 3), (8, 3, 3)), ((1, 8, 1, 1), (8,))],
        [IMAGE],
        lambda x, w, b: formulas.depthwise_conv(x, w, b, 2),
    ),
    Case("batch norm", _batch_norm, PER_CHANNEL, [IMAGE], lambda *g: formulas.batch_norm(*g, EPSILON)),
    Case(
        "instance norm",
        _norm(MLCInstanceNormalizationLayer, featureChannelCount=4),
        PER_CHANNEL,
        [IMAGE],
        lambda *g: formulas.instance_norm(*g, EPSILON),
    ),
    Case(
        "group norm",
        _norm(MLCGroupNormalizationLayer, featureChannelCount=4, groupCount=2),
        PER_CHANNEL,
        [IMAGE],
        lambda *g: formulas.group_norm(*g, EPSILON, 2),
    ),
    Case(
        "layer norm",
        _norm(MLCLayerNormalizationLayer, normalizedShape=[4, 5, 5]),
        [((4, 5, 5), (4, 5, 5)), ((4, 5, 5), (4, 5, 5))],
        [IMAGE],
        lambda *g: formulas.layer_norm(*g, EPSILON),
    ),
    Case(
        "embedding",
        lambda w: MLCEmbeddingLayer(
            descriptor=MLCEmbeddingDescriptor(embeddingCount=6, embeddingDimension=3), weights=w
        ),
        [((6, 3), (6, 3))],
        [np.array([[1, 5, 1], [0, 2, 5]], np.int32)],
        formulas.embedding,
    ),
    Case(
        "LSTM",
        _lstm,
        [*[((1, 6, 1, 1), (2, 3))] * 4, *[((1, 4, 1, 1), (2, 2))] * 4, *[((1, 2, 1, 1), (2,))] * 4],
        [values(2, 4, 3)],
        lambda x, *p: formulas.lstm(x, p[:4], p[4:8], p[8:]),
    ),
    Case(
        "attention",
        _attention,
        [(PROJECTION, (4, 4)), (PROJECTION, (4, 4)), (PROJECTION, (4, 4)), ((1, 1, 4, 4), (4, 4)), *[((4,), (4,))] * 4],
        [values(2, 3, 4), values(2, 5, 4, seed=1), values(2, 5, 4, seed=2)],
        lambda q, k, v, *p: formulas.attention(q, k, v, p[:4], p[4:], 2),
    ),
]


def build(case: Case, device) -> tuple[Program, object, list[MLCTensor]]:
    parameters = [tensor(values(*shape, seed=i) * 0.7, shape) for i, (shape, _) in enumerate(case.parameters)]
    layer = case.make(*parameters)
    graph = MLCGraph()
    types = {"float32": 1, "int32": 7}
    sources = {
        f"x{i}": MLCTensor(shape=list(a.shape), dataType=types[a.dtype.name]) for i, a in enumerate(case.sources)
    }
    y = graph.node(layer, sources=list(sources.values()))
    t = placeholder(*y.descriptor.shape)
    training = MLCTrainingGraph(
        graphObjects=[graph], lossLayer=loss(reduction=MLCReductionType.sum), optimizer=sgd(1.0)
    )
    assert training.addInputs(sources, lossLabels={"t": t})
    given = {f"x{i}": a for i, a in enumerate(case.sources)} | {"t": values(*y.descriptor.shape, seed=40)}
    return Program(training, graph, sources, {"t": t}, given, [layer], y, device), layer, parameters


def reference(case: Case, program: Program, parameters: Sequence[MLCTensor]) -> list[np.ndarray]:
    leaves = [
        torch.tensor(array(p), dtype=torch.float64).reshape(view).requires_grad_()
        for p, (_, view) in zip(parameters, case.parameters, strict=True)
    ]
    sources = [torch.from_numpy(a) for a in case.sources]
    sources = [s.double() if s.is_floating_point() else s for s in sources]
    y = case.formula(*sources, *leaves)
    ((y - torch.from_numpy(program.given["t"]).double()) ** 2).sum().backward()
    return [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_layer_with_parameters(case, torch_device):
    program, layer, parameters = build(case, on(torch_device))
    wanted = reference(case, program, parameters)
    before = [array(p) for p in parameters]
    scale = max(float(np.abs(want).max()) for want in wanted)  # some vanish: a key's bias changes no attention
    assert program.compile() and program.phases()
    for parameter, want in zip(parameters, wanted, strict=True):
        got = program.gradient_of(parameter, layer)
        # cuDNN's LSTM has quick approximations of its own.
        near = {"rtol": 2e-5, "atol": 5e-6} if torch_device.type == "cpu" else {"rtol": 2e-4, "atol": 5e-5}
        np.testing.assert_allclose(got.reshape(want.shape) / scale, want / scale, **near)
    assert program.update()
    program.training.synchronizeUpdates()
    for parameter, was, want in zip(parameters, before, wanted, strict=True):
        moved = (was - array(parameter)).reshape(want.shape)
        np.testing.assert_allclose(moved / scale, want / scale, rtol=2e-4, atol=5e-5)


def test_every_class_with_parameters_is_among_the_cases():
    """The documentation's list (evidence.md H.6), and LSTM, whose gradients are served here too."""
    classes = {type(build(case, cpu())[1]) for case in CASES}
    assert classes == {
        MLCBatchNormalizationLayer,
        MLCConvolutionLayer,
        MLCEmbeddingLayer,
        MLCFullyConnectedLayer,
        MLCGroupNormalizationLayer,
        MLCInstanceNormalizationLayer,
        MLCLSTMLayer,
        MLCLayerNormalizationLayer,
        MLCMultiheadAttentionLayer,
    }


def test_the_selector_gives_the_same_bytes():
    program = regression()
    layer = program.layers[0]
    assert program.compile() and program.phases()
    swift = program.training.gradientData(forParameter=layer.weights, layer=layer)
    objc = program.training.gradientDataForParameter_layer_(layer.weights, layer)
    assert bytes(swift) == bytes(objc) and len(swift) == 6 * 3 * 4
    assert memoryview(swift).readonly


# Where the documentation says nil


def test_none_and_why():
    program = regression()
    layer = program.layers[0]

    def why(parameter=layer.weights, of=layer) -> str:
        assert program.training.gradientData(forParameter=parameter, layer=of) is None
        return str(last_refusal())

    assert "no gradient yet" in why()
    assert program.compile() and program.bind() and "no gradient yet" in why()
    assert program.forward() and "no gradient yet" in why()
    assert program.gradient()
    assert program.training.gradientData(forParameter=layer.weights, layer=layer) is not None
    stranger = placeholder(1, 18, 1, 1)
    assert "is no parameter of layer" in why(stranger)
    assert "is no parameter of layer" in why(program.inputs["x"])
    assert "is not in this graph" in why(layer.weights, dense(6, 3))
    assert "is no parameter of layer" in why(layer.weights, program.training.layers[-1])
    assert program.execute() and "execute keeps no gradients" in why()
    assert program.phases() and program.training.gradientData(forParameter=layer.weights, layer=layer) is not None
    assert program.forward() and "no gradient yet" in why()


def test_none_for_a_node_whose_update_is_disabled():
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    fixed, free = dense(6, 5), dense(5, 3, seed=3)
    h = graph.node(fixed, sources=[x], disableUpdate=True)
    graph.node(free, sources=[h], disableUpdate=False)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 6), "t": values(4, 3)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [fixed, free])
    assert program.compile() and program.phases()
    assert training.gradientData(forParameter=fixed.weights, layer=fixed) is None
    assert "disableUpdate" in str(last_refusal())
    assert training.gradientData(forParameter=free.weights, layer=free) is not None
    before = array(fixed.weights), array(free.weights)
    assert program.update() and program.execute()
    np.testing.assert_array_equal(array(fixed.weights), before[0])
    assert not np.array_equal(array(free.weights), before[1])


def test_none_for_a_parameter_that_its_module_freezes_and_the_reason_is_that():
    program = regression(widths=(6, 5, 3))
    first, second = program.layers
    first.module.requires_grad_(False)
    assert program.compile() and program.phases()
    assert program.training.gradientData(forParameter=first.weights, layer=first) is None
    assert "requires_grad is False" in str(last_refusal()) and "disableUpdate" not in str(last_refusal())
    assert program.training.gradientData(forParameter=second.weights, layer=second) is not None
    before = array(first.weights), array(second.weights)
    assert first.weightsParameter.isUpdatable and program.update()
    np.testing.assert_array_equal(array(first.weights), before[0])
    assert not np.array_equal(array(second.weights), before[1])
    first.module.requires_grad_(True)
    assert program.phases() and program.training.gradientData(forParameter=first.weights, layer=first) is None
    assert "when the graph was compiled" in str(last_refusal())
    assert program.compile() and program.phases()
    assert program.training.gradientData(forParameter=first.weights, layer=first) is not None


def test_none_for_a_stopped_parameter_and_for_what_no_loss_depends_on():
    program = regression(widths=(6, 5, 3))
    first, second = program.layers
    program.training.stopGradient(for_=[second.biases])
    aside = dense(3, 2, seed=9)
    program.training.node(aside, source=program.result)  # the loss moves behind the last node
    assert not program.compile() and "labels must have" in str(last_refusal())
    program = regression(widths=(6, 5, 3))
    first, second = program.layers
    program.training.stopGradient(for_=[second.biases])
    graph = MLCGraph()
    branch = graph.node(dense(6, 2, seed=9), source=program.inputs["x"])
    training = MLCTrainingGraph(graphObjects=[graph, program.graph], lossLayer=loss(), optimizer=sgd())
    training.stopGradient(for_=[second.biases])
    assert training.addInputs(program.inputs, lossLabels=program.labels)
    program.training = training
    assert program.compile() and program.phases() and branch.data is not None
    assert training.gradientData(forParameter=second.biases, layer=second) is None
    assert "stopGradient was called" in str(last_refusal())
    lonely = graph.layers[0]
    assert training.gradientData(forParameter=lonely.weights, layer=lonely) is None
    assert "no loss depends" in str(last_refusal())
    assert training.gradientData(forParameter=first.weights, layer=first) is not None


def test_is_updatable_keeps_the_gradient_and_skips_the_update(torch_device):
    program = regression(device=on(torch_device))
    layer = program.layers[0]
    assert program.compile() and program.phases()
    gradient = program.gradient_of(layer.weights, layer)
    layer.weightsParameter.isUpdatable = False
    before = array(layer.weights), array(layer.biases)
    assert program.update()
    program.training.synchronizeUpdates()
    np.testing.assert_array_equal(array(layer.weights), before[0])
    assert not np.array_equal(array(layer.biases), before[1])
    assert program.phases() and program.gradient_of(layer.weights, layer) is not None and program.execute()
    program.training.synchronizeUpdates()
    np.testing.assert_array_equal(array(layer.weights), before[0])
    layer.weightsParameter.isUpdatable = True
    assert program.execute()
    program.training.synchronizeUpdates()
    assert not np.array_equal(array(layer.weights), before[0]) and gradient is not None


def test_the_running_statistics_are_no_parameters():
    program, layer, _ = build(CASES[4], cpu())
    before = array(layer.mean)
    assert program.compile() and program.phases()
    assert program.training.gradientData(forParameter=layer.mean, layer=layer) is None
    assert "is no parameter" in str(last_refusal())
    program.training.synchronizeUpdates()
    batch = program.given["x0"].mean((0, 2, 3)).reshape(1, 4, 1, 1)
    np.testing.assert_allclose(array(layer.mean), 0.99 * before + 0.01 * batch, rtol=1e-4, atol=1e-6)
