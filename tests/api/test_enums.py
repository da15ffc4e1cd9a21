"""Enumerations and option sets: raw values, what an argument accepts, the framework's own words for a case."""

from __future__ import annotations

import copy
import enum
import operator as op
import pickle
import re

import numpy as np
import pytest

import mlc_torch as mlc
import mlc_torch.objc as MLCompute
from mlc_torch.coverage.api import api
from mlc_torch.enums.functions import FUNCTIONS
from mlc_torch.spelling.arguments import converter

ENUMS = {name: getattr(mlc, name) for name in api()["enums"] if name not in ("MLCPaddingPolicy", "MLCPoolingType")}
OPTIONS = {name: getattr(mlc, name) for name in api()["option_sets"]}

# evidence.md, section I: eleven of these lists were also seen by another project's tests on devices.
WORDS = {
    "MLCActivationType": "None, ReLU, Linear, Sigmoid, Hard Sigmoid, Tanh, Absolute, Soft Plus, Soft Sign, ELU, ReLUN, "
    "Log Sigmoid, SELU, CELU, Hard Shrink, Soft Shrink, Tanh Shrink, Threshold, GELU, HardSwish, Clamp",
    "MLCArithmeticOperation": "Add, Subtract, Multiply, Divide, Floor, Round, Ceil, Sqrt, Rsqrt, Sin, Cos, Tan, Asin, "
    "Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Pow, Exp, Exp2, Log, Log2, MultiplyNoNaN, DivideNoNaN, "
    "ElementwiseMin, ElementwiseMax",
    "MLCComparisonOperation": "Equal, Not Equal, Less, Greater, Less or Equal, Greater or Equal, Logical AND, "
    "Logical OR, Logical NOT, Logical NAND, Logical NOR, Logical XOR",
    "MLCLossType": "Absolute Error, Mean Squared Error, Softmax Cross Entropy, Sigmoid Cross Entropy, "
    "Categorical Cross Entropy, Hinge, Huber, Cosine Distance, Log",
    "MLCReductionType": "None, Sum, Mean, Max, Min, Arg Max, Arg Min, L1Norm, Any, All",
    "MLCPaddingType": "Zero, Reflect, Symmetric, Constant",
    "MLCPaddingPolicy": "Same, Valid, Use Padding Size",
    "MLCConvolutionType": "Standard, Transposed, Depthwise",
    "MLCPoolingType": "Max, Average, L2 Norm",
    "MLCSoftmaxOperation": "Softmax, Log Softmax",
    "MLCSampleMode": "Nearest, Linear",
    "MLCLSTMResultMode": "Output, Output and States",
    "MLCGradientClippingType": "By Value, By Norm, By Global Norm",
}


@pytest.mark.parametrize("name", ENUMS)
def test_raw_values(name):
    cls = ENUMS[name]
    for case in api()["enums"][name].values():
        if case["swift"] is None:
            assert cls(rawValue=case["raw"]) is None
            continue
        member = getattr(cls, case["swift"])
        assert member.rawValue == member == case["raw"]
        assert cls(rawValue=case["raw"]) is member
    assert cls(rawValue=9999) is None
    assert cls(rawValue=-1) is None
    with pytest.raises(ValueError, match="9999"):
        cls(9999)
    for wrong in ("1", 1.0, True, None):
        with pytest.raises(TypeError, match="rawValue"):
            cls(rawValue=wrong)


@pytest.mark.parametrize("name", OPTIONS)
def test_option_sets_accept_a_member_a_list_or_nothing(name):
    cls = OPTIONS[name]
    convert = converter(name)
    first, second, *_ = cls
    assert convert([]) == cls(0) and convert(first) is first
    assert convert([first, second]) == convert((second, first)) == convert({first, second}) == first | second
    assert convert([first, first]) == first
    assert convert(3) == first | second
    assert cls(rawValue=0) == cls(0) and cls(rawValue=3).rawValue == 3
    assert convert(2**40).rawValue == 2**40  # Swift keeps bits it does not know
    for wrong in ("synchronous", 1.5, True, None, -1, mlc.MLCDataType.float32, [1.5]):
        with pytest.raises(TypeError, match=name):
            convert(wrong)


def test_an_argument_takes_a_case_or_its_raw_value_but_no_other_enumeration():
    convert = converter("MLCDataType")
    assert convert(1) is convert(mlc.MLCDataType.float32) is mlc.MLCDataType.float32
    for wrong in (mlc.MLCLossType.meanSquaredError, "float32", 1.0, True, None):
        with pytest.raises(TypeError, match="MLCDataType"):
            convert(wrong)
    assert mlc.MLCTensor(shape=[2], dataType=2) is None
    assert "2 is no MLCDataType; there is float32 (1)" in str(mlc.last_refusal())


@pytest.mark.parametrize("name", WORDS)
def test_debug_descriptions(name):
    cases = [case["raw"] for case in api()["enums"][name].values()]
    words = WORDS[name].split(", ")
    assert [FUNCTIONS[f"{name}DebugDescription"](raw) for raw in sorted(cases)] == words
    assert getattr(mlc, f"{name}DebugDescription")(9999) is None
    assert [getattr(mlc, name)(raw).debugDescription for raw in sorted(cases)] == words
    for wrong in ("0", 0.5, None, True):
        with pytest.raises(TypeError, match=name):
            FUNCTIONS[f"{name}DebugDescription"](wrong)


def test_the_thirteen_functions():
    assert set(FUNCTIONS) == set(api()["functions"]) == {f"{name}DebugDescription" for name in WORDS}
    assert mlc.MLCPaddingPolicyDebugDescription(mlc.MLCPaddingPolicy.sized(y=1, x=2)) == "Use Padding Size"


def test_padding_policies():
    sized = mlc.MLCPaddingPolicy.sized(y=1, x=2)
    assert sized.payload == (1, 2) and sized.payload.x == 2 and sized.sizes == (1, 2)
    assert sized == mlc.MLCPaddingPolicy.sized(x=2, y=1) != mlc.MLCPaddingPolicy.sized(y=2, x=1)
    assert len({sized, mlc.MLCPaddingPolicy.sized(y=1, x=2), mlc.MLCPaddingPolicy.same}) == 2
    assert mlc.MLCPaddingPolicy.same != mlc.MLCPaddingPolicy.valid
    assert mlc.MLCPaddingPolicy.same.sizes == (0, 0)
    assert repr(sized) == "MLCPaddingPolicy.sized(y=1, x=2)" and repr(mlc.MLCPaddingPolicy.same).endswith(".same")
    for wrong in ({"y": 1}, {"y": 1, "x": 1.5}, {"y": True, "x": 1}):
        with pytest.raises(TypeError):
            mlc.MLCPaddingPolicy.sized(**wrong)
    with pytest.raises(AttributeError, match="immutable"):
        sized.rawValue = 1
    with pytest.raises(ValueError, match="7"):
        mlc.MLCPaddingPolicy(7)


def test_pooling_types():
    average = mlc.MLCPoolingType.average
    assert average.countIncludesPadding is False
    assert average(countIncludesPadding=True).countIncludesPadding is True
    assert average() == average == average(countIncludesPadding=False) != average(countIncludesPadding=True)
    assert [t.rawValue for t in (mlc.MLCPoolingType.max, average, mlc.MLCPoolingType.l2Norm)] == [1, 2, 3]
    with pytest.raises(TypeError, match="carries no values"):
        mlc.MLCPoolingType.max(countIncludesPadding=True)
    with pytest.raises(TypeError, match="countIncludesPadding"):
        average(countIncludesPadding=2)
    assert average(countIncludesPadding=np.bool_(True)).countIncludesPadding is True


@pytest.mark.parametrize(
    ("cls", "given", "words"),
    [
        (mlc.MLCPaddingPolicy, (2, "ab"), r"two sizes \(y, x\), got 'ab'"),
        (mlc.MLCPaddingPolicy, (2, (1, 2, 3)), r"two sizes \(y, x\), got \(1, 2, 3\)"),
        (mlc.MLCPaddingPolicy, (2, {1, 2}), r"two sizes \(y, x\), got \{1, 2\}"),
        (mlc.MLCPaddingPolicy, (2, (0.5, 1)), r"argument 'y' expects Int \(a whole number\), got 0.5 \(float\)"),
        (mlc.MLCPaddingPolicy, (2, (1, 2**64)), r"argument 'x' expects Int \(a whole number of 64 bits\)"),
        (mlc.MLCPaddingPolicy, (0, (1, 2)), r"MLCPaddingPolicy.same carries no values, got \(1, 2\)"),
        (mlc.MLCPaddingPolicy, ([],), r"argument 'raw' expects Int \(a whole number\), got \[\] \(list\)"),
        (mlc.MLCPoolingType, (2, "no"), r"'countIncludesPadding' expects Bool \(True or False\), got 'no'"),
        (mlc.MLCPoolingType, (1, True), r"MLCPoolingType.max carries no values, got True"),
        (mlc.MLCPoolingType, (np.ones(2),), r"argument 'raw' expects Int \(a whole number\)"),
    ],
)
def test_values_of_a_case_are_checked_when_it_is_made_by_its_number(cls, given, words):
    with pytest.raises(TypeError, match=words):
        cls(*given)


def test_a_case_made_by_its_number_is_the_one_made_by_its_labels():
    for sizes in ((1, 2), [1, 2], np.array([1, 2]), (np.uint8(1), 2)):
        assert mlc.MLCPaddingPolicy(2, sizes) == mlc.MLCPaddingPolicy.sized(y=1, x=2)
    assert mlc.MLCPaddingPolicy(2).sizes == (0, 0) and mlc.MLCPaddingPolicy(np.int64(1)) == mlc.MLCPaddingPolicy.valid
    assert mlc.MLCPoolingType(2, 1) == mlc.MLCPoolingType.average(countIncludesPadding=True)
    assert mlc.MLCPoolingType(2) == mlc.MLCPoolingType.average == mlc.MLCPoolingType.average()
    with pytest.raises(TypeError, match="got None"):
        mlc.MLCPoolingType.average(countIncludesPadding=None)


def test_numpys_whole_numbers_are_raw_values():
    for number in (np.int64(3), np.uint8(3)):
        assert mlc.MLCDataType(rawValue=number) is mlc.MLCDataType.float16
        assert mlc.MLCTensor(shape=[1], dataType=number).descriptor.dataType is mlc.MLCDataType.float16
        assert mlc.MLCExecutionOptions(rawValue=number) == mlc.MLCExecutionOptions(3)
        assert mlc.MLCPaddingPolicy.sized(y=number, x=0) == mlc.MLCPaddingPolicy.sized(y=3, x=0)
        assert mlc.MLCActivationTypeDebugDescription(number) == "Sigmoid"
    with pytest.raises(TypeError, match=r"argument 'rawValue' expects Int \(a whole number\), got 3.0 \(float\)"):
        mlc.MLCDataType(rawValue=3.0)


def test_a_set_of_options_is_made_from_a_list_or_from_nothing():
    synchronous, profiling = mlc.MLCExecutionOptions.synchronous, mlc.MLCExecutionOptions.profiling
    assert mlc.MLCExecutionOptions([synchronous, profiling]) == synchronous | profiling
    assert mlc.MLCExecutionOptions([]) == mlc.MLCExecutionOptions() == mlc.MLCExecutionOptions(rawValue=0)
    with pytest.raises(TypeError, match=r"MLCDataType\(\) does not exist"):
        mlc.MLCDataType()


def _holding_itself():
    options = []
    options.append(options)
    return options


@pytest.mark.parametrize("cls", OPTIONS.values())
@pytest.mark.parametrize(
    "given", [_holding_itself(), [[]], [[2]], ([2], 4), [()], [frozenset()], 2**64, 10**400, [2**64]]
)
def test_a_set_of_options_is_a_flat_list_of_64_bits(cls, given):
    for make in (cls, converter(cls.__name__)):
        with pytest.raises(TypeError, match=rf"{cls.__name__} \(an option, or a list of options"):
            make(given)


def test_options_of_a_call_are_flat():
    graph = mlc.MLCInferenceGraph(graphObjects=[])
    with pytest.raises(
        TypeError, match=r"'options' expects MLCGraphCompilationOptions \(an option, or a list of options\)"
    ):
        graph.compile(options=_holding_itself(), device=mlc.MLCDevice.cpu())


@pytest.mark.parametrize("cls", OPTIONS.values())
def test_the_largest_set_of_options(cls):
    """NSUInteger's largest, of which only the bits that have names mean something."""
    assert cls(2**64 - 1).rawValue == converter(cls.__name__)([2**64 - 1]).rawValue == 2**64 - 1


@pytest.mark.parametrize("combine", [op.or_, op.and_, op.xor, op.ior, op.iand, op.ixor, op.contains])
def test_options_of_two_sets_are_not_combined(combine):
    """Swift would not compile it; their bits mean different things."""
    names = "MLCExecutionOptions.*MLCGraphCompilationOptions|MLCGraphCompilationOptions.*MLCExecutionOptions"
    with pytest.raises(TypeError, match=names):
        combine(mlc.MLCExecutionOptions.synchronous, mlc.MLCGraphCompilationOptions.debugLayers)
    with pytest.raises(TypeError, match="MLCDataType"):
        combine(mlc.MLCExecutionOptions.synchronous, mlc.MLCDataType.float32)


@pytest.mark.parametrize("combine", [op.or_, op.and_, op.xor, op.ior, op.iand, op.ixor])
def test_options_are_combined_with_their_like_and_with_raw_values(combine):
    both, one = mlc.MLCExecutionOptions(rawValue=6), mlc.MLCExecutionOptions.synchronous
    for found in (combine(both, one), combine(both, 2), combine(6, one)):
        assert type(found) is mlc.MLCExecutionOptions and found.rawValue == combine(6, 2)


@pytest.mark.parametrize("labels", [{"shape": None, "dataType": []}, {"dataType": [], "shape": None}])
def test_a_list_for_an_enumeration_is_a_type_error(labels):
    """In whatever order the labels stand: only option sets are made of lists."""
    with pytest.raises(TypeError, match="MLCTensor"):
        mlc.MLCTensor(**labels)


@pytest.mark.parametrize(
    "value",
    [
        mlc.MLCDataType.float16,
        mlc.MLCExecutionOptions.synchronous | mlc.MLCExecutionOptions.profiling,
        mlc.MLCPaddingPolicy.sized(y=1, x=2),
        mlc.MLCPoolingType.average(countIncludesPadding=True),
    ],
)
def test_copies_and_pickles(value):
    for made in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert made == value and type(made) is type(value)


def test_reprs_can_be_read():
    assert repr(mlc.MLCDataType.float32) == str(mlc.MLCDataType.float32) == "MLCDataType.float32"
    options = mlc.MLCExecutionOptions.synchronous | mlc.MLCExecutionOptions.profiling
    assert repr(options) == "MLCExecutionOptions([synchronous, profiling])"
    assert repr(mlc.MLCExecutionOptions(0)) == "MLCExecutionOptions([])"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda case: mlc.MLCDropoutLayer(rate=0.5, seed=case), "'seed' expects Int (a whole number), got MLCLossType"),
        (lambda case: mlc.MLCDropoutLayer(rate=case, seed=1), "'rate' expects Float (a number), got MLCLossType"),
        (lambda case: mlc.MLCTensor(shape=[case, 2]), "entry 0 must be Int (a whole number), it is MLCLossType"),
        (lambda case: mlc.MLCPaddingPolicy.sized(y=case, x=1), "'y' expects Int (a whole number), got MLCLossType"),
        (
            lambda case: mlc.MLCPoolingType.average(countIncludesPadding=case),
            "expects Bool (True or False), got MLCLossType",
        ),
    ],
)
@pytest.mark.parametrize("case", [mlc.MLCLossType.meanAbsoluteError, mlc.MLCLossType.hinge])
def test_a_case_is_no_number(make, words, case):
    """Swift would not compile it. Where numbers are constants, as in Python's own enumerations, they are numbers."""
    with pytest.raises(TypeError, match=re.escape(words)):
        make(case)
    size = enum.IntEnum("Size", {"WIDE": 5})
    assert mlc.MLCTensor(shape=[size.WIDE, 2]).descriptor.shape == [5, 2]


@pytest.mark.parametrize("type_", ["Int", "Float", "Bool", "NSNumber"])
def test_no_option_is_a_number_either(type_):
    with pytest.raises(TypeError, match=type_):
        converter(type_)(mlc.MLCExecutionOptions(1))


def test_a_script_in_objective_c_has_numbers_for_cases():
    assert MLCompute.MLCDropoutLayer.layerWithRate_seed_(0.5, MLCompute.MLCLossTypeHinge).seed() == 5
