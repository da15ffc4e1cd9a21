"""Embeddings: each index becomes a row of a dictionary (evidence.md D.16)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.layers.base import FLOATS, INDICES, MLCLayer, described, holds, of_type, one_source, parameter
from mlc_torch.layers.sharing import Samples, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop

_TINY = 1e-7  # keeps the division below apart from 0, as torch's own renormalisation does


class RenormalizedEmbedding(nn.Embedding):
    """An embedding that first shortens the rows it is about to use, in the dictionary itself, to ``max_norm``

    torch's own ``max_norm`` computes the same, but looks for the distinct indices first, which a GPU can only do by
    waiting for the host. Here each use of a row writes the same shortened row.
    """

    max_norm: float

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            used = indices.reshape(-1).long()
            rows = F.embedding(used, self.weight)
            norms = torch.linalg.vector_norm(rows, self.norm_type, dim=1, keepdim=True)
            scale = torch.where(norms > self.max_norm, self.max_norm / (norms + _TINY), torch.ones_like(norms))
            self.weight.index_copy_(0, used, rows * scale)
        return F.embedding(indices, self.weight, self.padding_idx, scale_grad_by_freq=self.scale_grad_by_freq)


class MLCEmbeddingLayer(MLCLayer):
    """Looks up a trained vector for each index: [batch, ...] becomes [batch, ..., embeddingDimension].

    The weights' tensor may have any shape that holds embeddingCount·embeddingDimension elements.
    """

    descriptor = prop("MLCEmbeddingDescriptor", "The size of the table and how it is read.")
    weights = prop("MLCTensor", "The vectors.")
    weightsParameter = prop("MLCTensorParameter", "The vectors as a parameter.")
    _named = "Embedding"
    _supports = INDICES
    _supports_gpu = False  # the framework's answer; here it runs everywhere

    @declare("init(descriptor: MLCEmbeddingDescriptor, weights: MLCTensor)", "layerWithDescriptor:weights:")
    def _create(cls, descriptor, weights):
        """Weights hold one row per index."""
        of_type(weights._cell.descriptor, FLOATS, "weights")
        holds(weights, descriptor.embeddingCount * descriptor.embeddingDimension, "weights")
        return cls._layer(descriptor=descriptor, weights=weights, weightsParameter=parameter(weights))

    def _index_limit(self, position, sources):
        return self._descriptor.embeddingCount

    def _infer(self, sources):
        source = of_type(one_source(sources), INDICES, "the indices")
        if len(source._shape) > 3:
            refuse(f"the indices must have at most three dimensions, the vectors are the fourth; got {source.shape}")
        shape = (*source._shape, self._descriptor.embeddingDimension)
        return [described(shape, self._weights._cell.descriptor._dataType)]

    def _samples(self, axes, sources, results):
        if self._descriptor.maximumNorm is not None or self._descriptor.scalesGradientByFrequency:
            mixes("maximumNorm and scalesGradientByFrequency look at the indices of all samples", axes)
        return Samples(axes, axes)

    def _build(self):
        d = self._descriptor
        module = (nn.Embedding if d.maximumNorm is None else RenormalizedEmbedding)(
            d.embeddingCount,
            d.embeddingDimension,
            padding_idx=d.paddingIndex,
            max_norm=d.maximumNorm,
            norm_type=d.pNorm,
            scale_grad_by_freq=d.scalesGradientByFrequency,
            device="meta",
        )
        self._show(module, "weight", (d.embeddingCount, d.embeddingDimension), self._weightsParameter, "weights")
        if d.paddingIndex is not None:
            with torch.no_grad():
                module.weight[d.paddingIndex].zero_()
        return module
