"""The plain enumerations, with Apple's raw values."""

from __future__ import annotations

from mlc_torch.enums.kinds import DescribedEnum, MLCEnum


class MLCDataType(MLCEnum):
    """The type of a tensor's elements."""

    float32 = 1
    float16 = 3
    boolean = 4
    int64 = 5
    int32 = 7
    int8 = 8
    uint8 = 9


class MLCRandomInitializerType(MLCEnum):
    """How the values of a new tensor are drawn.

    - ``uniform``: evenly between 0 and 1
    - ``glorotUniform``: evenly between ±√(6/(f1 + f2)), with f1 and f2 the first two of four dimensions
    - ``xavier``: from a normal distribution of deviation 0.5·√(2/(f1 + f2))
    """

    uniform = 1
    glorotUniform = 2
    xavier = 3


class MLCDeviceType(MLCEnum):
    """Where a graph runs.

    - ``cpu``: the CPU
    - ``gpu``: a GPU: CUDA, else MPS
    - ``any``: the best device present
    - ``ane``: the Apple Neural Engine, which is never present here
    """

    cpu = 0
    gpu = 1
    any = 2
    ane = 3


class MLCArithmeticOperation(DescribedEnum):
    """The operation of an arithmetic layer, on one source or on two.

    - ``multiplyNoNaN``: x·y, and 0 where y is 0
    - ``divideNoNaN``: x / y, and 0 where y is 0
    - ``rsqrt``: 1 / √x
    - ``round``: to the nearest whole number, halves to the even one
    """

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


class MLCLossType(DescribedEnum):
    """How far predictions are from labels.

    - ``softmaxCrossEntropy``: takes predictions before a softmax
    - ``sigmoidCrossEntropy``: takes predictions before a sigmoid
    - ``categoricalCrossEntropy``: takes predictions that are probabilities
    - ``log``: takes predictions that are probabilities
    """

    meanAbsoluteError = 0
    meanSquaredError = 1
    softmaxCrossEntropy = 2
    sigmoidCrossEntropy = 3
    categoricalCrossEntropy = 4
    hinge = 5
    huber = 6
    cosineDistance = 7
    log = 8


class MLCActivationType(DescribedEnum):
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


class MLCConvolutionType(DescribedEnum):
    """The kind of a convolution.

    - ``standard``: each output channel reads all input channels of its group
    - ``transposed``: the gradient of a standard convolution, which enlarges the image
    - ``depthwise``: each output channel reads one input channel
    """

    standard = 0
    transposed = 1
    depthwise = 2


class MLCPaddingType(DescribedEnum):
    """What the border of a padded image is filled with.

    - ``zero``: zeros
    - ``reflect``: the image mirrored, without its edge
    - ``symmetric``: the image mirrored, its edge included
    - ``constant``: one number
    """

    zero = 0
    reflect = 1
    symmetric = 2
    constant = 3


class MLCReductionType(DescribedEnum):
    """What is computed over dimensions, or over the values of a loss.

    - ``none``: nothing; the values stay
    - ``argMax``: the position of the largest value
    - ``argMin``: the position of the smallest value
    - ``l1Norm``: the sum of absolute values
    - ``any``: whether any value is true
    - ``all``: whether all values are true
    """

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


class MLCRegularizationType(MLCEnum):
    """What is added to keep weights small.

    - ``none``: nothing
    - ``l1``: the sum of absolute values
    - ``l2``: half the sum of squares
    """

    none = 0
    l1 = 1
    l2 = 2


class MLCSampleMode(DescribedEnum):
    """How an image is enlarged.

    - ``nearest``: to the nearest pixel
    - ``linear``: linear between pixels
    """

    nearest = 0
    linear = 1


class MLCSoftmaxOperation(DescribedEnum):
    """Softmax, or its logarithm."""

    softmax = 0
    logSoftmax = 1


class MLCLSTMResultMode(DescribedEnum):
    """What an LSTM layer gives.

    - ``output``: the output
    - ``outputAndStates``: the output, the final hidden states and the final cell states
    """

    output = 0
    outputAndStates = 1


class MLCComparisonOperation(DescribedEnum):
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


class MLCGradientClippingType(DescribedEnum):
    """How large gradients are made smaller.

    - ``byValue``: each element is held between two limits
    - ``byNorm``: each gradient is scaled down to a norm
    - ``byGlobalNorm``: all gradients are scaled together, by the norm of all of them
    """

    byValue = 0
    byNorm = 1
    byGlobalNorm = 2
