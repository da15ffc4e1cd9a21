"""A typed buffer must fit the tensor whose bytes it holds, wherever bytes are read or written; raw bytes fit every tensor."""

from __future__ import annotations

import array
import copy
import ctypes
import math
import sys

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch import MLCDataType, MLCDevice, MLCTensor, MLCTensorData, last_refusal
from mlc_torch.tensor import elements

ALL = {"float32", "float16", "boolean", "int64", "int32", "int8", "uint8"}
ONE_BYTE = {"boolean", "int8", "uint8"}
BIG, LITTLE = (">", "<") if sys.byteorder == "little" else ("<", ">")

FITS = {
    "float32": (lambda: np.zeros(8, np.float32), {"float32"}),
    "float64": (lambda: np.zeros(8), set()),
    "float16": (lambda: np.zeros(32, np.float16), {"float16"}),
    "long double": (lambda: np.zeros(8, np.longdouble), set()),
    "complex": (lambda: np.zeros(8, np.complex64), set()),
    "int64": (lambda: np.zeros(8, np.int64), {"int64"}),
    "uint64": (lambda: np.zeros(8, np.uint64), {"int64"}),
    "int32": (lambda: np.zeros(16, np.int32), {"int32"}),
    "uint32": (lambda: np.zeros(16, np.uint32), {"int32"}),
    "int16": (lambda: np.zeros(32, np.int16), set()),
    "uint16": (lambda: np.zeros(32, np.uint16), {"float16"}),
    "int8": (lambda: np.zeros(64, np.int8), ALL),
    "uint8": (lambda: np.zeros(64, np.uint8), ALL),
    "bool": (lambda: np.zeros(64, np.bool_), ONE_BYTE),
    "void": (lambda: np.zeros(16, "V4"), ALL),
    "text": (lambda: np.zeros(16, "S4"), set()),
    "unicode": (lambda: np.zeros(16, "U1"), set()),
    "records": (lambda: np.zeros(16, [("a", "f4")]), set()),
    "the other byte order, float32": (lambda: np.zeros(8, f"{BIG}f4"), set()),
    "the other byte order, int64": (lambda: np.zeros(8, f"{BIG}i8"), set()),
    "this byte order, written out": (lambda: np.zeros(8, f"{LITTLE}f4"), {"float32"}),
    "bytes": (lambda: bytes(64), ALL),
    "bytearray": (lambda: bytearray(64), ALL),
    "memoryview": (lambda: memoryview(bytearray(64)), ALL),
    "memoryview of characters": (lambda: memoryview(bytearray(64)).cast("c"), ALL),
    "memoryview of floats": (lambda: memoryview(bytearray(64)).cast("f"), {"float32"}),
    "memoryview of doubles": (lambda: memoryview(bytearray(64)).cast("d"), set()),
    "memoryview of longs": (lambda: memoryview(bytearray(64)).cast("l"), {"int64"}),
    "memoryview of sizes": (lambda: memoryview(bytearray(64)).cast("N"), {"int64"}),
    "memoryview of pointers": (lambda: memoryview(bytearray(64)).cast("P"), set()),
    "array of floats": (lambda: array.array("f", [0.0] * 8), {"float32"}),
    "array of doubles": (lambda: array.array("d", [0.0] * 8), set()),
    "array of longs": (lambda: array.array("l", [0] * 8), {"int64"}),
    "ctypes float": (lambda: (ctypes.c_float * 8)(), {"float32"}),
    "ctypes double": (lambda: (ctypes.c_double * 8)(), set()),
    "ctypes long": (lambda: (ctypes.c_long * 8)(), {"int64"}),
    "ctypes int": (lambda: (ctypes.c_int * 16)(), {"int32"}),
    "ctypes bool": (lambda: (ctypes.c_bool * 64)(), ONE_BYTE),
    "ctypes char": (lambda: (ctypes.c_char * 64)(), ALL),
    "ctypes, matrix": (lambda: (ctypes.c_float * 4 * 2)(), {"float32"}),
    "torch float32": (lambda: torch.zeros(8), {"float32"}),
    "torch float64": (lambda: torch.zeros(8, dtype=torch.float64), set()),
    "torch float16": (lambda: torch.zeros(32, dtype=torch.float16), {"float16"}),
    "torch bfloat16": (lambda: torch.zeros(32, dtype=torch.bfloat16), set()),
    "torch int64": (lambda: torch.zeros(8, dtype=torch.int64), {"int64"}),
    "torch uint64": (lambda: torch.zeros(8, dtype=torch.uint64), {"int64"}),
    "torch uint32": (lambda: torch.zeros(16, dtype=torch.uint32), {"int32"}),
    "torch int32": (lambda: torch.zeros(16, dtype=torch.int32), {"int32"}),
    "torch int16": (lambda: torch.zeros(32, dtype=torch.int16), set()),
    "torch uint16": (lambda: torch.zeros(32, dtype=torch.uint16), {"float16"}),
    "torch bool": (lambda: torch.zeros(64, dtype=torch.bool), ONE_BYTE),
    "torch uint8": (lambda: torch.zeros(64, dtype=torch.uint8), ALL),
    "torch int8": (lambda: torch.zeros(64, dtype=torch.int8), ALL),
    "torch float8": (lambda: torch.zeros(64, dtype=torch.float8_e4m3fn), set()),
    "torch complex": (lambda: torch.zeros(8, dtype=torch.complex64), set()),
}


def data(buffer) -> MLCTensorData:
    """The buffer whole: ``MLCTensorData`` itself takes anything."""
    size = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
    return MLCTensorData(bytesNoCopy=buffer, length=size)


@pytest.mark.parametrize("kind", FITS)
def test_what_fits_what(kind):
    make, fitting = FITS[kind]
    for name in ALL:
        made = MLCTensor(shape=[3], data=data(make()), dataType=MLCDataType[name])
        assert (made is not None) == (name in fitting), (kind, name)
        if made is None:
            assert "has elements of type" in last_refusal().reason


def test_the_way_out_is_named():
    assert MLCTensor(shape=[4], data=data(np.array([1.0, 2, 3, 4])), dataType=MLCDataType.float32) is None
    assert last_refusal().reason == (
        "data has elements of type float64, the tensor's are float32; "
        "pass array.astype(np.float32), or array.view(np.uint8) if these are raw bytes"
    )
    assert MLCTensor(shape=[4], data=data(torch.arange(4)), dataType=MLCDataType.int32) is None
    assert last_refusal().reason == (
        "data has elements of type torch.int64, the tensor's are int32; "
        "pass tensor.to(torch.int32), or tensor.view(torch.uint8) if these are raw bytes"
    )
    assert MLCTensor(shape=[4], data=data(np.zeros(4, f"{BIG}f4")), dataType=MLCDataType.float32) is None
    assert f"type {'big' if BIG == '>' else 'little'}-endian float32," in last_refusal().reason
    raw = np.array([1, 2], np.float64).view(np.uint8)
    held = MLCTensor(shape=[4], data=data(raw), dataType=MLCDataType.float32)
    np.testing.assert_array_equal(held.numpy(), np.frombuffer(raw.tobytes(), np.float32))


def test_a_copy_of_the_data_is_as_typed_as_the_data():
    for made in (copy.copy(data(np.zeros(4))), copy.deepcopy(data(np.zeros(4)))):
        assert MLCTensor(shape=[4], data=made, dataType=MLCDataType.float32) is None
    for made in (copy.copy(data(np.ones(4, np.float32))), copy.deepcopy(data(np.ones(4, np.float32)))):
        assert MLCTensor(shape=[4], data=made, dataType=MLCDataType.float32).numpy().tolist() == [1, 1, 1, 1]


def doubles(count: int = 4) -> MLCTensorData:
    return data(np.arange(count, dtype=np.float64))


def floats(count: int = 4) -> MLCTensorData:
    return data(np.arange(count, dtype=np.float32))


def test_a_tensor_is_not_bound_to_it_nor_copied_into_it():
    tensor = MLCTensor(shape=[4], data=floats(), dataType=MLCDataType.float32)
    assert not tensor.bindAndWriteData(doubles(), to=MLCDevice.cpu())
    assert tensor.numpy().tolist() == [0, 1, 2, 3]
    into = np.full(4, 7.0)
    assert not tensor.copyDataFromDeviceMemory(toBytes=into, length=16, synchronizeWithDevice=True)
    assert into.tolist() == [7, 7, 7, 7] and last_refusal().reason == (
        "the buffer has elements of type float64, the tensor's are float32; make it np.zeros([4], np.float32)"
    )


def test_optimizer_data_must_fit_too():
    tensor = MLCTensor(shape=[4], data=floats(), dataType=MLCDataType.float32)
    assert not tensor.bindOptimizerData([floats(), doubles()], deviceData=None)
    assert "optimizer data 1 has elements of type float64" in last_refusal().reason and tensor.optimizerData == []
    assert mlc.MLCTensorParameter(tensor=tensor, optimizerData=[doubles()]) is None


def inference():
    x = MLCTensor(shape=[2, 2])
    graph = mlc.MLCGraph()
    y = graph.node(mlc.MLCActivationLayer.relu, source=x)
    made = mlc.MLCInferenceGraph(graphObjects=[graph])
    made.addInputs({"x": x})
    made.addOutputs({"y": y})
    assert made.compile(options=[], device=MLCDevice.cpu())
    return made, x


@pytest.mark.parametrize("batch", [2, 1, 0])
def test_an_execute_reads_and_writes_only_what_fits(batch):
    graph, x = inference()
    into = np.full((2, 2), 7.0, np.float32)
    for _ in range(3):  # the first call, and those that know the graph
        assert graph.execute(inputsData={"x": floats()}, outputsData={"y": data(into)}, batchSize=batch)
        assert into.ravel()[1] == 1
        assert not graph.execute(inputsData={"x": doubles()}, batchSize=batch)
        assert "data for 'x' has elements of type float64" in last_refusal().reason
        wrong = np.full((2, 2), 7.0)
        assert not graph.execute(inputsData={"x": floats()}, outputsData={"y": data(wrong)}, batchSize=batch)
        assert (wrong == 7).all()
        assert (
            last_refusal().reason
            == (  # without the advice to copy: the result would go into the copy, and nobody see it
                "the buffer for output 'y' has elements of type float64, the tensor's are float32; "
                "make it np.zeros([2, 2], np.float32)"
            )
        )
        other = np.zeros((2, 3), np.float32)
        assert not graph.execute(inputsData={"x": floats()}, outputsData={"y": other}, batchSize=batch)
        assert last_refusal().reason == (
            "the buffer for output 'y' is an array of shape [2, 3], the tensor's shape is [2, 2]; "
            "make it np.zeros([2, 2], np.float32)"
        )
        turned = np.zeros((4, 1), np.float32).reshape(1, 4)[:, ::2]
        assert not graph.execute(inputsData={"x": floats()}, outputsData={"y": turned}, batchSize=batch)
        assert last_refusal().reason.endswith(
            "pass numpy.ascontiguousarray(array), which is a copy; for results make it np.zeros(array.shape, array.dtype)"
        )
        columns = torch.zeros(4, 2).T
        assert not graph.execute(inputsData={"x": floats()}, outputsData={"y": columns}, batchSize=batch)
        assert last_refusal().reason.endswith("for results make it torch.zeros(tensor.shape, dtype=tensor.dtype)")
        assert not graph.execute(inputsData={"x": data(np.zeros((2, 2), np.int32))}, batchSize=batch)


def test_a_graph_binds_all_or_nothing():
    graph, x = inference()
    label = MLCTensor(shape=[2, 2])
    given = {"x": floats(), "t": doubles()}
    assert not graph.bindAndWriteData(given, forInputs={"x": x, "t": label}, to=MLCDevice.cpu(), synchronous=True)
    assert "data for 't' has elements of type float64" in last_refusal().reason and x.data is None
    assert graph.execute(inputsData={"x": floats()}, batchSize=0)
    assert not graph.bindAndWriteData({"x": doubles()}, forInputs={"x": x}, to=MLCDevice.cpu(), synchronous=True)
    assert "data for 'x' has elements of type float64" in last_refusal().reason


def whole(array) -> MLCTensorData:
    return MLCTensorData(bytesNoCopy=array, length=array.nbytes)


@pytest.mark.parametrize("wrap", [lambda array: array, whole], ids=["array", "data"])
@pytest.mark.parametrize("shape", [(4, 6), (40, 6), (4, 2, 3), (40, 1, 6)], ids=str)
@pytest.mark.parametrize("kind", ["uint8", "int8", "torch"])
def test_images_of_8_bits_are_numbers_and_not_bytes(kind, shape, wrap):
    """Read as bytes they would be floats such as 1e-42, of a quarter as many samples."""
    images = np.arange(math.prod(shape)).reshape(shape).astype(np.int8 if kind == "int8" else np.uint8)
    given = wrap(torch.from_numpy(images) if kind == "torch" else images)
    out = "tensor.to(torch.float32)" if kind == "torch" else "array.astype(np.float32)"
    x, graph = MLCTensor(shape=[4, 6]), mlc.MLCGraph()
    y = graph.node(mlc.MLCActivationLayer.relu, source=x)
    made = mlc.MLCInferenceGraph(graphObjects=[graph])
    made.addInputs({"x": x})
    made.addOutputs({"y": y})
    assert made.compile(options=[], device=MLCDevice.cpu())

    def refused(answer, who):
        reason = last_refusal().reason
        return not answer and reason.startswith(f"{who} has elements of type") and f"; pass {out}, or" in reason

    numbers = np.arange(24, dtype=np.float32).reshape(4, 6)
    for _ in range(3):  # the first call, and those that know the graph
        for batch in (4, 1, 0):
            assert refused(made.execute(inputsData={"x": given}, batchSize=batch), "data for 'x'")
            taken = made.execute(inputsData={"x": numbers}, outputsData={"y": given}, batchSize=batch)
            room = "torch.zeros([4, 6], dtype=torch.float32)" if kind == "torch" else "np.zeros([4, 6], np.float32)"
            assert not taken and last_refusal().reason.startswith("the buffer for output 'y' has elements of type")
            assert last_refusal().reason.endswith(f"; make it {room}")
            bound = made.bindAndWriteData(
                {"x": given}, forInputs={"x": x}, to=MLCDevice.cpu(), batchSize=batch, synchronous=True
            )
            assert refused(bound, "data for 'x'")
        assert made.execute(inputsData={"x": numbers}, batchSize=4)
    assert refused(MLCTensor(shape=[4, 6], data=given), "data")
    assert refused(MLCTensor(shape=[4, 6]).bindAndWriteData(given, to=MLCDevice.cpu()), "the data")
    assert (images.reshape(-1) == np.arange(images.size).astype(images.dtype)).all()


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_raw_bytes_of_any_shape_but_the_tensors_are_bytes(kind):
    numbers = np.arange(24, dtype=np.float32).reshape(4, 6)
    for raw in (numbers.view(kind), numbers.view(kind).reshape(-1), memoryview(numbers).cast("B"), numbers.tobytes()):
        for given in (raw, data(raw)):
            held = MLCTensor(shape=[4, 6], data=given)
            np.testing.assert_array_equal(held.numpy(), numbers)
    pixels = np.arange(24).reshape(4, 6).astype(kind)
    for name in ("uint8", "int8"):  # of 8 bits themselves
        held = MLCTensor(shape=[4, 6], data=data(pixels), dataType=MLCDataType[name])
        np.testing.assert_array_equal(held.numpy(), pixels)


def test_labels_of_8_bits_are_numbers_too():
    x, labels, graph = MLCTensor(shape=[4, 6]), MLCTensor(shape=[4, 6]), mlc.MLCGraph()
    graph.node(mlc.MLCActivationLayer.relu, source=x)
    loss = mlc.MLCLossLayer.meanSquaredError(reductionType=mlc.MLCReductionType.mean, weight=1)
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=None)
    training.addInputs({"x": x}, lossLabels={"t": labels})
    assert training.compile(options=[], device=MLCDevice.cpu())
    numbers, eights = np.ones((4, 6), np.float32), np.ones((40, 6), np.uint8)
    given = {"inputsData": {"x": numbers}, "lossLabelWeightsData": None, "batchSize": 4}
    assert not training.execute(**given, lossLabelsData={"t": eights})
    assert "data for 't' has elements of type uint8, in rows of 6" in last_refusal().reason
    assert training.execute(**given, lossLabelsData={"t": numbers})


def test_known_pairs_cost_one_look_up(monkeypatch):
    """Fresh data of a type that was seen before reaches no check."""
    floats()._view(torch.float32, (4,))

    def never(*_):
        raise AssertionError("checked again")

    monkeypatch.setattr(elements, "_format_fits", never)
    assert floats()._view(torch.float32, (4,)).tolist() == [0, 1, 2, 3]
