"""Enumerations and option sets with Apple's raw values."""

from mlc_torch.enums.cases import (
    MLCActivationType,
    MLCArithmeticOperation,
    MLCComparisonOperation,
    MLCConvolutionType,
    MLCDataType,
    MLCDeviceType,
    MLCGradientClippingType,
    MLCLossType,
    MLCLSTMResultMode,
    MLCPaddingType,
    MLCRandomInitializerType,
    MLCReductionType,
    MLCRegularizationType,
    MLCSampleMode,
    MLCSoftmaxOperation,
)
from mlc_torch.enums.functions import FUNCTIONS
from mlc_torch.enums.options import (
    MLCExecutionOptions,
    MLCGraphCompilationOptions,
)
from mlc_torch.enums.payloads import (
    MLCPaddingPolicy,
    MLCPoolingType,
)

globals().update(FUNCTIONS)

__all__ = [  # noqa: PLE0604 - the functions are named by a table
    "MLCDataType",
    "MLCRandomInitializerType",
    "MLCDeviceType",
    "MLCArithmeticOperation",
    "MLCLossType",
    "MLCActivationType",
    "MLCConvolutionType",
    "MLCPaddingType",
    "MLCReductionType",
    "MLCRegularizationType",
    "MLCSampleMode",
    "MLCSoftmaxOperation",
    "MLCLSTMResultMode",
    "MLCComparisonOperation",
    "MLCGradientClippingType",
    "MLCPaddingPolicy",
    "MLCPoolingType",
    "MLCExecutionOptions",
    "MLCGraphCompilationOptions",
    *FUNCTIONS,
]
