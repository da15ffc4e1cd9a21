"""Fully connected layers: W·x + b over the channel dimension (evidence.md D.7).

Weights lie flat, row by row: output before input. Their tensor may have any shape that holds outputs·inputs elements,
since programs use several. Of the descriptor only the two channel counts matter.
"""

from __future__ import annotations

import torch
from torch import nn

from mlc_torch.layers.base import (
    FLOATS,
    MLCLayer,
    described,
    holds,
    like_weights,
    of_the_type_of,
    of_type,
    one_source,
    parameter,
)
from mlc_torch.layers.sharing import kept
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class FullyConnected(nn.Linear):
    """``nn.Linear`` over the last dimension, and over the second one of [batch, channels, 1, 1]"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _channels_second(x.shape, self.in_features):
            return super().forward(x.flatten(1)).unflatten(1, (-1, 1, 1))
        return super().forward(x)


class MLCFullyConnectedLayer(MLCLayer):
    """A fully connected (dense) layer: source · weights + biases, over the last dimension.

    One, two or three dimensions may come before the channels.
    """

    descriptor = prop("MLCConvolutionDescriptor", "The channel counts; nothing else of it matters.")
    weights = prop("MLCTensor", "The weights, one row per output.")
    biases = prop("MLCTensor?", "The biases, or ``None``.")
    weightsParameter = prop("MLCTensorParameter", "The weights as a parameter.")
    biasesParameter = prop("MLCTensorParameter?", "The biases as a parameter, or ``None``.")
    _named = "FullyConnected"
    _hidden_fields = frozenset(
        {"kernelSizes", "strides", "dilationRates", "paddingPolicy", "groupCount", "convolutionType"}
    )

    @declare(
        "init?(weights: MLCTensor, biases: MLCTensor?, descriptor: MLCConvolutionDescriptor)",
        "layerWithWeights:biases:descriptor:",
    )
    def _create(cls, weights, biases, descriptor):
        """Weights and, unless ``None``, biases, in the sizes that the descriptor's channel counts ask for."""
        inputs, outputs = descriptor.inputFeatureChannelCount, descriptor.outputFeatureChannelCount
        of_type(weights._cell.descriptor, FLOATS, "weights")
        holds(weights, inputs * outputs, "weights")
        holds(biases, outputs, "biases")
        like_weights(biases, weights)
        return cls._layer(
            descriptor=descriptor,
            weights=weights,
            biases=biases,
            weightsParameter=parameter(weights),
            biasesParameter=parameter(biases),
        )

    def _infer(self, sources):
        source, d = of_the_type_of({"the weights": self._weights}, one_source(sources)), self._descriptor
        inputs, outputs, shape = d.inputFeatureChannelCount, d.outputFeatureChannelCount, source._shape
        if _channels_second(shape, inputs):
            return [described((shape[0], outputs, 1, 1), source._dataType)]
        if len(shape) < 2 or shape[-1] != inputs:
            refuse(f"takes [..., {inputs}] of 2 to 4 dimensions or [batch, {inputs}, 1, 1], got shape {source.shape}")
        return [described((*shape[:-1], outputs), source._dataType)]

    def _samples(self, axes, sources, results):
        shape = sources[0]._shape
        second = _channels_second(shape, self._descriptor.inputFeatureChannelCount)
        return kept(axes, 1, [1] if second else [len(shape) - 1], "multiplies along")

    def _build(self):
        inputs, outputs = self._descriptor.inputFeatureChannelCount, self._descriptor.outputFeatureChannelCount
        module = FullyConnected(inputs, outputs, bias=self._biases is not None, device="meta")
        self._show(module, "weight", (outputs, inputs), self._weightsParameter, "weights")
        self._show(module, "bias", (outputs,), self._biasesParameter, "biases")
        return module


def _channels_second(shape: tuple[int, ...], inputs: int) -> bool:
    return len(shape) == 4 and shape[1] == inputs and shape[2] == 1 and shape[3] == 1
