"""Tensors: what they look like, whose memory they use, and where their value lives."""

from mlc_torch.tensor.data import DATA_TYPES, TORCH_TYPES, MLCTensorData
from mlc_torch.tensor.descriptor import MLCTensorDescriptor
from mlc_torch.tensor.parameter import MLCTensorParameter
from mlc_torch.tensor.state import SamplesBound, TensorState
from mlc_torch.tensor.tensor import MLCTensor, MLCTensorOptimizerDeviceData

__all__ = [
    "DATA_TYPES",
    "TORCH_TYPES",
    "MLCTensor",
    "MLCTensorData",
    "MLCTensorDescriptor",
    "MLCTensorOptimizerDeviceData",
    "MLCTensorParameter",
    "SamplesBound",
    "TensorState",
]
