"""``MLCTensor``: the handle that programs hold on a tensor."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlc_torch.device import MLCDevice
from mlc_torch.enums import MLCDataType
from mlc_torch.refusals import MLCRefusal, answer, raising, refuse
from mlc_torch.spelling import MLCObject, declare, objc_only, prop
from mlc_torch.spelling.own import wrong_type
from mlc_torch.tensor.blank import BlankState
from mlc_torch.tensor.data import DATA_TYPES, MLCTensorData, seen_as_bytes
from mlc_torch.tensor.descriptor import MLCTensorDescriptor
from mlc_torch.tensor.elements import check_fit
from mlc_torch.tensor.plain_values import why_not_plain
from mlc_torch.tensor.quantization import along, dequantize, quantize
from mlc_torch.tensor.random import random_values
from mlc_torch.tensor.state import TensorState, allocate, host_bytes, upload
from mlc_torch.tensor.state_owners import all_kept, bind
from mlc_torch.torch_private.modes import really

_DESCRIPTOR = "descriptor tensorDescriptor: MLCTensorDescriptor"
_RANDOM = "randomInitializerType: MLCRandomInitializerType"
_FILL = "fillWithData fillData"
_IMAGE = "width: Int, height: Int, featureChannelCount: Int, batchSize: Int"
_SEQUENCE = "sequenceLength: Int, featureChannelCount: Int, batchSize: Int"
_SEQUENCES = "sequenceLengths: [Int], sortedSequences: Bool, featureChannelCount: Int, batchSize: Int"

_FEW = 4
"""How many elements a repr shows."""
_MOST_LENGTHS = 2**20
"""How many equal lengths are written out: an absurd batch size is for the descriptor to refuse, not to run out of memory."""


class MLCTensorOptimizerDeviceData(MLCObject):
    """An optimizer's state for one parameter, kept on the device. It has no members."""

    @classmethod
    def _over(cls, state: torch.Tensor) -> MLCTensorOptimizerDeviceData:
        return cls._make(state=state)

    @classmethod
    def _bare(cls) -> MLCTensorOptimizerDeviceData:
        return cls._make(state=None)


class MLCTensor(MLCObject):
    """A tensor of a graph: a shape, an element type, a label, and its values once it has some.

    ``numpy()`` and ``torch`` give its values over the same memory.
    """

    @prop("MLCTensorDescriptor")
    def descriptor(self):
        """Shape and element type."""
        return None if isinstance(self._cell, BlankState) else self._cell.descriptor

    @prop("Int")
    def tensorID(self):
        """A number that no other tensor of this process has."""
        return self._cell.tensor_id

    @prop("String", settable=True)
    def label(self):
        """A name for people; nothing depends on it."""
        return self._cell.label

    @label.writes
    def _set_label(self, label):
        self._cell.label = label

    @prop("Data?")
    def data(self):
        """The whole buffer, read-only, or ``None`` for a tensor without data."""
        return self._cell.bytes()

    @prop("MLCDevice?")
    def device(self):
        """The device that the tensor was last bound to or compiled for, or ``None``."""
        return self._cell.device

    @prop("[MLCTensorData]")
    def optimizerData(self):
        """The memory bound for the optimizer's state."""
        return list(self._cell.optimizer_data)

    @prop("[MLCTensorOptimizerDeviceData]")
    def optimizerDeviceData(self):
        """The optimizer's state on the device."""
        return list(self._cell.optimizer_device_data)

    @prop("Bool")
    def hasValidNumerics(self):
        """Whether no element is NaN or infinite. True for a tensor without data."""
        value = self._cell.current()
        return value is None or not value.is_floating_point() or _is_finite(value)

    @classmethod
    def _of(cls, cell: TensorState) -> MLCTensor:
        """The handle of ``cell``: the one somebody holds, or a new one."""
        known = cell._handle
        if known is not None and (held := known()) is not None:
            return held  # type: ignore[return-value]  # only ``held_by`` below writes it
        made = cls._make(cell=cell)
        cell.held_by(made)
        return made

    @classmethod
    def _bare(cls) -> MLCTensor:
        """What ``new`` gives (measured)."""
        return cls._of(BlankState())

    def _adopted(self) -> None:
        self._cell.held_by(self)

    # Initializers

    @declare(f"init({_DESCRIPTOR})", "tensorWithDescriptor:")
    @declare(f"init({_DESCRIPTOR}, data: MLCTensorData)", "tensorWithDescriptor:data:")
    @declare(f"init({_DESCRIPTOR}, {_FILL}: NSNumber)", "tensorWithDescriptor:fillWithData:")
    @declare(f"init({_DESCRIPTOR}, {_RANDOM})", "tensorWithDescriptor:randomInitializerType:")
    def _create(cls, tensorDescriptor, data=None, fillData=None, randomInitializerType=None):
        """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
        cell = TensorState(tensorDescriptor)
        if data is not None:
            cell.give_host(data, "data")
        elif fillData is not None:
            cell.host = _data_of(filled, tensorDescriptor, fillData)
        elif randomInitializerType is not None:
            cell.host = _data_of(random_values, tensorDescriptor, randomInitializerType)
        return cls._of(cell)

    @declare("init(shape: [Int])", "tensorWithShape:")
    @declare("init(shape: [Int], dataType: MLCDataType)", "tensorWithShape:dataType:")
    @declare(f"init(shape: [Int], {_RANDOM})", "tensorWithShape:randomInitializerType:")
    @objc_only(f"+ tensorWithShape: [Int], {_RANDOM}, dataType: MLCDataType -> Self")
    @declare("init(shape: [Int], data: MLCTensorData, dataType: MLCDataType)", "tensorWithShape:data:dataType:")
    @declare(f"init(shape: [Int], {_FILL}: NSNumber, dataType: MLCDataType)", "tensorWithShape:fillWithData:dataType:")
    @declare("init(shape: [Int], data: MLCTensorData)", "tensorWithShape:data:")  # of the first SDKs
    @declare(f"init(shape: [Int], {_FILL}: NSNumber)", "tensorWithShape:fillWithData:")  # of the first SDKs
    def _of_shape(cls, shape, dataType=None, **contents):
        """By shape; float32 unless told otherwise."""
        descriptor = MLCTensorDescriptor._create(shape, *([] if dataType is None else [dataType]))
        return cls._create(descriptor, **contents)

    @declare(f"init({_IMAGE})", "tensorWithWidth:height:featureChannelCount:batchSize:")
    @declare(f"init({_IMAGE}, data: MLCTensorData)", "tensorWithWidth:height:featureChannelCount:batchSize:data:")
    @declare(
        f"init({_IMAGE}, {_RANDOM})", "tensorWithWidth:height:featureChannelCount:batchSize:randomInitializerType:"
    )
    @declare(
        f"init({_IMAGE}, data: MLCTensorData, dataType: MLCDataType)",
        "tensorWithWidth:height:featureChannelCount:batchSize:data:dataType:",
    )
    @declare(
        f"init({_IMAGE}, {_FILL}: Float, dataType: MLCDataType)",
        "tensorWithWidth:height:featureChannelCount:batchSize:fillWithData:dataType:",
    )
    def _image(cls, width, height, featureChannelCount, batchSize, **contents):
        """A batch of images: [batchSize, featureChannelCount, height, width]."""
        return cls._of_shape((batchSize, featureChannelCount, height, width), **contents)

    @declare(f"init({_SEQUENCE})", "tensorWithSequenceLength:featureChannelCount:batchSize:")
    @declare(f"init({_SEQUENCE}, data: MLCTensorData?)", "tensorWithSequenceLength:featureChannelCount:batchSize:data:")
    @declare(
        f"init({_SEQUENCE}, {_RANDOM})",
        "tensorWithSequenceLength:featureChannelCount:batchSize:randomInitializerType:",
    )
    def _sequence(cls, sequenceLength, featureChannelCount, batchSize, **contents):
        """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
        if batchSize < 1:
            refuse(f"batchSize must be at least 1, got {batchSize}")
        return cls._sequences(
            [sequenceLength] * min(batchSize, _MOST_LENGTHS), False, featureChannelCount, batchSize, **contents
        )

    @declare(
        f"init?({_SEQUENCES}, data: MLCTensorData? = nil)",
        "tensorWithSequenceLengths:sortedSequences:featureChannelCount:batchSize:data:",
    )
    @declare(
        f"init?({_SEQUENCES}, {_RANDOM})",
        "tensorWithSequenceLengths:sortedSequences:featureChannelCount:batchSize:randomInitializerType:",
    )
    def _sequences(
        cls, sequenceLengths, sortedSequences, featureChannelCount, batchSize, data=None, randomInitializerType=None
    ):
        """A batch of sequences of different lengths: [batchSize, longest, featureChannelCount].

        batchSize is not checked against the number of lengths (measured, evidence.md A.4).
        """
        shape = [batchSize, max(sequenceLengths, default=0), featureChannelCount]
        descriptor = MLCTensorDescriptor._sequence(shape, sequenceLengths, sortedSequences, MLCDataType.float32)
        return cls._create(descriptor, data=data, randomInitializerType=randomInitializerType)

    # Moving data

    @declare("bindAndWriteData(_ data: MLCTensorData, to device: MLCDevice) -> Bool", "bindAndWriteData:toDevice:")
    def _bind(self, data, device):
        """Copy data to a device, where the tensor stays from then on."""
        self._cell.upload(data, device)
        return True

    @declare("synchronizeData() -> Bool", "synchronizeData")
    def _synchronize(self):
        """Bring the values back from the device, so that ``data`` shows them."""
        self._cell.download()
        return True

    @declare(
        "copyDataFromDeviceMemory(toBytes bytes: UnsafeMutableRawPointer, length: Int, synchronizeWithDevice: Bool) -> Bool",
        "copyDataFromDeviceMemoryToBytes:length:synchronizeWithDevice:",
    )
    def _copy_out(self, bytes, length, synchronizeWithDevice):
        """Copy the values from the device into a buffer of yours."""
        target, element = seen_as_bytes(bytes)
        check_fit(element, self._cell.dtype, "the buffer", getattr(bytes, "shape", ()), self._cell.shape, filled=True)
        self._cell.copy_to(target, length)
        return True

    @declare(
        "bindOptimizerData(_ data: [MLCTensorData], deviceData: [MLCTensorOptimizerDeviceData]?) -> Bool",
        "bindOptimizerData:deviceData:",
    )
    def _bind_optimizer(self, data, deviceData):
        """Give the optimizer the memory that holds its state for this tensor. Where none is given, it keeps what it has."""
        return self._bind_state(data, deviceData, None)

    def _bind_state(self, data: Sequence[MLCTensorData], deviceData: Sequence[Any] | None, optimizer: object) -> bool:
        """The same for one optimizer; ``None``: for whichever makes the next update."""
        if not data and not deviceData:
            return True
        needed = self._cell.descriptor._nbytes
        for i, state in enumerate(data):
            state._must_fit(self._cell.dtype, self._cell.shape, f"optimizer data {i}")
            state._must_stay(self._cell.dtype, f"optimizer data {i}")
            if state._length < needed:
                refuse(f"optimizer data {i} holds {state._length} bytes, the tensor {self.label!r} needs {needed}")
        # A copy of memory that Python marks read-only, as weights in such memory get one.
        own = [copy.deepcopy(state) if state._readonly else state for state in data]
        bind(self._cell, own, list(deviceData or []), optimizer)
        return True

    @declare("synchronizeOptimizerData() -> Bool", "synchronizeOptimizerData")
    def _synchronize_optimizer(self):
        """Bring the optimizer's state back from the device into ``optimizerData``."""
        _bring_state(self._cell)
        return True

    # Quantization

    @declare(
        "quantized(to type: MLCDataType, scale: Float, bias: Int) -> MLCTensor?", "tensorByQuantizingToType:scale:bias:"
    )
    def _quantized(self, type, scale, bias):
        """A new tensor of round(x / scale) + bias in an integer type."""
        return self._like(
            quantize,
            type,
            lambda: [torch.tensor(scale, dtype=torch.float32, device="cpu"), torch.tensor(bias, device="cpu")],
        )

    @declare(
        "quantized(to type: MLCDataType, scale: MLCTensor, bias: MLCTensor, axis: Int) -> MLCTensor?",
        "tensorByQuantizingToType:scale:bias:axis:",
    )
    def _quantized_along(self, type, scale, bias, axis):
        """The same with a scale and a bias of its own for each index of one dimension."""
        return self._like(quantize, type, lambda: self._along(axis, scale, bias))

    @declare(
        "dequantized(to type: MLCDataType, scale: MLCTensor, zeroPoint bias: MLCTensor) -> MLCTensor?",
        "tensorByDequantizingToType:scale:bias:",
    )
    def _dequantized(self, type, scale, bias):
        """A new tensor of (x - zeroPoint) * scale in a float type."""
        numbers = scale._values(), bias._values()
        for name, number in zip(("scale", "zeroPoint"), numbers, strict=True):
            if number.numel() != 1:
                refuse(
                    f"{name} must hold one number, or the axis they belong to must be given; it holds {number.numel()}"
                )
        return self._like(dequantize, type, lambda: [n.reshape(()) for n in numbers])

    @declare(
        "dequantized(to type: MLCDataType, scale: MLCTensor, bias: MLCTensor, axis: Int) -> MLCTensor?",
        "tensorByDequantizingToType:scale:bias:axis:",
    )
    def _dequantized_along(self, type, scale, bias, axis):
        """The same with a scale and a bias of its own for each index of one dimension."""
        return self._like(dequantize, type, lambda: self._along(axis, scale, bias))

    def _along(self, axis: int, scale: MLCTensor, bias: MLCTensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = self._cell.shape
        return along(axis, scale._values(), shape, "scale"), along(axis, bias._values(), shape, "bias")

    @really
    def _like(
        self, change: Callable[..., Tensor], type: MLCDataType, numbers: Callable[[], Sequence[Tensor]]
    ) -> MLCTensor:
        """A new tensor of this one's shape: its values, changed to ``type`` by ``numbers``."""
        value = change(self._values(), type, *numbers())
        descriptor = MLCTensorDescriptor._create(self._cell.shape, DATA_TYPES[value.dtype])
        return MLCTensor._create(descriptor, data=MLCTensorData._over(value.contiguous()))

    @really
    def _values(self) -> torch.Tensor:
        value = self._cell.current()
        if value is None:
            refuse(f"the tensor {self.label!r} holds no data")
        return value.detach().cpu()

    # With torch and NumPy (ours)

    _is_no_list = True  # although it has a length: a member that takes a list of tensors does not take one tensor

    @staticmethod
    def _meant_by(value: object) -> str:
        """The end of an error message: how a tensor is made of what was given in its place."""
        if isinstance(value, (np.ndarray, torch.Tensor)):
            return " (MLCTensor.from_numpy(array) makes one of an array)"
        return " (one tensor, not a list)" if isinstance(value, (list, tuple)) else ""

    @property
    def shape(self) -> torch.Size:
        """The size of each dimension, as torch has it."""
        return torch.Size(self._cell.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The element type, as torch has it; ``descriptor.dataType`` is ML Compute's."""
        return self._cell.dtype

    def __len__(self) -> int:
        return self._cell.shape[0]

    def __bool__(self) -> bool:
        return True  # a tensor is there, whatever it holds

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.torch[index]

    def __contains__(self, value: object) -> bool:
        """Whether any element is ``value``, as NumPy has it."""
        return (value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value) in self.numpy()

    def __float__(self) -> float:
        values = self.torch
        if values.numel() != 1:
            raise ValueError(f"float() takes a tensor of one element, {self!r} has {values.numel()}")
        return float(values.item())

    @property
    @really
    def torch(self) -> torch.Tensor:
        """This tensor's memory as a torch tensor, without a copy, on the device it lives on."""
        cell = self._cell
        if cell.value is None:
            if cell.host is None:
                way = (
                    "bind some with bindAndWriteData or, where it is a graph's result, declare it with addOutputs and "
                    "execute the graph"
                )
                if cell.gradient_of is not None:
                    way = "whole numbers have no gradient"
                    if cell.dtype.is_floating_point:
                        way = "the next executeGradient fills it, after executeForward, and so does the next execute"
                raise ValueError(f"{self!r} holds no data: {way}")
            bound = cell.device
            cell.place(MLCDevice._cpu(), writable=True)
            cell.device = bound  # to read is not to bind: it stays nil until then (evidence.md A.3)
        elif cell.host is not None and cell.host._readonly:
            cell.placed(writable=True)  # what is given away may be written to
        elif cell.device is not None and cell.value.device != cell.device.torch_device:
            cell.value = upload(cell.value, cell.device.torch_device)
        assert cell.value is not None
        return cell.value.detach()

    @really
    def numpy(self) -> np.ndarray:
        """This tensor's values as a NumPy array: over the same memory on the CPU, a copy from elsewhere."""
        return self.torch.cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.numpy()
        if copy is False and self.torch.device.type != "cpu":
            raise ValueError("the tensor lives on a device; a NumPy array of it is a copy")
        if copy is False and dtype is not None and np.dtype(dtype) != values.dtype:
            raise ValueError(f"the tensor holds {values.dtype}; a NumPy array of {np.dtype(dtype)} is a copy")
        return np.array(values, dtype=dtype, copy=True) if copy else values.astype(dtype or values.dtype, copy=False)

    def __dlpack__(self, **kw: Any) -> Any:
        return self.torch.__dlpack__(**kw)

    def __dlpack_device__(self) -> Any:
        return self.torch.__dlpack_device__()

    @classmethod
    def from_numpy(cls, array: np.ndarray, label: str | None = None) -> MLCTensor:
        """An ``MLCTensor`` over the memory of a NumPy array: trained values appear there too."""
        if not isinstance(array, np.ndarray):
            raise TypeError(f"MLCTensor.from_numpy expects a numpy.ndarray, got {type(array).__name__}")
        _check_making("from_numpy", array, label)
        try:
            type_ = DATA_TYPES[torch.from_numpy(np.empty(0, array.dtype)).dtype]
        except (KeyError, TypeError, ValueError):
            raise TypeError(
                f"MLCTensor.from_numpy: ML Compute has no type for {array.dtype}; pass array.astype(numpy.float32)"
            ) from None
        if not array.flags.c_contiguous:
            raise ValueError("MLCTensor.from_numpy needs a contiguous array; pass numpy.ascontiguousarray(array)")
        cell = TensorState(_described("from_numpy", array.shape or (1,), type_))
        cell.host = MLCTensorData._over(array)
        if label is not None:
            cell.label = label
        return cls._of(cell)

    @classmethod
    def from_torch(cls, tensor: Tensor, label: str | None = None) -> MLCTensor:
        """An ``MLCTensor`` over the memory of a torch tensor: trained values appear there too.

        Where torch moves that memory, as ``tensor.share_memory_()`` does, the ``MLCTensor`` moves with it. A torch tensor that is
        given other memory (``tensor.data = other``) has left it.
        """
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"MLCTensor.from_torch expects a torch.Tensor, got {type(tensor).__name__}")
        _check_making("from_torch", tensor, label)
        if tensor.dtype not in DATA_TYPES:
            out = "" if tensor.is_complex() else "; pass tensor.float()"
            raise TypeError(f"MLCTensor.from_torch: ML Compute has no type for {tensor.dtype}{out}")
        if not tensor.is_contiguous():
            raise ValueError("MLCTensor.from_torch needs a contiguous tensor; pass tensor.contiguous()")
        shape = tuple(tensor.shape) or (1,)
        cell = TensorState(_described("from_torch", shape, DATA_TYPES[tensor.dtype]))
        value = tensor.detach().reshape(shape)
        if tensor.device.type == "cpu":
            cell.host = MLCTensorData._over(value)
        else:
            cell.value, cell.device = value, MLCDevice._of_gpus([tensor.device])
        if label is not None:
            cell.label = label
        return cls._of(cell)

    # Copies and text

    @really
    def __copy__(self) -> MLCTensor:
        """A new ID and label; descriptor, data and optimizer data are shared, the device is not (measured)."""
        if isinstance(self._cell, BlankState):
            return self._bare()
        if self._cell.host is not None:
            self._cell.download()  # what was computed, where that lies elsewhere
        _bring_state(self._cell)
        cell = TensorState(self._cell.descriptor, self._cell.host)
        if cell.host is None and self._cell.value is not None:
            cell.host = MLCTensorData._over(bytearray(host_bytes(self._cell.value)))
        if self._cell.optimizer_data:
            bind(cell, list(self._cell.optimizer_data), [])
        return self._of(cell)

    def __deepcopy__(self, memo: dict[int, Any]) -> MLCTensor:
        made = self.__copy__()
        made._cell.host = copy.deepcopy(made._cell.host, memo)
        if made._cell.optimizer_data:
            bind(made._cell, copy.deepcopy(made._cell.optimizer_data, memo), [])
        memo[id(self)] = made
        return made

    def __reduce__(self) -> Any:
        raise TypeError("an MLCTensor refers to memory of this process; save its numpy() or a checkpoint instead")

    @really
    def __repr__(self) -> str:
        cell = self._cell
        if isinstance(cell, BlankState):
            return f"{type(self).__name__}(blank)"
        words = [repr(cell.label), str(list(cell.shape)), cell.descriptor.dataType.name]
        if cell.device is not None:
            words.append(f"on {cell.device.torch_device}")
        value = cell.current()
        if value is None:
            words.append("no data")
        elif value.device.type == "cpu" and value.numel() <= _FEW:  # a repr must not wait for a device
            words.append(f"= {', '.join(f'{v:g}' for v in value.flatten().tolist())}")
        return f"{type(self).__name__}({', '.join(words)})"


def _check_making(member: str, values: Any, label: Any) -> None:
    """What ``from_numpy`` and ``from_torch`` ask of their arguments alike."""
    if label is not None and not isinstance(label, str):
        raise wrong_type(f"MLCTensor.{member}", "label", "a str", label)
    why = why_not_plain(values)
    if why:
        raise ValueError(f"MLCTensor.{member}: what was given {why}")


def _described(member: str, shape: tuple[int, ...], type_: MLCDataType) -> MLCTensorDescriptor:
    """The descriptor of what ``from_numpy`` and ``from_torch`` are given; what no tensor can be is refused, and raised."""
    try:
        return MLCTensorDescriptor._create(shape, type_)
    except MLCRefusal as why:
        return raising(answer, why, f"MLCTensor.{member}", None)


@really
def _data_of(make: Callable[..., torch.Tensor], descriptor: MLCTensorDescriptor, how: Any) -> MLCTensorData:
    """The memory of a tensor that is made now."""
    return MLCTensorData._over(make(descriptor, how))


@really
def _bring_state(cell: TensorState) -> None:
    for kept in all_kept(cell):
        for host, state in zip(kept.data, kept.device_data, strict=False):
            if state._state is not None:
                target = host._view(cell.dtype, cell.shape)
                if target.data_ptr() != state._state.data_ptr():
                    target.copy_(state._state.reshape(cell.shape))


@really
def _is_finite(value: torch.Tensor) -> bool:
    return bool(torch.isfinite(value).all())


def filled(descriptor: MLCTensorDescriptor, number: float) -> torch.Tensor:
    """A tensor of one number, cast to the element type as C would."""
    values = allocate(descriptor)
    if values.is_floating_point():
        return values.copy_(
            torch.tensor(float(number), dtype=torch.float64, device="cpu")
        )  # too large becomes infinity, as in C
    if values.dtype == torch.bool:
        return values.fill_(bool(number))
    if not math.isfinite(number):
        refuse(f"{number} has no value as {descriptor.dataType.name}")
    limits, whole = torch.iinfo(values.dtype), int(number)
    if not limits.min <= whole <= limits.max:
        refuse(f"{number} does not fit into {descriptor.dataType.name}")
    return values.fill_(whole)
