"""Selectors as PyObjC shows them: read from the class, with their types. What PyObjC's own suite demands, and more.

``pyobjc_suite.toml`` names the selectors that its tests look at; the API list gives the types of all the others.
"""

from __future__ import annotations

import inspect
import pydoc
import tomllib
from pathlib import Path

import pytest

import mlc_torch.objc as MLCompute
from mlc_torch.coverage.api import api, constants
from mlc_torch.objc.selectors import Function, Selector

SUITE = tomllib.loads((Path(__file__).parent / "pyobjc_suite.toml").read_text("utf-8"))
CONSTANTS = {
    kind + case: value
    for kind, cases in SUITE.pop("constants").items()
    for case, value in (cases.items() if isinstance(cases, dict) else ((c, i) for i, c in enumerate(cases) if c))
}

RESULTS = [(c, s) for c, known in SUITE.items() for s in known.get("bool_results", ())]
ARGUMENTS = [(c, s, i) for c, known in SUITE.items() for s, at in known.get("bool_arguments", {}).items() for i in at]
BLOCKS = [(c, s, *wanted) for c, known in SUITE.items() for s, wanted in known.get("blocks", {}).items()]
POINTERS = [(c, s, *wanted) for c, known in SUITE.items() for s, wanted in known.get("pointers", {}).items()]
NO_COUNTS = [
    f"{name}Count"
    for name in (
        "MLCActivationType",
        "MLCArithmeticOperation",
        "MLCComparisonOperation",
        "MLCDataType",
        "MLCDeviceType",
        "MLCLossType",
        "MLCPoolingType",
        "MLCRandomInitializerType",
        "MLCReductionType",
    )
]


def _arguments(owner: str, name: str) -> tuple:
    """Without the receiver and the selector itself, which PyObjC lists first."""
    found = getattr(getattr(MLCompute, owner), name)
    assert isinstance(found, Selector)
    receiver, selector, *others = found.__metadata__()["arguments"]
    assert (receiver["type"], selector["type"]) == (b"@", b":")
    return tuple(others)


def test_the_suite_is_covered_in_full():
    """Counted in its 25 files: 33 tests that look at 108 different facts of selectors and at 133 constants."""
    assert (len(RESULTS), len(ARGUMENTS), len(BLOCKS), len(POINTERS)) == (59, 32, 11, 3)
    assert len(RESULTS) + len(ARGUMENTS) + len(BLOCKS) + 2 * len(POINTERS) == 108
    assert len(api()["enums"]) + len(api()["option_sets"]) == 19
    assert len(CONSTANTS) == 133 and len(NO_COUNTS) == 9 and len(api()["functions"]) == 13
    assert constants().keys() - CONSTANTS.keys() == {"MLCDataTypeUInt8"}  # which it has forgotten


@pytest.mark.parametrize(("owner", "name"), RESULTS)
def test_bool_results(owner, name):
    assert getattr(getattr(MLCompute, owner), name).__metadata__()["retval"]["type"] == b"Z"


@pytest.mark.parametrize(("owner", "name", "position"), ARGUMENTS)
def test_bool_arguments(owner, name, position):
    assert _arguments(owner, name)[position]["type"] == b"Z"


@pytest.mark.parametrize(("owner", "name", "position", "signature"), BLOCKS)
def test_blocks(owner, name, position, signature):
    argument = _arguments(owner, name)[position]
    assert argument["type"] == b"@?"
    itself, *given = argument["callable"]["arguments"]
    assert itself["type"] == b"^v"
    assert b"".join([argument["callable"]["retval"]["type"], *(g["type"] for g in given)]) == signature.encode()


@pytest.mark.parametrize(("owner", "name", "position", "length"), POINTERS)
def test_memory_that_goes_in(owner, name, position, length):
    arguments = _arguments(owner, name)
    assert arguments[position]["type"] == b"n^v"
    assert arguments[position]["c_array_length_in_arg"] == length + 2
    assert arguments[length]["type"] == b"Q"


@pytest.mark.parametrize("name", [*api()["enums"], *api()["option_sets"]])
def test_types_of_enumerations(name):
    kind = getattr(MLCompute, name)
    assert kind.__supertype__ is int and kind.__name__ == name
    assert type(kind(3)) is int


def test_constants():
    assert {name: getattr(MLCompute, name) for name in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize("name", NO_COUNTS)
def test_counts_of_cases_are_not_there(name):
    assert not hasattr(MLCompute, name)


@pytest.mark.parametrize("name", api()["functions"])
def test_functions_have_types(name):
    found = getattr(MLCompute, name)
    assert isinstance(found, Function) and found.__name__ == name and name in repr(found)
    metadata = found.__metadata__()
    assert metadata["retval"]["type"] == b"@"
    wide = name == "MLCLSTMResultModeDebugDescription"  # the one enumeration of 64 bits
    assert [a["type"] for a in metadata["arguments"]] == [b"Q" if wide else b"i"]


# Every selector, by the types in the API list

PLAIN = {
    "Bool": b"Z",
    "Float": b"f",
    "Void": b"v",
    "UnsafeMutableRawPointer": b"^v",
    "UnsafeRawPointer": b"^v",
    "MLCGraphCompletionHandler?": b"@?",
    "@escaping (UnsafeMutableRawPointer, Int) -> Void": b"@?",
    "MLCLSTMResultMode": b"Q",
}


def _expected(type_: str, name: str) -> bytes:
    if type_ == "Int":
        signed, numbers = {"axis", "bias"}, {"embeddingCount", "embeddingDimension"}
        return b"q" if name in signed else b"@" if name in numbers else b"Q"
    if type_ in PLAIN:
        return PLAIN[type_]
    return b"i" if type_ in api()["enums"] else b"Q" if type_ in api()["option_sets"] else b"@"


def _listed():
    for owner, listed in api()["classes"].items():
        for member in listed["swift"]:
            of_class = member["kind"] == "init" or bool(member.get("static"))
            for selector in member.get("objc", []):
                if selector != "init":
                    yield owner, member, selector, of_class


def test_every_selector_has_the_types_of_the_list():
    checked = 0
    for owner, member, selector, of_class in _listed():
        found = getattr(getattr(MLCompute, owner), selector.replace(":", "_"))
        assert found.selector == selector.encode() and found.isClassMethod == of_class, (owner, selector)
        given = [a["type"].lstrip(b"no") for a in _arguments(owner, found.__name__)]
        if member["kind"] != "property":
            assert given == [_expected(p["type"], p["label"]) for p in member["params"]], (owner, selector)
            returns = member["returns"]
        elif selector.startswith("set"):
            assert given == [_expected(member["type"], member["name"])], (owner, selector)
            returns = "Void"
        else:
            assert given == []
            returns = member["type"]
        assert found.__metadata__()["retval"]["type"] == _expected(returns, selector), (owner, selector)
        checked += 1
    assert checked > 450


def test_metadata_is_sane_everywhere():
    """What PyObjC asks of any framework: nothing by reference but pointers, and lengths that are arguments."""
    selectors = 0
    for name in api()["classes"]:
        cls = getattr(MLCompute, name)
        for space in (cls.pyobjc_classMethods, cls.pyobjc_instanceMethods):
            for found in vars(space).values():
                metadata = found.__metadata__()
                for part in (metadata["retval"], *metadata["arguments"]):
                    code = part["type"]
                    assert not code.endswith((b"*", b"^c")) and (code[:1] not in b"noN" or code[1:2] == b"^")
                    assert part.get("c_array_length_in_arg", 0) < len(metadata["arguments"])
                joined = metadata["retval"]["type"] + b"".join(a["type"] for a in metadata["arguments"])
                assert metadata["full_signature"] == joined == found.signature == found.native_signature
                assert metadata["classmethod"] == found.isClassMethod and metadata["hidden"] is False
                selectors += 1
    assert selectors > 1000


def test_memory_that_comes_out():
    out = _arguments("MLCTensor", "copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_")
    assert out[0]["type"] == b"o^v" and out[0]["c_array_length_in_arg"] == 3
    assert MLCompute.MLCTensorData.bytes.__metadata__()["retval"]["c_array_of_variable_length"]
    tensor = MLCompute.MLCTensor.tensorWithShape_fillWithData_dataType_([3], 2, MLCompute.MLCDataTypeFloat32)
    copied, memory = tensor.copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_(None, 8, True)
    assert copied is True and memory.bytes().cast("f").tolist() == [2, 2]
    for wrong in (-1, 2**62):
        assert tensor.copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_(None, wrong, True)[0] is False
    with pytest.raises(TypeError, match="'length' expects Int"):
        tensor.copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_(None, "8", True)
    own = bytearray(12)
    assert tensor.copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_(own, 12, True) is True
    assert memoryview(own).cast("f").tolist() == [2, 2, 2]


# Selectors as objects


@pytest.fixture
def tensor():
    return MLCompute.MLCTensor.tensorWithShape_dataType_([2, 3], MLCompute.MLCDataTypeFloat32)


def test_instance_selectors_are_attributes_of_the_class(tensor):
    unbound = MLCompute.MLCTensor.hasValidNumerics
    assert unbound(tensor) is True and unbound.self is None
    assert unbound.selector == b"hasValidNumerics" and unbound.__name__ == "hasValidNumerics"
    assert not unbound.isClassMethod and unbound.definingClass is MLCompute.MLCTensor
    MLCompute.MLCTensor.setLabel_(tensor, "x")
    assert tensor.label() == "x" and tensor.setLabel_.selector == b"setLabel:" and tensor.setLabel_.self is tensor
    assert MLCompute.MLCTensor.tensorWithShape_.self is MLCompute.MLCTensor
    graph = MLCompute.MLCInferenceGraph
    assert graph.layers.definingClass is MLCompute.MLCGraph and graph.addInputs_.definingClass is graph


def test_a_selector_of_objects_needs_one(tensor):
    with pytest.raises(TypeError, match="label is a selector of objects"):
        MLCompute.MLCTensor.label()
    with pytest.raises(TypeError, match="label expects a MLCTensor first"):
        MLCompute.MLCTensor.label(tensor.descriptor())


def test_selectors_compare_and_show_themselves(tensor):
    assert tensor.label == tensor.label and tensor.label != tensor.tensorID and len({tensor.label, tensor.label}) == 1
    assert tensor.label != tensor.copy().label and tensor.label != "label"
    assert repr(MLCompute.MLCTensor.setLabel_) == "<selector -setLabel:>"
    assert repr(MLCompute.MLCTensor.tensorWithShape_).startswith("<selector +tensorWithShape:")


def test_help_says_what_a_selector_takes():
    node = MLCompute.MLCGraph.nodeWithLayer_source_
    text = pydoc.plain(pydoc.render_doc(node))
    assert "nodeWithLayer_source_(self, layer, source, /)" in text
    assert "nodeWithLayer:source:" in text and "Swift: node(with layer: MLCLayer, source: MLCTensor)" in text
    assert list(inspect.signature(MLCompute.MLCGraph.new().nodeWithLayer_source_).parameters) == ["layer", "source"]
    assert "no element is NaN" in pydoc.plain(pydoc.render_doc(MLCompute.MLCTensor.hasValidNumerics))
    assert "nodeWithLayer_source_" in pydoc.plain(pydoc.render_doc(MLCompute.MLCGraph))
    assert "MLCLossType" in MLCompute.MLCLossTypeDebugDescription.__doc__


def test_help_has_the_words_that_stand_at_a_declaration():
    assert "x from 0 on, a·(e^x - 1) below." in MLCompute.MLCActivationLayer.eluLayerWithA_.__doc__
    for name in ("layerID", "label", "setLabel_"):  # kept by the object, and not computed
        words = {"layerID": "The position of the layer"}.get(name, "A name for people")
        assert words in getattr(MLCompute.MLCLayer, name).__doc__


def test_class_and_instance_methods_apart():
    cls = MLCompute.MLCTensor
    assert cls.pyobjc_classMethods.tensorWithShape_([2]).descriptor().shape() == [2]
    assert not hasattr(cls.pyobjc_classMethods, "label") and not hasattr(cls.pyobjc_instanceMethods, "tensorWithShape_")
    assert cls.pyobjc_instanceMethods.label(cls.tensorWithShape_([2])).startswith("data")
