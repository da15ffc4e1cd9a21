"""The sizes of a multi-head attention layer."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor, positive
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class MLCMultiheadAttentionDescriptor(Descriptor):
    """The sizes and switches of an attention layer with ``headCount`` heads."""

    modelDimension = prop("Int", "The width of the queries and of the result.")
    keyDimension = prop("Int", "The width of the keys.")
    valueDimension = prop("Int", "The width of the values.")
    headCount = prop("Int", "How many heads share the model's width.")
    dropout = prop("Float", "The probability with which an attention weight is dropped in training.")
    hasBiases = prop("Bool", "Whether the projections add biases.")
    hasAttentionBiases = prop("Bool", "Whether a trained key and value are appended to the sequence.")
    addsZeroAttention = prop("Bool", "Whether a key and a value of zeros are appended to the sequence.")

    @declare("init(modelDimension: Int, headCount: Int)", "descriptorWithModelDimension:headCount:")
    @declare(
        "init?(modelDimension: Int, keyDimension: Int, valueDimension: Int, headCount: Int, dropout: Float, "
        "hasBiases: Bool, hasAttentionBiases: Bool, addsZeroAttention: Bool)",
        "descriptorWithModelDimension:keyDimension:valueDimension:headCount:dropout:hasBiases:hasAttentionBiases:"
        "addsZeroAttention:",
    )
    def _create(
        cls,
        modelDimension,
        headCount,
        keyDimension=None,
        valueDimension=None,
        dropout=0.0,
        hasBiases=True,
        hasAttentionBiases=False,
        addsZeroAttention=False,
    ):
        """Keys and values are as wide as the model unless their dimensions are given."""
        sizes = {"modelDimension": modelDimension, "keyDimension": keyDimension, "valueDimension": valueDimension}
        sizes = {name: positive(name, modelDimension if size is None else size) for name, size in sizes.items()}
        positive("headCount", headCount)
        for name in ("keyDimension", "valueDimension"):
            if sizes[name] % headCount:
                refuse(f"{name} must be divisible by headCount {headCount}, got {sizes[name]}")
        if not 0 <= dropout < 1:
            refuse(f"dropout must lie in [0, 1), got {dropout}")
        return cls._make(
            **sizes,
            headCount=headCount,
            dropout=dropout,
            hasBiases=hasBiases,
            hasAttentionBiases=hasAttentionBiases,
            addsZeroAttention=addsZeroAttention,
        )
