"""What an editor and a prompt show: completed labels, signatures, and a sentence of its own for every class and member."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest

import mlc_torch
import mlc_torch.interop  # whose classes are listed with the others, once it is loaded
from mlc_torch import *
from mlc_torch.coverage.ours import FOR_USERS
from mlc_torch.spelling import CLASSES, MLCObject, prop

jedi = pytest.importorskip("jedi", reason="jedi completes, and is not installed")

PUBLIC = [cls for name, cls in CLASSES.items() if name in mlc_torch.__all__]
OBJECTS = [cls for cls in PUBLIC if issubclass(cls, MLCObject)]


def completed(code: str) -> set[str]:
    """What jedi offers an editor at the end of ``code``, from the stubs alone."""
    return {c.name for c in jedi.Script(f"from mlc_torch import *\n{code}").complete()}


@pytest.mark.parametrize(
    ("code", "labels"),
    [
        ("MLCFullyConnectedLayer(", {"weights=", "biases=", "descriptor="}),
        ("MLCTensor(", {"shape=", "descriptor=", "width=", "sequenceLengths="}),
        ("MLCTensor(shape=[1], fi", {"fillWithData="}),
        ("MLCGraph().node(MLCActivationLayer.relu, so", {"source=", "sources="}),
        ("MLCTrainingGraph(graphObjects=[], lossLayer=None, opt", {"optimizer="}),
        ("MLCLossLayer.huberLoss(", {"reductionType=", "delta=", "weight=", "weights="}),
    ],
)
def test_an_editor_completes_labels(code, labels):
    assert labels <= completed(code)


def test_an_editor_completes_members_and_nothing_of_the_insides():
    names = completed("MLCActivationLayer.relu.")
    assert {"label", "layerID", "module"} <= names
    assert not {name for name in names if name in ("buffer_cells", "parameter_uses", "_cell")}


def test_a_prompt_completes_labels():
    """IPython and Jupyter ask jedi about the live objects."""
    known = vars(mlc_torch) | {"graph": MLCGraph(), "layer": MLCActivationLayer.relu}
    for code, labels in {
        "MLCFullyConnectedLayer(": {"weights=", "biases=", "descriptor="},
        "graph.node(layer, ": {"source=", "sources="},
        "MLCActivationLayer.celu(": {"a="},
    }.items():
        assert labels <= {c.name for c in jedi.Interpreter(code, [known]).complete()}, code


@pytest.mark.parametrize("cls", OBJECTS, ids=lambda c: c.__name__)
def test_every_class_and_member_has_a_signature(cls):
    labels = {k for d in cls.__declared__.get("init", []) for k in d.signature.keywords}
    assert set(inspect.signature(cls).parameters) == labels
    for name, declarations in cls.__declared__.items():
        if name in ("", "init") or isinstance(inspect.getattr_static(cls, name), prop):
            continue
        shown = inspect.signature(getattr(cls, name)).parameters
        wanted = {p.name if p.label == "_" else p.keyword for d in declarations for p in d.signature.params}
        assert set(shown) - {"self"} == wanted, name
        needed = frozenset.intersection(*(d.signature.required for d in declarations))
        unlabelled = {d.signature.params[0].name for d in declarations if "_" in d.signature.keywords}
        optional = {n for n, p in shown.items() if p.default is not p.empty}
        assert optional - unlabelled == wanted - needed - unlabelled - {"self"}, name


def test_signatures_can_be_read():
    assert str(inspect.signature(MLCFullyConnectedLayer)) == "(*, weights, biases, descriptor)"
    assert str(inspect.signature(MLCTensor.bindAndWriteData)) == "(self, data, /, *, to)"
    assert (
        str(inspect.signature(MLCGraph().node))
        == "(with_, *, source=..., sources=..., disableUpdate=..., lossLabels=...)"
    )
    assert str(inspect.signature(MLCActivationLayer.celu)) == "(*, a)"
    assert str(inspect.signature(MLCTensor.tensorWithShape_)) == "(shape, /)"


def test_a_subclass_with_its_own_initializer_shows_that_one():
    class Image(MLCTensor):
        def __init__(self, side: int) -> None:
            super().__init__(shape=[1, 3, side, side])

    assert str(inspect.signature(Image)) == "(side: 'int')"
    assert Image(4).descriptor.shape == [1, 3, 4, 4]


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda c: c.__name__)
def test_every_class_says_what_it_is(cls):
    first = (vars(cls).get("__doc__") or "").partition("\n")[0]
    assert first.rstrip().endswith((".", ":")) and not first.startswith("Spellings"), first


@pytest.mark.parametrize("cls", OBJECTS, ids=lambda c: c.__name__)
def test_every_member_has_a_sentence_and_shows_its_spellings(cls):
    silent = [p.name for p in cls.__properties__.values() if not sentence(p.about)]
    silent += [str(d.signature) for known in cls.__declared__.values() for d in known if not sentence(d.words)]
    assert silent == []
    for name, declarations in cls.__declared__.items():
        value = cls if name == "init" else getattr(cls, name, None)
        if name and not isinstance(inspect.getattr_static(cls, name, None), prop):
            assert all(d.signature.here in (inspect.getdoc(value) or "") for d in declarations), name


def sentence(words: str) -> bool:
    return bool(re.fullmatch(r"\S.*[.:]", " ".join(words.partition("\n\n")[0].split())))


def test_our_own_members_have_a_sentence_too():
    for owner, names in FOR_USERS.items():
        for name in names - {"torch_device"}:
            assert sentence(inspect.getdoc(inspect.getattr_static(CLASSES[owner], name)) or ""), (owner, name)


def test_help_begins_with_what_it_is():
    text = pydoc.plain(pydoc.render_doc(MLCTensor))
    assert text.startswith("Python Library Documentation: class MLCTensor in module mlc_torch")
    assert "\n |  A tensor of a graph: a shape" in text.partition("Method resolution order")[0]
    assert "Spellings, as Swift and Objective-C write them:" in text
