"""One declaration, many spellings: labels, selectors, defaults, help, and the errors that say what exists."""

from __future__ import annotations

import copy
import gc
import inspect
import math
import os
import pickle
import re
import subprocess
import sys
import timeit
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

import mlc_torch
from mlc_torch import (
    MLCActivationLayer,
    MLCConvolutionDescriptor,
    MLCDevice,
    MLCGraph,
    MLCInferenceGraph,
    MLCRefusal,
    MLCTensor,
    MLCTrainingGraph,
    last_refusal,
    strict,
)
from mlc_torch.refusals import refuse
from mlc_torch.spelling import CLASSES, YX, HeightWidth, MLCObject, declare, objc_only, prop, static_prop
from mlc_torch.spelling.signature import parse, parse_selector


class Crate(MLCObject):
    """A box for the tests."""

    size = prop("Int")
    label = prop("String", settable=True)
    shape = prop("(height: Int, width: Int)")

    @declare("init(size: Int)", "crateWithSize:")
    @declare("init(size: Int, label: String)", "crateWithSize:label:")
    @declare("init?(shape: (height: Int, width: Int), label: String = crate)", "crateWithShape:label:")
    def _create(cls, size=None, label="crate", shape=(1, 1)):
        """Make a crate."""
        if size is not None and size < 0:
            refuse(f"size must not be negative, got {size}")
        return cls._make(size=size, label=label, shape=HeightWidth(*shape))

    @declare("put(_ thing: String, for owner: String) -> String", "put:forOwner:")
    @declare("put(_ thing: String) -> String", "put:")
    def _put(self, thing, owner="nobody"):
        return f"{thing} for {owner}"

    @declare("take(from start: Int, in place: [Int], count: Int = 1) -> [Int]")
    def _take(self, start, place, count=1):
        if start >= len(place):
            refuse("start lies outside")
        return place[start : start + count]

    @declare("open(with key: Int) -> Bool", "openWithKey:")
    def _open(self, key):
        if key != 7:
            refuse("key must be 7")
        return True

    @declare("static smallest() -> Self", "smallestCrate")
    def _smallest(cls):
        return cls._create(0)

    @objc_only("+ crateWithWidth: Int, height: Int -> Self")
    def _wide(cls, width, height):
        return cls._create(shape=(height, width))

    @declare("async wait(seconds: Float) -> Float")
    async def _wait(self, seconds):
        return seconds


CLASSES.pop("Crate", None)


def test_the_labels_choose_the_initializer():
    assert Crate(size=3).size == 3
    assert Crate(size=3, label="x").label == "x"
    assert Crate(label="y", size=4).label == "y"
    assert Crate(shape=(2, 3)).label == "crate"
    assert Crate(shape=[2, 3]).shape == HeightWidth(height=2, width=3)


def test_a_first_label_that_swift_leaves_out_is_positional():
    assert Crate(size=1).put("apples") == "apples for nobody"
    assert Crate(size=1).put("apples", for_="Ann") == "apples for Ann"
    assert Crate(size=1).open(7) is True
    assert Crate(size=1).open(with_=7) is True


def test_reserved_words_take_an_underscore():
    assert Crate(size=1).take(from_=1, in_=[1, 2, 3]) == [2]
    assert Crate(size=1).take(from_=1, in_=np.array([1, 2, 3]), count=2) == [2, 3]


def test_selectors_take_positional_arguments():
    assert Crate.crateWithSize_label_(3, "x").label == "x"
    assert Crate.crateWithWidth_height_(3, 2).shape == (2, 3)
    assert Crate.smallestCrate().size == 0
    assert Crate(size=1).put_forOwner_("apples", "Ann") == "apples for Ann"
    with pytest.raises(TypeError, match="crateWithSize_label_ takes 2 arguments, got 1"):
        Crate.crateWithSize_label_(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Crate(siz=3),
        lambda: Crate(3),
        lambda: Crate(),
        lambda: Crate(size=3, shape=(1, 1)),
        lambda: Crate(size=3, label="x", colour="red"),
    ],
)
def test_wrong_labels_list_what_exists_and_the_closest(call):
    with pytest.raises(TypeError) as error:
        call()
    text = str(error.value)
    for line in ("Crate(size=)", "Crate(size=, label=)", "Crate(shape=, [label=])", "closest: Crate("):
        assert line in text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: Crate(size=1, label="x", colour="red"),
            "Crate(size=, label=, colour=) does not exist (no label colour=).",
        ),
        (lambda: Crate(size=1).take(from_=1), "Crate.take(from_=) does not exist (in_= is missing)."),
        (lambda: Crate(size=1).put("x", fore="y"), "(no label fore=; for_= is missing)."),
        (lambda: Crate(1), "Crate((unlabelled)) does not exist."),
    ],
)
def test_labels_that_are_too_many_or_missing_are_named(call, says):
    with pytest.raises(TypeError) as error:
        call()
    assert says in str(error.value).splitlines()[0]


@pytest.mark.parametrize(
    ("call", "closest"),
    [
        (lambda: Crate(sise=1), "Crate(size=)"),
        (lambda: Crate(shape=(1, 1), lable="x"), "Crate(shape=, [label=])"),
        (lambda: Crate(1), "Crate(size=)"),
        (lambda: Crate(size=1).put("x", "y", "z"), "Crate.put(thing, for_=)"),
        (lambda: Crate(size=1).put("x", fore="y"), "Crate.put(thing, for_=)"),
    ],
)
def test_the_closest_is_spelt_as_it_is_called(call, closest):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value).endswith(f"\nclosest: {closest}")


@pytest.mark.parametrize(
    ("call", "closest"),
    [
        (
            lambda: mlc_torch.MLCConvolutionDescriptor(
                kernelSize=(3, 3), inputFeatureChannelCount=1, outputFeatureChannelCount=2
            ),
            "MLCConvolutionDescriptor([type=], kernelSizes=, ",
        ),
        (
            lambda: mlc_torch.MLCPoolingDescriptor(type=1, kernelSize=2, stride=2),
            "MLCPoolingDescriptor(type=, kernelSizes=, ",
        ),
        (lambda: mlc_torch.MLCTensor([4, 3]), "MLCTensor(shape=)"),
        (lambda: mlc_torch.MLCTensor([4, 3], mlc_torch.MLCDataType.float32), "MLCTensor(shape=, dataType=)"),
        (lambda: mlc_torch.MLCTensor(shap=[3], dtype=1), "MLCTensor(shape=, dataType=)"),
        (
            lambda: mlc_torch.MLCTensor(descriptr=mlc_torch.MLCTensorDescriptor(shape=[3], dataType=1)),
            "MLCTensor(descriptor=)",
        ),
        (lambda: mlc_torch.MLCSoftmaxLayer(type=0), "MLCSoftmaxLayer(operation=)"),
        (lambda: mlc_torch.MLCTensor(shape=[3], fill=0), "MLCTensor(shape=, fillWithData=)"),
        (lambda: mlc_torch.MLCTensor(shape=[3], fill=0, dataType=1), "MLCTensor(shape=, fillWithData=, dataType=)"),
        (lambda: mlc_torch.MLCGraph().node(layer=None, sources=[]), "MLCGraph.node(with_, sources=)"),
    ],
)
def test_the_closest_goes_by_each_label_and_by_the_type_of_what_has_none(call, closest):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value).splitlines()[-1].startswith(f"closest: {closest}")


def refused_layer():
    return mlc_torch.MLCPaddingLayer(zeroPadding=[1, 2, 3])


REASON = r"from MLCPaddingLayer\(zeroPadding:\), which was refused because padding takes 1 size, .*, got \[1, 2, 3\]$"


def test_a_none_says_which_refusal_it_came_from():
    graph, x = mlc_torch.MLCGraph(), mlc_torch.MLCTensor(shape=[2, 2])
    with pytest.raises(TypeError, match=rf"argument 'with_' expects MLCLayer, got None \(NoneType\); {REASON}"):
        graph.node(refused_layer(), source=x)
    layer = refused_layer()
    x.label = "a name"
    mlc_torch.MLCTensor(shape=[3])
    with pytest.raises(TypeError, match=rf"expects MLCLayer, got None \(NoneType\); perhaps {REASON}"):
        graph.node(layer, source=x)
    with pytest.raises(TypeError, match=rf"; perhaps {REASON}"):
        graph.nodeWithLayer_source_(layer, x)


def test_a_none_of_another_kind_blames_nobody():
    refused_layer()
    with pytest.raises(TypeError, match=r"argument 'source' expects MLCTensor, got None \(NoneType\)$"):
        mlc_torch.MLCGraph().node(mlc_torch.MLCActivationLayer.relu, source=None)
    refused_layer()
    with pytest.raises(TypeError, match=r"argument 'with_' expects MLCLayer, got 3 \(int\)$"):
        mlc_torch.MLCGraph().node(3, source=mlc_torch.MLCTensor(shape=[2]))


def test_a_none_in_a_list_or_dictionary_and_one_for_a_device(monkeypatch):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")
    graph, x = mlc_torch.MLCGraph(), mlc_torch.MLCTensor(shape=[2, 2])
    result = graph.node(mlc_torch.MLCReshapeLayer(shape=[2, 2]), sources=[x, x])
    assert result is None
    inference = mlc_torch.MLCInferenceGraph(graphObjects=[graph])
    came = r"perhaps from MLCGraph.node\(with:sources:\), which was refused because .*takes 1 source, got 2"
    with pytest.raises(TypeError, match=rf"entry 'y' must be MLCTensor, it is None .*; {came}"):
        inference.addOutputs({"x": x, "y": result})
    with pytest.raises(TypeError, match=rf"entry 1 must be MLCTensor, .*; {came}"):
        graph.node(mlc_torch.MLCConcatenationLayer(dimension=0), sources=[x, result])
    with pytest.raises(
        TypeError, match=r"expects MLCDevice, got None \(NoneType\); from MLCDevice.gpu\(\), which was "
    ):
        inference.compile(options=[], device=mlc_torch.MLCDevice.gpu())


def test_help_names_what_to_await():
    for cls, names in (
        (mlc_torch.MLCTrainingGraph, ["execute", "executeForward", "executeGradient", "executeOptimizerUpdate"]),
        (mlc_torch.MLCInferenceGraph, ["execute"]),
    ):
        for name in names:
            assert getattr(cls, name).__doc__.endswith(f"In a coroutine: await {name}Async(...)")
            text = getattr(cls, f"{name}Async").__doc__
            assert f"async {name}Async(" in text and f"async {name}(" not in text


def test_the_error_for_a_method_names_the_method():
    with pytest.raises(
        TypeError, match=r"Crate.take\(start=\) does not exist(.|\n)*Crate.take\(from_=, in_=, \[count=\]\)"
    ):
        Crate(size=1).take(start=1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Crate(size="3"), "Crate(size:): argument 'size' expects Int (a whole number), got '3' (str)"),
        (lambda: Crate(size=3.0), "expects Int"),
        (lambda: Crate(size=True), "expects Int"),
        (lambda: Crate(size=2**64), "64 bits"),
        (lambda: Crate(size=None), "expects Int"),
        (lambda: Crate(size=1, label=b"x"), "argument 'label' expects String"),
        (lambda: Crate(shape=(1, 2, 3)), "(height: Int, width: Int) (a pair)"),
        (lambda: Crate(shape=(1, 2.5)), "(entry 'width' must be Int (a whole number), it is 2.5 (float))"),
        (lambda: Crate.crateWithSize_("x"), "argument 'size' expects Int"),
        (lambda: Crate(size=1).take(from_=0, in_={1, 2}), "argument 'in_' expects [Int] (a list)"),
        (
            lambda: Crate(size=1).take(from_=0, in_=[1, None]),
            "argument 'in_' expects [Int] (entry 1 must be Int (a whole number), it is None (NoneType)), got [1, None]",
        ),
        (lambda: Crate(size=1).take(from_=0, in_=np.array(3)), "argument 'in_' expects [Int] (a list)"),
        (lambda: Crate(size=1).put(3), "Crate.put(_:): argument 'thing' expects String"),
        (
            lambda: Crate.crateWithWidth_height_(1, "2"),
            "Crate.crateWithWidth:height:: argument 'height' expects Int (a whole number), got '2' (str)",
        ),
    ],
)
def test_wrong_types_say_which_argument_and_what_came(call, says):
    with pytest.raises(TypeError) as error:
        call()
    assert says in str(error.value)


def test_whole_numbers_of_numpy_serve():
    assert type(Crate(size=np.int64(3)).size) is int
    assert Crate(shape=np.array([2, 3])).shape == (2, 3)


def test_a_type_error_inside_an_implementation_is_not_reworded():
    class Broken(Crate):
        @declare("init(number: Int)")
        def _broken(cls, number):
            return len(number)

    with pytest.raises(TypeError, match=r"object of type 'int' has no len\(\)"):
        Broken(number=3)


def test_a_refusal_is_answered_by_what_the_member_returns():
    assert Crate(size=-1) is None
    assert str(last_refusal()) == "Crate(size:): size must not be negative, got -1"
    assert Crate.crateWithSize_(-1) is None
    crate = Crate(size=1)
    assert crate.open(8) is False
    assert str(last_refusal()) == "Crate.open(with:): key must be 7"
    assert crate.take(from_=9, in_=[1]) == []
    with strict(), pytest.raises(MLCRefusal, match="key must be 7"):
        crate.open(8)


def test_settable_properties_convert_and_others_are_read_only():
    crate = Crate(size=1)
    crate.label = "new"
    assert crate.label == "new"
    with pytest.raises(TypeError, match=r"Crate.label: expected String, got 3 \(int\)"):
        crate.label = 3
    with pytest.raises(AttributeError, match="Crate.size is read-only"):
        crate.size = 3


def test_async_members_are_coroutines_with_a_suffix():
    import asyncio

    assert not hasattr(Crate, "wait")
    assert asyncio.run(Crate(size=1).waitAsync(seconds=0.5)) == 0.5


def test_help_shows_every_spelling():
    assert "init(size: Int, label: String)" in inspect.getdoc(Crate)
    assert "crateWithSize:label:" in inspect.getdoc(Crate)
    assert "put(_ thing: String, for owner: String) -> String" in inspect.getdoc(Crate.put)
    assert "put:forOwner:" in inspect.getdoc(Crate.put_forOwner_)
    assert list(inspect.signature(Crate(size=1).put_forOwner_).parameters) == ["thing", "owner"]
    assert "Make a crate." in inspect.getdoc(Crate)


# Declarations that contradict themselves fail when the class is made


def test_two_members_with_the_same_labels_are_refused():
    with pytest.raises(TypeError, match=r"init\(size:\) is declared twice"):

        class Twice(MLCObject):
            @declare("init(size: Int)")
            def _one(cls, size):
                return cls._make(size=size)

            @declare("init(size: Float)")
            def _two(cls, size):
                return cls._make(size=size)


@pytest.mark.parametrize(
    ("swift", "selector", "says"),
    [
        ("init(size: Int)", "crateWithSize:label:", "differ in the number of arguments"),
        ("init(width: Int)", None, "has no parameter 'width'"),
        ("init(size: Int = 3)", None, "size needs its default 3 in Python too"),
    ],
)
def test_declarations_that_do_not_fit_their_function(swift, selector, says):
    with pytest.raises(TypeError, match=says):

        @declare(swift, selector)
        def _create(cls, size):
            pass


@pytest.mark.parametrize("text", ["init", "init(size: Int", "(x: Int)"])
def test_texts_that_are_no_declaration(text):
    with pytest.raises(ValueError, match="not a Swift declaration|unbalanced"):
        parse(text)
    with pytest.raises(ValueError, match="starts with"):
        parse_selector(text)


@pytest.mark.parametrize(
    "text",
    [
        "init?(shape: [Int])",
        "static log(reductionType: MLCReductionType, epsilon: Float, weight: Float) -> Self",
        "async execute(inputsData: [String : MLCTensorData]? = nil) -> (result: MLCTensor?, executionTime: TimeInterval)",
        "init(strides: (y: Int, x: Int) = (y: 1, x: 1))",
        "init(deallocator: @escaping (UnsafeMutableRawPointer, Int) -> Void)",
        "synchronizeUpdates()",
    ],
)
def test_a_declaration_reads_back_as_it_was_written(text):
    assert str(parse(text)) == text


# Objects


def test_fewest_labels_win():
    class Sized(MLCObject):
        @declare("init(a: Int, b: Int = 1, c: Int = 2)")
        def _long(cls, a, b=1, c=2):
            return cls._make(which="long")

        @declare("init(a: Int, b: Int = 1)")
        def _short(cls, a, b=1):
            return cls._make(which="short")

    assert Sized(a=1)._which == "short"
    assert Sized(a=1, c=2)._which == "long"


def test_copies_and_pickles():
    crate = Crate(size=3, label="x")
    for made in (copy.copy(crate), copy.deepcopy(crate)):
        assert type(made) is Crate and made is not crate and made.label == "x"
    descriptor = mlc_torch.MLCConvolutionDescriptor(
        kernelSizes=(3, 5), inputFeatureChannelCount=1, outputFeatureChannelCount=2
    )
    for made in (copy.copy(descriptor), copy.deepcopy(descriptor), pickle.loads(pickle.dumps(descriptor))):
        assert made == descriptor and hash(made) == hash(descriptor) and type(made.strides) is YX


def test_a_users_subclass_inherits_the_initializers():
    class Mine(Crate):
        def twice(self):
            return 2 * self.size

    assert Mine(size=3).twice() == 6
    assert type(Mine.crateWithSize_(3)) is Mine
    assert type(Mine.smallest()) is Mine
    assert Mine(size=-1) is None


def test_a_users_subclass_may_have_an_init_of_its_own():
    class Mine(mlc_torch.MLCTensor):
        def __init__(self, rows, *, owner):
            super().__init__(shape=[rows, 2])
            self.owner = owner

    made = Mine(3, owner="Ann")
    assert isinstance(made, mlc_torch.MLCTensor) and made.owner == "Ann"
    assert made.descriptor.shape == [3, 2]
    with pytest.raises(MLCRefusal):
        Mine(0, owner="Ann")  # __init__ cannot answer None


def test_a_users_class_does_not_become_part_of_the_library():
    class MLCMine(mlc_torch.MLCTensor):
        pass

    assert "MLCMine" not in CLASSES


def test_a_class_property_makes_a_fresh_value_and_its_labelled_form_works_beside_it():
    class Ready(MLCObject):
        amount = prop("Float")

        @static_prop("Ready", "halfReady")
        def half(cls):
            return cls._make(amount=0.5)

        @declare("static half(of amount: Float) -> Self", "halfReadyOf:")
        def _half(cls, amount):
            return cls._make(amount=amount / 2)

        def __call__(self, **labels):
            return self._labelled(**labels)

    assert Ready.half.amount == 0.5 and Ready.half is not Ready.half
    assert Ready.half(of=3).amount == 1.5
    assert Ready.halfReady().amount == 0.5
    assert Ready.halfReadyOf_(3).amount == 1.5
    layer = mlc_torch.MLCActivationLayer
    assert layer.celu.descriptor.a == 1 and layer.celu(a=2.0).descriptor.a == 2
    with pytest.raises(TypeError, match="not a function"):
        layer.relu(a=2.0)


def test_a_class_without_initializers_says_so():
    with pytest.raises(TypeError, match="MLCLayer has no initializers"):
        mlc_torch.MLCLayer(shape=[1])


def test_a_factory_that_is_not_inherited_is_refused():
    assert mlc_torch.MLCInferenceGraph.graph() is None
    assert "graphWithGraphObjects:" in str(last_refusal())


# Cost


def test_dispatch_costs_microseconds():
    """Under 10 µs on a quiet machine; the bound leaves room for a busy one."""
    cls = mlc_torch.MLCMatMulDescriptor

    def cost(function):
        return min(timeit.repeat(function, number=2000, repeat=7)) / 2000

    call = cost(lambda: cls(alpha=1.0, transposesX=False, transposesY=True))
    assert call - cost(lambda: cls._create(1.0, False, True)) < 50e-6


def test_the_memory_of_chosen_overloads_is_bounded():
    chosen = mlc_torch.MLCTensor.__initializers__.doors
    assert len(chosen) <= 256
    before = len(gc.get_objects())
    for _ in range(100):
        with pytest.raises(TypeError):
            mlc_torch.MLCTensor(nonsense=1)
    assert len(gc.get_objects()) - before < 5000


_IMPORT = """
import gc, sys, time
import torch, numpy
before, start = set(sys.modules), time.process_time()
import mlc_torch
spent = time.process_time() - start
assert gc.isenabled()
assert not {"html", "mlc_torch.seeing.picture", "mlc_torch.seeing.boxes"} & set(sys.modules) - before  # for who draws
new = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(spent, *sorted(new), any(name.startswith("torch._dynamo") for name in set(sys.modules) - before))
"""


def test_importing_is_cheap_and_brings_nothing_else():
    """About 0.14 s beyond torch on ARM, with cached bytecode, as a package has it; the bound is for a busy machine."""
    setting = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # the first run leaves its bytecode to the others
    runs = [
        subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True, env=setting)
        for _ in range(3)
    ]
    found = [run.stdout.split() for run in runs]
    assert min(float(spent) for spent, *_ in found) < 0.3
    assert found[0][1:] == ["mlc_torch", "False"]


_FIRST_USE = """
import sys
import numpy, torch
from mlc_torch import *
before = set(sys.modules)
graph, x, y = MLCGraph(), MLCTensor(shape=[4, 3]), MLCTensor(shape=[1, 3])
graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, y])
inference = MLCInferenceGraph(graphObjects=[graph])
assert inference.addInputs({"x": x, "y": y}) and inference.compile(options=[], device=MLCDevice.cpu())
print(len(set(sys.modules) - before), "sympy" in sys.modules)
"""


def test_a_first_layer_loads_nothing():
    """torch.broadcast_shapes would bring in sympy, 480 modules and 0.4 seconds."""
    run = subprocess.run([sys.executable, "-c", _FIRST_USE], capture_output=True, text=True, check=True)
    count, sympy = run.stdout.split()
    assert int(count) < 20 and sympy == "False"


@pytest.mark.parametrize("number", [1e39, -1e39, sys.float_info.max, 10**400, 3.4028235677973366e38], ids=str)
def test_a_float_is_one_of_32_bits(number):
    """Swift's holds no more; torch would refuse it in every run."""
    with pytest.raises(TypeError, match=r"argument 'max' expects Float \(a number up to 3.4e38 in size"):
        mlc_torch.MLCActivationLayer.clamp(min=0, max=number)


@pytest.mark.parametrize("number", [float(np.finfo(np.float32).max), math.inf, -math.inf, np.float32(2.5), 3], ids=str)
def test_what_32_bits_hold_is_a_float(number):
    assert mlc_torch.MLCActivationLayer.clamp(min=-math.inf, max=number).descriptor.b == number


ON_THE_CLASS = {
    "its first argument taken for the object": lambda x, cpu: MLCGraph.node(MLCActivationLayer.relu, source=x),
    "every argument labelled": lambda x, cpu: MLCGraph.node(with_=MLCActivationLayer.relu, source=x),
    "the class itself": lambda x, cpu: MLCGraph.node(MLCGraph, MLCActivationLayer.relu, source=x),
    "an object of another class": lambda x, cpu: MLCGraph.node(x, MLCActivationLayer.relu, source=x),
    "a selector": lambda x, cpu: MLCGraph.nodeWithLayer_source_(MLCActivationLayer.relu, x),
    "a selector without arguments": lambda x, cpu: MLCGraph.nodeWithLayer_source_(),
    "an array": lambda x, cpu: MLCTensor.bindAndWriteData(np.ones(2, np.float32), to=cpu),
    "no arguments": lambda x, cpu: MLCTensor.synchronizeData(),
    "labels of no spelling": lambda x, cpu: MLCTrainingGraph.execute(inputsData={}),
    "a run": lambda x, cpu: MLCInferenceGraph.execute(inputsData={}, batchSize=2, options=[]),
    "a graph of another class": lambda x, cpu: MLCInferenceGraph.execute(MLCGraph(), inputsData={}, batchSize=2),
    "a member of two classes": lambda x, cpu: MLCTrainingGraph.compile(options=[], device=cpu),
}


@pytest.mark.parametrize("call", ON_THE_CLASS.values(), ids=ON_THE_CLASS)
def test_a_member_called_on_its_class_is_told_that_it_needs_an_object(call):
    with pytest.raises(TypeError) as error:
        call(MLCTensor(shape=[2]), MLCDevice.cpu())
    said = str(error.value)
    member = r"MLCGraph\.node|MLCTensor\.\w+|MLC(Training|Inference)Graph\.execute|compile"
    assert re.match(rf"({member}) is called on an object", said)
    assert "not on the class: make one with MLC" in said and "ExecutableGraph" not in said and "\n" not in said


def test_a_member_may_be_called_by_its_class_with_the_object_first():
    graph, x = MLCGraph(), MLCTensor(shape=[2])
    assert list(MLCGraph.node(graph, MLCActivationLayer.relu, source=x).shape) == [2]
    assert list(MLCGraph.nodeWithLayer_source_(graph, MLCActivationLayer.relu, x).shape) == [2]
    with pytest.raises(TypeError, match="argument 'source' expects MLCTensor, got 3"):
        MLCGraph.node(graph, MLCActivationLayer.relu, source=3)


class _Broken(MLCTensor):
    @property
    def _cell(self):
        raise AttributeError("of the program")


def test_an_attribute_error_of_the_program_s_own_goes_on():
    with pytest.raises(AttributeError, match="of the program"):
        object.__new__(_Broken).synchronizeData()


class _NoLength:
    def __len__(self):
        raise ZeroDivisionError("no length")

    def __getitem__(self, index):
        raise ZeroDivisionError("no entry")


class _NoEntries(Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise TypeError("no entry")


class _NoValues(Mapping):
    def __len__(self):
        return 1

    def __iter__(self):
        return iter("x")

    def __getitem__(self, key):
        raise OSError("the disk is gone")


def _kernel_sizes(value):
    return MLCConvolutionDescriptor(kernelSizes=value, inputFeatureChannelCount=1, outputFeatureChannelCount=1)


def _nested():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("call", "make", "says"),
    [
        (
            _kernel_sizes,
            _nested,
            r"'kernelSizes' expects .*\(a pair; to read this one raised RuntimeError: .*, got nested_",
        ),
        (_kernel_sizes, _NoLength, r"'kernelSizes' expects .*\(a pair; to read this one raised ZeroDivisionError: no "),
        (
            _kernel_sizes,
            _NoEntries,
            r"'kernelSizes' expects .*\(a pair; to read this one raised TypeError: no entry\), got",
        ),
        (
            lambda v: MLCTensor(shape=v),
            _nested,
            r"'shape' expects \[Int\] \(a list; to read this one raised RuntimeError",
        ),
        (
            lambda v: MLCTensor(shape=v),
            _NoEntries,
            r"'shape' expects \[Int\] \(a list; to read this one raised TypeError",
        ),
        (
            lambda v: MLCInferenceGraph(graphObjects=[MLCGraph()]).addInputs(v),
            _NoValues,
            r"'inputs' expects .*\(a dictionary; to read this one raised OSError: the disk is gone\), got <",
        ),
    ],
)
def test_what_cannot_be_read_is_told_by_the_name_of_the_argument(call, make, says):
    with pytest.raises(TypeError, match=f"argument {says}"):
        call(make())


class _NoWords:
    def __repr__(self):
        raise ZeroDivisionError("no words")


class _NoShape(_NoWords):
    @property
    def shape(self):
        raise ValueError("no shape")


@pytest.mark.parametrize("kind", [_NoWords, _NoShape])
def test_what_cannot_be_shown_is_told_by_its_type(kind):
    with pytest.raises(
        TypeError, match=rf"argument 'shape' expects \[Int\] \(a list\), got an object of {kind.__name__}$"
    ):
        MLCTensor(shape=kind())
