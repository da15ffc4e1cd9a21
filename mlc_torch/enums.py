"""Enumerations and option sets with Apple's raw values.

The member tables below are the whole definition; ``debugDescription`` and the C functions of the same name read the
strings that stand beside them (evidence.md, section I).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, ClassVar, TypeVar

from mlc_torch.refusals import refuse
from mlc_torch.spelling import CLASSES, YX
from mlc_torch.spelling.arguments import describe, to_bool, to_int
from mlc_torch.spelling.closest import hint, hint_or_all, near_miss

_MISSING: Any = object()
F = TypeVar("F", bound=Callable[..., Any])


class _EnumType(enum.EnumType):
    """Adds Swift's ``init(rawValue:)``, which is failable for enumerations: ``MLCDataType(rawValue=99)`` is ``None``.

    A set of options is also made from a list, or from nothing.
    """

    def __call__(cls: Any, value: Any = _MISSING, *args: Any, rawValue: Any = _MISSING, **kw: Any) -> Any:
        options = issubclass(cls, enum.Flag)
        if rawValue is not _MISSING:
            raw = _whole(f"{cls.__name__}: argument 'rawValue'", rawValue)
            return super().__call__(raw) if options else cls._value2member_map_.get(raw)
        if options and (value is _MISSING or isinstance(value, (list, tuple, set, frozenset))):
            return cls._coerce([] if value is _MISSING else value)
        if value is _MISSING:
            raise TypeError(f"{cls.__name__}() does not exist. There is:\n  {cls.__name__}(rawValue=)")
        return super().__call__(value, *args, **kw)

    def __init__(cls: Any, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        type.__setattr__(cls, "_made", True)  # all cases are there

    def __getattr__(cls: Any, name: str) -> Any:
        """Only what is no case comes here (and on Python 3.11 also a case)."""
        found = cls.__dict__.get("_member_map_", {}).get(name)
        if found is None:
            raise AttributeError(f"{cls.__name__} has no case {name!r}{_hint(cls, name)}")
        return found

    def __setattr__(cls: Any, name: str, value: Any) -> None:
        if name[0] != "_" and cls.__dict__.get("_made") and not hasattr(cls, name):
            raise AttributeError(f"{cls.__name__} has no case {name!r} to be set{_hint(cls, name)}")
        super().__setattr__(name, value)


def _hint(cls: Any, name: str) -> str:
    return hint_or_all(name, cls.__dict__.get("_member_map_", ()))


def _expected(cls: Any, cases: Sequence[str], value: Any) -> TypeError:
    """What was expected where a value is no case: the case of that name where one is, as for ``"float32"``."""
    if hasattr(value, "example"):  # a case that carries values, without them
        return TypeError(value.example)
    name = value if isinstance(value, str) else getattr(value, "__name__", str(value)).removeprefix("torch.")
    meant = near_miss(name, cases)
    listed = f"{cls.__name__} ({', '.join(cases)})" if isinstance(value, str) else cls.__name__
    return TypeError(f"{cls.__name__}.{meant}" if meant is not None else listed)


class _Fixed:
    """A case takes no names that the enumeration has not."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            cls = type(self)
            known = [n for n in dir(cls) if not n.startswith("_") and n not in cls.__dict__["_member_map_"]]
            raise AttributeError(f"{self!r} has no property {name!r} that can be set{hint(name, known)}")
        object.__setattr__(self, name, value)


def _whole(who: str, value: Any) -> int:
    try:
        return to_int(value)
    except TypeError as expected:
        raise TypeError(f"{who} expects {expected}, got {describe(value)}") from None


class MLCEnum(_Fixed, enum.IntEnum, metaclass=_EnumType):
    """An enumeration of the framework. Members compare equal to their raw values, as Objective-C's constants do."""

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        CLASSES.setdefault(cls.__name__, cls)

    @property
    def rawValue(self) -> int:
        """The number that stands for this case in the framework."""
        return int(self)

    @classmethod
    def _coerce(cls, value: Any) -> MLCEnum:
        if isinstance(value, cls):
            return value
        if isinstance(value, (enum.Enum, bool)) or not isinstance(value, Integral):
            raise _expected(cls, list(cls.__members__), value)
        if value not in cls._value2member_map_:
            refuse(f"{value} is no {cls.__name__}; there is {', '.join(f'{m.name} ({m.value})' for m in cls)}")
        return cls(int(value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__


class _Described(MLCEnum):
    """An enumeration whose cases have a ``debugDescription``."""

    @property
    def debugDescription(self) -> str:
        """The framework's own words for this case."""
        return DEBUG_DESCRIPTIONS[type(self).__name__][int(self)]


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


class MLCArithmeticOperation(_Described):
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


class MLCLossType(_Described):
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


class MLCActivationType(_Described):
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


class MLCConvolutionType(_Described):
    """The kind of a convolution.

    - ``standard``: each output channel reads all input channels of its group
    - ``transposed``: the gradient of a standard convolution, which enlarges the image
    - ``depthwise``: each output channel reads one input channel
    """

    standard = 0
    transposed = 1
    depthwise = 2


class MLCPaddingType(_Described):
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


class MLCReductionType(_Described):
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


class MLCSampleMode(_Described):
    """How an image is enlarged.

    - ``nearest``: to the nearest pixel
    - ``linear``: linear between pixels
    """

    nearest = 0
    linear = 1


class MLCSoftmaxOperation(_Described):
    """Softmax, or its logarithm."""

    softmax = 0
    logSoftmax = 1


class MLCLSTMResultMode(_Described):
    """What an LSTM layer gives.

    - ``output``: the output
    - ``outputAndStates``: the output, the final hidden states and the final cell states
    """

    output = 0
    outputAndStates = 1


class MLCComparisonOperation(_Described):
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


class MLCGradientClippingType(_Described):
    """How large gradients are made smaller.

    - ``byValue``: each element is held between two limits
    - ``byNorm``: each gradient is scaled down to a norm
    - ``byGlobalNorm``: all gradients are scaled together, by the norm of all of them
    """

    byValue = 0
    byNorm = 1
    byGlobalNorm = 2


def _labelled(example: str, required: Sequence[str] = (), optional: Sequence[str] = ()) -> Callable[[F], F]:
    """Marks a case that takes values by their labels: a call without them is told how it is written."""

    def mark(function: F) -> F:
        @functools.wraps(function)
        def call(owner: Any, *unlabelled: Any, **labels: Any) -> Any:
            if unlabelled or not {*required} <= labels.keys() <= {*required, *optional}:
                raise TypeError(f"{example.partition('(')[0]} takes its values by their labels: {example}")
            return function(owner, **labels)

        call.__dict__["example"] = example
        return call  # type: ignore[return-value]

    return mark


class _PayloadType(type):
    def __getattr__(cls: Any, name: str) -> Any:
        cases = cls.__dict__.get("cases", {}).values()
        raise AttributeError(f"{cls.__name__} has no case {name!r}{hint_or_all(name, cases)}")


class _PayloadEnum(metaclass=_PayloadType):
    """A Swift enumeration whose cases carry values. Objective-C sees the raw value and passes the rest beside it."""

    cases: ClassVar[dict[int, str]]
    rawValue: int
    payload: Any
    __slots__ = ("payload", "rawValue")

    def __init__(self, raw: int, payload: Any = None) -> None:
        if raw not in self.cases:
            raise ValueError(f"{raw} is not a valid {type(self).__name__}")
        object.__setattr__(self, "rawValue", raw)
        object.__setattr__(self, "payload", payload)

    def __init_subclass__(cls) -> None:
        CLASSES.setdefault(cls.__name__, cls)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    @property
    def name(self) -> str:
        return self.cases[self.rawValue]

    @property
    def debugDescription(self) -> str:
        """The framework's own words for this case."""
        return DEBUG_DESCRIPTIONS[type(self).__name__][self.rawValue]

    @classmethod
    def _coerce(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if isinstance(value, (bool, enum.Enum)) or not isinstance(value, Integral):
            raise _expected(cls, list(cls.cases.values()), value)
        if value not in cls.cases:
            refuse(f"{value} is no {cls.__name__}; there is {', '.join(f'{n} ({v})' for v, n in cls.cases.items())}")
        return cls(int(value))

    def __int__(self) -> int:
        return self.rawValue

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return (self.rawValue, self.payload) == (other.rawValue, other.payload)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.rawValue, self.payload))

    def __reduce__(self) -> Any:
        return type(self), (self.rawValue, self.payload)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class MLCPaddingPolicy(_PayloadEnum):
    """How an image is padded for a window: ``same``, ``valid`` or ``sized(y=, x=)``.

    - ``same``: enough for a result of the source's size divided by the stride
    - ``valid``: no padding
    - ``sized``: ``y`` rows above and below, ``x`` columns left and right
    """

    cases = {0: "same", 1: "valid", 2: "sized"}
    __slots__ = ()
    same: ClassVar[MLCPaddingPolicy]
    valid: ClassVar[MLCPaddingPolicy]

    def __init__(self, raw: int, payload: Sequence[int] | None = None) -> None:
        super().__init__(raw, YX(*payload) if payload is not None else YX(0, 0) if raw == 2 else None)

    @classmethod
    @_labelled("MLCPaddingPolicy.sized(y=1, x=1)", required=("y", "x"))
    def sized(cls, *, y: int, x: int) -> MLCPaddingPolicy:
        sizes = (_whole(f"MLCPaddingPolicy.sized: argument {name!r}", n) for name, n in (("y", y), ("x", x)))
        return cls(2, tuple(sizes))

    @property
    def sizes(self) -> YX:
        """The padding sizes that this policy asks for: zero unless it is ``sized``."""
        return self.payload or YX(0, 0)

    def __repr__(self) -> str:
        return f"MLCPaddingPolicy.sized(y={self.payload.y}, x={self.payload.x})" if self.payload else super().__repr__()


MLCPaddingPolicy.same = MLCPaddingPolicy(0)
MLCPaddingPolicy.valid = MLCPaddingPolicy(1)


class MLCPoolingType(_PayloadEnum):
    """What a pooling layer takes from a window: ``max``, ``average``, ``average(countIncludesPadding=True)`` or ``l2Norm``."""

    cases = {1: "max", 2: "average", 3: "l2Norm"}
    __slots__ = ()
    max: ClassVar[MLCPoolingType]
    average: ClassVar[MLCPoolingType]
    l2Norm: ClassVar[MLCPoolingType]

    def __init__(self, raw: int, payload: bool | None = None) -> None:
        super().__init__(raw, bool(payload) if raw == 2 else None)

    @property
    def countIncludesPadding(self) -> bool:
        return bool(self.payload)

    @_labelled("MLCPoolingType.average(countIncludesPadding=True)", optional=("countIncludesPadding",))
    def __call__(self, *, countIncludesPadding: bool = False) -> MLCPoolingType:
        if self.rawValue != 2:
            raise TypeError(f"{self!r} carries no values")
        try:
            return MLCPoolingType(2, to_bool(countIncludesPadding))
        except TypeError as expected:
            who = "MLCPoolingType.average: argument 'countIncludesPadding'"
            raise TypeError(f"{who} expects {expected}, got {describe(countIncludesPadding)}") from None

    def __repr__(self) -> str:
        return "MLCPoolingType.average(countIncludesPadding=True)" if self.payload else super().__repr__()


MLCPoolingType.max = MLCPoolingType(1)
MLCPoolingType.average = MLCPoolingType(2)
MLCPoolingType.l2Norm = MLCPoolingType(3)


class MLCOptionSet(_Fixed, enum.IntFlag, metaclass=_EnumType, boundary=enum.KEEP):
    """A set of options. Where one is expected, a member, ``[]`` or a list of members serves, as in Swift."""

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        CLASSES.setdefault(cls.__name__, cls)

    @property
    def rawValue(self) -> int:
        """The number that stands for this case in the framework."""
        return int(self)

    @classmethod
    def _coerce(cls, value: Any) -> MLCOptionSet:
        if isinstance(value, cls):
            return value
        if isinstance(value, (list, tuple, set, frozenset)):
            combined = 0
            for option in value:
                combined |= (option if type(option) is cls else cls._coerce(option))._value_
            found: Any = cls._value2member_map_.get(combined)  # a call of the class costs ten times as much
            return found if found is not None else cls(combined)
        if isinstance(value, str):
            raise _expected(cls, list(cls.__members__), value)
        if isinstance(value, (bool, enum.Enum)) or not isinstance(value, Integral) or value < 0:
            raise TypeError(f"{cls.__name__} (an option, or a list of options)")
        return cls(int(value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(m.name or '' for m in self)}])"

    __str__ = __repr__


class MLCExecutionOptions(MLCOptionSet):
    """How a call of ``execute`` or of one phase runs.

    - ``skipWritingInputDataToDevice``: uses the data that was bound before; data given in the call is ignored
    - ``synchronous``: the call returns when the work is done, on a GPU too
    - ``profiling``: measures ``executionTime``, which is 0.0 otherwise
    - ``forwardForInference``: only the forward pass, in inference mode
    - ``perLayerProfiling``: names every layer in ``torch.profiler`` traces
    """

    skipWritingInputDataToDevice = 1
    synchronous = 2
    profiling = 4
    forwardForInference = 8
    perLayerProfiling = 16


class MLCGraphCompilationOptions(MLCOptionSet):
    """How a graph is compiled.

    - ``debugLayers``: keeps the results of layers whose ``isDebuggingEnabled`` is set, and runs layer by layer
    - ``disableLayerFusion``: runs layer by layer
    - ``linkGraphs``: the graph will be linked to others
    - ``computeAllGradients``: computes the gradients of the inputs too
    """

    debugLayers = 1
    disableLayerFusion = 2
    linkGraphs = 4
    computeAllGradients = 8


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


def _description_function(enumeration: str) -> Any:
    def describe(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (Integral, _PayloadEnum)):
            raise TypeError(f"{describe.__name__} expects {enumeration} or its raw value, got {value!r}")
        return DEBUG_DESCRIPTIONS[enumeration].get(int(value))

    describe.__name__ = describe.__qualname__ = f"{enumeration}DebugDescription"
    describe.__doc__ = f"The framework's own words for a case of {enumeration}; ``None`` for an unknown value."
    return describe


FUNCTIONS = {f"{name}DebugDescription": _description_function(name) for name in DEBUG_DESCRIPTIONS}
globals().update(FUNCTIONS)

__all__ = [n for n in globals() if n.startswith("MLC") and n not in ("MLCEnum", "MLCOptionSet")]

__all__ = [  # noqa: PLE0604 - computed, so that a new enumeration cannot be forgotten
    *(name for name, value in list(globals().items()) if isinstance(value, type) and name.startswith("MLC")),
    *FUNCTIONS,
]
__all__ = [name for name in __all__ if name not in ("MLCEnum", "MLCOptionSet")]
