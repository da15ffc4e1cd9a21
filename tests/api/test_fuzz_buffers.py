"""Drawn shapes, types and buffers of every kind end in one of three answers: a value that is right, a refusal, a TypeError."""

from __future__ import annotations

import array
import math

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import HealthCheck, assume, example, given, settings

import mlc_torch as mlc
from mlc_torch import MLCDataType, MLCTensor, MLCTensorData, MLCTensorDescriptor, last_refusal
from tests.api.numpy_types import NUMPY

CPU = mlc.MLCDevice.cpu()

fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Mostly shapes that can be, with some that cannot.
sizes = st.one_of(st.integers(1, 6), st.integers(-2, 70), st.sampled_from([2**31, 2**62, 2**63, -(2**63)]))
shapes = st.one_of(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.lists(sizes, max_size=6))
data_types = st.one_of(st.sampled_from(list(MLCDataType)), st.integers(-2, 12))
byte_counts = st.one_of(st.integers(0, 300), st.integers(-5, 5), st.sampled_from([2**40, 2**63]))


def _bytes(count: int) -> bytes:
    return np.random.default_rng(count).integers(0, 2, count).astype(np.uint8).tobytes()


@st.composite
def buffers(draw):
    """A buffer, its bytes where it has any that can be read in place, and the one type it fits; ``None``: raw bytes."""
    count = draw(st.integers(0, 40)) * 8
    raw = _bytes(count)
    kind = draw(st.sampled_from(sorted(MAKERS)))
    made = MAKERS[kind](raw)
    return made, (None if kind in UNREADABLE else raw), TYPED.get(kind)


def _read_only(raw):
    values = np.frombuffer(raw, np.uint8)
    values.flags.writeable = False
    return values


MAKERS = {
    "array.array": lambda raw: array.array("B", raw),
    "bytearray": bytearray,
    "bytes": bytes,
    "memoryview": lambda raw: memoryview(bytearray(raw)),
    "memoryview of doubles": lambda raw: memoryview(bytearray(raw)).cast("d"),
    "numpy": lambda raw: np.frombuffer(bytearray(raw), np.uint8),
    "numpy doubles": lambda raw: np.frombuffer(bytearray(raw), np.float64),
    "numpy big-endian": lambda raw: np.frombuffer(bytearray(raw), ">i4"),
    "numpy dates": lambda raw: np.frombuffer(bytearray(raw), "M8[s]"),
    "numpy matrix": lambda raw: np.frombuffer(bytearray(raw), np.uint8).reshape(-1, 8),
    "numpy read-only": _read_only,
    "torch": lambda raw: torch.from_numpy(np.frombuffer(bytearray(raw), np.uint8).copy()),
    "torch half": lambda raw: torch.from_numpy(np.frombuffer(bytearray(raw), np.float16).copy()),
    "a list": list,
    "a number": len,
    "a string": lambda raw: raw.decode("latin-1"),
    "meta": lambda raw: torch.zeros(len(raw) + 1, dtype=torch.uint8, device="meta"),
    "nothing": lambda raw: None,
    "numpy, every second": lambda raw: np.frombuffer(bytearray(2 * raw + bytes(4)), np.uint8)[::2],
    "numpy, turned": lambda raw: np.zeros((3, len(raw) + 2), np.uint8).T,
    "objects": lambda raw: np.array([None, *raw], object),
    "torch, turned": lambda raw: torch.zeros(3, len(raw) + 2).T,
}
TYPED = {
    "memoryview of doubles": np.float64,
    "numpy doubles": np.float64,
    "numpy big-endian": np.dtype(">i4"),
    "torch half": np.float16,
}
"""The others hold raw bytes, which fit every tensor."""
UNREADABLE = {
    "a list",
    "a number",
    "a string",
    "meta",
    "nothing",
    "numpy dates",
    "numpy, every second",
    "numpy, turned",
    "objects",
    "torch, turned",
}


def are_samples(buffer, shape, dtype) -> bool:
    """Whether 8-bit numbers lie in rows as long as a wider tensor's samples: then they are taken for these, not for raw bytes."""
    if not isinstance(buffer, np.ndarray) or np.dtype(NUMPY[dtype]).itemsize == 1 or min(buffer.ndim, len(shape)) < 2:
        return False
    return buffer.dtype == np.uint8 and math.prod(buffer.shape[1:]) == math.prod(shape[1:])


def ask(call):
    """The answer; whether it was refused; whether it was a TypeError. Any other exception fails the test."""
    before = last_refusal()
    try:
        answer = call()
    except TypeError:
        return None, False, True
    refused = last_refusal() is not before
    if refused:
        assert answer is None or answer is False
        assert last_refusal().member and last_refusal().reason
    else:
        assert answer is not None and answer is not False
    return answer, refused, False


@fuzz
@given(buffers(), byte_counts, st.booleans())
def test_tensor_data(drawn, length, immutable):
    buffer, raw, _ = drawn
    label = "immutableBytesNoCopy" if immutable else "bytesNoCopy"
    made, refused, wrong = ask(lambda: MLCTensorData(**{label: buffer}, length=length))
    if raw is not None and 0 <= length <= len(raw):
        assert made.length == length and bytes(made.bytes) == raw[:length]
    else:
        assert refused or wrong


@fuzz
@given(shapes, data_types)
def test_descriptors(shape, dtype):
    made, refused, wrong = ask(lambda: MLCTensorDescriptor(shape=shape, dataType=dtype))
    if made is None:
        possible = 1 <= len(shape) <= 4 and all(0 < s < 2**60 for s in shape) and dtype in list(MLCDataType)
        assert not possible or math.prod(shape) * 8 >= 2**63
        return
    item = np.dtype(NUMPY[MLCDataType(dtype)]).itemsize
    assert made.shape == shape and made.tensorAllocationSizeInBytes == math.prod(shape) * item
    if math.prod(shape) < 2**20:
        assert made.stride == list(np.empty(shape, NUMPY[MLCDataType(dtype)]).strides)


@fuzz
@given(buffers(), shapes, data_types)
def test_tensors_over_buffers(drawn, shape, dtype):
    buffer, raw, typed = drawn
    assume(raw is not None)
    data = MLCTensorData(bytesNoCopy=buffer, length=len(raw))
    tensor, refused, wrong = ask(lambda: MLCTensor(shape=shape, data=data, dataType=dtype))
    if tensor is None:
        return
    item = NUMPY[MLCDataType(dtype)]
    assert typed in (None, item)
    count = math.prod(shape)
    assert len(raw) >= count * np.dtype(item).itemsize
    expected = np.frombuffer(raw, item, count).reshape(shape)
    np.testing.assert_array_equal(np.frombuffer(tensor.data, item, count).reshape(shape), expected)
    assert bytes(tensor.data) == raw
    finite = bool(np.isfinite(expected.astype(np.float64)).all())
    assert tensor.hasValidNumerics is finite
    np.testing.assert_array_equal(tensor.numpy(), expected)


MATRIX = MAKERS["numpy matrix"](_bytes(64))


@fuzz
@given(
    buffers(),
    buffers(),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from(list(MLCDataType)),
    byte_counts,
)
@example((MATRIX, MATRIX.tobytes(), None), (MATRIX.copy(), MATRIX.tobytes(), None), [2, 4, 2], MLCDataType.float32, 32)
def test_binding_and_copying_out(source, target, shape, dtype, length):
    (buffer, raw, typed), (into, room, wanted) = source, target
    assume(raw is not None)
    data = MLCTensorData(bytesNoCopy=buffer, length=len(raw))
    tensor = MLCTensor(shape=shape, dataType=dtype)
    needed = tensor.descriptor.tensorAllocationSizeInBytes
    bound, refused, _ = ask(lambda: tensor.bindAndWriteData(data, to=CPU))
    item = NUMPY[dtype]
    fits = typed in (None, item) and not are_samples(buffer, shape, dtype)
    assert bool(bound) == (len(raw) >= needed and fits) and refused is not bool(bound)
    copied, refused, wrong = ask(
        lambda: tensor.copyDataFromDeviceMemory(toBytes=into, length=length, synchronizeWithDevice=True)
    )
    if copied:
        assert wanted in (None, item)
        seen = bytes(into.numpy().tobytes() if isinstance(into, torch.Tensor) else memoryview(into).tobytes())
        assert seen[:length] == raw[:length] and seen[length:] == room[length:]
    elif room is not None and bound and 0 <= length <= min(needed, len(room)):
        misfits = wanted not in (None, item) or are_samples(into, shape, dtype)
        assert refused and ("read-only" in last_refusal().reason or misfits)
    assert ask(tensor.synchronizeData)[0] is True


@fuzz
@given(shapes, st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.text(max_size=3)), data_types)
def test_fills(shape, number, dtype):
    assume(math.prod(shape) < 2**24)
    tensor, refused, wrong = ask(lambda: MLCTensor(shape=shape, fillWithData=number, dataType=dtype))
    if tensor is not None:
        item = NUMPY[MLCDataType(dtype)]
        with np.errstate(all="ignore"):
            expected = (
                item(bool(number))
                if item is np.bool_
                else item(int(number) if np.issubdtype(item, np.integer) else number)
            )
        np.testing.assert_array_equal(tensor.numpy(), np.full(shape, expected))


@fuzz
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=12),
    data_types,
    st.floats(allow_nan=False, width=32),
    st.integers(-300, 300),
)
def test_quantization(numbers, dtype, scale, bias):
    values = np.array(numbers, np.float32)
    tensor = MLCTensor(shape=[len(numbers)], data=MLCTensorData(bytesNoCopy=values, length=values.nbytes), dataType=1)
    made, refused, wrong = ask(lambda: tensor.quantized(to=dtype, scale=scale, bias=bias))
    if made is None or not np.isfinite(values).all() or not np.isfinite(scale):
        return
    item = NUMPY[MLCDataType(dtype)]
    limits = np.iinfo(item)
    with np.errstate(all="ignore"):
        steps = np.round(values.astype(np.float64) / np.float64(np.float32(scale))) + bias
    np.testing.assert_array_equal(made.numpy(), np.clip(steps, limits.min, limits.max).astype(item))


@fuzz
@given(
    st.dictionaries(
        st.sampled_from(
            ["shape", "data", "dataType", "fillWithData", "descriptor", "width", "randomInitializerType", "x"]
        ),
        st.one_of(st.none(), st.integers(-3, 9), st.text(max_size=2), shapes, st.floats(), st.binary(max_size=4)),
        max_size=4,
    )
)
def test_any_labels_with_any_values(labels):
    assume(not isinstance(labels.get("shape"), list) or all(isinstance(s, int) for s in labels["shape"]))
    if isinstance(labels.get("shape"), list):
        assume(math.prod(labels["shape"]) < 2**24)
    ask(lambda: MLCTensor(**labels))
