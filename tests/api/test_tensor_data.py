"""``MLCTensorData``: any buffer, no copy, kept alive; what does not serve is refused with the way out."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import mmap
import pickle
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import mlc_torch as mlc
from mlc_torch import MLCTensor, MLCTensorData, last_refusal

KINDS = {
    "numpy": lambda: np.arange(4, dtype=np.float32),
    "numpy, two dimensions": lambda: np.arange(4, dtype=np.float32).reshape(2, 2),
    "numpy, a field of records": lambda: np.zeros(4, dtype=[("a", "f4")]),
    "torch": lambda: torch.arange(4, dtype=torch.float32),
    "torch, half": lambda: torch.zeros(8, dtype=torch.float16),
    "torch, wanting a gradient": lambda: torch.zeros(4, requires_grad=True),
    "bytes": lambda: bytes(16),
    "bytearray": lambda: bytearray(16),
    "memoryview": lambda: memoryview(bytearray(16)),
    "array.array": lambda: array.array("f", [0.0] * 4),
    "ctypes": lambda: (ctypes.c_float * 4)(),
    "mmap": lambda: mmap.mmap(-1, 16),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_buffer_serves(kind):
    buffer = KINDS[kind]()
    made = MLCTensorData(bytesNoCopy=buffer, length=16)
    assert made.length == 16
    assert isinstance(made.bytes, memoryview) and made.bytes.nbytes == 16 and made.bytes.format == "B"
    assert MLCTensorData(immutableBytesNoCopy=buffer, length=8).bytes.nbytes == 8
    assert MLCTensorData.dataWithBytesNoCopy_length_(buffer, 16).length == 16
    assert MLCTensorData.dataWithImmutableBytesNoCopy_length_(buffer, 16).length == 16


def test_nothing_is_copied():
    values = np.zeros(4, np.float32)
    made = MLCTensorData(bytesNoCopy=values, length=16)
    values[2] = 7
    assert np.frombuffer(made.bytes, np.float32)[2] == 7
    made.bytes[:4] = np.float32(3).tobytes()
    assert values[0] == 3
    tensor = torch.zeros(4)
    MLCTensorData(bytesNoCopy=tensor, length=16).bytes[:4] = np.float32(5).tobytes()
    assert tensor[0] == 5


_TABLE = np.arange(40000, dtype=np.float32).reshape(5, 8000)
ALONE = {
    "torch, an element of a column": lambda: torch.from_numpy(_TABLE)[3:4, 2],
    "torch, spread out": lambda: torch.full((1,), 7.0).expand(1, 1),
    "numpy, an element of a column": lambda: _TABLE[3:4, 2],
    "numpy, a dimension of no stride": lambda: np.ones(1, np.float32)[:, None],
    "numpy, a little row backwards": lambda: _TABLE[:, :8].copy()[:1][::-1],
    "numpy, a row backwards": lambda: _TABLE[::-1][-1:],
}
"""A single element, or row, lies in order whatever its strides are."""


@pytest.mark.parametrize("kind", ALONE)
def test_what_is_alone_in_its_dimension_may_have_any_stride(kind):
    buffer = ALONE[kind]()
    want = np.asarray(buffer).copy()
    shape = (1, want.size)
    x = mlc.unwrap(mlc.MLCTensor(shape=shape))
    inference = mlc.MLCInferenceGraph(graphObjects=[graph := mlc.MLCGraph()])
    y = mlc.unwrap(graph.node(mlc.MLCActivationLayer.relu, source=x))
    made = MLCTensorData(bytesNoCopy=buffer, length=want.nbytes)
    assert made.bytes.tobytes() == want.tobytes()
    assert inference.addInputs({"x": x})
    assert inference.addOutputs({"y": y})
    assert inference.compile(options=[], device=mlc.unwrap(mlc.MLCDevice.cpu()))
    for _ in range(3):
        assert inference.execute(inputsData={"x": buffer}, batchSize=1, options=[]), last_refusal()
        np.testing.assert_array_equal(y.numpy(), want.reshape(shape))
    device = mlc.unwrap(mlc.MLCDevice.cpu())
    bound = mlc.unwrap(mlc.MLCTensor(shape=shape))
    assert bound.bindAndWriteData(made, to=device), last_refusal()
    np.testing.assert_array_equal(bound.numpy(), want.reshape(shape))


@pytest.mark.parametrize(
    "kind", ["numpy", "torch", "bytes", "bytearray", "memoryview", "array.array", "ctypes", "mmap"]
)
def test_what_torch_reads_is_no_view_of_another_tensor(kind):
    """Every operation on a view costs more than on a tensor that stands for itself."""
    buffer = KINDS[kind]()
    seen = MLCTensorData(bytesNoCopy=buffer, length=16)._view(torch.float32, (2, 2))
    assert seen.shape == (2, 2) and not seen._is_view()
    assert seen.numpy().tobytes() == memoryview(buffer if kind != "torch" else buffer.numpy()).tobytes()


def test_the_buffer_is_kept_alive():
    class Owner(bytearray):
        pass

    owner = Owner(16)
    alive = weakref.ref(owner)
    made = MLCTensorData(bytesNoCopy=owner, length=16)
    del owner
    gc.collect()
    assert alive() is not None
    del made
    gc.collect()
    assert alive() is None


def test_the_deallocator_is_called_once_with_the_buffer_and_its_length():
    calls, buffer = [], bytearray(16)
    made = MLCTensorData(bytesNoCopy=buffer, length=12, deallocator=lambda b, n: calls.append((b, n)))
    gc.collect()
    assert calls == []
    del made
    gc.collect()
    assert len(calls) == 1 and calls[0][0] is buffer and calls[0][1] == 12


def test_a_longer_buffer_is_normal_and_no_length_is_too_small():
    assert MLCTensorData(bytesNoCopy=bytearray(100), length=16).bytes.nbytes == 16
    assert MLCTensorData(bytesNoCopy=bytearray(4), length=0).length == 0
    assert MLCTensorData(bytesNoCopy=b"", length=0).length == 0
    assert MLCTensorData(bytesNoCopy=np.zeros((0, 3)), length=0).length == 0
    assert MLCTensorData(bytesNoCopy=torch.zeros(0), length=0).length == 0


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says that they may change
    NESTED, JAGGED = (
        torch.nested.nested_tensor([torch.zeros(1), torch.zeros(3)], layout=layout)
        for layout in (torch.strided, torch.jagged)
    )


@pytest.mark.parametrize(
    ("buffer", "length", "says"),
    [
        (bytearray(8), 9, "length is 9 bytes, the buffer holds 8"),
        (bytearray(8), -1, "must not be negative"),
        (np.zeros((4, 4), np.float32)[:, ::2], 16, "numpy.ascontiguousarray"),
        (np.zeros((4, 4), np.float32).T[1:], 16, "numpy.ascontiguousarray"),
        (np.asfortranarray(np.zeros((4, 3))), 16, "numpy.ascontiguousarray"),
        (torch.zeros(4, 4).T[1:], 16, "tensor.contiguous()"),
        (torch.zeros(4).to_sparse(), 16, "tensor.to_dense()"),
        (torch.zeros(4, device="meta"), 16, "which has no memory"),
        (np.ma.masked_less(np.array([1, -1, 2, 3], np.float32), 0), 16, "array.filled(value)"),
        (NESTED, 16, "torch.nested.to_padded_tensor(tensor, 0)"),
        (JAGGED, 16, "torch.nested.to_padded_tensor(tensor, 0)"),
        (torch.zeros(4, dtype=torch.complex64).conj(), 16, "tensor.resolve_conj()"),
        (torch.zeros(4, dtype=torch.complex64).conj().imag, 16, "resolve_neg()"),
        (memoryview(bytearray(16))[::2], 8, "not contiguous"),
    ],
)
def test_what_does_not_serve_is_refused_with_the_way_out(buffer, length, says):
    assert MLCTensorData(bytesNoCopy=buffer, length=length) is None
    assert says in str(last_refusal())


with FakeTensorMode():
    FAKE = torch.ones(4)
WITHOUT_MEMORY = pytest.mark.parametrize(
    ("given", "says"),
    [
        (nn.LazyLinear(4).weight, "no values yet; run its module once"),
        (FAKE, "without memory of its own, as in a FakeTensorMode"),
        (torch._efficientzerotensor(4), "of zeros that has no memory; pass tensor.clone()"),
    ],
    ids=["lazy", "fake", "zeros"],
)


@pytest.mark.filterwarnings("error")
@WITHOUT_MEMORY
def test_a_torch_tensor_without_memory_is_refused(given, says):
    assert MLCTensorData(bytesNoCopy=given, length=16) is None and says in str(last_refusal())
    with pytest.raises(ValueError, match=r"MLCTensor\.from_torch: what was given is a torch") as raised:
        MLCTensor.from_torch(given)
    assert says in str(raised.value)


def test_a_torch_tensor_inside_vmap_is_refused():
    said = []

    def look(x):
        assert MLCTensorData(bytesNoCopy=x, length=16) is None
        said.append(str(last_refusal()))
        with pytest.raises(ValueError, match=r"from_torch: .*without memory of its own") as raised:
            MLCTensor.from_torch(x)
        said.append(str(raised.value))
        return x

    torch.func.vmap(look)(torch.ones(3, 4))
    assert len(said) == 2 and all("inside torch.func.vmap" in words for words in said)


def test_zeros_without_memory_serve_once_they_have_some():
    """The way out that the refusal names."""
    assert MLCTensor.from_torch(torch._efficientzerotensor(4).clone()).numpy().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("given", [NESTED, JAGGED, np.ma.masked_less(np.ones((2, 2), np.float32), 2)], ids=type)
def test_execute_refuses_what_holds_other_values_than_its_memory(given):
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[2, 2])
    graph.node(mlc.MLCActivationLayer.relu, source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=mlc.MLCDevice.cpu())
    assert not inference.execute(inputsData={"x": given}, batchSize=0, options=[])
    assert "MLCInferenceGraph.execute" in str(last_refusal()) and "the buffer is a " in str(last_refusal())


@pytest.mark.parametrize("wrong", [None, "text", 3, [1, 2], (1.0,), {"a": 1}, object()])
def test_what_is_no_buffer_is_a_type_error(wrong):
    with pytest.raises(
        TypeError, match=r"MLCTensorData\(bytesNoCopy:length:\): argument 'bytesNoCopy' expects a buffer"
    ):
        MLCTensorData(bytesNoCopy=wrong, length=0)


def test_an_array_of_objects_has_no_bytes():
    with pytest.raises(TypeError, match="buffer"):
        MLCTensorData(bytesNoCopy=[object()], length=0)
    for buffer in (np.array([None, "a"]), np.zeros(2, [("a", "O")]), (ctypes.py_object * 2)()):
        assert MLCTensorData(bytesNoCopy=buffer, length=8) is None
        assert "Python objects" in str(last_refusal())


def test_read_only_memory_is_seen_as_such():
    values = np.zeros(4, np.float32)
    values.flags.writeable = False
    for buffer in (values, bytes(16), memoryview(bytes(16))):
        assert MLCTensorData(bytesNoCopy=buffer, length=16).bytes.readonly
    assert not MLCTensorData(bytesNoCopy=bytearray(16), length=16).bytes.readonly


def test_what_a_plain_init_gives():
    assert MLCTensorData._bare().length == 0


def test_a_deep_copy_has_its_own_memory_and_a_pickle_is_refused():
    values = np.arange(4, dtype=np.float32)
    made = MLCTensorData(bytesNoCopy=values, length=16)
    other = copy.deepcopy(made)
    values[:] = 0
    assert np.frombuffer(other.bytes, np.float32).tolist() == [0, 1, 2, 3]
    assert copy.copy(made).bytes.obj is made.bytes.obj
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(made)
    assert repr(made) == "MLCTensorData(ndarray, length=16)"


def test_parameters_and_optimizer_data():
    tensor = mlc.MLCTensor(shape=[2, 2])
    parameter = mlc.MLCTensorParameter(tensor=tensor)
    assert parameter.tensor is tensor and parameter.isUpdatable is True
    parameter.isUpdatable = False
    assert parameter.isUpdatable is False
    states = [MLCTensorData(bytesNoCopy=bytearray(16), length=16) for _ in range(2)]
    bound = mlc.MLCTensorParameter(tensor=tensor, optimizerData=states)
    assert bound.tensor.optimizerData == states and bound.tensor.optimizerDeviceData == []
    assert mlc.MLCTensorParameter(tensor=mlc.MLCTensor(shape=[1]), optimizerData=None).tensor.optimizerData == []
    short = [MLCTensorData(bytesNoCopy=bytearray(8), length=8)]
    assert mlc.MLCTensorParameter(tensor=tensor, optimizerData=short) is None
    assert "optimizer data 0 holds 8 bytes" in str(last_refusal())
    assert tensor.bindOptimizerData(short, deviceData=None) is False
    assert tensor.bindOptimizerData(states, deviceData=[]) is True
    assert tensor.synchronizeOptimizerData() is True
    bare = mlc.MLCTensorParameter._bare()
    assert bare.tensor is None and bare.isUpdatable is False
