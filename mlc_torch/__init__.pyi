# Written by tools/stubs.py from the declarations. Do not edit; run the tool again.
import enum as _enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, overload

import numpy as _np
import torch as _torch
from typing_extensions import Buffer as _TypedBuffer
from typing_extensions import Self
from mlc_torch.engine.shared_module import SharedGraphModule as _SharedGraphModule
from mlc_torch.enums.payloads import MLCPaddingPolicy as MLCPaddingPolicy
from mlc_torch.enums.payloads import MLCPoolingType as MLCPoolingType
from mlc_torch.refusals import MLCRefusal as MLCRefusal
from mlc_torch.refusals import MLCTrainingWarning as MLCTrainingWarning
from mlc_torch.refusals import RanksLost as RanksLost
from mlc_torch.refusals import last_refusal as last_refusal
from mlc_torch.refusals import strict as strict
from mlc_torch.refusals import unwrap as unwrap
from mlc_torch.running.fit import Batches as _Batches
from mlc_torch.running.fit import Callback as _Callback
from mlc_torch.running.fit import Values as _Values
from mlc_torch.running.history import History as _History
from mlc_torch.seeing.memory import Memory as _Memory
from mlc_torch.seeing.profile import Profile as _Profile
from mlc_torch.seeing.summary import Summary as _Summary
from pathlib import Path as _Path
from torch import Tensor as _Tensor

_Int: TypeAlias = int | _np.integer[Any]
_Float: TypeAlias = float | _np.floating[Any] | _np.integer[Any]
_Buffer: TypeAlias = _TypedBuffer | _np.ndarray[Any, Any] | _torch.Tensor
_T = TypeVar("_T")

class _HeightWidth(NamedTuple):
    height: int
    width: int

class _YX(NamedTuple):
    y: int
    x: int

class _EnumType(_enum.EnumMeta):
    @overload  # type: ignore[override]
    def __call__(cls: type[_T], value: _Int, names: None = None) -> _T: ...
    @overload
    def __call__(cls: type[_T], *, rawValue: _Int) -> _T | None: ...  # pyright: ignore[reportIncompatibleMethodOverride]

class _OptionSetType(_enum.EnumMeta):
    @overload  # type: ignore[override]
    def __call__(cls: type[_T], value: _Int | Sequence[_T] = ..., names: None = None) -> _T: ...
    @overload
    def __call__(cls: type[_T], *, rawValue: _Int) -> _T: ...  # pyright: ignore[reportIncompatibleMethodOverride]

class _Object:
    @property
    def description(self) -> str: """The object in words."""
    @property
    def debugDescription(self) -> str: """The object in words for somebody who looks for a mistake."""
    def isEqual(self, object: object, /) -> bool: """Whether both are the same; descriptors are the same when their values are."""
    @property
    def hash(self) -> int: """A number that equal objects share."""

__all__ = [
    "MLCActivationDescriptor",
    "MLCActivationLayer",
    "MLCActivationType",
    "MLCActivationTypeDebugDescription",
    "MLCAdamOptimizer",
    "MLCAdamWOptimizer",
    "MLCArithmeticLayer",
    "MLCArithmeticOperation",
    "MLCArithmeticOperationDebugDescription",
    "MLCBatchNormalizationLayer",
    "MLCComparisonLayer",
    "MLCComparisonOperation",
    "MLCComparisonOperationDebugDescription",
    "MLCConcatenationLayer",
    "MLCConvolutionDescriptor",
    "MLCConvolutionLayer",
    "MLCConvolutionType",
    "MLCConvolutionTypeDebugDescription",
    "MLCDataType",
    "MLCDevice",
    "MLCDeviceType",
    "MLCDropoutLayer",
    "MLCEmbeddingDescriptor",
    "MLCEmbeddingLayer",
    "MLCExecutionOptions",
    "MLCFullyConnectedLayer",
    "MLCGatherLayer",
    "MLCGradientClippingType",
    "MLCGradientClippingTypeDebugDescription",
    "MLCGramMatrixLayer",
    "MLCGraph",
    "MLCGraphCompilationOptions",
    "MLCGraphCompletionHandler",
    "MLCGroupNormalizationLayer",
    "MLCInferenceGraph",
    "MLCInstanceNormalizationLayer",
    "MLCLSTMDescriptor",
    "MLCLSTMLayer",
    "MLCLSTMResultMode",
    "MLCLSTMResultModeDebugDescription",
    "MLCLayer",
    "MLCLayerNormalizationLayer",
    "MLCLossDescriptor",
    "MLCLossLayer",
    "MLCLossType",
    "MLCLossTypeDebugDescription",
    "MLCMatMulDescriptor",
    "MLCMatMulLayer",
    "MLCMultiheadAttentionDescriptor",
    "MLCMultiheadAttentionLayer",
    "MLCOptimizer",
    "MLCOptimizerDescriptor",
    "MLCPaddingLayer",
    "MLCPaddingPolicy",
    "MLCPaddingPolicyDebugDescription",
    "MLCPaddingType",
    "MLCPaddingTypeDebugDescription",
    "MLCPlatform",
    "MLCPoolingDescriptor",
    "MLCPoolingLayer",
    "MLCPoolingType",
    "MLCPoolingTypeDebugDescription",
    "MLCRMSPropOptimizer",
    "MLCRandomInitializerType",
    "MLCReductionLayer",
    "MLCReductionType",
    "MLCReductionTypeDebugDescription",
    "MLCRefusal",
    "MLCRegularizationType",
    "MLCReshapeLayer",
    "MLCSGDOptimizer",
    "MLCSampleMode",
    "MLCSampleModeDebugDescription",
    "MLCScatterLayer",
    "MLCSelectionLayer",
    "MLCSliceLayer",
    "MLCSoftmaxLayer",
    "MLCSoftmaxOperation",
    "MLCSoftmaxOperationDebugDescription",
    "MLCSplitLayer",
    "MLCTensor",
    "MLCTensorData",
    "MLCTensorDescriptor",
    "MLCTensorOptimizerDeviceData",
    "MLCTensorParameter",
    "MLCTrainingGraph",
    "MLCTrainingWarning",
    "MLCTransposeLayer",
    "MLCUpsampleLayer",
    "MLCYOLOLossDescriptor",
    "MLCYOLOLossLayer",
    "RanksLost",
    "last_refusal",
    "strict",
    "unwrap",
]
__version__: str

class MLCActivationDescriptor(_Object):
    """Which activation function f(x) to apply, with its parameters a, b and c."""
    @overload
    def __new__(cls, *, type: MLCActivationType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, type: MLCActivationType, a: _Float) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, type: MLCActivationType, a: _Float, b: _Float) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, type: MLCActivationType, a: _Float, b: _Float, c: _Float) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, type: MLCActivationType) -> None: """Parameters that are left out take the framework's defaults for the type."""
        @overload
        def __init__(self, *, type: MLCActivationType, a: _Float) -> None: """Parameters that are left out take the framework's defaults for the type."""
        @overload
        def __init__(self, *, type: MLCActivationType, a: _Float, b: _Float) -> None: """Parameters that are left out take the framework's defaults for the type."""
        @overload
        def __init__(self, *, type: MLCActivationType, a: _Float, b: _Float, c: _Float) -> None: """Parameters that are left out take the framework's defaults for the type."""
    @property
    def activationType(self) -> MLCActivationType: """The function."""
    @property
    def a(self) -> float: """The first parameter; what it means depends on the function."""
    @property
    def b(self) -> float: """The second parameter."""
    @property
    def c(self) -> float: """The third parameter, which no function here uses."""
    @classmethod
    def descriptorWithType_(cls, activationType: MLCActivationType | int, /) -> Self | None: """Parameters that are left out take the framework's defaults for the type."""
    @classmethod
    def descriptorWithType_a_(cls, activationType: MLCActivationType | int, a: _Float, /) -> Self | None: """Parameters that are left out take the framework's defaults for the type."""
    @classmethod
    def descriptorWithType_a_b_(cls, activationType: MLCActivationType | int, a: _Float, b: _Float, /) -> Self | None: """Parameters that are left out take the framework's defaults for the type."""
    @classmethod
    def descriptorWithType_a_b_c_(cls, activationType: MLCActivationType | int, a: _Float, b: _Float, c: _Float, /) -> Self | None: """Parameters that are left out take the framework's defaults for the type."""

class _MLCActivationLayer_leakyReLU(MLCActivationLayer):
    def __call__(self, *, negativeSlope: _Float) -> MLCActivationLayer: """x from 0 on, negativeSlope·x below."""

class _MLCActivationLayer_softPlus(MLCActivationLayer):
    def __call__(self, *, beta: _Float) -> MLCActivationLayer: """log(1 + e^(beta·x)) / beta."""

class _MLCActivationLayer_elu(MLCActivationLayer):
    def __call__(self, *, a: _Float) -> MLCActivationLayer: """x from 0 on, a·(e^x - 1) below."""

class _MLCActivationLayer_celu(MLCActivationLayer):
    def __call__(self, *, a: _Float) -> MLCActivationLayer: """x from 0 on, a·(e^(x/a) - 1) below."""

class _MLCActivationLayer_hardShrink(MLCActivationLayer):
    def __call__(self, *, a: _Float) -> MLCActivationLayer: """x where |x| > a, else 0."""

class _MLCActivationLayer_softShrink(MLCActivationLayer):
    def __call__(self, *, a: _Float) -> MLCActivationLayer: """x moved towards 0 by a, and 0 where |x| is at most a."""

class MLCActivationLayer(MLCLayer):
    """Applies a function to every element; the result has the source's shape and type."""
    def __new__(cls, *, descriptor: MLCActivationDescriptor) -> Self: """By descriptor."""
    if not TYPE_CHECKING:
        def __init__(self, *, descriptor: MLCActivationDescriptor) -> None: """By descriptor."""
    @property
    def descriptor(self) -> MLCActivationDescriptor: """The function and its parameters."""
    relu: ClassVar[MLCActivationLayer]
    """max(x, 0)."""
    @classmethod
    def reluLayer(cls) -> MLCActivationLayer: """max(x, 0)."""
    relu6: ClassVar[MLCActivationLayer]
    """x between 0 and 6, and the nearer of the two beyond."""
    @classmethod
    def relu6Layer(cls) -> MLCActivationLayer: """x between 0 and 6, and the nearer of the two beyond."""
    leakyReLU: ClassVar[_MLCActivationLayer_leakyReLU]
    """x from 0 on, 0.01·x below."""
    @classmethod
    def leakyReLULayer(cls) -> MLCActivationLayer: """x from 0 on, 0.01·x below."""
    sigmoid: ClassVar[MLCActivationLayer]
    """1 / (1 + e^-x)."""
    @classmethod
    def sigmoidLayer(cls) -> MLCActivationLayer: """1 / (1 + e^-x)."""
    hardSigmoid: ClassVar[MLCActivationLayer]
    """0.2·x + 0.5, held between 0 and 1."""
    @classmethod
    def hardSigmoidLayer(cls) -> MLCActivationLayer: """0.2·x + 0.5, held between 0 and 1."""
    tanh: ClassVar[MLCActivationLayer]
    """The hyperbolic tangent."""
    @classmethod
    def tanhLayer(cls) -> MLCActivationLayer: """The hyperbolic tangent."""
    absolute: ClassVar[MLCActivationLayer]
    """|x|."""
    @classmethod
    def absoluteLayer(cls) -> MLCActivationLayer: """|x|."""
    softPlus: ClassVar[_MLCActivationLayer_softPlus]
    """log(1 + e^x)."""
    @classmethod
    def softPlusLayer(cls) -> MLCActivationLayer: """log(1 + e^x)."""
    softSign: ClassVar[MLCActivationLayer]
    """x / (1 + |x|)."""
    @classmethod
    def softSignLayer(cls) -> MLCActivationLayer: """x / (1 + |x|)."""
    elu: ClassVar[_MLCActivationLayer_elu]
    """x from 0 on, e^x - 1 below."""
    @classmethod
    def eluLayer(cls) -> MLCActivationLayer: """x from 0 on, e^x - 1 below."""
    logSigmoid: ClassVar[MLCActivationLayer]
    """log(1 / (1 + e^-x))."""
    @classmethod
    def logSigmoidLayer(cls) -> MLCActivationLayer: """log(1 / (1 + e^-x))."""
    selu: ClassVar[MLCActivationLayer]
    """The scaled exponential linear unit, with its usual constants."""
    @classmethod
    def seluLayer(cls) -> MLCActivationLayer: """The scaled exponential linear unit, with its usual constants."""
    celu: ClassVar[_MLCActivationLayer_celu]
    """x from 0 on, a·(e^(x/a) - 1) below, with a = 1."""
    @classmethod
    def celuLayer(cls) -> MLCActivationLayer: """x from 0 on, a·(e^(x/a) - 1) below, with a = 1."""
    hardShrink: ClassVar[_MLCActivationLayer_hardShrink]
    """x where |x| > 0.5, else 0."""
    @classmethod
    def hardShrinkLayer(cls) -> MLCActivationLayer: """x where |x| > 0.5, else 0."""
    softShrink: ClassVar[_MLCActivationLayer_softShrink]
    """x moved towards 0 by 0.5, and 0 where |x| is at most 0.5."""
    @classmethod
    def softShrinkLayer(cls) -> MLCActivationLayer: """x moved towards 0 by 0.5, and 0 where |x| is at most 0.5."""
    tanhShrink: ClassVar[MLCActivationLayer]
    """x - tanh(x)."""
    @classmethod
    def tanhShrinkLayer(cls) -> MLCActivationLayer: """x - tanh(x)."""
    gelu: ClassVar[MLCActivationLayer]
    """The Gaussian error linear unit, in its tanh approximation."""
    @classmethod
    def geluLayer(cls) -> MLCActivationLayer: """The Gaussian error linear unit, in its tanh approximation."""
    hardSwish: ClassVar[MLCActivationLayer]
    """x · min(max(x + 3, 0), 6) / 6."""
    @classmethod
    def hardSwishLayer(cls) -> MLCActivationLayer: """x · min(max(x + 3, 0), 6) / 6."""
    @classmethod
    def linear(cls, *, scale: _Float, bias: _Float) -> Self: """scale·x + bias."""
    @classmethod
    def relun(cls, *, a: _Float, b: _Float) -> Self: """x from 0 on, a·x below, and at most b."""
    @classmethod
    def threshold(cls, a: _Float, /, *, replacement: _Float) -> Self: """x above the threshold, ``replacement`` elsewhere."""
    @classmethod
    def clamp(cls, *, min: _Float, max: _Float) -> Self: """x held between ``min`` and ``max``."""
    @classmethod
    def layerWithDescriptor_(cls, descriptor: MLCActivationDescriptor, /) -> Self: """By descriptor."""
    @classmethod
    def leakyReLULayerWithNegativeSlope_(cls, a: _Float, /) -> Self: """x from 0 on, negativeSlope·x below."""
    @classmethod
    def linearLayerWithScale_bias_(cls, a: _Float, b: _Float, /) -> Self: """scale·x + bias."""
    @classmethod
    def eluLayerWithA_(cls, a: _Float, /) -> Self: """x from 0 on, a·(e^x - 1) below."""
    @classmethod
    def relunLayerWithA_b_(cls, a: _Float, b: _Float, /) -> Self: """x from 0 on, a·x below, and at most b."""
    @classmethod
    def celuLayerWithA_(cls, a: _Float, /) -> Self: """x from 0 on, a·(e^(x/a) - 1) below."""
    @classmethod
    def hardShrinkLayerWithA_(cls, a: _Float, /) -> Self: """x where |x| > a, else 0."""
    @classmethod
    def softShrinkLayerWithA_(cls, a: _Float, /) -> Self: """x moved towards 0 by a, and 0 where |x| is at most a."""
    @classmethod
    def thresholdLayerWithThreshold_replacement_(cls, a: _Float, b: _Float, /) -> Self: """x above the threshold, ``replacement`` elsewhere."""
    @classmethod
    def clampLayerWithMinValue_maxValue_(cls, a: _Float, b: _Float, /) -> Self: """x held between ``min`` and ``max``."""
    @classmethod
    def softPlusLayerWithBeta_(cls, beta: _Float, /) -> Self: """log(1 + e^(beta·x)) / beta."""

class MLCActivationType(_enum.IntEnum, metaclass=_EnumType):
    """The function of an activation layer; a, b and c are the descriptor's."""
    none = 0
    relu = 1
    linear = 2
    sigmoid = 3
    hardSigmoid = 4
    tanh = 5
    absolute = 6
    softPlus = 7
    softSign = 8
    elu = 9
    relun = 10
    logSigmoid = 11
    selu = 12
    celu = 13
    hardShrink = 14
    softShrink = 15
    tanhShrink = 16
    threshold = 17
    gelu = 18
    hardSwish = 19
    clamp = 20
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCActivationTypeDebugDescription(value: MLCActivationType | int, /) -> str | None: """The framework's own words for a case of MLCActivationType; ``None`` for an unknown value."""

class MLCAdamOptimizer(MLCOptimizer):
    """The Adam optimizer; L2 regularization is added to the gradient."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, timeStep: _Int) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, usesAMSGrad: bool, timeStep: _Int) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor) -> None: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, timeStep: _Int) -> None: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, usesAMSGrad: bool, timeStep: _Int) -> None: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @property
    def beta1(self) -> float: """How much of the old mean of the gradients an update keeps."""
    @property
    def beta2(self) -> float: """How much of the old mean of the squared gradients an update keeps."""
    @property
    def epsilon(self) -> float: """What is added to the root before dividing by it."""
    @property
    def usesAMSGrad(self) -> bool: """Whether the largest mean of the squares so far is used, as AMSGrad does."""
    @property
    def timeStep(self) -> int: """The number of the next update, which the bias correction depends on; the first is 1."""
    @classmethod
    def optimizerWithDescriptor_(cls, optimizerDescriptor: MLCOptimizerDescriptor, /) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @classmethod
    def optimizerWithDescriptor_beta1_beta2_epsilon_timeStep_(cls, optimizerDescriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, timeStep: _Int, /) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @classmethod
    def optimizerWithDescriptor_beta1_beta2_epsilon_usesAMSGrad_timeStep_(cls, optimizerDescriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, usesAMSGrad: bool, timeStep: _Int, /) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""

class MLCAdamWOptimizer(MLCOptimizer):
    """The AdamW optimizer: L2 regularization shrinks the weights, w -= lr·scale·w, before the step."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, usesAMSGrad: bool, timeStep: _Int) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor) -> None: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, usesAMSGrad: bool, timeStep: _Int) -> None: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @property
    def beta1(self) -> float: """How much of the old mean of the gradients an update keeps."""
    @property
    def beta2(self) -> float: """How much of the old mean of the squared gradients an update keeps."""
    @property
    def epsilon(self) -> float: """What is added to the root before dividing by it."""
    @property
    def usesAMSGrad(self) -> bool: """Whether the largest mean of the squares so far is used, as AMSGrad does."""
    @property
    def timeStep(self) -> int: """The number of the next update, which the bias correction depends on; the first is 1."""
    @classmethod
    def optimizerWithDescriptor_(cls, optimizerDescriptor: MLCOptimizerDescriptor, /) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
    @classmethod
    def optimizerWithDescriptor_beta1_beta2_epsilon_usesAMSGrad_timeStep_(cls, optimizerDescriptor: MLCOptimizerDescriptor, beta1: _Float, beta2: _Float, epsilon: _Float, usesAMSGrad: bool, timeStep: _Int, /) -> Self: """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""

class MLCArithmeticLayer(MLCLayer):
    """An arithmetic operation on each element of one or two sources, which broadcast against each other."""
    def __new__(cls, *, operation: MLCArithmeticOperation) -> Self: """By operation."""
    if not TYPE_CHECKING:
        def __init__(self, *, operation: MLCArithmeticOperation) -> None: """By operation."""
    @property
    def operation(self) -> MLCArithmeticOperation: """The operation."""
    @classmethod
    def layerWithOperation_(cls, operation: MLCArithmeticOperation | int, /) -> Self: """By operation."""

class MLCArithmeticOperation(_enum.IntEnum, metaclass=_EnumType):
    """The operation of an arithmetic layer, on one source or on two."""
    add = 0
    subtract = 1
    multiply = 2
    divide = 3
    floor = 4
    round = 5
    ceil = 6
    sqrt = 7
    rsqrt = 8
    sin = 9
    cos = 10
    tan = 11
    asin = 12
    acos = 13
    atan = 14
    sinh = 15
    cosh = 16
    tanh = 17
    asinh = 18
    acosh = 19
    atanh = 20
    pow = 21
    exp = 22
    exp2 = 23
    log = 24
    log2 = 25
    multiplyNoNaN = 26
    divideNoNaN = 27
    min = 28
    max = 29
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCArithmeticOperationDebugDescription(value: MLCArithmeticOperation | int, /) -> str | None: """The framework's own words for a case of MLCArithmeticOperation; ``None`` for an unknown value."""

class MLCBatchNormalizationLayer(MLCLayer):
    """Normalizes each channel over the batch."""
    @overload
    def __new__(cls, *, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> None: """One mean, variance, beta and gamma per channel; beta and gamma may be ``None``."""
        @overload
        def __init__(self, *, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float) -> None: """One mean, variance, beta and gamma per channel; beta and gamma may be ``None``."""
    @property
    def featureChannelCount(self) -> int: """How many channels the source has."""
    @property
    def mean(self) -> MLCTensor: """The running mean of each channel."""
    @property
    def variance(self) -> MLCTensor: """The running variance of each channel."""
    @property
    def beta(self) -> MLCTensor | None: """What is added after normalizing, or ``None``."""
    @property
    def gamma(self) -> MLCTensor | None: """What normalized values are multiplied by, or ``None``."""
    @property
    def betaParameter(self) -> MLCTensorParameter | None: """``beta`` as a parameter, or ``None``."""
    @property
    def gammaParameter(self) -> MLCTensorParameter | None: """``gamma`` as a parameter, or ``None``."""
    @property
    def varianceEpsilon(self) -> float: """What is added to the variance before its root is taken."""
    @property
    def momentum(self) -> float: """How much of the old statistics a training step keeps."""
    @classmethod
    def layerWithFeatureChannelCount_mean_variance_beta_gamma_varianceEpsilon_(cls, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, /) -> Self | None: """One mean, variance, beta and gamma per channel; beta and gamma may be ``None``."""
    @classmethod
    def layerWithFeatureChannelCount_mean_variance_beta_gamma_varianceEpsilon_momentum_(cls, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float, /) -> Self | None: """One mean, variance, beta and gamma per channel; beta and gamma may be ``None``."""

class MLCComparisonLayer(MLCLayer):
    """Compares two sources, or combines Booleans, element by element; the result is Boolean."""
    def __new__(cls, *, operation: MLCComparisonOperation) -> Self: """By operation."""
    if not TYPE_CHECKING:
        def __init__(self, *, operation: MLCComparisonOperation) -> None: """By operation."""
    @property
    def operation(self) -> MLCComparisonOperation: """The comparison or logical operation."""
    @classmethod
    def layerWithOperation_(cls, operation: MLCComparisonOperation | int, /) -> Self: """By operation."""

class MLCComparisonOperation(_enum.IntEnum, metaclass=_EnumType):
    """The relation or logical operation of a comparison layer."""
    equal = 0
    notEqual = 1
    less = 2
    greater = 3
    lessOrEqual = 4
    greaterOrEqual = 5
    logicalAND = 6
    logicalOR = 7
    logicalNOT = 8
    logicalNAND = 9
    logicalNOR = 10
    logicalXOR = 11
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCComparisonOperationDebugDescription(value: MLCComparisonOperation | int, /) -> str | None: """The framework's own words for a case of MLCComparisonOperation; ``None`` for an unknown value."""

class MLCConcatenationLayer(MLCLayer):
    """Joins tensors along one dimension; they agree in all others."""
    @overload
    def __new__(cls) -> Self: """Along dimension 1, the channels, unless told otherwise."""
    @overload
    def __new__(cls, *, dimension: _Int) -> Self: """Along dimension 1, the channels, unless told otherwise."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self) -> None: """Along dimension 1, the channels, unless told otherwise."""
        @overload
        def __init__(self, *, dimension: _Int) -> None: """Along dimension 1, the channels, unless told otherwise."""
    @property
    def dimension(self) -> int: """The dimension along which the tensors are joined."""
    @classmethod
    def layer(cls) -> Self: """Along dimension 1, the channels, unless told otherwise."""
    @classmethod
    def layerWithDimension_(cls, dimension: _Int, /) -> Self: """Along dimension 1, the channels, unless told otherwise."""

class MLCConvolutionDescriptor(_Object):
    """The window, channels and kind of a convolution: standard, transposed or depthwise."""
    @overload
    def __new__(cls, *, transposeWithKernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int) -> Self: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
    @overload
    def __new__(cls, *, depthwiseWithKernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, channelMultiplier: _Int) -> Self: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
    @overload
    def __new__(cls, *, kernelSizes: Sequence[_Int], inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, type: MLCConvolutionType = ..., groupCount: _Int = ..., strides: Sequence[_Int] = ..., dilationRates: Sequence[_Int] = ..., paddingPolicy: MLCPaddingPolicy = ...) -> Self: """Strides and dilation are 1 and the padding is ``same`` unless given."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, transposeWithKernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int) -> None: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
        @overload
        def __init__(self, *, depthwiseWithKernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, channelMultiplier: _Int) -> None: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
        @overload
        def __init__(self, *, kernelSizes: Sequence[_Int], inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, type: MLCConvolutionType = ..., groupCount: _Int = ..., strides: Sequence[_Int] = ..., dilationRates: Sequence[_Int] = ..., paddingPolicy: MLCPaddingPolicy = ...) -> None: """Strides and dilation are 1 and the padding is ``same`` unless given."""
    @property
    def kernelSizes(self) -> _HeightWidth: """Height and width of the window."""
    @property
    def strides(self) -> _YX: """How far the window moves at a time, down and across."""
    @property
    def dilationRates(self) -> _YX: """The distance between neighbouring elements of the window, down and across."""
    @property
    def paddingPolicy(self) -> MLCPaddingPolicy: """``same``, ``valid``, or sizes of your own."""
    @property
    def kernelHeight(self) -> int: """Height of the window."""
    @property
    def kernelWidth(self) -> int: """Width of the window."""
    @property
    def strideInY(self) -> int: """How far the window moves down at a time."""
    @property
    def strideInX(self) -> int: """How far the window moves across at a time."""
    @property
    def dilationRateInY(self) -> int: """The vertical distance between elements of the window."""
    @property
    def dilationRateInX(self) -> int: """The horizontal distance between elements of the window."""
    @property
    def paddingSizeInY(self) -> int: """Rows added above and below; 0 unless the policy is ``sized``."""
    @property
    def paddingSizeInX(self) -> int: """Columns added left and right; 0 unless the policy is ``sized``."""
    @property
    def convolutionType(self) -> MLCConvolutionType: """Standard, transposed or depthwise."""
    @property
    def inputFeatureChannelCount(self) -> int: """Channels of the source."""
    @property
    def outputFeatureChannelCount(self) -> int: """Channels of the result."""
    @property
    def groupCount(self) -> int: """Into how many groups the channels are divided; each group is convolved by itself."""
    @property
    def isConvolutionTranspose(self) -> bool: """Whether the type is ``transposed``."""
    @property
    def usesDepthwiseConvolution(self) -> bool: """Whether the type is ``depthwise``."""
    @classmethod
    def convolutionTransposeDescriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_outputFeatureChannelCount_(cls, kernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, /) -> Self: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
    @classmethod
    def depthwiseConvolutionDescriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_channelMultiplier_(cls, kernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, channelMultiplier: _Int, /) -> Self: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
    @classmethod
    def descriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_outputFeatureChannelCount_(cls, kernelWidth: _Int, kernelHeight: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, /) -> Self: """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
    @classmethod
    def descriptorWithType_kernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_groupCount_strides_dilationRates_paddingPolicy_paddingSizes_(cls, type: MLCConvolutionType | int, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, groupCount: _Int, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def descriptorWithKernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_strides_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, strides: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def descriptorWithKernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_groupCount_strides_dilationRates_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, groupCount: _Int, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def convolutionTransposeDescriptorWithKernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_strides_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, strides: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def convolutionTransposeDescriptorWithKernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_groupCount_strides_dilationRates_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, groupCount: _Int, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def depthwiseConvolutionDescriptorWithKernelSizes_inputFeatureChannelCount_channelMultiplier_strides_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, channelMultiplier: _Int, strides: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def depthwiseConvolutionDescriptorWithKernelSizes_inputFeatureChannelCount_channelMultiplier_strides_dilationRates_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, inputFeatureChannelCount: _Int, channelMultiplier: _Int, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""

class MLCConvolutionLayer(MLCLayer):
    """Convolves images with trainable weights and adds biases: standard, transposed or depthwise."""
    def __new__(cls, *, weights: MLCTensor, biases: MLCTensor | None, descriptor: MLCConvolutionDescriptor) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, weights: MLCTensor, biases: MLCTensor | None, descriptor: MLCConvolutionDescriptor) -> None: """Weights and, unless ``None``, biases, in the sizes that the descriptor asks for."""
    @property
    def descriptor(self) -> MLCConvolutionDescriptor: """Window, channels and kind."""
    @property
    def weights(self) -> MLCTensor: """The weights."""
    @property
    def biases(self) -> MLCTensor | None: """The biases, or ``None``."""
    @property
    def weightsParameter(self) -> MLCTensorParameter: """The weights as a parameter."""
    @property
    def biasesParameter(self) -> MLCTensorParameter | None: """The biases as a parameter, or ``None``."""
    @classmethod
    def layerWithWeights_biases_descriptor_(cls, weights: MLCTensor, biases: MLCTensor | None, descriptor: MLCConvolutionDescriptor, /) -> Self | None: """Weights and, unless ``None``, biases, in the sizes that the descriptor asks for."""

class MLCConvolutionType(_enum.IntEnum, metaclass=_EnumType):
    """The kind of a convolution."""
    standard = 0
    transposed = 1
    depthwise = 2
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCConvolutionTypeDebugDescription(value: MLCConvolutionType | int, /) -> str | None: """The framework's own words for a case of MLCConvolutionType; ``None`` for an unknown value."""

class MLCDataType(_enum.IntEnum, metaclass=_EnumType):
    """The type of a tensor's elements."""
    float32 = 1
    float16 = 3
    boolean = 4
    int64 = 5
    int32 = 7
    int8 = 8
    uint8 = 9
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""

class MLCDevice(_Object):
    """A device that graphs are compiled for: the CPU, or a GPU that PyTorch can use (CUDA, else MPS)."""
    @overload
    def __new__(cls) -> Self: """The CPU."""
    @overload
    def __new__(cls, *, type: MLCDeviceType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, gpuDevices: Sequence[_torch.device | str | _Int]) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, type: MLCDeviceType, selectsMultipleComputeDevices: bool) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self) -> None: """The CPU."""
        @overload
        def __init__(self, *, type: MLCDeviceType) -> None: """A device of this type, or ``None`` where there is none; ``any`` picks the best one present."""
        @overload
        def __init__(self, *, gpuDevices: Sequence[_torch.device | str | _Int]) -> None: """These GPUs, each a ``torch.device``, its name, or an index."""
        @overload
        def __init__(self, *, type: MLCDeviceType, selectsMultipleComputeDevices: bool) -> None: """A device of this type, or ``None`` where there is none; ``any`` picks the best one present."""
    @property
    def type(self) -> MLCDeviceType: """The type of this device; for ``any``, the type that was picked."""
    @property
    def actualDeviceType(self) -> MLCDeviceType: """The type of the device that computes; the same as ``type``."""
    @property
    def gpuDevices(self) -> list[_torch.device]: """The GPUs in use, as ``torch.device``; empty on the CPU."""
    @classmethod
    def cpu(cls) -> Self: """The CPU."""
    @classmethod
    def gpu(cls) -> Self | None: """The first GPU, or ``None`` where there is none."""
    @classmethod
    def ane(cls) -> Self | None: """The Apple Neural Engine: always ``None``, because PyTorch cannot reach it."""
    @classmethod
    def deviceWithType_(cls, type: MLCDeviceType | int, /) -> Self | None: """A device of this type, or ``None`` where there is none; ``any`` picks the best one present."""
    @classmethod
    def deviceWithType_selectsMultipleComputeDevices_(cls, type: MLCDeviceType | int, selectsMultipleComputeDevices: bool, /) -> Self | None: """A device of this type, or ``None`` where there is none; ``any`` picks the best one present."""
    @classmethod
    def deviceWithGPUDevices_(cls, gpus: Sequence[_torch.device | str | _Int], /) -> Self | None: """These GPUs, each a ``torch.device``, its name, or an index."""
    @classmethod
    def cpuDevice(cls) -> Self: """The CPU."""
    @classmethod
    def gpuDevice(cls) -> Self | None: """The first GPU, or ``None`` where there is none."""
    @classmethod
    def aneDevice(cls) -> Self | None: """The Apple Neural Engine: always ``None``, because PyTorch cannot reach it."""
    torch_device: _torch.device
    @property
    def feeds_own_share(self) -> bool: """Of several processes, whether each is given its own samples rather than the whole batch; set before compile."""
    @feeds_own_share.setter
    def feeds_own_share(self, value: bool) -> None: ...
    @property
    def synchronizes_batch_norm(self) -> bool: """Of several processes, whether batch normalization sees the samples of all of them; set before compile."""
    @synchronizes_batch_norm.setter
    def synchronizes_batch_norm(self, value: bool) -> None: ...
    @property
    def rank(self) -> int: """Which of the processes that share each batch this one is; 0 where there is one alone."""
    @property
    def rank_count(self) -> int: """How many processes share each batch."""

class MLCDeviceType(_enum.IntEnum, metaclass=_EnumType):
    """Where a graph runs."""
    cpu = 0
    gpu = 1
    any = 2
    ane = 3
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""

class MLCDropoutLayer(MLCLayer):
    """Drops each element with probability ``rate`` in training and scales the others by 1/(1 - rate)."""
    def __new__(cls, *, rate: _Float, seed: _Int) -> Self: """Seed 0 draws from the library's random numbers; any other seed gives the layer a sequence of its own."""
    if not TYPE_CHECKING:
        def __init__(self, *, rate: _Float, seed: _Int) -> None: """Seed 0 draws from the library's random numbers; any other seed gives the layer a sequence of its own."""
    @property
    def rate(self) -> float: """The probability with which an element is dropped."""
    @property
    def seed(self) -> int: """Where the layer's own random sequence starts; 0 for the library's."""
    @classmethod
    def layerWithRate_seed_(cls, rate: _Float, seed: _Int, /) -> Self: """Seed 0 draws from the library's random numbers; any other seed gives the layer a sequence of its own."""

class MLCEmbeddingDescriptor(_Object):
    """A table of ``embeddingCount`` vectors, each of ``embeddingDimension`` numbers."""
    @overload
    def __new__(cls, *, embeddingCount: _Int, embeddingDimension: _Int) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, embeddingCount: _Int, embeddingDimension: _Int, paddingIndex: _Int | None, maximumNorm: _Float | None, pNorm: _Float | None, scalesGradientByFrequency: bool) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, embeddingCount: _Int, embeddingDimension: _Int) -> None: """A table without padding index and without a limit on the norm, unless these are given."""
        @overload
        def __init__(self, *, embeddingCount: _Int, embeddingDimension: _Int, paddingIndex: _Int | None, maximumNorm: _Float | None, pNorm: _Float | None, scalesGradientByFrequency: bool) -> None: """A table without padding index and without a limit on the norm, unless these are given."""
    @property
    def embeddingCount(self) -> int: """How many vectors the table holds; indices must be below it."""
    @property
    def embeddingDimension(self) -> int: """How many numbers a vector has."""
    @property
    def paddingIndex(self) -> int | None: """The index whose vector gets no gradient, or ``None``."""
    @property
    def maximumNorm(self) -> float | None: """Vectors longer than this are scaled down to it when they are looked up; ``None`` for no limit."""
    @property
    def pNorm(self) -> float | None: """Which p-norm ``maximumNorm`` measures with."""
    @property
    def scalesGradientByFrequency(self) -> bool: """Whether a vector's gradient is divided by how often its index occurs in the batch."""
    @classmethod
    def descriptorWithEmbeddingCount_embeddingDimension_(cls, embeddingCount: _Int, embeddingDimension: _Int, /) -> Self | None: """A table without padding index and without a limit on the norm, unless these are given."""
    @classmethod
    def descriptorWithEmbeddingCount_embeddingDimension_paddingIndex_maximumNorm_pNorm_scalesGradientByFrequency_(cls, embeddingCount: _Int, embeddingDimension: _Int, paddingIndex: _Int | None, maximumNorm: _Float | None, pNorm: _Float | None, scalesGradientByFrequency: bool, /) -> Self | None: """A table without padding index and without a limit on the norm, unless these are given."""

class MLCEmbeddingLayer(MLCLayer):
    """Looks up a trained vector for each index: [batch, ...] becomes [batch, ..., embeddingDimension]."""
    def __new__(cls, *, descriptor: MLCEmbeddingDescriptor, weights: MLCTensor) -> Self: """Weights hold one row per index."""
    if not TYPE_CHECKING:
        def __init__(self, *, descriptor: MLCEmbeddingDescriptor, weights: MLCTensor) -> None: """Weights hold one row per index."""
    @property
    def descriptor(self) -> MLCEmbeddingDescriptor: """The size of the table and how it is read."""
    @property
    def weights(self) -> MLCTensor: """The vectors."""
    @property
    def weightsParameter(self) -> MLCTensorParameter: """The vectors as a parameter."""
    @classmethod
    def layerWithDescriptor_weights_(cls, descriptor: MLCEmbeddingDescriptor, weights: MLCTensor, /) -> Self: """Weights hold one row per index."""

class MLCExecutionOptions(_enum.IntFlag, metaclass=_OptionSetType):
    """How a call of ``execute`` or of one phase runs."""
    skipWritingInputDataToDevice = 1
    synchronous = 2
    profiling = 4
    forwardForInference = 8
    perLayerProfiling = 16
    @overload
    def __new__(cls, value: _Int | Sequence[Self] = ...) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self: ...
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""

class MLCFullyConnectedLayer(MLCLayer):
    """A fully connected (dense) layer: source · weights + biases, over the last dimension."""
    def __new__(cls, *, weights: MLCTensor, biases: MLCTensor | None, descriptor: MLCConvolutionDescriptor) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, weights: MLCTensor, biases: MLCTensor | None, descriptor: MLCConvolutionDescriptor) -> None: """Weights and, unless ``None``, biases, in the sizes that the descriptor's channel counts ask for."""
    @property
    def descriptor(self) -> MLCConvolutionDescriptor: """The channel counts; nothing else of it matters."""
    @property
    def weights(self) -> MLCTensor: """The weights, one row per output."""
    @property
    def biases(self) -> MLCTensor | None: """The biases, or ``None``."""
    @property
    def weightsParameter(self) -> MLCTensorParameter: """The weights as a parameter."""
    @property
    def biasesParameter(self) -> MLCTensorParameter | None: """The biases as a parameter, or ``None``."""
    @classmethod
    def layerWithWeights_biases_descriptor_(cls, weights: MLCTensor, biases: MLCTensor | None, descriptor: MLCConvolutionDescriptor, /) -> Self | None: """Weights and, unless ``None``, biases, in the sizes that the descriptor's channel counts ask for."""

class MLCGatherLayer(MLCLayer):
    """Picks elements of a source along one dimension by index. Its sources are [source, indices]."""
    def __new__(cls, *, dimension: _Int) -> Self: """By the dimension that the indices run along."""
    if not TYPE_CHECKING:
        def __init__(self, *, dimension: _Int) -> None: """By the dimension that the indices run along."""
    @property
    def dimension(self) -> int: """The dimension that the indices run along."""
    @classmethod
    def layerWithDimension_(cls, dimension: _Int, /) -> Self: """By the dimension that the indices run along."""

class MLCGradientClippingType(_enum.IntEnum, metaclass=_EnumType):
    """How large gradients are made smaller."""
    byValue = 0
    byNorm = 1
    byGlobalNorm = 2
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCGradientClippingTypeDebugDescription(value: MLCGradientClippingType | int, /) -> str | None: """The framework's own words for a case of MLCGradientClippingType; ``None`` for an unknown value."""

class MLCGramMatrixLayer(MLCLayer):
    """Products of each pair of channels, summed over the image and scaled."""
    def __new__(cls, *, scale: _Float) -> Self: """By the number that the products are multiplied by."""
    if not TYPE_CHECKING:
        def __init__(self, *, scale: _Float) -> None: """By the number that the products are multiplied by."""
    @property
    def scale(self) -> float: """The number that the products are multiplied by."""
    @classmethod
    def layerWithScale_(cls, scale: _Float, /) -> Self: """By the number that the products are multiplied by."""

class MLCGraph(_Object):
    """A graph of layers. ``node`` adds a layer and gives the tensor of its result."""
    def __new__(cls) -> Self: """A graph without layers."""
    if not TYPE_CHECKING:
        def __init__(self) -> None: """A graph without layers."""
    @property
    def device(self) -> MLCDevice | None: """The device that the graph was compiled for, or ``None``."""
    @property
    def layers(self) -> list[MLCLayer]: """Each layer once, in the order of addition."""
    @property
    def summarizedDOTDescription(self) -> str: """The graph in the DOT language; dashed edges are those where the gradient stops."""
    @overload
    def node(self, with_: MLCLayer, *, source: MLCTensor) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    @overload
    def node(self, with_: MLCLayer, *, sources: Sequence[MLCTensor]) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    @overload
    def node(self, with_: MLCLayer, *, sources: Sequence[MLCTensor], disableUpdate: bool) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    @overload
    def node(self, with_: MLCLayer, *, sources: Sequence[MLCTensor], lossLabels: Sequence[MLCTensor]) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    def concatenate(self, *, sources: Sequence[MLCTensor], dimension: _Int) -> MLCTensor | None: """Add a layer that joins the sources along a dimension."""
    def reshape(self, *, shape: Sequence[_Int], source: MLCTensor) -> MLCTensor | None: """Add a layer that gives the source another shape; one dimension may be -1."""
    def transpose(self, *, dimensions: Sequence[_Int], source: MLCTensor) -> MLCTensor | None: """Add a layer that reorders the dimensions of the source."""
    @overload
    def split(self, *, source: MLCTensor, splitCount: _Int, dimension: _Int) -> list[MLCTensor] | None: """Add a layer that cuts the source into equal parts, and give the parts."""
    @overload
    def split(self, *, source: MLCTensor, splitSectionLengths: Sequence[_Int], dimension: _Int) -> list[MLCTensor] | None: """Add a layer that cuts the source into parts of these lengths, and give the parts."""
    def select(self, *, sources: Sequence[MLCTensor], condition: MLCTensor) -> MLCTensor | None: """Add a layer that picks from the first source where the condition is true, and from the second elsewhere."""
    def gather(self, *, withDimension: _Int, source: MLCTensor, indices: MLCTensor) -> MLCTensor | None: """Add a layer that picks elements of the source along a dimension by index."""
    def scatter(self, *, withDimension: _Int, source: MLCTensor, indices: MLCTensor, copyFrom: MLCTensor, reductionType: MLCReductionType) -> MLCTensor | None: """Add a layer that writes or adds the source into a copy of ``copyFrom``, by index."""
    def sourceTensors(self, for_: MLCLayer) -> list[MLCTensor]: """The sources of a layer of this graph."""
    def resultTensors(self, for_: MLCLayer) -> list[MLCTensor]: """The results of a layer of this graph."""
    @overload
    def bindAndWriteData(self, inputsData: Mapping[str, MLCTensorData | _Buffer], /, *, forInputs: Mapping[str, MLCTensor], to: MLCDevice, synchronous: bool) -> bool: """Copy data to the device for later calls; names that stand in both dictionaries are bound."""
    @overload
    def bindAndWriteData(self, inputsData: Mapping[str, MLCTensorData | _Buffer], /, *, forInputs: Mapping[str, MLCTensor], to: MLCDevice, batchSize: _Int, synchronous: bool) -> bool: """Copy data to the device for later calls; names that stand in both dictionaries are bound."""
    @classmethod
    def graph(cls) -> Self: """A graph without layers."""
    def nodeWithLayer_source_(self, layer: MLCLayer, source: MLCTensor, /) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    def nodeWithLayer_sources_(self, layer: MLCLayer, sources: Sequence[MLCTensor], /) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    def nodeWithLayer_sources_disableUpdate_(self, layer: MLCLayer, sources: Sequence[MLCTensor], disableUpdate: bool, /) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    def nodeWithLayer_sources_lossLabels_(self, layer: MLCLayer, sources: Sequence[MLCTensor], lossLabels: Sequence[MLCTensor], /) -> MLCTensor | None: """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
    def concatenateWithSources_dimension_(self, sources: Sequence[MLCTensor], dimension: _Int, /) -> MLCTensor | None: """Add a layer that joins the sources along a dimension."""
    def reshapeWithShape_source_(self, shape: Sequence[_Int], source: MLCTensor, /) -> MLCTensor | None: """Add a layer that gives the source another shape; one dimension may be -1."""
    def transposeWithDimensions_source_(self, dimensions: Sequence[_Int], source: MLCTensor, /) -> MLCTensor | None: """Add a layer that reorders the dimensions of the source."""
    def splitWithSource_splitCount_dimension_(self, source: MLCTensor, splitCount: _Int, dimension: _Int, /) -> list[MLCTensor] | None: """Add a layer that cuts the source into equal parts, and give the parts."""
    def splitWithSource_splitSectionLengths_dimension_(self, source: MLCTensor, splitSectionLengths: Sequence[_Int], dimension: _Int, /) -> list[MLCTensor] | None: """Add a layer that cuts the source into parts of these lengths, and give the parts."""
    def selectWithSources_condition_(self, sources: Sequence[MLCTensor], condition: MLCTensor, /) -> MLCTensor | None: """Add a layer that picks from the first source where the condition is true, and from the second elsewhere."""
    def gatherWithDimension_source_indices_(self, dimension: _Int, source: MLCTensor, indices: MLCTensor, /) -> MLCTensor | None: """Add a layer that picks elements of the source along a dimension by index."""
    def scatterWithDimension_source_indices_copyFrom_reductionType_(self, dimension: _Int, source: MLCTensor, indices: MLCTensor, copyFrom: MLCTensor, reductionType: MLCReductionType | int, /) -> MLCTensor | None: """Add a layer that writes or adds the source into a copy of ``copyFrom``, by index."""
    def sourceTensorsForLayer_(self, layer: MLCLayer, /) -> list[MLCTensor]: """The sources of a layer of this graph."""
    def resultTensorsForLayer_(self, layer: MLCLayer, /) -> list[MLCTensor]: """The results of a layer of this graph."""
    def bindAndWriteData_forInputs_toDevice_synchronous_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], inputTensors: Mapping[str, MLCTensor], device: MLCDevice, synchronous: bool, /) -> bool: """Copy data to the device for later calls; names that stand in both dictionaries are bound."""
    def bindAndWriteData_forInputs_toDevice_batchSize_synchronous_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], inputTensors: Mapping[str, MLCTensor], device: MLCDevice, batchSize: _Int, synchronous: bool, /) -> bool: """Copy data to the device for later calls; names that stand in both dictionaries are bound."""
    def summary(self) -> _Summary: """A table of the layers; below it parameters, losses, device, and which gear runs and why."""
    def draw(self, path: str | _Path) -> _Path: """Write a picture of the graph: ``.svg``, ``.png``, ``.pdf`` or ``.dot``. Dashed lines carry no gradient."""
    def to_module(self, *, loss: bool = ...) -> _SharedGraphModule: """The graph as an ``nn.Module`` over the same memory, without its loss layers unless ``loss`` is true."""

class MLCGraphCompilationOptions(_enum.IntFlag, metaclass=_OptionSetType):
    """How a graph is compiled."""
    debugLayers = 1
    disableLayerFusion = 2
    linkGraphs = 4
    computeAllGradients = 8
    @overload
    def __new__(cls, value: _Int | Sequence[Self] = ...) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self: ...
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""

MLCGraphCompletionHandler: TypeAlias = Callable[[MLCTensor | None, Exception | None, float], object]

class MLCGroupNormalizationLayer(MLCLayer):
    """Normalizes groups of neighbouring channels of each sample."""
    def __new__(cls, *, featureChannelCount: _Int, groupCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, featureChannelCount: _Int, groupCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> None: """``groupCount`` must divide the channels; beta and gamma may be ``None``."""
    @property
    def featureChannelCount(self) -> int: """How many channels the source has."""
    @property
    def groupCount(self) -> int: """How many groups the channels are divided into."""
    @property
    def beta(self) -> MLCTensor | None: """What is added after normalizing, or ``None``."""
    @property
    def gamma(self) -> MLCTensor | None: """What normalized values are multiplied by, or ``None``."""
    @property
    def betaParameter(self) -> MLCTensorParameter | None: """``beta`` as a parameter, or ``None``."""
    @property
    def gammaParameter(self) -> MLCTensorParameter | None: """``gamma`` as a parameter, or ``None``."""
    @property
    def varianceEpsilon(self) -> float: """What is added to the variance before its root is taken."""
    @classmethod
    def layerWithFeatureChannelCount_groupCount_beta_gamma_varianceEpsilon_(cls, featureChannelCount: _Int, groupCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, /) -> Self | None: """``groupCount`` must divide the channels; beta and gamma may be ``None``."""

class MLCInferenceGraph(MLCGraph):
    """Runs the layers of its graph objects, and its own, forward."""
    def __new__(cls, *, graphObjects: Sequence[MLCGraph]) -> Self: """An inference graph over the layers of these graphs."""
    if not TYPE_CHECKING:
        def __init__(self, *, graphObjects: Sequence[MLCGraph]) -> None: """An inference graph over the layers of these graphs."""
    @property
    def deviceMemorySize(self) -> int: """Bytes of the nodes' results; 0 until the graph is compiled (measured, evidence.md H.7)."""
    def addOutputs(self, outputs: Mapping[str, MLCTensor], /) -> bool: """Name the tensors that are to be readable after a run, in addition to the result."""
    @overload
    def compile(self, *, device: MLCDevice, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] = ...) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    @overload
    def compile(self, *, device: MLCDevice, use_inductor: bool, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] = ...) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    @overload
    def compile(self, *, device: MLCDevice, inputTensors: Mapping[str, MLCTensor] | None, inputTensorsData: Mapping[str, MLCTensorData | _Buffer] | None, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] = ...) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    @overload
    def addInputs(self, inputs: Mapping[str, MLCTensor], /) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    @overload
    def addInputs(self, inputs: Mapping[str, MLCTensor], /, *, lossLabels: Mapping[str, MLCTensor] | None, lossLabelWeights: Mapping[str, MLCTensor] | None) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    def link(self, with_: Sequence[MLCInferenceGraph]) -> bool: """Tensors that one of the graphs computes and another reads carry their value across."""
    @overload
    def execute(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    @overload
    def execute(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], outputsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    @overload
    def execute(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    @overload
    def execute(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    async def executeAsync(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], batchSize: _Int, lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None = ..., lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None = ..., outputsData: Mapping[str, MLCTensorData | _Buffer] | None = ..., options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ...) -> tuple[MLCTensor | None, float]: """``await`` gives the result and the seconds it took; a refusal is raised."""
    def addOutputs_(self, outputs: Mapping[str, MLCTensor], /) -> bool: """Name the tensors that are to be readable after a run, in addition to the result."""
    def compileWithOptions_device_(self, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] | int, device: MLCDevice, /) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    def compileWithOptions_device_inputTensors_inputTensorsData_(self, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] | int, device: MLCDevice, inputTensors: Mapping[str, MLCTensor] | None, inputTensorsData: Mapping[str, MLCTensorData | _Buffer] | None, /) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    @classmethod
    def graphWithGraphObjects_(cls, graphObjects: Sequence[MLCGraph], /) -> Self: """An inference graph over the layers of these graphs."""
    def addInputs_(self, inputs: Mapping[str, MLCTensor], /) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    def addInputs_lossLabels_lossLabelWeights_(self, inputs: Mapping[str, MLCTensor], lossLabels: Mapping[str, MLCTensor] | None, lossLabelWeights: Mapping[str, MLCTensor] | None, /) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    def linkWithGraphs_(self, graphs: Sequence[MLCInferenceGraph], /) -> bool: """Tensors that one of the graphs computes and another reads carry their value across."""
    def executeWithInputsData_batchSize_options_completionHandler_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    def executeWithInputsData_outputsData_batchSize_options_completionHandler_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], outputsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    def executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    def executeWithInputsData_lossLabelsData_lossLabelWeightsData_outputsData_batchSize_options_completionHandler_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Run forward. The handler gets the result; ``outputsData`` receives the values of ``addOutputs``."""
    def memory(self) -> _Memory: """What the graph holds on its device: parameters, statistics, optimizer state, gradients, results and so on."""
    def profile(self, work: Callable[[], Any] | None = ...) -> _Profile: """Time by layer: ``with graph.profile() as report:``, or of what ``work`` executes if it is given."""

class MLCInstanceNormalizationLayer(MLCLayer):
    """Normalizes each channel of each sample by itself; stored statistics, where given, are used in inference."""
    @overload
    def __new__(cls, *, featureChannelCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, featureChannelCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, featureChannelCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> None: """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""
        @overload
        def __init__(self, *, featureChannelCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float) -> None: """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""
        @overload
        def __init__(self, *, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float) -> None: """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""
    @property
    def featureChannelCount(self) -> int: """How many channels the source has."""
    @property
    def mean(self) -> MLCTensor | None: """The running mean of each channel, or ``None``."""
    @property
    def variance(self) -> MLCTensor | None: """The running variance of each channel, or ``None``."""
    @property
    def beta(self) -> MLCTensor | None: """What is added after normalizing, or ``None``."""
    @property
    def gamma(self) -> MLCTensor | None: """What normalized values are multiplied by, or ``None``."""
    @property
    def betaParameter(self) -> MLCTensorParameter | None: """``beta`` as a parameter, or ``None``."""
    @property
    def gammaParameter(self) -> MLCTensorParameter | None: """``gamma`` as a parameter, or ``None``."""
    @property
    def varianceEpsilon(self) -> float: """What is added to the variance before its root is taken."""
    @property
    def momentum(self) -> float: """How much of the old statistics a training step keeps."""
    @classmethod
    def layerWithFeatureChannelCount_beta_gamma_varianceEpsilon_(cls, featureChannelCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, /) -> Self | None: """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""
    @classmethod
    def layerWithFeatureChannelCount_beta_gamma_varianceEpsilon_momentum_(cls, featureChannelCount: _Int, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float, /) -> Self | None: """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""
    @classmethod
    def layerWithFeatureChannelCount_mean_variance_beta_gamma_varianceEpsilon_momentum_(cls, featureChannelCount: _Int, mean: MLCTensor, variance: MLCTensor, beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, momentum: _Float, /) -> Self | None: """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""

class MLCLSTMDescriptor(_Object):
    """The sizes and switches of a stack of LSTM layers over sequences [batch, time, features]."""
    @overload
    def __new__(cls, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @overload
    def __new__(cls, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, isBidirectional: bool, dropout: _Float) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @overload
    def __new__(cls, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, dropout: _Float) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @overload
    def __new__(cls, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, returnsSequences: bool, dropout: _Float) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @overload
    def __new__(cls, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, returnsSequences: bool, dropout: _Float, resultMode: MLCLSTMResultMode) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int) -> None: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
        @overload
        def __init__(self, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, isBidirectional: bool, dropout: _Float) -> None: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
        @overload
        def __init__(self, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, dropout: _Float) -> None: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
        @overload
        def __init__(self, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, returnsSequences: bool, dropout: _Float) -> None: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
        @overload
        def __init__(self, *, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, returnsSequences: bool, dropout: _Float, resultMode: MLCLSTMResultMode) -> None: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @property
    def inputSize(self) -> int: """Features of the source at each step."""
    @property
    def hiddenSize(self) -> int: """Features of the hidden state, and of the result per direction."""
    @property
    def layerCount(self) -> int: """How many LSTM layers are stacked."""
    @property
    def usesBiases(self) -> bool: """Whether the gates add biases."""
    @property
    def batchFirst(self) -> bool: """Whether sequences are [batch, time, features]; otherwise [time, batch, features]."""
    @property
    def isBidirectional(self) -> bool: """Whether a second stack reads the sequence backwards."""
    @property
    def returnsSequences(self) -> bool: """Whether the result holds every step; otherwise only the last."""
    @property
    def dropout(self) -> float: """The probability with which values between stacked layers are dropped in training."""
    @property
    def resultMode(self) -> MLCLSTMResultMode: """Whether the node gives the output alone, or the final hidden and cell states too."""
    @classmethod
    def descriptorWithInputSize_hiddenSize_layerCount_(cls, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, /) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @classmethod
    def descriptorWithInputSize_hiddenSize_layerCount_usesBiases_isBidirectional_dropout_(cls, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, isBidirectional: bool, dropout: _Float, /) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @classmethod
    def descriptorWithInputSize_hiddenSize_layerCount_usesBiases_batchFirst_isBidirectional_dropout_(cls, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, dropout: _Float, /) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @classmethod
    def descriptorWithInputSize_hiddenSize_layerCount_usesBiases_batchFirst_isBidirectional_returnsSequences_dropout_(cls, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, returnsSequences: bool, dropout: _Float, /) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""
    @classmethod
    def descriptorWithInputSize_hiddenSize_layerCount_usesBiases_batchFirst_isBidirectional_returnsSequences_dropout_resultMode_(cls, inputSize: _Int, hiddenSize: _Int, layerCount: _Int, usesBiases: bool, batchFirst: bool, isBidirectional: bool, returnsSequences: bool, dropout: _Float, resultMode: MLCLSTMResultMode | int, /) -> Self: """One direction, with biases, batch first, returning the whole sequence, unless told otherwise."""

class MLCLSTMLayer(MLCLayer):
    """A stack of LSTM layers with trainable weights, biases and peepholes for every gate."""
    @overload
    def __new__(cls, *, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], biases: Sequence[MLCTensor] | None) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], peepholeWeights: Sequence[MLCTensor] | None, biases: Sequence[MLCTensor] | None) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], peepholeWeights: Sequence[MLCTensor] | None, biases: Sequence[MLCTensor] | None, gateActivations: Sequence[MLCActivationDescriptor], outputResultActivation: MLCActivationDescriptor) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], biases: Sequence[MLCTensor] | None) -> None: """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""
        @overload
        def __init__(self, *, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], peepholeWeights: Sequence[MLCTensor] | None, biases: Sequence[MLCTensor] | None) -> None: """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""
        @overload
        def __init__(self, *, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], peepholeWeights: Sequence[MLCTensor] | None, biases: Sequence[MLCTensor] | None, gateActivations: Sequence[MLCActivationDescriptor], outputResultActivation: MLCActivationDescriptor) -> None: """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""
    @property
    def descriptor(self) -> MLCLSTMDescriptor: """Sizes and switches."""
    @property
    def inputWeights(self) -> list[MLCTensor]: """What the gates multiply the source with."""
    @property
    def hiddenWeights(self) -> list[MLCTensor]: """What the gates multiply the previous hidden state with."""
    @property
    def peepholeWeights(self) -> list[MLCTensor] | None: """What the gates multiply the cell state with, or ``None``."""
    @property
    def biases(self) -> list[MLCTensor] | None: """The biases of the gates, or ``None``."""
    @property
    def gateActivations(self) -> list[MLCActivationDescriptor]: """The activation functions of the gates i, f, g, o."""
    @property
    def outputResultActivation(self) -> MLCActivationDescriptor: """The activation function of the cell state on its way to the output."""
    @property
    def inputWeightsParameters(self) -> list[MLCTensorParameter]: """The input weights as parameters."""
    @property
    def hiddenWeightsParameters(self) -> list[MLCTensorParameter]: """The hidden weights as parameters."""
    @property
    def peepholeWeightsParameters(self) -> list[MLCTensorParameter] | None: """The peephole weights as parameters, or ``None``."""
    @property
    def biasesParameters(self) -> list[MLCTensorParameter] | None: """The biases as parameters, or ``None``."""
    @classmethod
    def layerWithDescriptor_inputWeights_hiddenWeights_biases_(cls, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], biases: Sequence[MLCTensor] | None, /) -> Self | None: """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""
    @classmethod
    def layerWithDescriptor_inputWeights_hiddenWeights_peepholeWeights_biases_(cls, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], peepholeWeights: Sequence[MLCTensor] | None, biases: Sequence[MLCTensor] | None, /) -> Self | None: """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""
    @classmethod
    def layerWithDescriptor_inputWeights_hiddenWeights_peepholeWeights_biases_gateActivations_outputResultActivation_(cls, descriptor: MLCLSTMDescriptor, inputWeights: Sequence[MLCTensor], hiddenWeights: Sequence[MLCTensor], peepholeWeights: Sequence[MLCTensor] | None, biases: Sequence[MLCTensor] | None, gateActivations: Sequence[MLCActivationDescriptor], outputResultActivation: MLCActivationDescriptor, /) -> Self | None: """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""

class MLCLSTMResultMode(_enum.IntEnum, metaclass=_EnumType):
    """What an LSTM layer gives."""
    output = 0
    outputAndStates = 1
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCLSTMResultModeDebugDescription(value: MLCLSTMResultMode | int, /) -> str | None: """The framework's own words for a case of MLCLSTMResultMode; ``None`` for an unknown value."""

class MLCLayer(_Object):
    """A layer of a graph; the base class of all layers. ``module`` is the ``torch.nn`` module that computes it."""
    label: str
    """A name for people; summaries, traces and error messages show it."""
    @property
    def layerID(self) -> int: """The position of the layer in its graph; 0 until it is in one."""
    isDebuggingEnabled: bool
    """Whether its results can be read after a run of a graph compiled with ``debugLayers``."""
    @property
    def deviceType(self) -> MLCDeviceType: """The type of device its graph was compiled for."""
    @classmethod
    def supportsDataType(cls, dataType: MLCDataType, /, *, on: MLCDevice) -> bool: """Whether the framework's layer takes elements of this type on this device."""
    @classmethod
    def supportsDataType_onDevice_(cls, dataType: MLCDataType | int, device: MLCDevice, /) -> bool: """Whether the framework's layer takes elements of this type on this device."""
    @property
    def module(self) -> _torch.nn.Module: """The ``torch.nn`` module that computes this layer. Its parameters are views of the tensors' own memory."""

class MLCLayerNormalizationLayer(MLCLayer):
    """Normalizes each sample over its last dimensions, ``normalizedShape``."""
    def __new__(cls, *, normalizedShape: Sequence[_Int], beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, normalizedShape: Sequence[_Int], beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float) -> None: """Beta and gamma have the normalized shape, or are ``None``."""
    @property
    def beta(self) -> MLCTensor | None: """What is added after normalizing, or ``None``."""
    @property
    def gamma(self) -> MLCTensor | None: """What normalized values are multiplied by, or ``None``."""
    @property
    def betaParameter(self) -> MLCTensorParameter | None: """``beta`` as a parameter, or ``None``."""
    @property
    def gammaParameter(self) -> MLCTensorParameter | None: """``gamma`` as a parameter, or ``None``."""
    @property
    def varianceEpsilon(self) -> float: """What is added to the variance before its root is taken."""
    @property
    def normalizedShape(self) -> list[int]: """The sizes of the dimensions that are normalized together."""
    @classmethod
    def layerWithNormalizedShape_beta_gamma_varianceEpsilon_(cls, normalizedShape: Sequence[_Int], beta: MLCTensor | None, gamma: MLCTensor | None, varianceEpsilon: _Float, /) -> Self | None: """Beta and gamma have the normalized shape, or are ``None``."""

class MLCLossDescriptor(_Object):
    """Which loss to compute, how to reduce it, and its parameters."""
    @overload
    def __new__(cls, *, type: MLCLossType, reductionType: MLCReductionType) -> Self: """Parameters that are left out take the framework's defaults."""
    @overload
    def __new__(cls, *, type: MLCLossType, reductionType: MLCReductionType, weight: _Float) -> Self: """Parameters that are left out take the framework's defaults."""
    @overload
    def __new__(cls, *, type: MLCLossType, reductionType: MLCReductionType, weight: _Float, labelSmoothing: _Float, classCount: _Int) -> Self: """Parameters that are left out take the framework's defaults."""
    @overload
    def __new__(cls, *, type: MLCLossType, reductionType: MLCReductionType, weight: _Float, labelSmoothing: _Float, classCount: _Int, epsilon: _Float, delta: _Float) -> Self: """Parameters that are left out take the framework's defaults."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, type: MLCLossType, reductionType: MLCReductionType) -> None: """Parameters that are left out take the framework's defaults."""
        @overload
        def __init__(self, *, type: MLCLossType, reductionType: MLCReductionType, weight: _Float) -> None: """Parameters that are left out take the framework's defaults."""
        @overload
        def __init__(self, *, type: MLCLossType, reductionType: MLCReductionType, weight: _Float, labelSmoothing: _Float, classCount: _Int) -> None: """Parameters that are left out take the framework's defaults."""
        @overload
        def __init__(self, *, type: MLCLossType, reductionType: MLCReductionType, weight: _Float, labelSmoothing: _Float, classCount: _Int, epsilon: _Float, delta: _Float) -> None: """Parameters that are left out take the framework's defaults."""
    @property
    def lossType(self) -> MLCLossType: """The loss."""
    @property
    def reductionType(self) -> MLCReductionType: """``none`` keeps one value per sample or element; ``sum`` and ``mean`` give one value."""
    @property
    def weight(self) -> float: """A number that the loss is multiplied by."""
    @property
    def labelSmoothing(self) -> float: """How much of the labels is spread over all classes; for the cross-entropies."""
    @property
    def classCount(self) -> int: """The number of classes that label smoothing divides by."""
    @property
    def epsilon(self) -> float: """What is added inside the logarithm of the log loss."""
    @property
    def delta(self) -> float: """Where the Huber loss turns from quadratic to linear."""
    @classmethod
    def descriptorWithType_reductionType_(cls, lossType: MLCLossType | int, reductionType: MLCReductionType | int, /) -> Self: """Parameters that are left out take the framework's defaults."""
    @classmethod
    def descriptorWithType_reductionType_weight_(cls, lossType: MLCLossType | int, reductionType: MLCReductionType | int, weight: _Float, /) -> Self: """Parameters that are left out take the framework's defaults."""
    @classmethod
    def descriptorWithType_reductionType_weight_labelSmoothing_classCount_(cls, lossType: MLCLossType | int, reductionType: MLCReductionType | int, weight: _Float, labelSmoothing: _Float, classCount: _Int, /) -> Self: """Parameters that are left out take the framework's defaults."""
    @classmethod
    def descriptorWithType_reductionType_weight_labelSmoothing_classCount_epsilon_delta_(cls, lossType: MLCLossType | int, reductionType: MLCReductionType | int, weight: _Float, labelSmoothing: _Float, classCount: _Int, epsilon: _Float, delta: _Float, /) -> Self: """Parameters that are left out take the framework's defaults."""

class MLCLossLayer(MLCLayer):
    """A loss of predictions and labels, with one weight for everything and, if wanted, a tensor of weights."""
    @overload
    def __new__(cls, *, descriptor: MLCLossDescriptor) -> Self: """By descriptor; with weights, each element or sample counts by its own."""
    @overload
    def __new__(cls, *, descriptor: MLCLossDescriptor, weights: MLCTensor) -> Self: """By descriptor; with weights, each element or sample counts by its own."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCLossDescriptor) -> None: """By descriptor; with weights, each element or sample counts by its own."""
        @overload
        def __init__(self, *, descriptor: MLCLossDescriptor, weights: MLCTensor) -> None: """By descriptor; with weights, each element or sample counts by its own."""
    @property
    def descriptor(self) -> MLCLossDescriptor: """Which loss, how it is reduced, and its parameters."""
    @property
    def weights(self) -> MLCTensor | None: """The weights of elements or samples, or ``None``."""
    @overload
    @classmethod
    def hingeLoss(cls, *, reductionType: MLCReductionType, weight: _Float) -> Self: """max(0, 1 - (2·label - 1)·prediction), for labels 0 and 1."""
    @overload
    @classmethod
    def hingeLoss(cls, *, reductionType: MLCReductionType, weights: MLCTensor | None) -> Self: """max(0, 1 - (2·label - 1)·prediction), for labels 0 and 1."""
    @overload
    @classmethod
    def huberLoss(cls, *, reductionType: MLCReductionType, delta: _Float, weight: _Float) -> Self: """Quadratic for errors up to ``delta``, linear beyond."""
    @overload
    @classmethod
    def huberLoss(cls, *, reductionType: MLCReductionType, delta: _Float, weights: MLCTensor | None) -> Self: """Quadratic for errors up to ``delta``, linear beyond."""
    @overload
    @classmethod
    def log(cls, *, reductionType: MLCReductionType, epsilon: _Float, weight: _Float) -> Self: """The log loss of probabilities; ``epsilon`` is added inside the logarithm."""
    @overload
    @classmethod
    def log(cls, *, reductionType: MLCReductionType, epsilon: _Float, weights: MLCTensor | None) -> Self: """The log loss of probabilities; ``epsilon`` is added inside the logarithm."""
    @overload
    @classmethod
    def meanAbsoluteError(cls, *, reductionType: MLCReductionType, weight: _Float) -> Self: """|prediction - label|."""
    @overload
    @classmethod
    def meanAbsoluteError(cls, *, reductionType: MLCReductionType, weights: MLCTensor | None) -> Self: """|prediction - label|."""
    @overload
    @classmethod
    def meanSquaredError(cls, *, reductionType: MLCReductionType, weight: _Float) -> Self: """(prediction - label)²."""
    @overload
    @classmethod
    def meanSquaredError(cls, *, reductionType: MLCReductionType, weights: MLCTensor | None) -> Self: """(prediction - label)²."""
    @overload
    @classmethod
    def cosineDistance(cls, *, reductionType: MLCReductionType, weight: _Float) -> Self: """1 minus the scalar product of predictions and labels."""
    @overload
    @classmethod
    def cosineDistance(cls, *, reductionType: MLCReductionType, weights: MLCTensor | None) -> Self: """1 minus the scalar product of predictions and labels."""
    @overload
    @classmethod
    def sigmoidCrossEntropy(cls, *, reductionType: MLCReductionType, labelSmoothing: _Float, weight: _Float) -> Self: """The cross-entropy of the predictions' sigmoids; labels lie between 0 and 1."""
    @overload
    @classmethod
    def sigmoidCrossEntropy(cls, *, reductionType: MLCReductionType, labelSmoothing: _Float, weights: MLCTensor | None) -> Self: """The cross-entropy of the predictions' sigmoids; labels lie between 0 and 1."""
    @overload
    @classmethod
    def softmaxCrossEntropy(cls, *, reductionType: MLCReductionType, labelSmoothing: _Float, classCount: _Int, weight: _Float) -> Self: """The cross-entropy of the predictions' softmax; labels are one-hot or probabilities."""
    @overload
    @classmethod
    def softmaxCrossEntropy(cls, *, reductionType: MLCReductionType, labelSmoothing: _Float, classCount: _Int, weights: MLCTensor | None) -> Self: """The cross-entropy of the predictions' softmax; labels are one-hot or probabilities."""
    @overload
    @classmethod
    def categoricalCrossEntropy(cls, *, reductionType: MLCReductionType, labelSmoothing: _Float, classCount: _Int, weight: _Float) -> Self: """The cross-entropy of predictions that are probabilities already."""
    @overload
    @classmethod
    def categoricalCrossEntropy(cls, *, reductionType: MLCReductionType, labelSmoothing: _Float, classCount: _Int, weights: MLCTensor | None) -> Self: """The cross-entropy of predictions that are probabilities already."""
    @classmethod
    def layerWithDescriptor_(cls, lossDescriptor: MLCLossDescriptor, /) -> Self: """By descriptor; with weights, each element or sample counts by its own."""
    @classmethod
    def layerWithDescriptor_weights_(cls, lossDescriptor: MLCLossDescriptor, weights: MLCTensor, /) -> Self: """By descriptor; with weights, each element or sample counts by its own."""
    @classmethod
    def hingeLossWithReductionType_weight_(cls, reductionType: MLCReductionType | int, weight: _Float, /) -> Self: """max(0, 1 - (2·label - 1)·prediction), for labels 0 and 1."""
    @classmethod
    def hingeLossWithReductionType_weights_(cls, reductionType: MLCReductionType | int, weights: MLCTensor | None, /) -> Self: """max(0, 1 - (2·label - 1)·prediction), for labels 0 and 1."""
    @classmethod
    def huberLossWithReductionType_delta_weight_(cls, reductionType: MLCReductionType | int, delta: _Float, weight: _Float, /) -> Self: """Quadratic for errors up to ``delta``, linear beyond."""
    @classmethod
    def huberLossWithReductionType_delta_weights_(cls, reductionType: MLCReductionType | int, delta: _Float, weights: MLCTensor | None, /) -> Self: """Quadratic for errors up to ``delta``, linear beyond."""
    @classmethod
    def logLossWithReductionType_epsilon_weight_(cls, reductionType: MLCReductionType | int, epsilon: _Float, weight: _Float, /) -> Self: """The log loss of probabilities; ``epsilon`` is added inside the logarithm."""
    @classmethod
    def logLossWithReductionType_epsilon_weights_(cls, reductionType: MLCReductionType | int, epsilon: _Float, weights: MLCTensor | None, /) -> Self: """The log loss of probabilities; ``epsilon`` is added inside the logarithm."""
    @classmethod
    def meanAbsoluteErrorLossWithReductionType_weight_(cls, reductionType: MLCReductionType | int, weight: _Float, /) -> Self: """|prediction - label|."""
    @classmethod
    def meanAbsoluteErrorLossWithReductionType_weights_(cls, reductionType: MLCReductionType | int, weights: MLCTensor | None, /) -> Self: """|prediction - label|."""
    @classmethod
    def meanSquaredErrorLossWithReductionType_weight_(cls, reductionType: MLCReductionType | int, weight: _Float, /) -> Self: """(prediction - label)²."""
    @classmethod
    def meanSquaredErrorLossWithReductionType_weights_(cls, reductionType: MLCReductionType | int, weights: MLCTensor | None, /) -> Self: """(prediction - label)²."""
    @classmethod
    def cosineDistanceLossWithReductionType_weight_(cls, reductionType: MLCReductionType | int, weight: _Float, /) -> Self: """1 minus the scalar product of predictions and labels."""
    @classmethod
    def cosineDistanceLossWithReductionType_weights_(cls, reductionType: MLCReductionType | int, weights: MLCTensor | None, /) -> Self: """1 minus the scalar product of predictions and labels."""
    @classmethod
    def sigmoidCrossEntropyLossWithReductionType_labelSmoothing_weight_(cls, reductionType: MLCReductionType | int, labelSmoothing: _Float, weight: _Float, /) -> Self: """The cross-entropy of the predictions' sigmoids; labels lie between 0 and 1."""
    @classmethod
    def sigmoidCrossEntropyLossWithReductionType_labelSmoothing_weights_(cls, reductionType: MLCReductionType | int, labelSmoothing: _Float, weights: MLCTensor | None, /) -> Self: """The cross-entropy of the predictions' sigmoids; labels lie between 0 and 1."""
    @classmethod
    def softmaxCrossEntropyLossWithReductionType_labelSmoothing_classCount_weight_(cls, reductionType: MLCReductionType | int, labelSmoothing: _Float, classCount: _Int, weight: _Float, /) -> Self: """The cross-entropy of the predictions' softmax; labels are one-hot or probabilities."""
    @classmethod
    def softmaxCrossEntropyLossWithReductionType_labelSmoothing_classCount_weights_(cls, reductionType: MLCReductionType | int, labelSmoothing: _Float, classCount: _Int, weights: MLCTensor | None, /) -> Self: """The cross-entropy of the predictions' softmax; labels are one-hot or probabilities."""
    @classmethod
    def categoricalCrossEntropyLossWithReductionType_labelSmoothing_classCount_weight_(cls, reductionType: MLCReductionType | int, labelSmoothing: _Float, classCount: _Int, weight: _Float, /) -> Self: """The cross-entropy of predictions that are probabilities already."""
    @classmethod
    def categoricalCrossEntropyLossWithReductionType_labelSmoothing_classCount_weights_(cls, reductionType: MLCReductionType | int, labelSmoothing: _Float, classCount: _Int, weights: MLCTensor | None, /) -> Self: """The cross-entropy of predictions that are probabilities already."""

class MLCLossType(_enum.IntEnum, metaclass=_EnumType):
    """How far predictions are from labels."""
    meanAbsoluteError = 0
    meanSquaredError = 1
    softmaxCrossEntropy = 2
    sigmoidCrossEntropy = 3
    categoricalCrossEntropy = 4
    hinge = 5
    huber = 6
    cosineDistance = 7
    log = 8
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCLossTypeDebugDescription(value: MLCLossType | int, /) -> str | None: """The framework's own words for a case of MLCLossType; ``None`` for an unknown value."""

class MLCMatMulDescriptor(_Object):
    """A matrix product alpha · X · Y, and which of the factors is transposed first."""
    @overload
    def __new__(cls) -> Self: """alpha is 1 and nothing is transposed unless given."""
    @overload
    def __new__(cls, *, alpha: _Float, transposesX: bool, transposesY: bool) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self) -> None: """alpha is 1 and nothing is transposed unless given."""
        @overload
        def __init__(self, *, alpha: _Float, transposesX: bool, transposesY: bool) -> None: """alpha is 1 and nothing is transposed unless given."""
    @property
    def alpha(self) -> float: """A number that the product is multiplied by."""
    @property
    def transposesX(self) -> bool: """Whether the last two dimensions of X are swapped before the product."""
    @property
    def transposesY(self) -> bool: """Whether the last two dimensions of Y are swapped before the product."""
    @classmethod
    def descriptor(cls) -> Self: """alpha is 1 and nothing is transposed unless given."""
    @classmethod
    def descriptorWithAlpha_transposesX_transposesY_(cls, alpha: _Float, transposesX: bool, transposesY: bool, /) -> Self | None: """alpha is 1 and nothing is transposed unless given."""

class MLCMatMulLayer(MLCLayer):
    """The product of two matrices, or of two stacks of matrices."""
    def __new__(cls, *, descriptor: MLCMatMulDescriptor) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, descriptor: MLCMatMulDescriptor) -> None: """By descriptor."""
    @property
    def descriptor(self) -> MLCMatMulDescriptor: """The scale, and which factors are transposed."""
    @classmethod
    def layerWithDescriptor_(cls, descriptor: MLCMatMulDescriptor, /) -> Self | None: """By descriptor."""

class MLCMultiheadAttentionDescriptor(_Object):
    """The sizes and switches of an attention layer with ``headCount`` heads."""
    @overload
    def __new__(cls, *, modelDimension: _Int, headCount: _Int) -> Self: """Keys and values are as wide as the model unless their dimensions are given."""
    @overload
    def __new__(cls, *, modelDimension: _Int, keyDimension: _Int, valueDimension: _Int, headCount: _Int, dropout: _Float, hasBiases: bool, hasAttentionBiases: bool, addsZeroAttention: bool) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, modelDimension: _Int, headCount: _Int) -> None: """Keys and values are as wide as the model unless their dimensions are given."""
        @overload
        def __init__(self, *, modelDimension: _Int, keyDimension: _Int, valueDimension: _Int, headCount: _Int, dropout: _Float, hasBiases: bool, hasAttentionBiases: bool, addsZeroAttention: bool) -> None: """Keys and values are as wide as the model unless their dimensions are given."""
    @property
    def modelDimension(self) -> int: """The width of the queries and of the result."""
    @property
    def keyDimension(self) -> int: """The width of the keys."""
    @property
    def valueDimension(self) -> int: """The width of the values."""
    @property
    def headCount(self) -> int: """How many heads share the model's width."""
    @property
    def dropout(self) -> float: """The probability with which an attention weight is dropped in training."""
    @property
    def hasBiases(self) -> bool: """Whether the projections add biases."""
    @property
    def hasAttentionBiases(self) -> bool: """Whether a trained key and value are appended to the sequence."""
    @property
    def addsZeroAttention(self) -> bool: """Whether a key and a value of zeros are appended to the sequence."""
    @classmethod
    def descriptorWithModelDimension_headCount_(cls, modelDimension: _Int, headCount: _Int, /) -> Self: """Keys and values are as wide as the model unless their dimensions are given."""
    @classmethod
    def descriptorWithModelDimension_keyDimension_valueDimension_headCount_dropout_hasBiases_hasAttentionBiases_addsZeroAttention_(cls, modelDimension: _Int, keyDimension: _Int, valueDimension: _Int, headCount: _Int, dropout: _Float, hasBiases: bool, hasAttentionBiases: bool, addsZeroAttention: bool, /) -> Self | None: """Keys and values are as wide as the model unless their dimensions are given."""

class MLCMultiheadAttentionLayer(MLCLayer):
    """Multi-head attention of queries to keys and values, each projected with weights of its own."""
    def __new__(cls, *, descriptor: MLCMultiheadAttentionDescriptor, weights: Sequence[MLCTensor], biases: Sequence[MLCTensor] | None, attentionBiases: Sequence[MLCTensor] | None) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, descriptor: MLCMultiheadAttentionDescriptor, weights: Sequence[MLCTensor], biases: Sequence[MLCTensor] | None, attentionBiases: Sequence[MLCTensor] | None) -> None: """Weights are four tensors: for queries, keys, values and the output; biases likewise."""
    @property
    def descriptor(self) -> MLCMultiheadAttentionDescriptor: """Sizes and switches."""
    @property
    def weights(self) -> list[MLCTensor]: """The projections of queries, keys, values and the output."""
    @property
    def biases(self) -> list[MLCTensor] | None: """Their biases, or ``None``."""
    @property
    def attentionBiases(self) -> list[MLCTensor] | None: """The key and the value appended to the sequence, or ``None``."""
    @property
    def weightsParameters(self) -> list[MLCTensorParameter]: """The projections as parameters."""
    @property
    def biasesParameters(self) -> list[MLCTensorParameter] | None: """The biases as parameters."""
    @classmethod
    def layerWithDescriptor_weights_biases_attentionBiases_(cls, descriptor: MLCMultiheadAttentionDescriptor, weights: Sequence[MLCTensor], biases: Sequence[MLCTensor] | None, attentionBiases: Sequence[MLCTensor] | None, /) -> Self | None: """Weights are four tensors: for queries, keys, values and the output; biases likewise."""

class MLCOptimizer(_Object):
    """The base class of the optimizers. The learning rate and the clipping switch may change between updates."""
    learningRate: float
    """The size of a step."""
    @property
    def gradientRescale(self) -> float: """A number that gradients are multiplied by, after clipping."""
    appliesGradientClipping: bool
    """Whether gradients are clipped."""
    @property
    def gradientClippingType(self) -> MLCGradientClippingType: """By value, by the norm of each gradient, or by the norm of all of them."""
    @property
    def gradientClipMax(self) -> float: """The largest value a gradient keeps when clipped by value."""
    @property
    def gradientClipMin(self) -> float: """The smallest value a gradient keeps when clipped by value."""
    @property
    def maximumClippingNorm(self) -> float: """The norm that gradients are scaled down to when clipped by a norm."""
    @property
    def customGlobalNorm(self) -> float: """A norm to use instead of the one of all gradients; 0 to compute it."""
    @property
    def regularizationType(self) -> MLCRegularizationType: """L1, L2 or none."""
    @property
    def regularizationScale(self) -> float: """How strong the regularization is."""

class MLCOptimizerDescriptor(_Object):
    """The settings that all optimizers share: learning rate, clipping, regularization."""
    @overload
    def __new__(cls, *, learningRate: _Float, gradientRescale: _Float, regularizationType: MLCRegularizationType, regularizationScale: _Float) -> Self: """Gradients are not clipped unless that is asked for."""
    @overload
    def __new__(cls, *, learningRate: _Float, gradientRescale: _Float, appliesGradientClipping: bool, gradientClipMax: _Float, gradientClipMin: _Float, regularizationType: MLCRegularizationType, regularizationScale: _Float) -> Self: """Gradients are not clipped unless that is asked for."""
    @overload
    def __new__(cls, *, learningRate: _Float, gradientRescale: _Float, appliesGradientClipping: bool, gradientClippingType: MLCGradientClippingType, gradientClipMax: _Float, gradientClipMin: _Float, maximumClippingNorm: _Float, customGlobalNorm: _Float, regularizationType: MLCRegularizationType, regularizationScale: _Float) -> Self: """Gradients are not clipped unless that is asked for."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, learningRate: _Float, gradientRescale: _Float, regularizationType: MLCRegularizationType, regularizationScale: _Float) -> None: """Gradients are not clipped unless that is asked for."""
        @overload
        def __init__(self, *, learningRate: _Float, gradientRescale: _Float, appliesGradientClipping: bool, gradientClipMax: _Float, gradientClipMin: _Float, regularizationType: MLCRegularizationType, regularizationScale: _Float) -> None: """Gradients are not clipped unless that is asked for."""
        @overload
        def __init__(self, *, learningRate: _Float, gradientRescale: _Float, appliesGradientClipping: bool, gradientClippingType: MLCGradientClippingType, gradientClipMax: _Float, gradientClipMin: _Float, maximumClippingNorm: _Float, customGlobalNorm: _Float, regularizationType: MLCRegularizationType, regularizationScale: _Float) -> None: """Gradients are not clipped unless that is asked for."""
    @property
    def learningRate(self) -> float: """The size of a step."""
    @property
    def gradientRescale(self) -> float: """A number that gradients are multiplied by, after clipping."""
    @property
    def appliesGradientClipping(self) -> bool: """Whether gradients are clipped."""
    @property
    def gradientClippingType(self) -> MLCGradientClippingType: """By value, by the norm of each gradient, or by the norm of all of them."""
    @property
    def gradientClipMax(self) -> float: """The largest value a gradient keeps when clipped by value."""
    @property
    def gradientClipMin(self) -> float: """The smallest value a gradient keeps when clipped by value."""
    @property
    def maximumClippingNorm(self) -> float: """The norm that gradients are scaled down to when clipped by a norm."""
    @property
    def customGlobalNorm(self) -> float: """A norm to use instead of the one of all gradients; 0 to compute it."""
    @property
    def regularizationType(self) -> MLCRegularizationType: """L1, L2 or none."""
    @property
    def regularizationScale(self) -> float: """How strong the regularization is."""
    @classmethod
    def descriptorWithLearningRate_gradientRescale_regularizationType_regularizationScale_(cls, learningRate: _Float, gradientRescale: _Float, regularizationType: MLCRegularizationType | int, regularizationScale: _Float, /) -> Self: """Gradients are not clipped unless that is asked for."""
    @classmethod
    def descriptorWithLearningRate_gradientRescale_appliesGradientClipping_gradientClipMax_gradientClipMin_regularizationType_regularizationScale_(cls, learningRate: _Float, gradientRescale: _Float, appliesGradientClipping: bool, gradientClipMax: _Float, gradientClipMin: _Float, regularizationType: MLCRegularizationType | int, regularizationScale: _Float, /) -> Self: """Gradients are not clipped unless that is asked for."""
    @classmethod
    def descriptorWithLearningRate_gradientRescale_appliesGradientClipping_gradientClippingType_gradientClipMax_gradientClipMin_maximumClippingNorm_customGlobalNorm_regularizationType_regularizationScale_(cls, learningRate: _Float, gradientRescale: _Float, appliesGradientClipping: bool, gradientClippingType: MLCGradientClippingType | int, gradientClipMax: _Float, gradientClipMin: _Float, maximumClippingNorm: _Float, customGlobalNorm: _Float, regularizationType: MLCRegularizationType | int, regularizationScale: _Float, /) -> Self: """Gradients are not clipped unless that is asked for."""

class MLCPaddingLayer(MLCLayer):
    """Adds a border around images: zeros, a constant, or a reflection of the image."""
    @overload
    def __new__(cls, *, zeroPadding: Sequence[_Int]) -> Self: """A border of zeros."""
    @overload
    def __new__(cls, *, reflectionPadding: Sequence[_Int]) -> Self: """The image mirrored at its edge, without the edge itself."""
    @overload
    def __new__(cls, *, symmetricPadding: Sequence[_Int]) -> Self: """The image mirrored at its edge, the edge included."""
    @overload
    def __new__(cls, *, constantPadding: Sequence[_Int], constantValue: _Float) -> Self: """A border of one number."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, zeroPadding: Sequence[_Int]) -> None: """A border of zeros."""
        @overload
        def __init__(self, *, reflectionPadding: Sequence[_Int]) -> None: """The image mirrored at its edge, without the edge itself."""
        @overload
        def __init__(self, *, symmetricPadding: Sequence[_Int]) -> None: """The image mirrored at its edge, the edge included."""
        @overload
        def __init__(self, *, constantPadding: Sequence[_Int], constantValue: _Float) -> None: """A border of one number."""
    @property
    def paddingType(self) -> MLCPaddingType: """What the border is filled with."""
    @property
    def paddingLeft(self) -> int: """Columns added at the left."""
    @property
    def paddingRight(self) -> int: """Columns added at the right."""
    @property
    def paddingTop(self) -> int: """Rows added at the top."""
    @property
    def paddingBottom(self) -> int: """Rows added at the bottom."""
    @property
    def constantValue(self) -> float: """The number that a constant border holds."""
    @classmethod
    def layerWithZeroPadding_(cls, padding: Sequence[_Int], /) -> Self: """A border of zeros."""
    @classmethod
    def layerWithReflectionPadding_(cls, padding: Sequence[_Int], /) -> Self: """The image mirrored at its edge, without the edge itself."""
    @classmethod
    def layerWithSymmetricPadding_(cls, padding: Sequence[_Int], /) -> Self: """The image mirrored at its edge, the edge included."""
    @classmethod
    def layerWithConstantPadding_constantValue_(cls, padding: Sequence[_Int], constantValue: _Float, /) -> Self: """A border of one number."""

def MLCPaddingPolicyDebugDescription(value: MLCPaddingPolicy | int, /) -> str | None: """The framework's own words for a case of MLCPaddingPolicy; ``None`` for an unknown value."""

class MLCPaddingType(_enum.IntEnum, metaclass=_EnumType):
    """What the border of a padded image is filled with."""
    zero = 0
    reflect = 1
    symmetric = 2
    constant = 3
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCPaddingTypeDebugDescription(value: MLCPaddingType | int, /) -> str | None: """The framework's own words for a case of MLCPaddingType; ``None`` for an unknown value."""

class MLCPlatform(_Object):
    """The random seed of the library, which random initializers and dropout follow."""
    @classmethod
    def setRNGSeedTo(cls, seed: _Float, /) -> None: """Set the seed. PyTorch's own random generators are not touched."""
    @classmethod
    def getRNGseed(cls) -> int | None: """The seed that was set, or ``None``."""
    @classmethod
    def setRNGSeedTo_(cls, seed: _Float, /) -> None: """Set the seed. PyTorch's own random generators are not touched."""

class MLCPoolingDescriptor(_Object):
    """The window of a pooling layer, and what is taken from it: maximum, average or L2 norm."""
    def __new__(cls, *, type: MLCPoolingType, kernelSizes: Sequence[_Int], strides: Sequence[_Int] = ..., dilationRates: Sequence[_Int] = ..., paddingPolicy: MLCPaddingPolicy = ...) -> Self: """Strides and dilation are 1 and the padding is ``same`` unless given."""
    if not TYPE_CHECKING:
        def __init__(self, *, type: MLCPoolingType, kernelSizes: Sequence[_Int], strides: Sequence[_Int] = ..., dilationRates: Sequence[_Int] = ..., paddingPolicy: MLCPaddingPolicy = ...) -> None: """Strides and dilation are 1 and the padding is ``same`` unless given."""
    @property
    def kernelSizes(self) -> _HeightWidth: """Height and width of the window."""
    @property
    def strides(self) -> _YX: """How far the window moves at a time, down and across."""
    @property
    def dilationRates(self) -> _YX: """The distance between neighbouring elements of the window, down and across."""
    @property
    def paddingPolicy(self) -> MLCPaddingPolicy: """``same``, ``valid``, or sizes of your own."""
    @property
    def kernelHeight(self) -> int: """Height of the window."""
    @property
    def kernelWidth(self) -> int: """Width of the window."""
    @property
    def strideInY(self) -> int: """How far the window moves down at a time."""
    @property
    def strideInX(self) -> int: """How far the window moves across at a time."""
    @property
    def dilationRateInY(self) -> int: """The vertical distance between elements of the window."""
    @property
    def dilationRateInX(self) -> int: """The horizontal distance between elements of the window."""
    @property
    def paddingSizeInY(self) -> int: """Rows added above and below; 0 unless the policy is ``sized``."""
    @property
    def paddingSizeInX(self) -> int: """Columns added left and right; 0 unless the policy is ``sized``."""
    @property
    def poolingType(self) -> MLCPoolingType: """Maximum, average or L2 norm."""
    @property
    def countIncludesPadding(self) -> bool: """Whether padding counts in an average."""
    @classmethod
    def poolingDescriptorWithType_kernelSize_stride_(cls, type: MLCPoolingType | int, kernelSize: _Int, stride: _Int, /) -> Self: """A square window without padding sizes."""
    @classmethod
    def maxPoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, strides: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def maxPoolingDescriptorWithKernelSizes_strides_dilationRates_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def l2NormPoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, strides: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def l2NormPoolingDescriptorWithKernelSizes_strides_dilationRates_paddingPolicy_paddingSizes_(cls, kernelSizes: Sequence[_Int] | None, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def averagePoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_countIncludesPadding_(cls, kernelSizes: Sequence[_Int] | None, strides: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, countIncludesPadding: bool, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
    @classmethod
    def averagePoolingDescriptorWithKernelSizes_strides_dilationRates_paddingPolicy_paddingSizes_countIncludesPadding_(cls, kernelSizes: Sequence[_Int] | None, strides: Sequence[_Int] | None, dilationRates: Sequence[_Int] | None, paddingPolicy: MLCPaddingPolicy | int, paddingSizes: Sequence[_Int] | None, countIncludesPadding: bool, /) -> Self: """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""

class MLCPoolingLayer(MLCLayer):
    """Reduces each window of an image to its maximum, average or L2 norm, channel by channel."""
    def __new__(cls, *, descriptor: MLCPoolingDescriptor) -> Self: """By descriptor."""
    if not TYPE_CHECKING:
        def __init__(self, *, descriptor: MLCPoolingDescriptor) -> None: """By descriptor."""
    @property
    def descriptor(self) -> MLCPoolingDescriptor: """The window, and what is taken from it."""
    @classmethod
    def layerWithDescriptor_(cls, descriptor: MLCPoolingDescriptor, /) -> Self: """By descriptor."""

def MLCPoolingTypeDebugDescription(value: MLCPoolingType | int, /) -> str | None: """The framework's own words for a case of MLCPoolingType; ``None`` for an unknown value."""

class MLCRMSPropOptimizer(MLCOptimizer):
    """The RMSProp optimizer, with momentum and centering if wanted."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor) -> Self: """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor, momentumScale: _Float, alpha: _Float, epsilon: _Float, isCentered: bool) -> Self: """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor) -> None: """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor, momentumScale: _Float, alpha: _Float, epsilon: _Float, isCentered: bool) -> None: """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""
    @property
    def momentumScale(self) -> float: """How much of the last step joins the next."""
    @property
    def alpha(self) -> float: """How much of the old mean of the squared gradients an update keeps."""
    @property
    def epsilon(self) -> float: """What is added to the root before dividing by it."""
    @property
    def isCentered(self) -> bool: """Whether the mean of the gradients is subtracted from the mean of their squares."""
    @classmethod
    def optimizerWithDescriptor_(cls, optimizerDescriptor: MLCOptimizerDescriptor, /) -> Self: """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""
    @classmethod
    def optimizerWithDescriptor_momentumScale_alpha_epsilon_isCentered_(cls, optimizerDescriptor: MLCOptimizerDescriptor, momentumScale: _Float, alpha: _Float, epsilon: _Float, isCentered: bool, /) -> Self: """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""

class MLCRandomInitializerType(_enum.IntEnum, metaclass=_EnumType):
    """How the values of a new tensor are drawn."""
    uniform = 1
    glorotUniform = 2
    xavier = 3
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""

class MLCReductionLayer(MLCLayer):
    """A sum, mean, extreme, position, norm, "any" or "all" over some dimensions, each of which stays with size 1."""
    @overload
    def __new__(cls, *, reductionType: MLCReductionType, dimension: _Int) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, reductionType: MLCReductionType, dimensions: Sequence[_Int]) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, reductionType: MLCReductionType, dimension: _Int) -> None: """Over one dimension."""
        @overload
        def __init__(self, *, reductionType: MLCReductionType, dimensions: Sequence[_Int]) -> None: """Over several dimensions."""
    @property
    def reductionType(self) -> MLCReductionType: """What is computed over the dimensions."""
    @property
    def dimensions(self) -> list[int]: """The dimensions that are reduced."""
    @property
    def dimension(self) -> int: """The first of ``dimensions``."""
    @classmethod
    def layerWithReductionType_dimension_(cls, reductionType: MLCReductionType | int, dimension: _Int, /) -> Self | None: """Over one dimension."""
    @classmethod
    def layerWithReductionType_dimensions_(cls, reductionType: MLCReductionType | int, dimensions: Sequence[_Int], /) -> Self | None: """Over several dimensions."""

class MLCReductionType(_enum.IntEnum, metaclass=_EnumType):
    """What is computed over dimensions, or over the values of a loss."""
    none = 0
    sum = 1
    mean = 2
    max = 3
    min = 4
    argMax = 5
    argMin = 6
    l1Norm = 7
    any = 8
    all = 9
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCReductionTypeDebugDescription(value: MLCReductionType | int, /) -> str | None: """The framework's own words for a case of MLCReductionType; ``None`` for an unknown value."""

class MLCRegularizationType(_enum.IntEnum, metaclass=_EnumType):
    """What is added to keep weights small."""
    none = 0
    l1 = 1
    l2 = 2
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""

class MLCReshapeLayer(MLCLayer):
    """Gives the same elements another shape. One dimension may be -1: it takes what the others leave."""
    def __new__(cls, *, shape: Sequence[_Int]) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, shape: Sequence[_Int]) -> None: """By the new shape."""
    @property
    def shape(self) -> list[int]: """The new shape."""
    @classmethod
    def layerWithShape_(cls, shape: Sequence[_Int], /) -> Self | None: """By the new shape."""

class MLCSGDOptimizer(MLCOptimizer):
    """Stochastic gradient descent, with momentum or Nesterov momentum if wanted."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor) -> Self: """Without momentum unless given."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor, momentumScale: _Float, usesNesterovMomentum: bool) -> Self: """Without momentum unless given."""
    @overload
    def __new__(cls, *, descriptor: MLCOptimizerDescriptor, momentumScale: _Float, usesNestrovMomentum: bool) -> Self: """Without momentum unless given."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor) -> None: """Without momentum unless given."""
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor, momentumScale: _Float, usesNesterovMomentum: bool) -> None: """Without momentum unless given."""
        @overload
        def __init__(self, *, descriptor: MLCOptimizerDescriptor, momentumScale: _Float, usesNestrovMomentum: bool) -> None: """Without momentum unless given."""
    @property
    def momentumScale(self) -> float: """How much of the last step joins the next."""
    @property
    def usesNesterovMomentum(self) -> bool: """Whether the momentum is Nesterov's."""
    @classmethod
    def optimizerWithDescriptor_(cls, optimizerDescriptor: MLCOptimizerDescriptor, /) -> Self: """Without momentum unless given."""
    @classmethod
    def optimizerWithDescriptor_momentumScale_usesNesterovMomentum_(cls, optimizerDescriptor: MLCOptimizerDescriptor, momentumScale: _Float, usesNesterovMomentum: bool, /) -> Self: """Without momentum unless given."""
    @classmethod
    def optimizerWithDescriptor_momentumScale_usesNestrovMomentum_(cls, optimizerDescriptor: MLCOptimizerDescriptor, momentumScale: _Float, usesNesterovMomentum: bool, /) -> Self: """Without momentum unless given."""

class MLCSampleMode(_enum.IntEnum, metaclass=_EnumType):
    """How an image is enlarged."""
    nearest = 0
    linear = 1
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCSampleModeDebugDescription(value: MLCSampleMode | int, /) -> str | None: """The framework's own words for a case of MLCSampleMode; ``None`` for an unknown value."""

class MLCScatterLayer(MLCLayer):
    """Writes or adds elements of a source into a copy of a tensor, by index."""
    def __new__(cls, *, dimension: _Int, reductionType: MLCReductionType) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, dimension: _Int, reductionType: MLCReductionType) -> None: """By the dimension that the indices run along, and ``none`` to write or ``sum`` to add."""
    @property
    def dimension(self) -> int: """The dimension that the indices run along."""
    @property
    def reductionType(self) -> MLCReductionType: """``none`` to write, ``sum`` to add."""
    @classmethod
    def layerWithDimension_reductionType_(cls, dimension: _Int, reductionType: MLCReductionType | int, /) -> Self | None: """By the dimension that the indices run along, and ``none`` to write or ``sum`` to add."""

class MLCSelectionLayer(MLCLayer):
    """Picks each element from x where a condition is true, and from y elsewhere."""
    def __new__(cls) -> Self: """It has no settings."""
    if not TYPE_CHECKING:
        def __init__(self) -> None: """It has no settings."""
    @classmethod
    def layer(cls) -> Self: """It has no settings."""

class MLCSliceLayer(MLCLayer):
    """Cuts a part out of a tensor; the number of dimensions stays."""
    def __new__(cls, *, start: Sequence[_Int], end: Sequence[_Int], stride: Sequence[_Int] | None) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, start: Sequence[_Int], end: Sequence[_Int], stride: Sequence[_Int] | None) -> None: """From ``start`` up to, not including, ``end``, every ``stride``-th element, for each dimension."""
    @property
    def start(self) -> list[int]: """The first index of each dimension."""
    @property
    def end(self) -> list[int]: """The index after the last, for each dimension."""
    @property
    def stride(self) -> list[int] | None: """The distance between elements that are taken, for each dimension; ``None`` for 1."""
    @classmethod
    def sliceLayerWithStart_end_stride_(cls, start: Sequence[_Int], end: Sequence[_Int], stride: Sequence[_Int] | None, /) -> Self | None: """From ``start`` up to, not including, ``end``, every ``stride``-th element, for each dimension."""

class MLCSoftmaxLayer(MLCLayer):
    """e^x / Σ e^x along a dimension, or the logarithm of that; the result has the source's shape and type."""
    @overload
    def __new__(cls, *, operation: MLCSoftmaxOperation) -> Self: """Along dimension 1, the channels, unless told otherwise."""
    @overload
    def __new__(cls, *, operation: MLCSoftmaxOperation, dimension: _Int) -> Self: """Along dimension 1, the channels, unless told otherwise."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, operation: MLCSoftmaxOperation) -> None: """Along dimension 1, the channels, unless told otherwise."""
        @overload
        def __init__(self, *, operation: MLCSoftmaxOperation, dimension: _Int) -> None: """Along dimension 1, the channels, unless told otherwise."""
    @property
    def operation(self) -> MLCSoftmaxOperation: """Softmax or its logarithm."""
    @property
    def dimension(self) -> int: """The dimension whose elements add up to 1."""
    @classmethod
    def layerWithOperation_(cls, operation: MLCSoftmaxOperation | int, /) -> Self: """Along dimension 1, the channels, unless told otherwise."""
    @classmethod
    def layerWithOperation_dimension_(cls, operation: MLCSoftmaxOperation | int, dimension: _Int, /) -> Self: """Along dimension 1, the channels, unless told otherwise."""

class MLCSoftmaxOperation(_enum.IntEnum, metaclass=_EnumType):
    """Softmax, or its logarithm."""
    softmax = 0
    logSoftmax = 1
    @overload
    def __new__(cls, value: _Int) -> Self: ...
    @overload
    def __new__(cls, *, rawValue: _Int) -> Self | None: ...  # type: ignore[misc]
    @property
    def rawValue(self) -> int: """The number that stands for this case in the framework."""
    @property
    def debugDescription(self) -> str: """The framework's own words for this case."""

def MLCSoftmaxOperationDebugDescription(value: MLCSoftmaxOperation | int, /) -> str | None: """The framework's own words for a case of MLCSoftmaxOperation; ``None`` for an unknown value."""

class MLCSplitLayer(MLCLayer):
    """Cuts a tensor along one dimension into equal parts, or into parts of given lengths."""
    @overload
    def __new__(cls, *, splitCount: _Int, dimension: _Int) -> Self: """Into ``splitCount`` equal parts."""
    @overload
    def __new__(cls, *, splitSectionLengths: Sequence[_Int], dimension: _Int) -> Self: """Into parts of these lengths."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, splitCount: _Int, dimension: _Int) -> None: """Into ``splitCount`` equal parts."""
        @overload
        def __init__(self, *, splitSectionLengths: Sequence[_Int], dimension: _Int) -> None: """Into parts of these lengths."""
    @property
    def dimension(self) -> int: """The dimension that is cut."""
    @property
    def splitCount(self) -> int: """How many parts there are."""
    @property
    def splitSectionLengths(self) -> list[int] | None: """The length of each part, or ``None`` for equal parts."""
    @classmethod
    def layerWithSplitCount_dimension_(cls, splitCount: _Int, dimension: _Int, /) -> Self: """Into ``splitCount`` equal parts."""
    @classmethod
    def layerWithSplitSectionLengths_dimension_(cls, lengths: Sequence[_Int], dimension: _Int, /) -> Self: """Into parts of these lengths."""

class MLCTensor(_Object):
    """A tensor of a graph: a shape, an element type, a label, and its values once it has some."""
    @overload
    def __new__(cls, *, descriptor: MLCTensorDescriptor) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int]) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, descriptor: MLCTensorDescriptor, data: MLCTensorData | _Buffer) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @overload
    def __new__(cls, *, descriptor: MLCTensorDescriptor, fillWithData: _Float) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @overload
    def __new__(cls, *, descriptor: MLCTensorDescriptor, randomInitializerType: MLCRandomInitializerType) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int], dataType: MLCDataType) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int], randomInitializerType: MLCRandomInitializerType) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int], data: MLCTensorData | _Buffer) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int], fillWithData: _Float) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int], data: MLCTensorData | _Buffer, dataType: MLCDataType) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int], fillWithData: _Float, dataType: MLCDataType) -> Self: """By shape; float32 unless told otherwise."""
    @overload
    def __new__(cls, *, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int) -> Self: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @overload
    def __new__(cls, *, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer | None) -> Self: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
    @overload
    def __new__(cls, *, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType) -> Self: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @overload
    def __new__(cls, *, sequenceLengths: Sequence[_Int], sortedSequences: bool, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer | None = ...) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, sequenceLengths: Sequence[_Int], sortedSequences: bool, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer, dataType: MLCDataType) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, fillWithData: _Float, dataType: MLCDataType) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, descriptor: MLCTensorDescriptor) -> None: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
        @overload
        def __init__(self, *, shape: Sequence[_Int]) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, descriptor: MLCTensorDescriptor, data: MLCTensorData | _Buffer) -> None: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
        @overload
        def __init__(self, *, descriptor: MLCTensorDescriptor, fillWithData: _Float) -> None: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
        @overload
        def __init__(self, *, descriptor: MLCTensorDescriptor, randomInitializerType: MLCRandomInitializerType) -> None: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], dataType: MLCDataType) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], randomInitializerType: MLCRandomInitializerType) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], data: MLCTensorData | _Buffer) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], fillWithData: _Float) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], data: MLCTensorData | _Buffer, dataType: MLCDataType) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], fillWithData: _Float, dataType: MLCDataType) -> None: """By shape; float32 unless told otherwise."""
        @overload
        def __init__(self, *, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int) -> None: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
        @overload
        def __init__(self, *, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer | None) -> None: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
        @overload
        def __init__(self, *, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType) -> None: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
        @overload
        def __init__(self, *, sequenceLengths: Sequence[_Int], sortedSequences: bool, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer | None = ...) -> None: """A batch of sequences of different lengths: [batchSize, longest, featureChannelCount]."""
        @overload
        def __init__(self, *, sequenceLengths: Sequence[_Int], sortedSequences: bool, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType) -> None: """A batch of sequences of different lengths: [batchSize, longest, featureChannelCount]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer, dataType: MLCDataType) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, fillWithData: _Float, dataType: MLCDataType) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @property
    def descriptor(self) -> MLCTensorDescriptor: """Shape and element type."""
    @property
    def tensorID(self) -> int: """A number that no other tensor of this process has."""
    label: str
    """A name for people; nothing depends on it."""
    @property
    def data(self) -> memoryview | None: """The whole buffer, read-only, or ``None`` for a tensor without data."""
    @property
    def device(self) -> MLCDevice | None: """The device that the tensor was last bound to or compiled for, or ``None``."""
    @property
    def optimizerData(self) -> list[MLCTensorData]: """The memory bound for the optimizer's state."""
    @property
    def optimizerDeviceData(self) -> list[MLCTensorOptimizerDeviceData]: """The optimizer's state on the device."""
    @property
    def hasValidNumerics(self) -> bool: """Whether no element is NaN or infinite. True for a tensor without data."""
    def bindAndWriteData(self, data: MLCTensorData | _Buffer, /, *, to: MLCDevice) -> bool: """Copy data to a device, where the tensor stays from then on."""
    def synchronizeData(self) -> bool: """Bring the values back from the device, so that ``data`` shows them."""
    def copyDataFromDeviceMemory(self, *, toBytes: _Buffer, length: _Int, synchronizeWithDevice: bool) -> bool: """Copy the values from the device into a buffer of yours."""
    def bindOptimizerData(self, data: Sequence[MLCTensorData | _Buffer], /, *, deviceData: Sequence[MLCTensorOptimizerDeviceData] | None) -> bool: """Give the optimizer the memory that holds its state for this tensor. Where none is given, it keeps what it has."""
    def synchronizeOptimizerData(self) -> bool: """Bring the optimizer's state back from the device into ``optimizerData``."""
    @overload
    def quantized(self, *, to: MLCDataType, scale: _Float, bias: _Int) -> MLCTensor | None: """A new tensor of round(x / scale) + bias in an integer type."""
    @overload
    def quantized(self, *, to: MLCDataType, scale: MLCTensor, bias: MLCTensor, axis: _Int) -> MLCTensor | None: """The same with a scale and a bias of its own for each index of one dimension."""
    @overload
    def dequantized(self, *, to: MLCDataType, scale: MLCTensor, zeroPoint: MLCTensor) -> MLCTensor | None: """A new tensor of (x - zeroPoint) * scale in a float type."""
    @overload
    def dequantized(self, *, to: MLCDataType, scale: MLCTensor, bias: MLCTensor, axis: _Int) -> MLCTensor | None: """The same with a scale and a bias of its own for each index of one dimension."""
    @classmethod
    def tensorWithDescriptor_(cls, tensorDescriptor: MLCTensorDescriptor, /) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @classmethod
    def tensorWithDescriptor_data_(cls, tensorDescriptor: MLCTensorDescriptor, data: MLCTensorData | _Buffer, /) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @classmethod
    def tensorWithDescriptor_fillWithData_(cls, tensorDescriptor: MLCTensorDescriptor, fillData: _Float, /) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @classmethod
    def tensorWithDescriptor_randomInitializerType_(cls, tensorDescriptor: MLCTensorDescriptor, randomInitializerType: MLCRandomInitializerType | int, /) -> Self: """By descriptor; with data of yours, one number everywhere, random values, or no data yet."""
    @classmethod
    def tensorWithShape_(cls, shape: Sequence[_Int], /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithShape_dataType_(cls, shape: Sequence[_Int], dataType: MLCDataType | int, /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithShape_randomInitializerType_(cls, shape: Sequence[_Int], randomInitializerType: MLCRandomInitializerType | int, /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithShape_data_dataType_(cls, shape: Sequence[_Int], data: MLCTensorData | _Buffer, dataType: MLCDataType | int, /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithShape_fillWithData_dataType_(cls, shape: Sequence[_Int], fillData: _Float, dataType: MLCDataType | int, /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithShape_data_(cls, shape: Sequence[_Int], data: MLCTensorData | _Buffer, /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithShape_fillWithData_(cls, shape: Sequence[_Int], fillData: _Float, /) -> Self: """By shape; float32 unless told otherwise."""
    @classmethod
    def tensorWithWidth_height_featureChannelCount_batchSize_(cls, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, /) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def tensorWithWidth_height_featureChannelCount_batchSize_data_(cls, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer, /) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def tensorWithWidth_height_featureChannelCount_batchSize_randomInitializerType_(cls, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType | int, /) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def tensorWithWidth_height_featureChannelCount_batchSize_data_dataType_(cls, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer, dataType: MLCDataType | int, /) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def tensorWithWidth_height_featureChannelCount_batchSize_fillWithData_dataType_(cls, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, fillData: _Float, dataType: MLCDataType | int, /) -> Self: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def tensorWithSequenceLength_featureChannelCount_batchSize_(cls, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, /) -> Self: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
    @classmethod
    def tensorWithSequenceLength_featureChannelCount_batchSize_data_(cls, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer | None, /) -> Self: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
    @classmethod
    def tensorWithSequenceLength_featureChannelCount_batchSize_randomInitializerType_(cls, sequenceLength: _Int, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType | int, /) -> Self: """A batch of sequences of one length: [batchSize, sequenceLength, featureChannelCount]."""
    @classmethod
    def tensorWithSequenceLengths_sortedSequences_featureChannelCount_batchSize_data_(cls, sequenceLengths: Sequence[_Int], sortedSequences: bool, featureChannelCount: _Int, batchSize: _Int, data: MLCTensorData | _Buffer | None, /) -> Self | None: """A batch of sequences of different lengths: [batchSize, longest, featureChannelCount]."""
    @classmethod
    def tensorWithSequenceLengths_sortedSequences_featureChannelCount_batchSize_randomInitializerType_(cls, sequenceLengths: Sequence[_Int], sortedSequences: bool, featureChannelCount: _Int, batchSize: _Int, randomInitializerType: MLCRandomInitializerType | int, /) -> Self | None: """A batch of sequences of different lengths: [batchSize, longest, featureChannelCount]."""
    @classmethod
    def tensorWithShape_randomInitializerType_dataType_(cls, shape: Sequence[_Int], randomInitializerType: MLCRandomInitializerType | int, dataType: MLCDataType | int, /) -> Self: """By shape; float32 unless told otherwise."""
    def bindAndWriteData_toDevice_(self, data: MLCTensorData | _Buffer, device: MLCDevice, /) -> bool: """Copy data to a device, where the tensor stays from then on."""
    def copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_(self, bytes: _Buffer, length: _Int, synchronizeWithDevice: bool, /) -> bool: """Copy the values from the device into a buffer of yours."""
    def bindOptimizerData_deviceData_(self, data: Sequence[MLCTensorData | _Buffer], deviceData: Sequence[MLCTensorOptimizerDeviceData] | None, /) -> bool: """Give the optimizer the memory that holds its state for this tensor. Where none is given, it keeps what it has."""
    def tensorByQuantizingToType_scale_bias_(self, type: MLCDataType | int, scale: _Float, bias: _Int, /) -> MLCTensor | None: """A new tensor of round(x / scale) + bias in an integer type."""
    def tensorByQuantizingToType_scale_bias_axis_(self, type: MLCDataType | int, scale: MLCTensor, bias: MLCTensor, axis: _Int, /) -> MLCTensor | None: """The same with a scale and a bias of its own for each index of one dimension."""
    def tensorByDequantizingToType_scale_bias_(self, type: MLCDataType | int, scale: MLCTensor, bias: MLCTensor, /) -> MLCTensor | None: """A new tensor of (x - zeroPoint) * scale in a float type."""
    def tensorByDequantizingToType_scale_bias_axis_(self, type: MLCDataType | int, scale: MLCTensor, bias: MLCTensor, axis: _Int, /) -> MLCTensor | None: """The same with a scale and a bias of its own for each index of one dimension."""
    @property
    def shape(self) -> _torch.Size: """The size of each dimension, as torch has it."""
    @property
    def dtype(self) -> _torch.dtype: """The element type, as torch has it; ``descriptor.dataType`` is ML Compute's."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> _torch.Tensor: ...
    def __contains__(self, value: object) -> bool: """Whether any element is ``value``, as NumPy has it."""
    def __float__(self) -> float: ...
    @property
    def torch(self) -> _torch.Tensor: """This tensor's memory as a torch tensor, without a copy, on the device it lives on."""
    def numpy(self) -> _np.ndarray: """This tensor's values as a NumPy array: over the same memory on the CPU, a copy from elsewhere."""
    def __array__(self, dtype: Any = ..., copy: bool | None = ...) -> _np.ndarray: ...
    def __dlpack__(self, **kw: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...
    @classmethod
    def from_numpy(cls, array: _np.ndarray, label: str | None = ...) -> MLCTensor: """An ``MLCTensor`` over the memory of a NumPy array: trained values appear there too."""
    @classmethod
    def from_torch(cls, tensor: _Tensor, label: str | None = ...) -> MLCTensor: """An ``MLCTensor`` over the memory of a torch tensor: trained values appear there too."""

class MLCTensorData(_Object):
    """The memory that a tensor's values are read from or written to, without a copy."""
    @overload
    def __new__(cls, *, bytesNoCopy: _Buffer, length: _Int) -> Self: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
    @overload
    def __new__(cls, *, immutableBytesNoCopy: _Buffer, length: _Int) -> Self: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
    @overload
    def __new__(cls, *, bytesNoCopy: _Buffer, length: _Int, deallocator: Callable[[Any, int], object]) -> Self: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, bytesNoCopy: _Buffer, length: _Int) -> None: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
        @overload
        def __init__(self, *, immutableBytesNoCopy: _Buffer, length: _Int) -> None: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
        @overload
        def __init__(self, *, bytesNoCopy: _Buffer, length: _Int, deallocator: Callable[[Any, int], object]) -> None: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
    @property
    def length(self) -> int: """How many bytes of the buffer are used."""
    @property
    def bytes(self) -> memoryview: """The caller's own memory as a ``memoryview`` of bytes."""
    @classmethod
    def dataWithBytesNoCopy_length_(cls, bytes: _Buffer, length: _Int, /) -> Self: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
    @classmethod
    def dataWithImmutableBytesNoCopy_length_(cls, bytes: _Buffer, length: _Int, /) -> Self: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
    @classmethod
    def dataWithBytesNoCopy_length_deallocator_(cls, bytes: _Buffer, length: _Int, deallocator: Callable[[Any, int], object], /) -> Self: """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""

class MLCTensorDescriptor(_Object):
    """The shape and element type of a tensor. The outermost dimension comes first: [batch, channels, height, width]."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int]) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, shape: Sequence[_Int], dataType: MLCDataType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, convolutionBiasesWithFeatureChannelCount: _Int, dataType: MLCDataType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, convolutionWeightsWithInputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, dataType: MLCDataType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, shape: Sequence[_Int], sequenceLengths: Sequence[_Int], sortedSequences: bool, dataType: MLCDataType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, dataType: MLCDataType) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, convolutionWeightsWithWidth: _Int, height: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, dataType: MLCDataType) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, shape: Sequence[_Int]) -> None: """By shape, with float32 elements unless told otherwise."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], dataType: MLCDataType) -> None: """By shape, with float32 elements unless told otherwise."""
        @overload
        def __init__(self, *, convolutionBiasesWithFeatureChannelCount: _Int, dataType: MLCDataType) -> None: """Biases of a convolution or a fully connected layer: one number per channel."""
        @overload
        def __init__(self, *, convolutionWeightsWithInputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, dataType: MLCDataType) -> None: """Weights of a convolution or, without width and height, of a fully connected layer."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], sequenceLengths: Sequence[_Int], sortedSequences: bool, dataType: MLCDataType) -> None: """A batch of sequences of different lengths, in the shape [batch, longest, features]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
        @overload
        def __init__(self, *, width: _Int, height: _Int, featureChannelCount: _Int, batchSize: _Int, dataType: MLCDataType) -> None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
        @overload
        def __init__(self, *, convolutionWeightsWithWidth: _Int, height: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, dataType: MLCDataType) -> None: """Weights of a convolution or, without width and height, of a fully connected layer."""
    @property
    def dataType(self) -> MLCDataType: """The type of an element."""
    @property
    def sortedSequences(self) -> bool: """Whether the sequence lengths are in descending order."""
    maxTensorDimensions: ClassVar[int]
    """The most dimensions that a tensor can have: 4."""
    @property
    def shape(self) -> list[int]: """The size of each dimension."""
    @property
    def dimensionCount(self) -> int: """How many dimensions there are."""
    @property
    def tensorAllocationSizeInBytes(self) -> int: """How many bytes the elements take."""
    @property
    def stride(self) -> list[int]: """The distance in bytes between neighbours of each dimension."""
    @property
    def sequenceLengths(self) -> list[int] | None: """The length of each sequence, or ``None`` for a tensor without sequences."""
    @property
    def batchSizePerSequenceStep(self) -> list[int] | None: """How many sequences are still running at each step (evidence.md C4)."""
    @classmethod
    def descriptorWithShape_(cls, shape: Sequence[_Int], /) -> Self | None: """By shape, with float32 elements unless told otherwise."""
    @classmethod
    def descriptorWithShape_dataType_(cls, shape: Sequence[_Int], dataType: MLCDataType | int, /) -> Self | None: """By shape, with float32 elements unless told otherwise."""
    @classmethod
    def descriptorWithShape_sequenceLengths_sortedSequences_dataType_(cls, shape: Sequence[_Int], sequenceLengths: Sequence[_Int], sortedSequences: bool, dataType: MLCDataType | int, /) -> Self | None: """A batch of sequences of different lengths, in the shape [batch, longest, features]."""
    @classmethod
    def descriptorWithWidth_height_featureChannelCount_batchSize_(cls, width: _Int, height: _Int, featureChannels: _Int, batchSize: _Int, /) -> Self | None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def descriptorWithWidth_height_featureChannelCount_batchSize_dataType_(cls, width: _Int, height: _Int, featureChannels: _Int, batchSize: _Int, dataType: MLCDataType | int, /) -> Self | None: """A batch of images: [batchSize, featureChannelCount, height, width]."""
    @classmethod
    def convolutionWeightsDescriptorWithWidth_height_inputFeatureChannelCount_outputFeatureChannelCount_dataType_(cls, width: _Int, height: _Int, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, dataType: MLCDataType | int, /) -> Self | None: """Weights of a convolution or, without width and height, of a fully connected layer."""
    @classmethod
    def convolutionWeightsDescriptorWithInputFeatureChannelCount_outputFeatureChannelCount_dataType_(cls, inputFeatureChannelCount: _Int, outputFeatureChannelCount: _Int, dataType: MLCDataType | int, /) -> Self | None: """Weights of a convolution or, without width and height, of a fully connected layer."""
    @classmethod
    def convolutionBiasesDescriptorWithFeatureChannelCount_dataType_(cls, featureChannelCount: _Int, dataType: MLCDataType | int, /) -> Self | None: """Biases of a convolution or a fully connected layer: one number per channel."""

class MLCTensorOptimizerDeviceData(_Object):
    """An optimizer's state for one parameter, kept on the device. It has no members."""

class MLCTensorParameter(_Object):
    """A tensor of a layer that an optimizer may update."""
    @overload
    def __new__(cls, *, tensor: MLCTensor) -> Self: """A parameter over this tensor; optimizer data, where given, is bound to it."""
    @overload
    def __new__(cls, *, tensor: MLCTensor, optimizerData: Sequence[MLCTensorData | _Buffer] | None) -> Self: """A parameter over this tensor; optimizer data, where given, is bound to it."""
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, tensor: MLCTensor) -> None: """A parameter over this tensor; optimizer data, where given, is bound to it."""
        @overload
        def __init__(self, *, tensor: MLCTensor, optimizerData: Sequence[MLCTensorData | _Buffer] | None) -> None: """A parameter over this tensor; optimizer data, where given, is bound to it."""
    @property
    def tensor(self) -> MLCTensor: """The tensor."""
    isUpdatable: bool
    """Whether the optimizer updates it, from the next update on, without a compile; its gradient is computed in any case."""
    @classmethod
    def parameterWithTensor_(cls, tensor: MLCTensor, /) -> Self: """A parameter over this tensor; optimizer data, where given, is bound to it."""
    @classmethod
    def parameterWithTensor_optimizerData_(cls, tensor: MLCTensor, optimizerData: Sequence[MLCTensorData | _Buffer] | None, /) -> Self: """A parameter over this tensor; optimizer data, where given, is bound to it."""

class MLCTrainingGraph(MLCGraph):
    """Trains the parameters of the layers of its graph objects, and its own."""
    def __new__(cls, *, graphObjects: Sequence[MLCGraph], lossLayer: MLCLayer | None, optimizer: MLCOptimizer | None) -> Self: """A training graph over the layers of these graphs; loss layer and optimizer may be ``None``."""
    if not TYPE_CHECKING:
        def __init__(self, *, graphObjects: Sequence[MLCGraph], lossLayer: MLCLayer | None, optimizer: MLCOptimizer | None) -> None: """A training graph over the layers of these graphs; loss layer and optimizer may be ``None``."""
    @property
    def layers(self) -> list[MLCLayer]: """Each layer once, in the order of addition; the loss layer is the last."""
    @property
    def optimizer(self) -> MLCOptimizer | None: """The optimizer, or ``None``."""
    @property
    def deviceMemorySize(self) -> int: """Bytes of results and their gradients; gradients and state of parameters as they come (evidence.md H.7)."""
    def addOutputs(self, outputs: Mapping[str, MLCTensor], /) -> bool: """Name tensors that are to be readable after a run; gradient tensors among them are filled by every gradient phase."""
    @overload
    def compile(self, *, device: MLCDevice, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] = ...) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    @overload
    def compile(self, *, device: MLCDevice, use_inductor: bool, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] = ...) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    @overload
    def compile(self, *, device: MLCDevice, inputTensors: Mapping[str, MLCTensor] | None, inputTensorsData: Mapping[str, MLCTensorData | _Buffer] | None, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] = ...) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    def gradientData(self, *, forParameter: MLCTensor, layer: MLCLayer) -> memoryview | None: """The parameter's gradient as bytes in its own layout, after separate forward and gradient calls."""
    def gradientTensor(self, *, forInput: MLCTensor) -> MLCTensor | None: """The gradient of an input, which needs the compile option ``computeAllGradients``, or of a tensor that ``setTrainingTensorParameters`` named."""
    def sourceGradientTensors(self, for_: MLCLayer) -> list[MLCTensor]: """The gradients of a layer's sources, which ``executeGradient`` fills."""
    def resultGradientTensors(self, for_: MLCLayer) -> list[MLCTensor]: """The gradients of a layer's results, which ``executeGradient`` fills."""
    def allocateUserGradient(self, for_: MLCTensor) -> MLCTensor | None: """A tensor to bind a gradient to that is added to the graph's own gradient of a result."""
    def stopGradient(self, for_: Sequence[MLCTensor]) -> bool: """No gradient flows back through these tensors, from the next compile on."""
    @overload
    def addInputs(self, inputs: Mapping[str, MLCTensor], /, *, lossLabels: Mapping[str, MLCTensor] | None) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    @overload
    def addInputs(self, inputs: Mapping[str, MLCTensor], /, *, lossLabels: Mapping[str, MLCTensor] | None, lossLabelWeights: Mapping[str, MLCTensor] | None) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    def setTrainingTensorParameters(self, parameters: Sequence[MLCTensorParameter], /) -> bool: """Tensors that are trained although they are no layer's parameters, from the next compile on. One that is a declared input or label starts with what is bound to it, and ``execute`` takes no data for it."""
    def bindOptimizerData(self, data: Sequence[MLCTensorData | _Buffer], /, *, deviceData: Sequence[MLCTensorOptimizerDeviceData] | None, with_: MLCTensor) -> bool: """Give the optimizer the memory that holds its state for a tensor."""
    def compileOptimizer(self, optimizer: MLCOptimizer, /) -> bool: """Use ``optimizer`` from now on; one that is new starts without state unless some is bound."""
    def link(self, with_: Sequence[MLCTrainingGraph]) -> bool: """Tensors shared with these graphs carry values forward and gradients backward."""
    def synchronizeUpdates(self) -> None: """Bring trained weights, running statistics and trained tensors back into the caller's memory."""
    @overload
    def execute(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Forward, gradient and, with an optimizer, update; only forward with ``forwardForInference``."""
    @overload
    def execute(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Forward, gradient and, with an optimizer, update; only forward with ``forwardForInference``."""
    async def executeAsync(self, *, inputsData: Mapping[str, MLCTensorData | _Buffer], batchSize: _Int, lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None = ..., lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None = ..., outputsData: Mapping[str, MLCTensorData | _Buffer] | None = ..., options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ...) -> tuple[MLCTensor | None, float]: """As ``execute``; ``await`` gives the loss and the seconds it took, and a refusal is raised."""
    @overload
    def executeForward(self, *, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """The forward pass over the data that ``bindAndWriteData`` bound."""
    @overload
    def executeForward(self, *, batchSize: _Int, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """The forward pass over the data that ``bindAndWriteData`` bound."""
    async def executeForwardAsync(self, *, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., outputsData: Mapping[str, MLCTensorData | _Buffer] | None = ...) -> tuple[MLCTensor | None, float]: """As ``executeForward``; ``await`` gives the result and the seconds it took, and a refusal is raised."""
    @overload
    def executeGradient(self, *, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """The gradients of what ``executeForward`` computed; refused where an inference of this graph came between, or an update of another one over the same weights."""
    @overload
    def executeGradient(self, *, batchSize: _Int, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """The gradients of what ``executeForward`` computed; refused where an inference of this graph came between, or an update of another one over the same weights."""
    async def executeGradientAsync(self, *, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., outputsData: Mapping[str, MLCTensorData | _Buffer] | None = ...) -> float: """As ``executeGradient``; ``await`` gives the seconds it took, and a refusal is raised."""
    def executeOptimizerUpdate(self, *, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ..., completionHandler: MLCGraphCompletionHandler | None = ...) -> bool: """Apply the optimizer to the gradients of the last ``executeGradient``; refused where an inference came between."""
    async def executeOptimizerUpdateAsync(self, *, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] = ...) -> float: """As ``executeOptimizerUpdate``; ``await`` gives the seconds it took, and a refusal is raised."""
    @classmethod
    def trainingGraphWithGraphObjects_lossLayer_optimizer_(cls, graphObjects: Sequence[MLCGraph], lossLayer: MLCLayer | None, optimizer: MLCOptimizer | None, /) -> Self: """A training graph over the layers of these graphs; loss layer and optimizer may be ``None``."""
    def addOutputs_(self, outputs: Mapping[str, MLCTensor], /) -> bool: """Name tensors that are to be readable after a run; gradient tensors among them are filled by every gradient phase."""
    def compileWithOptions_device_(self, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] | int, device: MLCDevice, /) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    def compileWithOptions_device_inputTensors_inputTensorsData_(self, options: MLCGraphCompilationOptions | Sequence[MLCGraphCompilationOptions] | int, device: MLCDevice, inputTensors: Mapping[str, MLCTensor] | None, inputTensorsData: Mapping[str, MLCTensorData | _Buffer] | None, /) -> bool: """``use_inductor`` lets TorchInductor compile the phases: slower to build, faster to run."""
    def gradientDataForParameter_layer_(self, parameter: MLCTensor, layer: MLCLayer, /) -> memoryview | None: """The parameter's gradient as bytes in its own layout, after separate forward and gradient calls."""
    def gradientTensorForInput_(self, input: MLCTensor, /) -> MLCTensor | None: """The gradient of an input, which needs the compile option ``computeAllGradients``, or of a tensor that ``setTrainingTensorParameters`` named."""
    def sourceGradientTensorsForLayer_(self, layer: MLCLayer, /) -> list[MLCTensor]: """The gradients of a layer's sources, which ``executeGradient`` fills."""
    def resultGradientTensorsForLayer_(self, layer: MLCLayer, /) -> list[MLCTensor]: """The gradients of a layer's results, which ``executeGradient`` fills."""
    def allocateUserGradientForTensor_(self, tensor: MLCTensor, /) -> MLCTensor | None: """A tensor to bind a gradient to that is added to the graph's own gradient of a result."""
    def stopGradientForTensors_(self, tensors: Sequence[MLCTensor], /) -> bool: """No gradient flows back through these tensors, from the next compile on."""
    @classmethod
    def graphWithGraphObjects_lossLayer_optimizer_(cls, graphObjects: Sequence[MLCGraph], lossLayer: MLCLayer | None, optimizer: MLCOptimizer | None, /) -> Self: """A training graph over the layers of these graphs; loss layer and optimizer may be ``None``."""
    def addInputs_lossLabels_(self, inputs: Mapping[str, MLCTensor], lossLabels: Mapping[str, MLCTensor] | None, /) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    def addInputs_lossLabels_lossLabelWeights_(self, inputs: Mapping[str, MLCTensor], lossLabels: Mapping[str, MLCTensor] | None, lossLabelWeights: Mapping[str, MLCTensor] | None, /) -> bool: """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
    def setTrainingTensorParameters_(self, parameters: Sequence[MLCTensorParameter], /) -> bool: """Tensors that are trained although they are no layer's parameters, from the next compile on. One that is a declared input or label starts with what is bound to it, and ``execute`` takes no data for it."""
    def bindOptimizerData_deviceData_withTensor_(self, data: Sequence[MLCTensorData | _Buffer], deviceData: Sequence[MLCTensorOptimizerDeviceData] | None, tensor: MLCTensor, /) -> bool: """Give the optimizer the memory that holds its state for a tensor."""
    def compileOptimizer_(self, optimizer: MLCOptimizer, /) -> bool: """Use ``optimizer`` from now on; one that is new starts without state unless some is bound."""
    def linkWithGraphs_(self, graphs: Sequence[MLCTrainingGraph], /) -> bool: """Tensors shared with these graphs carry values forward and gradients backward."""
    def executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Forward, gradient and, with an optimizer, update; only forward with ``forwardForInference``."""
    def executeWithInputsData_lossLabelsData_lossLabelWeightsData_outputsData_batchSize_options_completionHandler_(self, inputsData: Mapping[str, MLCTensorData | _Buffer], lossLabelsData: Mapping[str, MLCTensorData | _Buffer] | None, lossLabelWeightsData: Mapping[str, MLCTensorData | _Buffer] | None, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Forward, gradient and, with an optimizer, update; only forward with ``forwardForInference``."""
    def executeForwardWithBatchSize_options_completionHandler_(self, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """The forward pass over the data that ``bindAndWriteData`` bound."""
    def executeForwardWithBatchSize_options_outputsData_completionHandler_(self, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """The forward pass over the data that ``bindAndWriteData`` bound."""
    def executeGradientWithBatchSize_options_completionHandler_(self, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """The gradients of what ``executeForward`` computed; refused where an inference of this graph came between, or an update of another one over the same weights."""
    def executeGradientWithBatchSize_options_outputsData_completionHandler_(self, batchSize: _Int, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, outputsData: Mapping[str, MLCTensorData | _Buffer] | None, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """The gradients of what ``executeForward`` computed; refused where an inference of this graph came between, or an update of another one over the same weights."""
    def executeOptimizerUpdateWithOptions_completionHandler_(self, options: MLCExecutionOptions | Sequence[MLCExecutionOptions] | int, completionHandler: MLCGraphCompletionHandler | None, /) -> bool: """Apply the optimizer to the gradients of the last ``executeGradient``; refused where an inference came between."""
    def step(self, inputs: _Values, labels: _Values = ..., weights: _Values = ...) -> float: """Train on one batch and give its loss, of several losses their sum; a refusal is raised."""
    def evaluate(self, batches: _Batches) -> float: """The loss over some batches, forward only and in inference mode; nothing is trained."""
    def fit(self, batches: _Batches, *, epochs: int = ..., validation: _Batches | None = ..., callbacks: _Callback | Sequence[_Callback] = ..., patience: int | None = ..., min_delta: float = ..., accumulate: int = ..., progress: bool | None = ..., tensorboard: Any = ...) -> _History: """Train for some epochs over ``batches``, a list, a ``DataLoader`` or any other iterable of (inputs, labels)."""
    def register_gradient_hook(self, tensor: MLCTensor, hook: Callable[[_torch.Tensor], _torch.Tensor | None]) -> Any: """Call ``hook`` with the tensor's gradient in each gradient phase; what it returns, if anything, replaces it."""
    def memory(self) -> _Memory: """What the graph holds on its device: parameters, statistics, optimizer state, gradients, results and so on."""
    def profile(self, work: Callable[[], Any] | None = ...) -> _Profile: """Time by layer: ``with graph.profile() as report:``, or of what ``work`` executes if it is given."""

class MLCTransposeLayer(MLCLayer):
    """Reorders the dimensions; the first, the batch, may move too (evidence.md C27)."""
    def __new__(cls, *, dimensions: Sequence[_Int]) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        def __init__(self, *, dimensions: Sequence[_Int]) -> None: """By the old position of each new dimension."""
    @property
    def dimensions(self) -> list[int]: """The old position of each new dimension."""
    @classmethod
    def layerWithDimensions_(cls, dimensions: Sequence[_Int], /) -> Self | None: """By the old position of each new dimension."""

class MLCUpsampleLayer(MLCLayer):
    """Enlarges images to ``shape``: [height, width], or [width] alone."""
    @overload
    def __new__(cls, *, shape: Sequence[_Int]) -> Self | None: ...  # type: ignore[misc]
    @overload
    def __new__(cls, *, shape: Sequence[_Int], sampleMode: MLCSampleMode, alignsCorners: bool) -> Self | None: ...  # type: ignore[misc]
    if not TYPE_CHECKING:
        @overload
        def __init__(self, *, shape: Sequence[_Int]) -> None: """To the nearest pixel unless linear sampling is asked for."""
        @overload
        def __init__(self, *, shape: Sequence[_Int], sampleMode: MLCSampleMode, alignsCorners: bool) -> None: """To the nearest pixel unless linear sampling is asked for."""
    @property
    def sampleMode(self) -> MLCSampleMode: """To the nearest pixel, or linear between pixels."""
    @property
    def alignsCorners(self) -> bool: """Whether linear sampling puts the corner pixels of source and result on each other."""
    @property
    def shape(self) -> list[int]: """The size of the result."""
    @classmethod
    def layerWithShape_(cls, shape: Sequence[_Int], /) -> Self | None: """To the nearest pixel unless linear sampling is asked for."""
    @classmethod
    def layerWithShape_sampleMode_alignsCorners_(cls, shape: Sequence[_Int], sampleMode: MLCSampleMode | int, alignsCorners: bool, /) -> Self | None: """To the nearest pixel unless linear sampling is asked for."""

class MLCYOLOLossDescriptor(_Object):
    """The anchor boxes and scales of the YOLO loss. Boxes are float32 pairs (width, height) in grid cells."""
    def __new__(cls, *, anchorBoxes: _Buffer, anchorBoxCount: _Int) -> Self: """The scales and limits start with the framework's defaults and may be set afterwards."""
    if not TYPE_CHECKING:
        def __init__(self, *, anchorBoxes: _Buffer, anchorBoxCount: _Int) -> None: """The scales and limits start with the framework's defaults and may be set afterwards."""
    @property
    def anchorBoxes(self) -> bytes: """The boxes as bytes: a float32 width and height for each."""
    @property
    def anchorBoxCount(self) -> int: """How many anchor boxes there are."""
    shouldRescore: bool
    """Whether the confidence of an object is compared with the overlap of its box rather than with 1."""
    scaleSpatialPositionLoss: float
    """How much wrong positions count."""
    scaleSpatialSizeLoss: float
    """How much wrong sizes count."""
    scaleNoObjectConfidenceLoss: float
    """How much confidence counts where there is no object."""
    scaleObjectConfidenceLoss: float
    """How much confidence counts where there is an object."""
    scaleClassLoss: float
    """How much wrong classes count."""
    minimumIOUForObjectPresence: float
    """The overlap from which a box counts as holding an object."""
    maximumIOUForObjectAbsence: float
    """The overlap up to which a box counts as holding none."""
    @classmethod
    def descriptorWithAnchorBoxes_anchorBoxCount_(cls, anchorBoxes: _Buffer, anchorBoxCount: _Int, /) -> Self: """The scales and limits start with the framework's defaults and may be set afterwards."""

class MLCYOLOLossLayer(MLCLossLayer):
    """The YOLO loss of predictions and labels: one value for each sample, which add up to the batch's loss."""
    def __new__(cls, *, descriptor: MLCYOLOLossDescriptor) -> Self: """By descriptor."""
    if not TYPE_CHECKING:
        def __init__(self, *, descriptor: MLCYOLOLossDescriptor) -> None: """By descriptor."""
    @property
    def yoloLossDescriptor(self) -> MLCYOLOLossDescriptor: """Anchor boxes and scales."""
    @classmethod
    def layerWithDescriptor_(cls, lossDescriptor: MLCYOLOLossDescriptor, /) -> Self: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
