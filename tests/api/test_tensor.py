"""``MLCTensor`` and ``MLCTensorDescriptor``: initializers, labels, data, fills, devices, quantization, copies."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch import MLCDataType, MLCTensor, MLCTensorData, MLCTensorDescriptor, last_refusal
from tests.api.numpy_types import NUMPY


def data(values) -> MLCTensorData:
    return MLCTensorData(bytesNoCopy=values, length=values.nbytes)


def holding(*numbers, dtype=MLCDataType.float32, shape=None) -> MLCTensor:
    values = np.array(numbers, NUMPY[dtype])
    return MLCTensor(shape=shape or values.shape, data=data(values), dataType=dtype)


@pytest.fixture
def device(torch_device):
    return mlc.MLCDevice.cpu() if torch_device.type == "cpu" else mlc.MLCDevice(gpuDevices=[torch_device])


# Descriptors


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MLCTensorDescriptor(shape=[], dataType=1), "shape is empty"),
        (lambda: MLCTensorDescriptor(shape=[1] * 5, dataType=1), "at most 4"),
        (lambda: MLCTensorDescriptor(shape=[2, 0], dataType=1), "at least 1"),
        (lambda: MLCTensorDescriptor(shape=[2, -1], dataType=1), "at least 1"),
        (lambda: MLCTensorDescriptor(shape=[2], dataType=0), "0 is no MLCDataType"),
        (lambda: MLCTensorDescriptor(shape=[2**40, 2**40], dataType=1), "more elements than memory has addresses"),
        (
            lambda: MLCTensorDescriptor(shape=[2, 3], sequenceLengths=[3, 3], sortedSequences=True, dataType=1),
            "[batch, longest sequence, features]",
        ),
        (
            lambda: MLCTensorDescriptor(shape=[2, 3, 1], sequenceLengths=[1, 3], sortedSequences=True, dataType=1),
            "descending",
        ),
        (
            lambda: MLCTensorDescriptor(shape=[2, 3, 1], sequenceLengths=[4], sortedSequences=True, dataType=1),
            "holds 3 steps",
        ),
        (
            lambda: MLCTensorDescriptor(shape=[2, 3, 1], sequenceLengths=[], sortedSequences=True, dataType=1),
            "sequenceLengths",
        ),
        (
            lambda: MLCTensorDescriptor(
                convolutionWeightsWithInputFeatureChannelCount=-2, outputFeatureChannelCount=-3, dataType=1
            ),
            "inputFeatureChannelCount",
        ),
        (lambda: MLCTensor(shape=[0]), "at least 1"),
        (lambda: MLCTensor(shape=[2], dataType=6), "6 is no MLCDataType"),
        (lambda: MLCTensor(shape=[4], data=data(np.zeros(3, np.float32))), "holds 12 bytes"),
        (lambda: MLCTensor(shape=[2], fillWithData=300, dataType=MLCDataType.uint8), "does not fit into uint8"),
        (lambda: MLCTensor(shape=[2], fillWithData=float("nan"), dataType=MLCDataType.int32), "no value as int32"),
        (
            lambda: MLCTensor(
                descriptor=MLCTensorDescriptor(shape=[2], dataType=MLCDataType.int32), randomInitializerType=1
            ),
            "floating-point",
        ),
        (lambda: MLCTensor(shape=[2**28, 2**30], fillWithData=1, dataType=1), "bytes"),
    ],
)
def test_refusals(make, says):
    assert make() is None
    assert says in str(last_refusal())


@pytest.mark.parametrize("dtype", MLCDataType)
def test_sizes_of_every_type(dtype):
    made = MLCTensorDescriptor(shape=[2, 3], dataType=dtype)
    size = np.dtype(NUMPY[dtype]).itemsize
    assert made.stride == [3 * size, size] and made.tensorAllocationSizeInBytes == 6 * size
    assert made.dimensionCount == 2 and made.dataType is dtype


def test_properties_that_are_lists_are_fresh():
    made = MLCTensorDescriptor(shape=[2, 3], dataType=1)
    made.shape.append(4)
    assert made.shape == [2, 3]


# Initializers


def test_every_initializer_of_images_and_sequences():
    image = {"width": 5, "height": 4, "featureChannelCount": 3, "batchSize": 2}
    values = np.zeros(120, np.float32)
    for more in (
        {},
        {"data": data(values)},
        {"randomInitializerType": 1},
        {"data": data(values.view(np.int32)), "dataType": 7},
    ):
        assert MLCTensor(**image, **more).descriptor.shape == [2, 3, 4, 5]
    filled = MLCTensor(**image, fillWithData=2.5, dataType=MLCDataType.int32)
    assert filled.numpy().dtype == np.int32 and (filled.numpy() == 2).all()
    sequence = {"sequenceLength": 3, "featureChannelCount": 2, "batchSize": 4}
    for more in ({}, {"data": None}, {"data": data(values)}, {"randomInitializerType": 2}):
        assert MLCTensor(**sequence, **more).descriptor.sequenceLengths == [3] * 4
    assert MLCTensor(**sequence, data=None).data is None
    lengths = {"sequenceLengths": [3, 1], "sortedSequences": True, "featureChannelCount": 2, "batchSize": 2}
    assert MLCTensor(**lengths).descriptor.batchSizePerSequenceStep == [2, 1, 1]
    assert MLCTensor(**lengths, randomInitializerType=3).data is not None
    unsorted = MLCTensor(**(lengths | {"sequenceLengths": [1, 3], "sortedSequences": False}))
    assert unsorted.descriptor.sortedSequences is False
    many = np.random.default_rng(0).integers(1, 2000, 5000)
    descriptor = MLCTensorDescriptor(
        shape=[5000, 2000, 1], sequenceLengths=many, sortedSequences=False, dataType=MLCDataType.float32
    )
    assert descriptor.batchSizePerSequenceStep == [int((many > step).sum()) for step in range(many.max())]
    assert MLCTensor(**(lengths | {"sequenceLengths": [1, 3]})) is None


def test_the_selectors_of_the_first_sdks():
    values = np.zeros(4, np.float32)
    assert MLCTensor.tensorWithShape_data_([4], data(values)).descriptor.dataType is MLCDataType.float32
    assert MLCTensor.tensorWithShape_fillWithData_([4], 3).numpy().tolist() == [3] * 4
    assert MLCTensorDescriptor.descriptorWithShape_([4]).dataType is MLCDataType.float32
    made = MLCTensor.tensorWithShape_randomInitializerType_dataType_([4], 1, MLCDataType.float16)
    assert made.numpy().dtype == np.float16


@pytest.mark.parametrize("dtype", MLCDataType)
@pytest.mark.parametrize("number", [0, 1, 7, 2.75, True, -3])
def test_fills_cast_to_the_type(dtype, number):
    made = MLCTensor(shape=[2, 2], fillWithData=number, dataType=dtype)
    if dtype is MLCDataType.uint8 and number < 0:
        assert made is None
        return
    assert made.numpy().dtype == NUMPY[dtype]
    expected = bool(number) if dtype is MLCDataType.boolean else number if "float" in dtype.name else int(number)
    assert (made.numpy() == expected).all()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(255.7, 255), (-0.5, 0), (np.bool_(True), 1), (np.float16(2.5), 2), (256, None), (-1, None)],
)
def test_fills_are_cut_off_before_they_are_found_too_large(number, expected):
    made = MLCTensor(shape=[1], fillWithData=number, dataType=MLCDataType.uint8)
    assert (made is None and "does not fit" in str(last_refusal())) if expected is None else made.numpy() == expected


# Identity and data


def test_ids_count_up_and_labels_follow_them():
    first, second = MLCTensor(shape=[1]), MLCTensor(shape=[1])
    assert second.tensorID == first.tensorID + 1
    assert first.label == f"data{first.tensorID}"
    first.label = "weights"
    assert first.label == "weights" and "weights" in repr(first)
    with pytest.raises(TypeError):
        first.label = 3
    with pytest.raises(AttributeError, match="read-only"):
        first.tensorID = 5


def test_data_is_the_whole_buffer_read_only():
    values = np.arange(64, dtype=np.float32)
    made = MLCTensor(shape=[4], data=data(values), dataType=1)
    assert made.data.nbytes == 256 and made.data.readonly
    values[0] = 9
    assert np.frombuffer(made.data, np.float32)[0] == 9
    assert made.numpy().tolist() == [9, 1, 2, 3]
    assert MLCTensor(shape=[4]).data is None


def test_numbers_that_are_none():
    assert holding(1.0, 2.0).hasValidNumerics is True
    assert holding(1.0, float("nan")).hasValidNumerics is False
    assert holding(1.0, float("inf")).hasValidNumerics is False
    assert holding(1, 2, dtype=MLCDataType.int32).hasValidNumerics is True
    assert MLCTensor(shape=[2]).hasValidNumerics is True


# Devices


@pytest.mark.parametrize("dtype", MLCDataType)
def test_bytes_go_to_the_device_and_come_back(dtype, device):
    values = np.array([0, 1, 1, 0, 1, 1], NUMPY[dtype])
    tensor = MLCTensor(shape=[2, 3], dataType=dtype)
    assert tensor.device is None
    assert tensor.bindAndWriteData(data(values), to=device) is True
    assert tensor.device is device
    back = np.zeros_like(values)
    assert tensor.copyDataFromDeviceMemory(toBytes=back, length=back.nbytes, synchronizeWithDevice=True) is True
    assert (back == values).all()
    part = bytearray(back.nbytes)
    size = values.itemsize * 2
    assert tensor.copyDataFromDeviceMemory(toBytes=part, length=size, synchronizeWithDevice=False) is True
    assert bytes(part[:size]) == values.tobytes()[:size] and not any(part[size:])
    assert tensor.synchronizeData() is True and bytes(tensor.data) == values.tobytes()


def test_synchronize_brings_the_devices_value_into_the_callers_buffer(device):
    values = np.zeros(4, np.float32)
    tensor = MLCTensor(shape=[4])
    tensor.bindAndWriteData(data(values), to=device)
    tensor.torch.add_(3)
    tensor.synchronizeData()
    assert values.tolist() == [3, 3, 3, 3]


def test_what_moving_refuses(device):
    tensor = MLCTensor(shape=[4])
    target = bytearray(16)
    assert tensor.copyDataFromDeviceMemory(toBytes=target, length=16, synchronizeWithDevice=True) is False
    assert "holds no data" in str(last_refusal())
    assert tensor.synchronizeData() is True
    assert tensor.bindAndWriteData(data(np.zeros(3, np.float32)), to=device) is False
    assert "needs 16" in str(last_refusal())
    assert tensor.bindAndWriteData(data(np.zeros(64, np.float32)), to=device) is True
    for buffer, length, says in (
        (target, 17, "the tensor holds 16"),
        (target, -1, "length is -1"),
        (bytearray(8), 16, "the buffer holds 8"),
        (bytes(16), 16, "read-only"),
    ):
        assert tensor.copyDataFromDeviceMemory(toBytes=buffer, length=length, synchronizeWithDevice=True) is False
        assert says in str(last_refusal())


# Quantization (evidence.md A.5)


def _along(x, bias):
    return x.quantized(to=MLCDataType.int8, scale=holding(1.0, 1.0), bias=bias, axis=0)


def test_quantize_and_back():
    x = holding(-1.0, -0.26, 0.0, 0.3, 100.0)
    q = x.quantized(to=MLCDataType.int8, scale=0.5, bias=3)
    assert q.descriptor.dataType is MLCDataType.int8
    assert q.numpy().tolist() == [1, 2, 3, 4, 127]
    back = q.dequantized(to=MLCDataType.float32, scale=holding(0.5), zeroPoint=holding(3, dtype=MLCDataType.int32))
    assert back.numpy().tolist() == [-1.0, -0.5, 0.0, 0.5, 62.0]


@pytest.mark.parametrize("dtype", [MLCDataType.int8, MLCDataType.uint8, MLCDataType.int32])
def test_quantize_along_an_axis(dtype):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (2, 3, 4)).astype(np.float32)
    scale, bias = np.array([0.1, 0.02, 1.0], np.float32), np.array([5, 0, 100], np.int32)
    tensor = MLCTensor(shape=x.shape, data=data(x), dataType=1)
    scales, biases = holding(*scale), holding(*bias, dtype=MLCDataType.int32)
    q = tensor.quantized(to=dtype, scale=scales, bias=biases, axis=1)
    limits = np.iinfo(NUMPY[dtype])
    s, b = scale.astype(np.float64).reshape(1, 3, 1), bias.reshape(1, 3, 1)
    expected = np.clip(np.round(x.astype(np.float64) / s) + b, limits.min, limits.max)
    assert (q.numpy() == expected).all()
    back = q.dequantized(to=MLCDataType.float32, scale=scales, bias=biases, axis=1)
    np.testing.assert_allclose(back.numpy(), (expected - b) * s, rtol=1e-6)


@pytest.mark.parametrize("bias", [0, 2**53, -(2**53), 2**62 + 1, -(2**62) - 3, 2**63 - 1, -(2**63)])
def test_integers_are_dequantized_exactly(bias):
    """Python's integers have no end, and float64 is only what the difference is rounded to."""
    numbers = [2**53 + 1, 2**53, 2**62 + 2, -(2**62) - 1, 2**63 - 1, -(2**63), 0]
    q, zero = holding(*numbers, dtype=MLCDataType.int64), holding(bias, dtype=MLCDataType.int64)
    got = q.dequantized(to=MLCDataType.float32, scale=holding(0.5), zeroPoint=zero).numpy()
    np.testing.assert_allclose(got, np.array([0.5 * float(n - bias) for n in numbers]), rtol=2**-23)


@pytest.mark.parametrize("bias", [0.0, 2.0**53, -(2.0**60), 2.0**63, 2.5])
def test_integers_are_dequantized_exactly_by_a_float(bias):
    numbers = [2**53 + 1, 2**60 + 1, -(2**62), 3]
    q = holding(*numbers, dtype=MLCDataType.int64)
    got = q.dequantized(to=MLCDataType.float32, scale=holding(1.0), zeroPoint=holding(bias)).numpy()
    np.testing.assert_allclose(got, [float(Fraction(n) - Fraction(bias)) for n in numbers], rtol=2**-23)


@pytest.mark.parametrize("dtype", [MLCDataType.int8, MLCDataType.uint8, MLCDataType.int32])
def test_infinity_is_quantized_to_the_ends_of_the_range(dtype):
    x, limits = holding(float("inf"), 1.0, float("-inf")), np.iinfo(NUMPY[dtype])
    for scale, ends in ((0.5, [limits.max, 5, limits.min]), (-0.5, [limits.min, 1, limits.max])):
        assert x.quantized(to=dtype, scale=scale, bias=3).numpy().tolist() == ends


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, q, s: holding(1.0, NAN).quantized(to=MLCDataType.int8, scale=1, bias=0), "this tensor holds NaN"),
        (lambda x, q, s: _along(holding(NAN, 1.0), holding(0, 0)), "this tensor holds NaN"),
        (lambda x, q, s: _along(x, holding(0, NAN)), "bias must not be NaN"),
        (lambda x, q, s: _along(holding(INFINITY, 1.0), holding(-INFINITY, 0)), "infinity less infinity"),
        (lambda x, q, s: x.quantized(to=MLCDataType.int64, scale=1, bias=0), "int8, uint8 or int32"),
        (lambda x, q, s: x.quantized(to=MLCDataType.int8, scale=0, bias=0), "scale must not be zero"),
        (lambda x, q, s: x.quantized(to=MLCDataType.int8, scale=float("nan"), bias=0), "scale must not be zero"),
        (
            lambda x, q, s: x.quantized(to=MLCDataType.int8, scale=holding(1, 0), bias=holding(0, 0), axis=0),
            "scale must not be zero",
        ),
        (lambda x, q, s: q.quantized(to=MLCDataType.int8, scale=1, bias=0), "only floating-point"),
        (lambda x, q, s: x.quantized(to=MLCDataType.int8, scale=s, bias=s, axis=1), "axis 1 is none"),
        (lambda x, q, s: x.quantized(to=MLCDataType.int8, scale=s, bias=s, axis=0), "needs 2 numbers"),
        (lambda x, q, s: q.dequantized(to=MLCDataType.float16, scale=s, zeroPoint=s), "to float32"),
        (lambda x, q, s: x.dequantized(to=MLCDataType.float32, scale=s, zeroPoint=s), "only integer"),
        (lambda x, q, s: q.dequantized(to=MLCDataType.float32, scale=x, zeroPoint=s), "one number"),
        (lambda x, q, s: MLCTensor(shape=[2]).quantized(to=MLCDataType.int8, scale=1, bias=0), "holds no data"),
    ],
)
def test_what_quantization_refuses(call, says):
    x, q, s = holding(1.0, 2.0), holding(1, 2, dtype=MLCDataType.int8), holding(0.5)
    assert call(x, q, s) is None
    assert says in str(last_refusal())


# Copies, torch and NumPy


def test_copies():
    values = np.arange(4, dtype=np.float32)
    tensor = MLCTensor(shape=[4], data=data(values), dataType=1)
    tensor.label = "x"
    tensor.bindAndWriteData(data(values), to=mlc.MLCDevice.cpu())
    state = MLCTensorData(bytesNoCopy=bytearray(16), length=16)
    tensor.bindOptimizerData([state], deviceData=None)
    made = copy.copy(tensor)
    assert made.tensorID != tensor.tensorID and made.label == f"data{made.tensorID}"
    assert made.descriptor == tensor.descriptor and made.device is None and made.optimizerData == [state]
    values[0] = 8
    assert made.numpy()[0] == 8
    deep = copy.deepcopy(tensor)
    values[0] = 9
    assert deep.numpy()[0] == 8
    with pytest.raises(TypeError, match="checkpoint"):
        pickle.dumps(tensor)
    assert copy.copy(MLCTensor(shape=[2])).data is None


READERS = {
    "numpy": lambda t: t.numpy(),
    "asarray": np.asarray,
    "torch": lambda t: t.torch,
    "item": lambda t: t[0],
    "data": lambda t: t.data,
    "repr": repr,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("frozen", [False, True], ids=["memory", "read-only memory"])
def test_to_read_a_tensor_is_not_to_bind_it(read, frozen):
    """The device is nil until the tensor is bound or compiled (evidence.md A.3), and its memory stays the program's."""
    values = np.arange(6, dtype=np.float32)
    values.flags.writeable = not frozen
    tensor = MLCTensor(shape=[6], data=data(values), dataType=1)
    for _ in range(2):
        read(tensor)
        assert tensor.device is None and "on cpu" not in repr(tensor)
    np.testing.assert_array_equal(tensor.numpy(), np.arange(6))
    assert tensor.bindAndWriteData(data(values), to=mlc.MLCDevice.cpu())
    read(tensor)
    assert tensor.device.type is mlc.MLCDeviceType.cpu


def test_torch_and_numpy_share_the_memory():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = MLCTensor(shape=[2, 3], data=data(values), dataType=1)
    tensor.torch[0, 0] = 7
    assert values[0, 0] == 7 == tensor.numpy()[0, 0] == np.asarray(tensor)[0, 0]
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert torch.from_dlpack(tensor).data_ptr() == values.ctypes.data
    assert np.shares_memory(np.from_dlpack(tensor), values)
    for protocol in (tensor, values):  # as NumPy 2 asks for it; the older one does not say whether it wants a copy
        assert protocol.__array__(np.float64).dtype == np.float64
        if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            with pytest.raises(ValueError, match="copy"):
                np.array(protocol, dtype=np.float64, copy=False)
            assert np.shares_memory(np.array(protocol, dtype=np.float32, copy=False), values)
    with pytest.raises(ValueError, match="float64 is a copy"):
        tensor.__array__(np.float64, copy=False)
    assert np.shares_memory(tensor.__array__(np.float32, copy=False), values)
    apart = np.array(tensor)
    apart[0, 0] = 1
    assert values[0, 0] == 7
    with pytest.raises(ValueError, match="holds no data"):
        MLCTensor(shape=[2]).numpy()


def test_from_torch():
    source = torch.arange(6.0).reshape(2, 3)
    tensor = MLCTensor.from_torch(source, label="x")
    assert tensor.descriptor.shape == [2, 3] and tensor.label == "x"
    source[0, 0] = 5
    assert tensor.numpy()[0, 0] == 5
    assert MLCTensor.from_torch(torch.tensor(3.0)).descriptor.shape == [1]
    for wrong, error in (
        (np.zeros(2), TypeError),
        (torch.zeros(2, dtype=torch.float64), TypeError),
        (torch.zeros(2, dtype=torch.complex64), TypeError),
        (torch.zeros(4, 4).T, ValueError),
    ):
        with pytest.raises(error, match=r"from_torch"):
            MLCTensor.from_torch(wrong)
    with pytest.raises(TypeError, match=r"no type for torch.float64; pass tensor.float\(\)$"):
        MLCTensor.from_torch(torch.zeros(2, dtype=torch.float64))
    for label in (5, b"x", ["x"]):
        with pytest.raises(TypeError, match="from_torch: argument 'label' expects a str, got"):
            MLCTensor.from_torch(source, label=label)
    with pytest.raises(ValueError, match="from_torch: .* on the device meta, which has no memory"):
        MLCTensor.from_torch(torch.zeros(2, device="meta"))
    with pytest.raises(ValueError, match=r"from_torch: .* pass tensor.to_dense\(\)"):
        MLCTensor.from_torch(torch.eye(2).to_sparse())
