"""The rules for kernels: what they decide, and that what runs in a kernel's place computes the same."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCDataType,
    MLCExecutionOptions,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCMultiheadAttentionDescriptor,
    MLCMultiheadAttentionLayer,
    MLCPaddingPolicy,
    MLCPoolingDescriptor,
    MLCPoolingLayer,
    MLCPoolingType,
    MLCReductionLayer,
    MLCReductionType,
    MLCTensor,
    MLCTrainingGraph,
)
from mlc_torch.engine import following, kernels, layouts, lstm_steps, norm_rules, processor, product_rules
from mlc_torch.engine.image_layout import has_channels_last
from mlc_torch.engine.kernels import choose_kernels
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.product_rules import Product
from mlc_torch.engine.replacements import (
    by_column,
    product_turned,
    product_with_transposed_source,
    product_with_transposed_weight,
)
from mlc_torch.engine.rewrite import simplify
from mlc_torch.engine.trace import record
from mlc_torch.interop import TorchLayer
from mlc_torch.nodes.node import Node, infer
from mlc_torch.running.planner import PlanRequest, make_plan
from tests.graph.programs import array, cpu, data, dense, loss, placeholder, sgd, values
from tests.layers.records import tensor

aten = torch.ops.aten


def pretend(monkeypatch, vector_code: bool) -> None:
    """As if torch was built with vector instructions for this processor, or without."""
    for module in (following, kernels, layouts):
        monkeypatch.setattr(module, "has_vector_code", lambda: vector_code)
    for module in (kernels, layouts):
        monkeypatch.setattr(module, "has_rules", lambda: True)


def test_every_rule_says_how_it_is_known():
    by_vectors = kernels.KERNELS_WITHOUT_VECTOR_CODE, kernels.KERNELS_WITH_VECTOR_CODE, kernels.KERNELS_WITH_AVX512
    products = product_rules.PRODUCTS_BY_ACL, product_rules.PRODUCTS_BY_MKL
    norms = norm_rules.NORMS_BY_ARM, norm_rules.NORMS_BY_X86_SINCE_2_13
    steps = lstm_steps.STEPS, lstm_steps.SEVERAL_STEPS
    tables = layouts.CONVOLUTION_LAYOUTS, *steps, *norms, *products, *by_vectors, kernels.KERNELS_ON_A_GPU
    assert all(rule.evidence for table in tables for rule in table)


@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (5, 1), (32, 784), (64, 784)])
def test_a_matrix_by_column(shape):
    x = torch.randn(shape)
    for given in (x, x.t().contiguous().t(), x.t()):
        found = by_column(given)
        assert found.t().is_contiguous() and torch.equal(found, given)


@pytest.mark.parametrize(
    ("product", "want"),
    [
        (Product(8, 784, 128, 1), None),
        (Product(32, 784, 128, 1), product_with_transposed_source),
        (Product(64, 128, 10, 2), product_with_transposed_weight),
        (Product(256, 784, 128, 1), None),
        (Product(4096, 784, 128, 1), product_with_transposed_weight),
        (Product(4096, 784, 128, 2), None),
    ],
)
def test_products_by_rows_and_threads(monkeypatch, product, want):
    monkeypatch.setattr(product_rules, "multiplies_by_acl", lambda: True)
    monkeypatch.setattr(product_rules.torch, "get_num_threads", lambda: product.threads)
    monkeypatch.setattr(product_rules, "threads_of_acl", lambda: 1)
    assert product_rules.product_of(product.rows, product.depth, product.columns, torch.float32) is want
    assert product_rules.product_of(product.rows, product.depth, product.columns, torch.float64) is None


TURNED = [
    *(Product(rows, 512, 384, threads) for rows in (16, 32) for threads in (1, 2, 4)),
    *(Product(rows, 1024, 384, threads) for rows in (16, 32, 48) for threads in (1, 16)),
    *(Product(16, 784, 1024, 2), Product(32, 784, 128, 1), Product(16, 256, 84, 1)),
]
NOT_TURNED = [
    *(Product(rows, 512, 384, 2) for rows in (1, 8, 15, 20, 48, 64)),
    *(Product(rows, 512, 384, 8) for rows in (16, 32)),
    *(Product(64, 1024, 1024, 8), Product(16, 784, 1024, 4), Product(32, 784, 128, 2), Product(32, 784, 64, 1)),
    *(Product(16, 512, 383, 1), Product(16, 255, 128, 1)),
]


@pytest.mark.parametrize("product", [*TURNED, *NOT_TURNED])
def test_products_of_few_rows_by_mkl(monkeypatch, product):
    monkeypatch.setattr(product_rules, "multiplies_by_acl", lambda: False)
    monkeypatch.setattr(product_rules, "multiplies_by_mkl", lambda: True)
    monkeypatch.setattr(product_rules.torch, "get_num_threads", lambda: product.threads)
    shape = product.rows, product.depth, product.columns
    assert product_rules.product_of(*shape, torch.float32) is (product_turned if product in TURNED else None)
    assert product_rules.product_of(*shape, torch.bfloat16) is None
    monkeypatch.setattr(product_rules, "multiplies_by_mkl", lambda: False)
    assert product_rules.product_of(*shape, torch.float32) is None


@pytest.mark.parametrize(("setting", "want"), [("3", 3), ("4,2", 4), ("", os.cpu_count()), ("many", os.cpu_count())])
def test_set_num_threads_does_not_reach_the_arm_compute_library(monkeypatch, setting, want):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert product_rules.threads_of_acl.__wrapped__() == want
    monkeypatch.setattr(product_rules, "multiplies_by_acl", lambda: True)
    monkeypatch.setattr(product_rules.torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(product_rules, "threads_of_acl", lambda: 2)
    assert product_rules.product_of(4096, 784, 128, torch.float32) is None


@pytest.mark.parametrize("way", [product_with_transposed_weight, product_with_transposed_source, product_turned])
def test_products_are_products(way):
    x, weight, bias = torch.randn(13, 11), torch.randn(9, 11), torch.randn(9)
    torch.testing.assert_close(way(x, weight.t()), F.linear(x, weight))
    torch.testing.assert_close(way(x, weight.t(), bias), F.linear(x, weight, bias))


class Counting(TorchDispatchMode):
    """Writes down which operations run, and of what shape that is which they are given first."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.shapes: set[tuple[str, tuple[int, ...]]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        if args and isinstance(args[0], torch.Tensor):
            self.shapes.add((self.names[-1], tuple(args[0].shape)))
        return func(*args, **(kwargs or {}))


def averaged(size: int, kernel: int, stride: int):
    """A training graph with an average of real pixels alone, padded as SAME says."""
    graph, x = MLCGraph(), placeholder(2, 3, size, size)
    descriptor = MLCPoolingDescriptor(
        type=MLCPoolingType.average(countIncludesPadding=False),
        kernelSizes=(kernel, kernel),
        strides=(stride, stride),
        paddingPolicy=MLCPaddingPolicy.same,
    )
    y = graph.node(MLCPoolingLayer(descriptor=descriptor), source=x)
    out = y.descriptor.shape[2]
    flat = graph.reshape(shape=[2, 3 * out * out], source=y)
    layer = dense(3 * out * out, 2)
    graph.node(layer, source=flat)
    t = placeholder(2, 2)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.compile(options=[], device=cpu())
    given = {"inputsData": {"x": data(values(2, 3, size, size))}, "lossLabelsData": {"t": data(values(2, 2))}}
    return training, given | {"lossLabelWeightsData": None, "batchSize": 0}, y


def test_what_depends_on_sizes_alone_is_computed_once():
    """SAME over 6 pixels with stride 2 pads one side: the number of real pixels is a constant of the recording."""
    training, given, y = averaged(6, 3, 2)
    with Counting() as seen:
        assert training.execute(**given)
        assert training.execute(**given)
    assert seen.names.count("avg_pool2d") == 2 and "new_ones" not in seen.names and "div" in seen.names
    x = np.pad(values(2, 3, 6, 6), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    want = [[np.nanmean(x[:, :, i : i + 3, j : j + 3], axis=(2, 3)) for j in (0, 2, 4)] for i in (0, 2, 4)]
    np.testing.assert_allclose(array(y), np.transpose(want, (2, 3, 0, 1)), rtol=1e-5)


def test_an_average_with_even_padding_is_torch_s_own():
    training, given, _ = averaged(7, 3, 2)
    with Counting() as seen:
        assert training.execute(**given)
    assert seen.names.count("avg_pool2d") == 1 and "constant_pad_nd" not in seen.names


# What is rewritten


def test_a_product_of_matrices_is_two_operations():
    """torch records four views of what they are given around it; they are not repeated."""
    graph, x, y = MLCGraph(), placeholder(2, 3, 4), placeholder(2, 4, 5)
    descriptor = MLCMatMulDescriptor(alpha=1.0, transposesX=False, transposesY=False)
    product = graph.node(MLCMatMulLayer(descriptor=descriptor), sources=[x, y])
    total = graph.node(MLCReductionLayer(reductionType=MLCReductionType.sum, dimension=1), source=product)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x, "y": y}) and inference.compile(options=[], device=cpu())
    a, b = values(2, 3, 4), values(2, 4, 5, seed=1)
    with Counting() as seen:
        assert inference.execute(inputsData={"x": data(a), "y": data(b)}, batchSize=0, options=[])
    computed = [n for n in seen.names if n not in ("lift_fresh", "clone")]  # those wrap and keep the data
    assert computed == ["bmm", "sum"]
    np.testing.assert_allclose(array(total), (a @ b).sum(1, keepdims=True), rtol=1e-5)


def shortcuts(options) -> tuple[list[str], list[np.ndarray]]:
    """Trains a convolution that one with a stride of 2 and one of every second pixel read. Gives operations and weights."""
    graph, x, t = MLCGraph(), placeholder(3, 2, 7, 6), placeholder(3, 1)
    image = graph.node(convolution(2, 4, 3, 1, 1), source=x)
    parts = [graph.node(convolution(4, 4, size, 2, size // 2), source=image) for size in (3, 1)]
    both = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=parts)
    graph.node(dense(48, 1), source=graph.reshape(shape=[3, 48], source=both))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.01))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.compile(options=options, device=cpu())
    given = {"inputsData": {"x": data(values(3, 2, 7, 6))}, "lossLabelsData": {"t": data(values(3, 1))}}
    with Counting() as seen:
        for _ in range(2):
            assert training.execute(**given, lossLabelWeightsData=None, batchSize=0, options=[])
    return seen.names, [array(use.parameter.tensor) for layer in graph.layers for use in layer._parameter_uses]


@pytest.mark.parametrize("vector_code", [True, False])
def test_the_gradient_of_every_other_pixel_is_added_where_it_belongs(monkeypatch, vector_code):
    pretend(monkeypatch, vector_code)
    names, weights = shortcuts([])
    assert "slice_backward" not in names
    _, plain = shortcuts([MLCGraphCompilationOptions.debugLayers])
    for got, want in zip(weights, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def convolution(inputs: int, outputs: int, size: int, stride: int, padding: int) -> MLCConvolutionLayer:
    descriptor = MLCConvolutionDescriptor(
        kernelSizes=(size, size),
        inputFeatureChannelCount=inputs,
        outputFeatureChannelCount=outputs,
        strides=(stride, stride),
        paddingPolicy=MLCPaddingPolicy.sized(y=padding, x=padding),
    )
    weights = tensor(values(outputs, inputs, size, size, low=-0.5, high=0.5), [1, inputs * outputs, size, size])
    return MLCConvolutionLayer(weights=weights, biases=None, descriptor=descriptor)


def test_the_gradient_of_a_mean_is_divided_before_it_is_laid_out():
    """Where it is laid out anew at all, it is written once; one step of a convolution's average over the image, by torch."""
    graph, x, t = MLCGraph(), placeholder(4, 3, 8, 8), placeholder(4, 2)
    first, last = convolution(3, 16, 3, 1, 1), dense(16, 2)
    image = graph.node(MLCActivationLayer.relu, source=graph.node(first, source=x))
    mean = MLCReductionLayer(reductionType=MLCReductionType.mean, dimensions=[2, 3])
    graph.node(last, source=graph.reshape(shape=[4, 16], source=graph.node(mean, source=image)))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    shapes = (16, 3, 3, 3), (2, 16), (2,)
    found = first.weights, last.weights, last.biases
    leaves = [torch.tensor(array(w)).reshape(s).requires_grad_() for w, s in zip(found, shapes, strict=True)]
    given, labels = values(4, 3, 8, 8), values(4, 2)
    with Counting() as seen:
        assert training.execute(
            inputsData={"x": data(given)},
            lossLabelsData={"t": data(labels)},
            lossLabelWeightsData=None,
            batchSize=0,
            options=[],
        )
    means = F.conv2d(torch.from_numpy(given), leaves[0], padding=1).relu().mean((2, 3))
    F.mse_loss(F.linear(means, leaves[1], leaves[2]), torch.from_numpy(labels)).backward()
    assert not {("div", (4, 16, 8, 8)), ("clone", (4, 16, 8, 8))} <= seen.shapes
    training.synchronizeUpdates()
    for one, leaf in zip(found, leaves, strict=True):
        assert leaf.grad.abs().max() > 1e-3
        np.testing.assert_allclose(array(one).ravel(), (leaf - 0.1 * leaf.grad).detach().ravel(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [4, 12, 300])
@pytest.mark.parametrize("acl", [True, False])
def test_attention_to_itself_reads_the_weights_as_they_are(monkeypatch, rows, acl):
    """Few rows are multiplied three times, many once with joined weights; a program may write the weights in between."""
    pretend(monkeypatch, False)
    monkeypatch.setattr(product_rules, "multiplies_by_acl", lambda: acl)
    weights = [values(12, 12, low=-0.5, high=0.5, seed=s) for s in range(4)]
    biases = [values(12, seed=s) for s in range(4)]
    layer = MLCMultiheadAttentionLayer(
        descriptor=MLCMultiheadAttentionDescriptor(modelDimension=12, headCount=3),
        weights=[MLCTensor(shape=[12, 12], data=data(w), dataType=MLCDataType.float32) for w in weights],
        biases=[tensor(b) for b in biases],
        attentionBiases=None,
    )
    graph, x = MLCGraph(), placeholder(1, rows, 12)
    result = graph.node(layer, sources=[x, x, x])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    for turn in range(2):
        weights[turn] *= 0.5
        given = values(1, rows, 12, seed=9 + turn)
        with Counting() as seen:
            assert inference.execute(inputsData={"x": data(given)}, batchSize=0, options=[])
        assert seen.names.count("addmm") == (2 if rows > 256 else 4)
        q, k, v = (given[0].astype(np.float64) @ w.T + b for w, b in zip(weights[:3], biases[:3], strict=True))
        heads = []
        for part in (slice(0, 4), slice(4, 8), slice(8, 12)):
            scores = np.exp(q[:, part] @ k[:, part].T / 2)
            heads.append(scores / scores.sum(1, keepdims=True) @ v[:, part])
        want = np.concatenate(heads, 1) @ weights[3].T + biases[3]
        np.testing.assert_allclose(array(result)[0], want, rtol=1e-4, atol=1e-4)


def test_a_layer_over_three_dimensions_is_one_call():
    """What torch does inside of its linear is not spelled out again: views, a transpose, a product."""
    layer = dense(6, 5)
    source = tensor(values(2, 3, 6))._cell
    results = infer(layer, [source])
    plan = make_plan([Node(layer, (source,), results)], [source], cpu(), PlanRequest(readable=list(results)))
    given = torch.from_numpy(values(2, 3, 6))
    recording = simplify(record(plan, [given], (), (), Mode.infer), torch.device("cpu"))
    assert [node.target for node in recording.forward] == [F.linear]
    torch.testing.assert_close(Planned(plan, [given], (), (), Mode.infer).forward([given], ())[0], layer.module(given))


class Pooled(TorchDispatchMode):
    """Writes down whether images that are pooled have channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[bool] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.max_pool2d_with_indices.default:
            self.last.append(args[0].stride(1) == 1)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("vector_code", [True, False])
def test_images_of_one_channel_are_laid_out_for_pooling(monkeypatch, vector_code):
    """A convolution over them gives contiguous images by itself."""
    pretend(monkeypatch, vector_code)
    results, samples = [], 32 * torch.get_num_threads() ** 2  # many threads pool more before it pays
    for options in ([], [MLCGraphCompilationOptions.debugLayers]):
        graph, x = MLCGraph(), placeholder(samples, 1, 8, 8)
        image = graph.node(MLCActivationLayer.relu, source=graph.node(convolution(1, 6, 3, 1, 1), source=x))
        pooling = MLCPoolingDescriptor(
            type=MLCPoolingType.max, kernelSizes=(2, 2), strides=(2, 2), paddingPolicy=MLCPaddingPolicy.valid
        )
        result = graph.node(MLCPoolingLayer(descriptor=pooling), source=image)
        inference = MLCInferenceGraph(graphObjects=[graph])
        assert inference.addInputs({"x": x}) and inference.compile(options=options, device=cpu())
        with Pooled() as seen:
            assert inference.execute(inputsData={"x": data(values(samples, 1, 8, 8))}, batchSize=0, options=[])
        assert seen.last == [not options]
        results.append(array(result))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)
    numbers = values(6, 1, 3, 3, low=-0.5, high=0.5), values(samples, 1, 8, 8)  # the weights, and the data
    weights, given = (torch.from_numpy(a).double() for a in numbers)
    want = F.max_pool2d(F.conv2d(given, weights, padding=1).relu(), 2)
    np.testing.assert_allclose(results[0], want.numpy(), rtol=1e-4, atol=1e-5)


class OwnConvolutions(TorchDispatchMode):
    """Notes how images lie that torch's own kernel convolves."""

    def __init__(self) -> None:
        super().__init__()
        self.strides = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._slow_conv2d_forward.default:
            self.strides.append(args[0].stride())
        return func(*args, **(kwargs or {}))


def test_an_image_whose_one_channel_comes_last_is_convolved_as_any_of_one_channel(monkeypatch):
    """Its strides say that channels are last, by which torch's own kernel would go, seven times as slowly."""
    pretend(monkeypatch, False)
    graph, x = MLCGraph(), placeholder(6, 8, 8, 1)
    result = graph.node(convolution(1, 4, 3, 1, 1), source=graph.transpose(dimensions=[0, 3, 1, 2], source=x))
    inference, given = MLCInferenceGraph(graphObjects=[graph]), values(6, 8, 8, 1)
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    with OwnConvolutions() as seen:
        assert inference.execute(inputsData={"x": data(given)}, batchSize=0, options=[])
    assert seen.strides == [(64, 64, 8, 1)]
    numbers = given.transpose(0, 3, 1, 2), values(4, 1, 3, 3, low=-0.5, high=0.5)
    want = F.conv2d(*(torch.from_numpy(a).double() for a in numbers), padding=1)
    np.testing.assert_allclose(array(result), want.numpy(), rtol=1e-4, atol=1e-5)


class OverRows(TorchDispatchMode):
    """Counts sums over the rows of matrices, by torch's own kernel and as products with a row of ones."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[int] = []
        self.products: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        aten = torch.ops.aten
        operation = func.overloadpacket
        if operation is aten.sum and len(args) > 1 and args[0].dim() == 2 and list(args[1]) == [0]:
            self.sums.append(args[0].shape[0])
        if operation is aten.mm and args[0].shape[0] == 1 and bool((args[0] == 1).all()):
            self.products.append(args[0].shape[1])
        assert func is not aten.ones.default, "ones are made once"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("far", [0.0, 5.0])
@pytest.mark.parametrize("vector_code", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "in_parts"),
    [
        (1, 64, False),
        (4, 4, False),
        (128, 10, False),
        (129, 64, None),
        (1000, 300, True),
        (16384, 33, True),
        (1021, 300, None),
    ],
)
def test_a_bias_gradient_is_a_product_where_that_is_faster(monkeypatch, vector_code, rows, columns, in_parts, far):
    """The gradient of a sum of squares by a bias is twice the sum of the differences, here in 64 bits; and to the last bits also
    where all of them are nearly the same."""
    pretend(monkeypatch, vector_code)
    monkeypatch.setattr(kernels, "has_avx512", lambda: vector_code)
    layer, rate = dense(3, columns), 2.0**-14
    given, wanted = values(rows, 3, seed=5), values(rows, columns, seed=6)
    if far:
        given, wanted = given * 0, wanted * 0 - np.float32(far + 0.1)
    before = array(layer.biases).astype(np.float64).ravel()
    graph, x, y = MLCGraph(), placeholder(rows, 3), placeholder(rows, columns)
    assert graph.node(with_=layer, source=x)
    training = MLCTrainingGraph(
        graphObjects=[graph], lossLayer=loss(reduction=MLCReductionType.sum), optimizer=sgd(rate)
    )
    assert training.addInputs({"x": x}, lossLabels={"y": y})
    with torch.device("meta"):  # a default that is not where the graph computes
        assert training.compile(options=[], device=cpu())
    with OverRows() as seen:
        assert training.execute(
            inputsData={"x": data(given)}, lossLabelsData={"y": data(wanted)}, lossLabelWeightsData=None,
            batchSize=0, options=[],
        )  # fmt: skip
    parts = -(-rows // 128)
    want = {False: ([], [rows]), True: ([parts], [rows // parts])}
    by_torch = in_parts is None or (in_parts and vector_code)
    assert (seen.sums, seen.products) == (([rows], []) if by_torch else want[in_parts])
    weights = values(columns, 3) * 0.5
    differences = given.astype(np.float64) @ weights.T.astype(np.float64) + before - wanted
    change = array(layer.biases).ravel() - before
    own = 2e-7 * np.abs(before + change).max()  # of the biases themselves
    largest = 2 * rate * np.abs(differences).sum(0).max()
    np.testing.assert_allclose(change, -rate * 2 * differences.sum(0), rtol=3e-6, atol=own + 1e-6 * largest)


class Products(TorchDispatchMode):
    """Counts products with a bias, and without."""

    def __init__(self) -> None:
        super().__init__()
        self.with_bias = self.alone = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.with_bias += func.overloadpacket is torch.ops.aten.addmm
        self.alone += func.overloadpacket is torch.ops.aten.mm
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("rows", "avx512", "apart"), [(1024, True, True), (1023, True, False), (1024, False, False)])
def test_a_bias_is_added_to_a_product_of_many_rows(monkeypatch, rows, avx512, apart):
    pretend(monkeypatch, vector_code=True)
    monkeypatch.setattr(kernels, "has_avx512", lambda: avx512)
    layer, given = dense(24, 20), values(rows, 24, seed=5)
    graph, x = MLCGraph(), placeholder(rows, 24)
    assert graph.node(with_=layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    found = []
    with Products() as seen:
        assert inference.execute(
            inputsData={"x": data(given)}, batchSize=0, completionHandler=lambda y, *_: found.append(array(y))
        )
    assert (seen.with_bias, seen.alone) == ((0, 1) if apart else (1, 0))
    weights, biases = (array(t).astype(np.float64) for t in (layer.weights, layer.biases))
    want = given.astype(np.float64) @ weights.reshape(20, 24).T + biases.ravel()
    np.testing.assert_allclose(found[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(("rows", "turned"), [(16, True), (20, False)])
def test_a_product_of_few_rows_is_turned(monkeypatch, rows, turned, trains):
    """With any number of threads. Its gradients multiply by what is no transpose, and stay as they are."""
    pretend(monkeypatch, vector_code=True)
    monkeypatch.setattr(kernels, "has_avx512", lambda: True)
    monkeypatch.setattr(product_rules, "multiplies_by_acl", lambda: False)
    monkeypatch.setattr(product_rules, "multiplies_by_mkl", lambda: True)
    layer, given = dense(1024, 384), values(rows, 1024, seed=5)
    graph, x, t = MLCGraph(), placeholder(rows, 1024), placeholder(rows, 384)
    y = graph.node(with_=layer, source=x)
    weights, biases = (array(part).astype(np.float64) for part in (layer.weights, layer.biases))
    weights, wanted = weights.reshape(384, 1024), values(rows, 384, seed=6)
    made = (
        MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(1.0))
        if trains
        else MLCInferenceGraph(graphObjects=[graph])
    )
    labels = {"lossLabels": {"t": t}} if trains else {}
    assert made.addInputs({"x": x}, **labels) and made.addOutputs({"y": y}) and made.compile(options=[], device=cpu())
    given_labels = {"lossLabelsData": {"t": data(wanted)}, "lossLabelWeightsData": None} if trains else {}
    with Products() as seen:
        assert made.execute(
            inputsData={"x": data(given)}, **given_labels, batchSize=0, options=[MLCExecutionOptions.synchronous]
        )
    in_gradients = 2 * trains  # of the weights, and of the biases, which are a product with ones
    assert (seen.with_bias, seen.alone) == (not turned, turned + in_gradients)
    result = given.astype(np.float64) @ weights.T + biases.ravel()
    np.testing.assert_allclose(y.numpy(), result, rtol=1e-5, atol=1e-4)
    if trains:
        made.synchronizeUpdates()
        slope = (2 * (result - wanted) / result.size).T @ given
        np.testing.assert_allclose(array(layer.weights).reshape(384, 1024), weights - slope, rtol=1e-4, atol=1e-5)


def sum_over(how=([0], True), lies=((8, 8), (8, 1), torch.float32), transposed=False, **named):
    """Such a sum as a recorded operation."""
    source = torch.fx.Graph().placeholder("x")
    if transposed:
        source = source.graph.call_function(torch.ops.aten.t.default, (source,))
    source.meta["lies"] = lies
    return source.graph.call_function(torch.ops.aten.sum.dim_IntList, (source, *how), named)


def test_which_sums_are_left_to_torch():
    assert product_rules.sum_of_few_rows(sum_over()) is not None
    for left in (
        sum_over(([0],)),
        sum_over(([0], False)),
        sum_over(([1], True)),
        sum_over(([0, 1], True)),
        sum_over(dtype=torch.float64),
        sum_over(transposed=True),
        sum_over(lies=((8, 8), (1, 8), torch.float32)),
        sum_over(lies=((8, 8), (8, 1), torch.float64)),
        sum_over(lies=((0, 8), (8, 1), torch.float32)),
        sum_over(lies=((8, 8, 8), (64, 8, 1), torch.float32)),
        sum_over(lies=((129, 8), (8, 1), torch.float32)),
    ):
        assert product_rules.sum_of_few_rows(left) is None
    much = ((1024, 512), (512, 1), torch.float32)
    assert product_rules.sum_of_many_rows(sum_over(lies=much)) is not None
    assert product_rules.sum_of_many_rows(sum_over()) is None
    assert product_rules.sum_of_many_rows(sum_over(([0],), lies=much)) is None


def test_a_sum_stays_one_where_products_are_rounded(monkeypatch):
    monkeypatch.setattr(product_rules.torch, "get_float32_matmul_precision", lambda: "medium")
    assert product_rules.sum_of_few_rows(sum_over()) is None


def test_a_program_that_sets_the_precision_the_new_way_trains_as_fast():
    """torch cannot tell it the old way then, and raises."""
    program = """
import torch
torch.backends.cuda.matmul.fp32_precision = "tf32"
from tests.graph.programs import regression
program = regression(batch=64, widths=(6, 64))
assert program.compile()
program.execute()
print(program.training.summary().gear)
"""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has only the old way")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "planned"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_convolutions_of_16_bits_are_left_to_torch(monkeypatch, dtype, channels):
    """Its own kernel, by which those of float32 are faster, takes a hundred times as long for them."""
    pretend(monkeypatch, vector_code=False)
    module = torch.nn.Conv2d(channels, 4, 3).to(dtype)
    type_ = MLCDataType.float16 if dtype is torch.float16 else MLCDataType.float32
    source = placeholder(2, channels, 6, 6, type_=type_)._cell
    layer = TorchLayer(module)
    results = infer(layer, [source])
    request = PlanRequest(readable=list(results), losses=list(results), wanted=[source], trains=True)
    plan = make_plan([Node(layer, (source,), results)], [source], cpu(), request)
    x = torch.from_numpy(values(2, channels, 6, 6, seed=2)).to(dtype)
    recording = choose_kernels(record(plan, [x], (), (), Mode.train), torch.device("cpu"))
    targets = {node.target for node in (*recording.forward, *recording.backward)}
    assert (aten.convolution.default in targets) is (dtype is torch.float16 or channels > 1)
    assert (aten.convolution_backward.default in targets) is (dtype is torch.float16)
    planned = Planned(plan, [x], (), (), Mode.train)
    (made,) = planned.forward([x], ())
    gradients, (by_source,) = planned.gradient([])
    exact, given = copy.deepcopy(module).double(), x.double().requires_grad_()
    want = exact(given)
    want.sum().backward()
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype is torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    for got, wanted in zip(
        [made, by_source, *gradients], [want, given.grad, exact.weight.grad, exact.bias.grad], strict=True
    ):
        torch.testing.assert_close(got.double(), wanted, **close)


@pytest.fixture
def processor_of(monkeypatch):
    """Lets torch and Python speak of another processor."""
    asked = (processor.has_vector_code, processor.has_avx, processor.has_avx512, processor.has_rules)

    def pretend_to_be(machine: str, capability: str) -> None:
        monkeypatch.setattr(processor.platform, "machine", lambda: machine)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        for function in asked:
            function.cache_clear()

    yield pretend_to_be
    for function in asked:
        function.cache_clear()


@pytest.mark.parametrize(
    ("machine", "capability", "want", "layout"),
    [
        ("x86_64", "AVX512", kernels.KERNELS_WITH_AVX512, layouts.Layout.CHANNELS_LAST),
        ("AMD64", "AVX2", kernels.KERNELS_WITH_VECTOR_CODE, layouts.Layout.CHANNELS_LAST),
        ("x86_64", "DEFAULT", (), layouts.Layout.CONTIGUOUS),
        ("aarch64", "DEFAULT", kernels.KERNELS_WITHOUT_VECTOR_CODE, layouts.Layout.CHANNELS_LAST),
        ("arm64", "DEFAULT", kernels.KERNELS_WITHOUT_VECTOR_CODE, layouts.Layout.CHANNELS_LAST),
        ("aarch64", "SVE256", (), layouts.Layout.CONTIGUOUS),
        ("ppc64le", "VSX", (), layouts.Layout.CONTIGUOUS),
    ],
)
def test_rules_are_for_processors_that_were_measured(monkeypatch, processor_of, machine, capability, want, layout):
    processor_of(machine, capability)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # for many, so few pixels are not worth laying out
    assert kernels._rules_for(torch.device("cpu")) is want
    module, image = torch.nn.Conv2d(8, 8, 3), torch.randn(32, 8, 16, 16)
    assert layouts.layout_of(module, image) is layout
    pooled = layouts.laid_out_for_pooling(image)
    assert has_channels_last(pooled) is (layout is layouts.Layout.CHANNELS_LAST)
    assert processor.has_avx() is (capability in ("AVX2", "AVX512"))
