"""The layers: one file per family."""

from mlc_torch.layers.activation import MLCActivationLayer
from mlc_torch.layers.base import MLCLayer
from mlc_torch.layers.convolution import MLCConvolutionLayer

__all__ = ["MLCActivationLayer", "MLCConvolutionLayer", "MLCLayer"]
