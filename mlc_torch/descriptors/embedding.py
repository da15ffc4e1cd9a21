"""The size of an embedding dictionary and how its rows are treated."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor, positive
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class MLCEmbeddingDescriptor(Descriptor):
    """A table of ``embeddingCount`` vectors, each of ``embeddingDimension`` numbers."""

    embeddingCount = prop("Int", "How many vectors the table holds; indices must be below it.")
    embeddingDimension = prop("Int", "How many numbers a vector has.")
    paddingIndex = prop("Int?", "The index whose vector gets no gradient, or ``None``.")
    maximumNorm = prop(
        "Float?", "Vectors longer than this are scaled down to it when they are looked up; ``None`` for no limit."
    )
    pNorm = prop("Float?", "Which p-norm ``maximumNorm`` measures with.")
    scalesGradientByFrequency = prop(
        "Bool", "Whether a vector's gradient is divided by how often its index occurs in the batch."
    )

    @declare("init?(embeddingCount: Int, embeddingDimension: Int)", "descriptorWithEmbeddingCount:embeddingDimension:")
    @declare(
        "init?(embeddingCount: Int, embeddingDimension: Int, paddingIndex: Int?, maximumNorm: Float?, pNorm: Float?, "
        "scalesGradientByFrequency: Bool)",
        "descriptorWithEmbeddingCount:embeddingDimension:paddingIndex:maximumNorm:pNorm:scalesGradientByFrequency:",
    )
    def _create(
        cls,
        embeddingCount,
        embeddingDimension,
        paddingIndex=None,
        maximumNorm=None,
        pNorm=2.0,
        scalesGradientByFrequency=False,
    ):
        """A table without padding index and without a limit on the norm, unless these are given."""
        positive("embeddingCount", embeddingCount)
        positive("embeddingDimension", embeddingDimension)
        if paddingIndex is not None and not 0 <= paddingIndex < embeddingCount:
            refuse(f"paddingIndex must be one of the {embeddingCount} rows, got {paddingIndex}")
        if maximumNorm is not None and not maximumNorm > 0:
            refuse(f"maximumNorm must be positive, got {maximumNorm}")
        if pNorm is not None and not pNorm > 0:
            refuse(f"pNorm must be positive, got {pNorm}")
        return cls._make(
            embeddingCount=embeddingCount,
            embeddingDimension=embeddingDimension,
            paddingIndex=paddingIndex,
            maximumNorm=maximumNorm,
            pNorm=2.0 if pNorm is None else pNorm,
            scalesGradientByFrequency=scalesGradientByFrequency,
        )
