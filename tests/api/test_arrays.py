"""Arrays and torch tensors where ML Compute takes ``MLCTensorData``, and tensors that read like arrays (ours)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCDataType,
    MLCDevice,
    MLCGraph,
    MLCInferenceGraph,
    MLCRefusal,
    MLCTensor,
    MLCTensorData,
    MLCTensorDescriptor,
    last_refusal,
)
from mlc_torch.coverage.api import api
from mlc_torch.spelling import CLASSES
from mlc_torch.spelling.arguments import converter

VALUES = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def relu() -> tuple[MLCInferenceGraph, MLCTensor]:
    x, graph = MLCTensor(shape=[2, 3]), MLCGraph()
    y = graph.node(MLCActivationLayer.relu, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": y})
    assert inference.compile(options=[], device=MLCDevice.cpu())
    return inference, y


@pytest.mark.parametrize("make", [np.array, torch.tensor, lambda v: v.tobytes(), lambda v: memoryview(v.copy())])
def test_an_execute_takes_arrays(make):
    inference, y = relu()
    assert inference.execute(inputsData={"x": make(VALUES)}, batchSize=2)
    assert np.array_equal(y.numpy(), VALUES.clip(0))


@pytest.mark.parametrize("make", [np.zeros_like, lambda v: torch.zeros(v.shape)])
def test_results_go_into_the_array_itself(make):
    inference, _ = relu()
    wanted = make(VALUES)
    assert inference.execute(inputsData={"x": VALUES}, outputsData={"y": wanted}, batchSize=2)
    assert np.array_equal(np.asarray(wanted), VALUES.clip(0))


def test_a_tensor_over_an_array_shares_its_memory():
    held = VALUES.copy()
    tensor = MLCTensor(shape=[2, 3], data=held, dataType=MLCDataType.float32)
    held[0, 0] = 7
    assert tensor.numpy()[0, 0] == 7 and np.shares_memory(tensor.numpy(), held)
    assert tensor.bindAndWriteData(np.ones((2, 3), np.float32), to=MLCDevice.cpu()) and tensor.numpy().all()


def test_lists_of_data_take_arrays():
    tensor, state = MLCTensor.from_numpy(VALUES.copy()), np.zeros((2, 3), np.float32)
    assert tensor.bindOptimizerData([state], deviceData=None)
    assert len(tensor.optimizerData) == 1 and tensor.optimizerData[0].length == 24


def test_what_cannot_be_used_in_place_is_refused():
    inference, _ = relu()
    assert not inference.execute(inputsData={"x": np.asfortranarray(VALUES)}, batchSize=2)
    assert "numpy.ascontiguousarray(array)" in str(last_refusal())


def test_what_is_no_array_is_a_type_error():
    inference, _ = relu()
    for wrong in ("text", 3, [1.0, 2.0], None):
        with pytest.raises(TypeError, match="MLCTensorData, a NumPy array or a torch tensor"):
            inference.execute(inputsData={"x": wrong}, batchSize=2)


def test_data_itself_is_taken_as_it_is():
    given = MLCTensorData(bytesNoCopy=VALUES.copy(), length=24)
    assert converter("MLCTensorData")(given) is given


def test_every_member_that_takes_data_converts():
    """By the list of the API: no parameter of the type has a converter of its own."""
    found = 0
    for name in api()["classes"]:
        for declarations in CLASSES[name].__declared__.values():
            for p in (p for d in declarations for p in d.signature.params if "MLCTensorData" in p.type):
                array = VALUES.copy()
                given = {"x": array} if p.type.startswith("[String") else [array] if p.type.startswith("[") else array
                made = converter(p.type)(given)
                made = made["x"] if isinstance(made, dict) else made[0] if isinstance(made, list) else made
                assert type(made) is MLCTensorData and np.shares_memory(np.asarray(made.bytes), array)
                found += 1
    assert found > 30


# Tensors


def test_from_numpy_shares_memory():
    for kind in (np.float32, np.float16, np.bool_, np.int64, np.int32, np.int8, np.uint8):
        array = np.ones((2, 3), kind)
        tensor = MLCTensor.from_numpy(array, label="ones")
        assert tensor.shape == (2, 3) and tensor.label == "ones" and tensor.numpy().dtype == kind
        assert np.shares_memory(tensor.numpy(), array)
    assert MLCTensor.from_numpy(np.array(3.0, np.float32)).shape == (1,)


def test_from_numpy_says_what_it_cannot_take():
    with pytest.raises(TypeError, match=r"no type for float64; pass array.astype\(numpy.float32\)"):
        MLCTensor.from_numpy(np.zeros(3))
    with pytest.raises(TypeError, match="no type for >f4"):
        MLCTensor.from_numpy(np.zeros(3, ">f4"))
    with pytest.raises(ValueError, match="contiguous"):
        MLCTensor.from_numpy(VALUES.T)
    with pytest.raises(TypeError, match=r"expects a numpy.ndarray, got list"):
        MLCTensor.from_numpy([1.0])
    with pytest.raises(ValueError, match=r"from_numpy: .* is a masked array, .*pass array.filled\(value\)"):
        MLCTensor.from_numpy(np.ma.masked_less(VALUES, 2))
    with pytest.raises(TypeError, match=r"from_numpy: argument 'label' expects a str, got 5 \(int\)"):
        MLCTensor.from_numpy(VALUES, label=5)


@pytest.mark.parametrize(
    ("shape", "says"),
    [((1,) * 5, "shape has 5 dimensions, at most 4"), ((2, 0), "must be at least 1, got [2, 0]")],
    ids=str,
)
@pytest.mark.parametrize("member", ["from_numpy", "from_torch"])
def test_what_no_tensor_can_be_is_refused_by_name(member, shape, says, caplog):
    values = np.ones(shape, np.float32)
    with pytest.raises(MLCRefusal) as raised:
        getattr(MLCTensor, member)(values if member == "from_numpy" else torch.from_numpy(values))
    assert str(raised.value).startswith(f"MLCTensor.{member}: ") and says in str(raised.value)
    assert last_refusal() is raised.value and not caplog.records


def test_read_only_arrays_stay_as_they_are():
    array = VALUES.copy()
    array.flags.writeable = False
    tensor = MLCTensor.from_numpy(array)
    tensor.torch[0, 0] = 9
    assert array[0, 0] == -1 and tensor.numpy()[0, 0] == 9


def test_shape_and_type_are_torchs():
    tensor = MLCTensor(descriptor=MLCTensorDescriptor(shape=[2, 3], dataType=MLCDataType.float16))
    assert tensor.shape == torch.Size([2, 3]) and tensor.dtype is torch.float16
    assert len(tensor) == 2


def test_a_tensor_reads_like_an_array():
    tensor = MLCTensor.from_numpy(VALUES.copy())
    assert tensor[1, 2] == 6 and torch.equal(tensor[:, 1], torch.tensor([2.0, -5.0]))
    assert [row.tolist() for row in tensor] == VALUES.tolist()
    assert float(MLCTensor.from_numpy(np.array([2.5], np.float32))) == 2.5
    with pytest.raises(ValueError, match="one element, .* has 6"):
        float(tensor)
    with pytest.raises(TypeError, match="item assignment"):
        tensor[0] = 1  # type: ignore[index]
    with pytest.raises(ValueError, match="holds no data"):
        MLCTensor(shape=[2])[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64, np.int8, np.uint8, np.bool_])
@pytest.mark.parametrize("value", [0.5, 0, 3, True, None, "text", np.float64(2), np.array([3, 0]), math.nan])
def test_in_asks_for_an_element_as_numpy_does(dtype, value):
    array = np.array([[3, 0.5], [0, 2]]).astype(dtype)
    assert (value in MLCTensor.from_numpy(array)) is (value in array)


def test_in_takes_torchs_tensors_and_needs_data():
    tensor = MLCTensor.from_numpy(VALUES.copy())
    assert torch.tensor(4.0, requires_grad=True) in tensor and torch.tensor(7) not in tensor and tensor in tensor
    with pytest.raises(ValueError, match="holds no data"):
        _ = 0.5 in MLCTensor(shape=[2, 3])


def test_a_tensor_is_always_true():
    assert MLCTensor(shape=[1]) and MLCTensor.from_numpy(np.zeros(1, np.float32))


def test_a_tensor_is_no_list_of_tensors():
    graph, x = MLCGraph(), MLCTensor.from_numpy(VALUES.copy())
    with pytest.raises(TypeError, match=r"argument 'sources' expects \[MLCTensor\] \(a list\)"):
        graph.node(MLCActivationLayer.relu, sources=x)
    with pytest.raises(TypeError, match=r"argument 'shape' expects \[Int\] \(a list\)"):
        MLCTensor(shape=MLCTensor.from_numpy(np.array([2, 3])))
