"""The framework's own words for each case (evidence.md, section I)."""

from __future__ import annotations


def _numbered(text: str, start: int = 0) -> dict[int, str]:
    return dict(enumerate(text.split(", "), start))


DEBUG_DESCRIPTIONS: dict[str, dict[int, str]] = {
    "MLCActivationType": _numbered(
        "None, ReLU, Linear, Sigmoid, Hard Sigmoid, Tanh, Absolute, Soft Plus, Soft Sign, ELU, ReLUN, Log Sigmoid, SELU, "
        "CELU, Hard Shrink, Soft Shrink, Tanh Shrink, Threshold, GELU, HardSwish, Clamp"
    ),
    "MLCArithmeticOperation": _numbered(
        "Add, Subtract, Multiply, Divide, Floor, Round, Ceil, Sqrt, Rsqrt, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, "
        "Tanh, Asinh, Acosh, Atanh, Pow, Exp, Exp2, Log, Log2, MultiplyNoNaN, DivideNoNaN, ElementwiseMin, ElementwiseMax"
    ),
    "MLCComparisonOperation": _numbered(
        "Equal, Not Equal, Less, Greater, Less or Equal, Greater or Equal, Logical AND, Logical OR, Logical NOT, "
        "Logical NAND, Logical NOR, Logical XOR"
    ),
    "MLCConvolutionType": _numbered("Standard, Transposed, Depthwise"),
    "MLCGradientClippingType": _numbered("By Value, By Norm, By Global Norm"),
    "MLCLSTMResultMode": _numbered("Output, Output and States"),
    "MLCLossType": _numbered(
        "Absolute Error, Mean Squared Error, Softmax Cross Entropy, Sigmoid Cross Entropy, Categorical Cross Entropy, "
        "Hinge, Huber, Cosine Distance, Log"
    ),
    "MLCPaddingPolicy": _numbered("Same, Valid, Use Padding Size"),
    "MLCPaddingType": _numbered("Zero, Reflect, Symmetric, Constant"),
    "MLCPoolingType": _numbered("Max, Average, L2 Norm", start=1),
    "MLCReductionType": _numbered("None, Sum, Mean, Max, Min, Arg Max, Arg Min, L1Norm, Any, All"),
    "MLCSampleMode": _numbered("Nearest, Linear"),
    "MLCSoftmaxOperation": _numbered("Softmax, Log Softmax"),
}
