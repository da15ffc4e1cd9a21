"""Value objects that say what a layer, a loss or an optimizer is like."""

from mlc_torch.descriptors.activation import MLCActivationDescriptor
from mlc_torch.descriptors.attention import MLCMultiheadAttentionDescriptor
from mlc_torch.descriptors.convolution import MLCConvolutionDescriptor
from mlc_torch.descriptors.embedding import MLCEmbeddingDescriptor
from mlc_torch.descriptors.loss import MLCLossDescriptor
from mlc_torch.descriptors.lstm import MLCLSTMDescriptor
from mlc_torch.descriptors.matmul import MLCMatMulDescriptor
from mlc_torch.descriptors.optimizer import MLCOptimizerDescriptor
from mlc_torch.descriptors.pooling import MLCPoolingDescriptor

__all__ = [
    "MLCActivationDescriptor",
    "MLCConvolutionDescriptor",
    "MLCEmbeddingDescriptor",
    "MLCLSTMDescriptor",
    "MLCLossDescriptor",
    "MLCMatMulDescriptor",
    "MLCMultiheadAttentionDescriptor",
    "MLCOptimizerDescriptor",
    "MLCPoolingDescriptor",
]
