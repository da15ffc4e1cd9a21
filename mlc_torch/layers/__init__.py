"""The layers: one file per family."""

from mlc_torch.layers.activation import MLCActivationLayer
from mlc_torch.layers.arithmetic import MLCArithmeticLayer
from mlc_torch.layers.attention import MLCMultiheadAttentionLayer
from mlc_torch.layers.base import MLCLayer
from mlc_torch.layers.comparison import MLCComparisonLayer
from mlc_torch.layers.convolution import MLCConvolutionLayer
from mlc_torch.layers.dropout import MLCDropoutLayer
from mlc_torch.layers.embedding import MLCEmbeddingLayer
from mlc_torch.layers.fully_connected import MLCFullyConnectedLayer
from mlc_torch.layers.gram import MLCGramMatrixLayer
from mlc_torch.layers.indexing import MLCGatherLayer, MLCScatterLayer
from mlc_torch.layers.joining import MLCConcatenationLayer, MLCSplitLayer
from mlc_torch.layers.loss import MLCLossLayer
from mlc_torch.layers.lstm import MLCLSTMLayer
from mlc_torch.layers.matmul import MLCMatMulLayer
from mlc_torch.layers.normalization import (
    MLCBatchNormalizationLayer,
    MLCGroupNormalizationLayer,
    MLCInstanceNormalizationLayer,
    MLCLayerNormalizationLayer,
)
from mlc_torch.layers.padding import MLCPaddingLayer
from mlc_torch.layers.pooling import MLCPoolingLayer
from mlc_torch.layers.reduction import MLCReductionLayer
from mlc_torch.layers.selection import MLCSelectionLayer
from mlc_torch.layers.shape import MLCReshapeLayer, MLCSliceLayer, MLCTransposeLayer
from mlc_torch.layers.softmax import MLCSoftmaxLayer
from mlc_torch.layers.upsample import MLCUpsampleLayer
from mlc_torch.layers.yolo import MLCYOLOLossLayer
from mlc_torch.layers.yolo_descriptor import MLCYOLOLossDescriptor

__all__ = [
    "MLCActivationLayer",
    "MLCArithmeticLayer",
    "MLCBatchNormalizationLayer",
    "MLCComparisonLayer",
    "MLCConcatenationLayer",
    "MLCConvolutionLayer",
    "MLCDropoutLayer",
    "MLCEmbeddingLayer",
    "MLCFullyConnectedLayer",
    "MLCGatherLayer",
    "MLCGramMatrixLayer",
    "MLCGroupNormalizationLayer",
    "MLCInstanceNormalizationLayer",
    "MLCLSTMLayer",
    "MLCLayer",
    "MLCLayerNormalizationLayer",
    "MLCLossLayer",
    "MLCMatMulLayer",
    "MLCMultiheadAttentionLayer",
    "MLCPaddingLayer",
    "MLCPoolingLayer",
    "MLCReductionLayer",
    "MLCReshapeLayer",
    "MLCScatterLayer",
    "MLCSelectionLayer",
    "MLCSliceLayer",
    "MLCSoftmaxLayer",
    "MLCSplitLayer",
    "MLCTransposeLayer",
    "MLCUpsampleLayer",
    "MLCYOLOLossDescriptor",
    "MLCYOLOLossLayer",
]
