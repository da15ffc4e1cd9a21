"""Programs that train, in the idiom of the real ones, with the numbers their authors wanted."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationDescriptor,
    MLCActivationLayer,
    MLCActivationType,
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCDevice,
    MLCDeviceType,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCOptimizerDescriptor,
    MLCPaddingPolicy,
    MLCRandomInitializerType,
    MLCReductionType,
    MLCRegularizationType,
    MLCReshapeLayer,
    MLCSGDOptimizer,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    MLCTrainingWarning,
    unwrap,
)
from tests.graph.client_idiom import FLOAT, SYNCHRONOUS, adam, copied, dense_layer, glorot, immutable, seeded, shaped

__all__ = ["seeded"]


# 1: MNIST-ComputeML


def test_mnist_in_small():
    """Softmax under a softmax loss, labels twice as long as needed, accuracy from the node inside the handler, and a
    single image predicted by padding it to the batch."""
    batch, pixels, classes = 32, 28 * 4, 10
    device = unwrap(MLCDevice(type=MLCDeviceType.cpu))
    rng = np.random.default_rng(1)
    truth = rng.integers(0, classes, 320)
    prototypes = rng.random((classes, pixels))
    images = (prototypes[truth] + 0.2 * rng.random((320, pixels))).astype(np.float32)
    input_tensor = MLCTensor(descriptor=shaped([batch, pixels, 1, 1]))
    label_tensor = MLCTensor(descriptor=shaped([batch, classes]))
    graph = MLCGraph()
    dense1 = graph.node(dense_layer(pixels, 32), sources=[input_tensor])
    relu1 = graph.node(
        MLCActivationLayer(descriptor=unwrap(MLCActivationDescriptor(type=MLCActivationType.relu))), source=dense1
    )
    dense2 = graph.node(dense_layer(32, classes), sources=[relu1])
    softmax = unwrap(graph.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax), source=dense2))
    loss = MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    )
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=adam(0.01))
    training.addInputs({"image": input_tensor}, lossLabels={"label": label_tensor})
    with pytest.warns(MLCTrainingWarning, match="softmax"):
        training.compile(options=[], device=device)
    accuracies = []
    for _ in range(12):
        hits = 0
        for start in range(0, 320, batch):
            labels = np.zeros((2 * batch, classes), np.float32)  # sizeof(Int) is left over from the int64 version
            labels[np.arange(batch), truth[start : start + batch]] = 1
            wanted = truth[start : start + batch]

            def counts(result, error, seconds, wanted=wanted):
                nonlocal hits
                assert error is None
                hits += int((copied(softmax).reshape(batch, classes).argmax(1) == wanted).sum())

            training.execute(
                inputsData={"image": immutable(images[start : start + batch].copy())},
                lossLabelsData={"label": immutable(labels, batch * classes * 8)},
                lossLabelWeightsData=None,
                batchSize=batch,
                options=SYNCHRONOUS,
                completionHandler=counts,
            )
        accuracies.append(hits / 320)
    assert accuracies[0] < 0.6 and accuracies[-1] > 0.85
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"image": input_tensor})
    inference.compile(options=[], device=device)
    padded, answers = np.zeros((batch, pixels), np.float32), []
    padded[0] = images[5]
    inference.execute(
        inputsData={"image": immutable(padded)},
        batchSize=batch,
        options=SYNCHRONOUS,
        completionHandler=lambda r, e, t: answers.append(copied(r).reshape(batch, classes)[0].argmax()),
    )
    assert answers == [truth[5]]


# 2: MLComputeCpp, in the selectors' spelling


def test_training_through_selectors_with_an_empty_dictionary_of_weights():
    x, t = (MLCTensor.tensorWithShape_dataType_(s, FLOAT) for s in ([4, 3, 1, 1], [4, 2]))
    weights = MLCTensor.tensorWithShape_randomInitializerType_([1, 6, 1, 1], MLCRandomInitializerType.glorotUniform)
    biases = MLCTensor.tensorWithShape_randomInitializerType_([1, 2, 1, 1], MLCRandomInitializerType.glorotUniform)
    counts = "inputFeatureChannelCount_outputFeatureChannelCount_"
    descriptor = getattr(MLCConvolutionDescriptor, f"descriptorWithKernelWidth_kernelHeight_{counts}")(2, 3, 3, 2)
    layer = MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(weights, biases, descriptor)
    graph = MLCGraph.graph()
    graph.nodeWithLayer_source_(layer, x)
    loss = MLCLossLayer.layerWithDescriptor_(
        MLCLossDescriptor.descriptorWithType_reductionType_(MLCLossType.meanSquaredError, MLCReductionType.mean)
    )
    training = MLCTrainingGraph.graphWithGraphObjects_lossLayer_optimizer_([graph], loss, adam(0.1))
    assert training.addInputs_lossLabels_({"image": x}, {"label": t})
    assert training.compileWithOptions_device_(0, MLCDevice.deviceWithType_(MLCDeviceType.cpu))
    a = np.random.default_rng(0).random((4, 3)).astype(np.float32)
    b = (a[:, :2] * 2).astype(np.float32)
    losses = []
    for _ in range(60):
        assert training.executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(
            {"image": immutable(a)}, {"label": immutable(b)}, {}, 4, 2, lambda r, e, s: losses.append(copied(r)[0])
        )
    assert losses[-1] < losses[0] / 20


# 3: ml-compute-practice


def test_linear_regression_follows_the_printed_rows(torch_device):
    device = MLCDevice.cpu() if torch_device.type == "cpu" else unwrap(MLCDevice.gpu())
    x, y = np.arange(4, dtype=np.float32), 2 * np.arange(4, dtype=np.float32) + 5
    input_tensor, label_tensor = MLCTensor(descriptor=shaped([4, 1, 1, 1])), MLCTensor(descriptor=shaped([4, 1]))
    weights, biases = (MLCTensor(descriptor=shaped([1, 1, 1, 1]), fillWithData=0) for _ in range(2))
    graph = MLCGraph()
    dense = graph.node(
        unwrap(
            MLCFullyConnectedLayer(
                weights=weights,
                biases=biases,
                descriptor=MLCConvolutionDescriptor(
                    kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1
                ),
            )
        ),
        source=input_tensor,
    )
    loss = MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=MLCReductionType.mean)
    )
    optimizer = MLCAdamOptimizer(
        descriptor=MLCOptimizerDescriptor(
            learningRate=0.3, gradientRescale=1, regularizationType=MLCRegularizationType.none, regularizationScale=0
        )
    )
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=optimizer)
    training.addInputs({"x": input_tensor}, lossLabels={"y": label_tensor})
    training.compile(options=[], device=device)
    points, targets = immutable(x), immutable(y)  # the same two objects every time
    rows = []
    for number in range(301):

        def keep(result, error, seconds, number=number):
            if number % 100 == 0:
                rows.append(copied(dense))

        training.execute(
            inputsData={"x": points},
            lossLabelsData={"y": targets},
            lossLabelWeightsData=None,
            batchSize=4,
            options=SYNCHRONOUS,
            completionHandler=keep,
        )
    expected = [[0, 0, 0, 0], [5.0072, 6.991, 8.9748, 10.9586], [5, 7, 9.0001, 11.0001], [5, 7, 9, 11]]
    np.testing.assert_allclose(rows, expected, atol=2e-4)
    training.synchronizeUpdates()
    assert np.frombuffer(weights.data, np.float32)[0] == pytest.approx(2, abs=1e-4)
    assert np.frombuffer(biases.data, np.float32)[0] == pytest.approx(5, abs=1e-4)
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": input_tensor})
    inference.compile(options=[], device=device)
    predicted = []
    inference.execute(
        inputsData={"x": immutable(np.array([4, 5, 6, 7], np.float32))},
        batchSize=4,
        options=SYNCHRONOUS,
        completionHandler=lambda r, e, s: predicted.extend(np.frombuffer(r.data, np.float32)[:4]),
    )
    np.testing.assert_allclose(predicted, [13, 15, 17, 19], atol=1e-3)


# 4: an LSTM made of one tensor


def test_one_tensor_sixteen_times_in_an_lstm():
    """Sixteen references to one tensor, biases likewise; data of nine floats where one is read."""
    shared, bias = glorot([1, 1]), MLCTensor(descriptor=shaped([1, 1]), fillWithData=0.1)
    descriptor = MLCLSTMDescriptor(inputSize=1, hiddenSize=1, layerCount=4)
    layer = unwrap(
        MLCLSTMLayer(descriptor=descriptor, inputWeights=[shared] * 16, hiddenWeights=[shared] * 16, biases=[bias] * 16)
    )
    x, t = MLCTensor(descriptor=shaped([1, 1, 1])), MLCTensor(descriptor=shaped([1, 1, 1]))
    graph = MLCGraph()
    assert graph.node(layer, source=x).descriptor.shape == [1, 1, 1]
    loss = MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=MLCReductionType.mean)
    )
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=adam(0.05))
    training.addInputs({"x": x}, lossLabels={"t": t})
    training.compile(options=[], device=MLCDevice())
    nine, label = np.full(9, 0.8, np.float32), np.array([0.3], np.float32)
    before, losses = copied(shared), []
    for _ in range(120):
        assert training.execute(
            inputsData={"x": MLCTensorData(bytesNoCopy=nine, length=36)},
            lossLabelsData={"t": immutable(label)},
            lossLabelWeightsData=None,
            batchSize=1,
            options=SYNCHRONOUS,
            completionHandler=lambda r, e, s: losses.append(copied(r)[0]),
        )
    assert losses[-1] < losses[0] / 10 and not np.array_equal(copied(shared), before)
    assert training.bindAndWriteData(
        {"x": MLCTensorData(bytesNoCopy=nine, length=36), "t": immutable(label)},
        forInputs={"x": x, "t": t},
        to=MLCDevice(),
        synchronous=True,
    )
    assert training.executeForward(batchSize=0) and training.executeGradient(batchSize=0)
    gradient = np.frombuffer(training.gradientData(forParameter=shared, layer=layer), np.float32)
    assert gradient.shape == (1,) and np.isfinite(gradient).all()


# 8: SwiftML


def two_to_one(weights, biases, kernelSizes):
    """A dense layer; its kernel sizes say nothing, and real programs write what they like."""
    descriptor = MLCConvolutionDescriptor(
        kernelSizes=kernelSizes, inputFeatureChannelCount=2, outputFeatureChannelCount=1
    )
    return unwrap(MLCFullyConnectedLayer(weights=weights, biases=biases, descriptor=descriptor))


def test_swiftml_style_with_debug_layers():
    device = MLCDevice()
    x, target = MLCTensor(shape=[4, 2]), MLCTensor(shape=[4, 1])
    weights, biases = MLCTensor(shape=[1, 2]), MLCTensor(shape=[1, 1])
    first, zero = np.array([0.3, -0.2], np.float32), np.zeros(1, np.float32)
    assert weights.bindAndWriteData(MLCTensorData(bytesNoCopy=first, length=8), to=device)
    assert biases.bindAndWriteData(MLCTensorData(bytesNoCopy=zero, length=4), to=device)
    graph = MLCGraph()
    layer = two_to_one(weights, biases, kernelSizes=(2, 1))
    node = graph.node(layer, source=x)
    node = graph.node(MLCActivationLayer.leakyReLU(negativeSlope=0.9), source=node)
    node = graph.node(unwrap(MLCReshapeLayer(shape=[4, 1])), source=node)
    loss = MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.none, weight=1)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=adam(0.05))
    for each in training.layers:
        each.isDebuggingEnabled = True
    losses = training.resultTensors(for_=training.layers[-1])[0]  # before compile
    assert training.addInputs({x.label: x}, lossLabels={target.label: target})
    assert training.compile(options=[MLCGraphCompilationOptions.debugLayers], device=device)
    a = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    b = a @ np.array([[1.0], [2.0]], np.float32) + 0.5
    for _ in range(400):
        assert training.execute(
            inputsData={x.label: immutable(a)},
            lossLabelsData={target.label: immutable(b)},
            lossLabelWeightsData=None,
            batchSize=4,
            options=SYNCHRONOUS,
        )
    assert losses.synchronizeData() and losses.descriptor.shape == [4, 1]
    assert np.frombuffer(losses.data, np.float32).max() < 1e-3
    assert copied(node, synchronize=True) == pytest.approx(b.ravel(), abs=0.05)
    assert first == pytest.approx([1, 2], abs=0.05)  # the caller's own memory
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.compile(options=[MLCGraphCompilationOptions.debugLayers], device=device)
    assert inference.addInputs({x.label: x})
    assert inference.execute(inputsData={x.label: immutable(a)}, batchSize=4, options=SYNCHRONOUS)
    assert copied(node) == pytest.approx(b.ravel(), abs=0.05)


# 9: Turi Create's drawing classifier


def test_turi_style_drawing_classifier():
    """Reduction none gives one loss for each sample; the weights of samples are repeated over the classes; inference owns
    a softmax of its own and runs after each step; weights are exported from the caller's arrays."""
    batch, classes = 4, 3
    device = unwrap(MLCDevice(type=MLCDeviceType.any))
    rng = np.random.default_rng(3)
    arrays = {
        "conv_w": (rng.standard_normal((1, 4 * 1, 3, 3)) * 0.3).astype(np.float32),
        "conv_b": np.zeros((1, 4, 1, 1), np.float32),
        "dense_w": (rng.standard_normal((1, classes * 4 * 16, 1, 1)) * 0.1).astype(np.float32),
        "dense_b": np.zeros((1, classes, 1, 1), np.float32),
    }
    held = {n: MLCTensor(shape=list(a.shape), data=immutable(a), dataType=FLOAT) for n, a in arrays.items()}
    start = {n: a.copy() for n, a in arrays.items()}
    x = MLCTensor(shape=[batch, 1, 4, 4], dataType=FLOAT)
    graph = MLCGraph()
    conv = unwrap(
        MLCConvolutionLayer(
            weights=held["conv_w"],
            biases=held["conv_b"],
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=(3, 3),
                inputFeatureChannelCount=1,
                outputFeatureChannelCount=4,
                paddingPolicy=MLCPaddingPolicy.same,
            ),
        )
    )
    h = graph.node(conv, source=x)
    h = graph.node(MLCActivationLayer.relu, source=h)
    h = graph.reshape(shape=[batch, 64, 1, 1], source=h)
    dense = unwrap(
        MLCFullyConnectedLayer(
            weights=held["dense_w"],
            biases=held["dense_b"],
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=(1, 1), inputFeatureChannelCount=64, outputFeatureChannelCount=classes
            ),
        )
    )
    last = graph.node(dense, source=h)
    labels, weights = (MLCTensor(shape=[batch, classes, 1, 1], dataType=FLOAT) for _ in range(2))
    loss = MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.none)
    )
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=adam(0.02, 1e-8))
    assert training.addInputs({x.label: x}, lossLabels={"label": labels}, lossLabelWeights={"weight": weights})
    assert training.compile(options=[], device=device)
    inference = MLCInferenceGraph(graphObjects=[graph])
    softmax = inference.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax), source=last)
    assert inference.addInputs({x.label: x}) and inference.compile(options=[], device=device)
    truth = np.array([0, 1, 2, 1])
    images = rng.standard_normal((batch, 1, 4, 4)).astype(np.float32)
    one_hot = np.eye(classes, dtype=np.float32)[truth]
    per_sample = np.repeat(np.array([1, 1, 2, 0], np.float32), classes)
    totals, probabilities = [], []
    for _ in range(40):
        assert training.execute(
            inputsData={x.label: immutable(images)},
            lossLabelsData={"label": immutable(one_hot)},
            lossLabelWeightsData={"weight": immutable(per_sample)},
            batchSize=batch,
            options=SYNCHRONOUS,
            completionHandler=lambda r, e, s: totals.append(copied(r)),
        )
        assert inference.execute(
            inputsData={x.label: immutable(images)},
            batchSize=batch,
            options=SYNCHRONOUS,
            completionHandler=lambda r, e, s: probabilities.append(copied(r).reshape(batch, classes)),
        )
    assert totals[0].shape == (batch,) and totals[0][3] == 0 and totals[-1].sum() < totals[0].sum() / 3
    assert (probabilities[-1][:3].argmax(1) == truth[:3]).all() and softmax.descriptor.shape == [batch, classes, 1, 1]
    training.synchronizeUpdates()
    assert all(not np.array_equal(arrays[n], start[n]) for n in arrays)


# 11 and 12: MimicTense and its playgrounds


def test_mimic_tense_shapes():
    """A 2-D input stays 2-D, and a squared error without reduction has the labels' shape."""
    x, t = MLCTensor(shape=[2, 2], dataType=FLOAT), MLCTensor(shape=[2, 1], dataType=FLOAT)
    weights = MLCTensor(shape=[1, 1, 2], data=immutable(np.array([1, 0.5], np.float32)), dataType=FLOAT)
    biases = MLCTensor(shape=[1, 1], data=immutable(np.array([2], np.float32)), dataType=FLOAT)
    graph = MLCGraph()
    layer = two_to_one(weights, biases, kernelSizes=(1, 1))
    y = graph.node(layer, source=x)
    loss = MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=MLCReductionType.none)
    )
    sgd = MLCSGDOptimizer(
        descriptor=MLCOptimizerDescriptor(
            learningRate=0.01, gradientRescale=1, regularizationType=MLCRegularizationType.none, regularizationScale=0
        )
    )
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=sgd)
    training.addInputs({"x": x}, lossLabels={"t": t})
    training.compile(options=[], device=MLCDevice())
    shapes = []
    training.execute(
        inputsData={"x": immutable(np.array([2, 2, 1, 1], np.float32))},
        lossLabelsData={"t": immutable(np.array([5, 4], np.float32))},
        lossLabelWeightsData=None,
        batchSize=2,
        options=SYNCHRONOUS,
        completionHandler=lambda r, e, s: shapes.append((r.descriptor.shape, copied(r).tolist())),
    )
    assert y.descriptor.shape == [2, 1] and copied(y).tolist() == [5, 3.5]
    assert shapes == [([2, 1], [0, 0.25])]
