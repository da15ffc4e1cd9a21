"""The shape of an LSTM stack and what it returns."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor, positive
from mlc_torch.enums import MLCLSTMResultMode
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop

_SIZES = "inputSize: Int, hiddenSize: Int, layerCount: Int"
_BIASED = f"{_SIZES}, usesBiases: Bool"
_FULL = f"{_BIASED}, batchFirst: Bool, isBidirectional: Bool, returnsSequences: Bool, dropout: Float"


class MLCLSTMDescriptor(Descriptor):
    """The sizes and switches of a stack of LSTM layers over sequences [batch, time, features]."""

    inputSize = prop("Int", "Features of the source at each step.")
    hiddenSize = prop("Int", "Features of the hidden state, and of the result per direction.")
    layerCount = prop("Int", "How many LSTM layers are stacked.")
    usesBiases = prop("Bool", "Whether the gates add biases.")
    batchFirst = prop("Bool", "Whether sequences are [batch, time, features]; otherwise [time, batch, features].")
    isBidirectional = prop("Bool", "Whether a second stack reads the sequence backwards.")
    returnsSequences = prop("Bool", "Whether the result holds every step; otherwise only the last.")
    dropout = prop("Float", "The probability with which values between stacked layers are dropped in training.")
    resultMode = prop(
        "MLCLSTMResultMode", "Whether the node gives the output alone, or the final hidden and cell states too."
    )

    @declare(f"init({_SIZES})", "descriptorWithInputSize:hiddenSize:layerCount:")
    @declare(
        f"init({_BIASED}, isBidirectional: Bool, dropout: Float)",
        "descriptorWithInputSize:hiddenSize:layerCount:usesBiases:isBidirectional:dropout:",
    )
    @declare(
        f"init({_BIASED}, batchFirst: Bool, isBidirectional: Bool, dropout: Float)",
        "descriptorWithInputSize:hiddenSize:layerCount:usesBiases:batchFirst:isBidirectional:dropout:",
    )
    @declare(
        f"init({_FULL})",
        "descriptorWithInputSize:hiddenSize:layerCount:usesBiases:batchFirst:isBidirectional:returnsSequences:dropout:",
    )
    @declare(
        f"init({_FULL}, resultMode: MLCLSTMResultMode)",
        "descriptorWithInputSize:hiddenSize:layerCount:usesBiases:batchFirst:isBidirectional:returnsSequences:dropout:"
        "resultMode:",
    )
    def _create(
        cls,
        inputSize,
        hiddenSize,
        layerCount,
        usesBiases=True,
        batchFirst=True,
        isBidirectional=False,
        returnsSequences=True,
        dropout=0.0,
        resultMode=MLCLSTMResultMode.output,
    ):
        """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
        if not 0 <= dropout < 1:
            refuse(f"dropout must lie in [0, 1), got {dropout}")
        return cls._make(
            inputSize=positive("inputSize", inputSize),
            hiddenSize=positive("hiddenSize", hiddenSize),
            layerCount=positive("layerCount", layerCount),
            usesBiases=usesBiases,
            batchFirst=batchFirst,
            isBidirectional=isBidirectional,
            returnsSequences=returnsSequences,
            dropout=dropout,
            resultMode=resultMode,
        )
