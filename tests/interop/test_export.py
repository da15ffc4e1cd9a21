"""torch.export and ONNX: the exported program gives the graph's numbers, for any batch size."""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import pytest
import torch

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer, export_onnx, export_program
from tests.interop.programs import BATCH, CLASSES, INPUTS, Classifier, dense, empty, holding, normalization, numbers

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # torch's own tracer


def convolution_network(batch: int) -> mlc.MLCGraph:
    """Convolution, normalization, activation, pooling, reshape, dense, softmax."""
    graph, image = mlc.MLCGraph(), empty(batch, 2, 8, 8)
    image.label = "image"
    layer = mlc.MLCConvolutionLayer(
        weights=holding(numbers(1, 6, 3, 3)),
        biases=holding(numbers(1, 3, 1, 1)),
        descriptor=mlc.MLCConvolutionDescriptor(
            kernelSizes=(3, 3), inputFeatureChannelCount=2, outputFeatureChannelCount=3
        ),
    )
    x = graph.node(normalization(3), source=graph.node(layer, source=image))
    x = graph.node(mlc.MLCActivationLayer.relu, source=x)
    pool = mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(2, 2), strides=(2, 2))
    x = graph.node(mlc.MLCPoolingLayer(descriptor=pool), source=x)
    features = int(np.prod(x.descriptor.shape[1:]))
    x = graph.reshape(shape=[batch, features], source=x)
    x = graph.node(dense(features, 4, "dense", 0), source=x)
    assert graph.node(mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation.softmax), source=x) is not None
    return graph


@pytest.mark.parametrize("declared", [1, 4])
def test_a_program_for_any_batch(declared):
    graph = convolution_network(declared)
    program, module = export_program(graph), graph.to_module().eval()
    for batch in (1, 3, 9):
        x = torch.from_numpy(numbers(batch, 2, 8, 8, seed=batch))
        torch.testing.assert_close(program.module()(x), module(x))
    assert "dense.weights" in program.state_dict


def test_a_batch_that_cannot_be_open_is_fixed():
    """Transposing batch and channels before a dense layer ties the batch size to the weights."""
    graph, x = mlc.MLCGraph(), empty(5, 3)
    turned = graph.transpose(dimensions=[1, 0], source=x)
    graph.node(dense(5, 2, "dense", 0), source=turned)
    program, module = export_program(graph), graph.to_module()
    given = torch.from_numpy(numbers(5, 3))
    torch.testing.assert_close(program.module()(given), module(given))
    fixed = export_program(convolution_network(4), dynamic_batch=False)
    assert not fixed.range_constraints


def test_exporting_leaves_modes_alone():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    graph = mlc.MLCGraph()
    graph.node(TorchLayer(net), source=empty(2, 3))
    program = export_program(graph)
    assert all(m.training for m in net.modules())
    x = torch.from_numpy(numbers(2, 3))
    torch.testing.assert_close(program.module()(x), net[0](x))


def test_onnx_gives_the_graphs_numbers(tmp_path):
    trained = Classifier().compiled()
    trained.train(0, 2)
    path = export_onnx(trained.training, tmp_path / "classifier.onnx")
    session = onnxruntime.InferenceSession(path)
    open_size = "batch" if torch.__version__ >= "2.7" else "s0"  # torch 2.6 keeps the name of its own symbol
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("image", [open_size, INPUTS])]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("dense2", [open_size, CLASSES])]
    image = numbers(BATCH, INPUTS, seed=4)
    want = trained.predict(image)
    np.testing.assert_allclose(session.run(None, {"image": image})[0], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(session.run(None, {"image": image[:3]})[0], want[:3], rtol=1e-5, atol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["classifier.onnx"]


def test_onnx_with_several_inputs_and_outputs(tmp_path):
    graph, indices, scale = mlc.MLCGraph(), empty(2, 4, type=mlc.MLCDataType.int32), empty(2, 4, 3)
    table = holding(numbers(5, 3))
    layer = mlc.MLCEmbeddingLayer(
        descriptor=mlc.MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=3), weights=table
    )
    rows = graph.node(layer, source=indices)
    product = graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.multiply), sources=[rows, scale])
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"indices": indices, "scale": scale})
    inference.addOutputs({"rows": rows, "product": product})
    session = onnxruntime.InferenceSession(export_onnx(inference, tmp_path / "two.onnx"))
    assert [o.name for o in session.get_outputs()] == ["rows", "product"]
    picked = np.array([[0, 4, 1, 1], [2, 3, 0, 4], [1, 1, 1, 2]], np.int32)
    factor = numbers(3, 4, 3, seed=1)
    got = session.run(None, {"indices": picked, "scale": factor})
    np.testing.assert_allclose(got[0], table.numpy()[picked])
    np.testing.assert_allclose(got[1], table.numpy()[picked] * factor, rtol=1e-6)


@pytest.mark.parametrize("kind", [mlc.MLCInferenceGraph, mlc.MLCTrainingGraph])
def test_a_given_module_keeps_its_mode(kind):
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    graph, x = mlc.MLCGraph(), empty(4, 3)
    graph.node(TorchLayer(net), source=x)
    more = {} if kind is mlc.MLCInferenceGraph else {"lossLayer": None, "optimizer": None}
    program = export_program(kind(graphObjects=[graph], **more))
    given = torch.ones(4, 3)
    assert net.training and net[1].training
    assert torch.equal(program.module()(given), net[0](given))  # without dropout


@pytest.mark.parametrize("wrong", [5, None, "graph", mlc.MLCGraph])
def test_what_is_no_graph_is_a_type_error(wrong, tmp_path):
    for member, call in (
        ("export_program", lambda: export_program(wrong)),
        ("export_onnx", lambda: export_onnx(wrong, tmp_path / "a.onnx")),
    ):
        with pytest.raises(TypeError, match=f"{member} expects an MLCGraph or a training or inference graph, got"):
            call()


@pytest.mark.parametrize(
    ("path", "error", "says"),
    [
        (5, TypeError, "export_onnx: argument 'path' expects a path .*, got 5"),
        (None, TypeError, "argument 'path' expects a path .*, got None"),
        (b"a.onnx", TypeError, "argument 'path' expects a path .*, got b'a.onnx'"),
        ("a\0b", mlc.MLCRefusal, "no file can be called so"),
        ("none/a.onnx", FileNotFoundError, "none/a.onnx"),
        (".", IsADirectoryError, "'.'"),
    ],
)
def test_the_path_is_looked_at_before_anything_is_exported(path, error, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.export, "export", lambda *args, **more: pytest.fail("exported"))
    with pytest.raises(error, match=says):
        export_onnx(convolution_network(2), path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["no", 1, None])
def test_the_batch_is_open_or_not(wrong, tmp_path):
    graph = convolution_network(2)
    for member, call in (
        ("export_program", lambda: export_program(graph, dynamic_batch=wrong)),
        ("export_onnx", lambda: export_onnx(graph, tmp_path / "a.onnx", dynamic_batch=wrong)),
    ):
        with pytest.raises(TypeError, match=f"{member}: argument 'dynamic_batch' expects a bool, got {wrong!r}"):
            call()


def test_without_the_packages_it_says_what_to_install(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n == "onnxscript" or n.startswith("onnxscript.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ModuleNotFoundError, match="python -m pip install onnx onnxscript onnxruntime"):
        export_onnx(convolution_network(2), tmp_path / "none.onnx")
    assert not list(tmp_path.iterdir())
