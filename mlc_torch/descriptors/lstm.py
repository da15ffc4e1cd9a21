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
    """A stack of LSTM layers over sequences of shape [batch, time, features] or [batch, features, 1, time]."""

    inputSize = prop("Int")
    hiddenSize = prop("Int")
    layerCount = prop("Int")
    usesBiases = prop("Bool")
    batchFirst = prop("Bool")
    isBidirectional = prop("Bool")
    returnsSequences = prop("Bool")
    dropout = prop("Float")
    resultMode = prop("MLCLSTMResultMode")

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
