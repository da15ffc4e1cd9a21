"""Every layer class has records, and they use every way to make one: each Swift spelling and each selector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import mlc_torch
from mlc_torch.layers import MLCLayer
from mlc_torch.spelling import CLASSES, static_prop
from tests.layers.test_every_layer import all_of

Used = set[tuple[type, str]]
"""A class, and how it was called: a Swift signature or a selector."""

LAYERS = [
    cls
    for name, cls in sorted(CLASSES.items())
    if name in mlc_torch.__all__ and issubclass(cls, MLCLayer) and cls is not MLCLayer
]


def ways(cls: type[MLCLayer]) -> Iterator[str]:
    """The signatures and selectors that the class itself declares, those that make a layer."""
    inherited = {id(d) for base in cls.__bases__ for known in base.__declared__.values() for d in known}  # type: ignore[attr-defined]
    for declaration in (d for known in cls.__declared__.values() for d in known):
        if declaration.binds_class and id(declaration) not in inherited:
            if declaration.signature.swift:
                yield str(declaration.signature)
            if declaration.selector:
                yield declaration.selector
    for found in vars(cls).values():
        if isinstance(found, static_prop):
            yield from (found.name, *found.selectors)


@contextmanager
def noticing(used: Used) -> Iterator[None]:
    """Put every spelling that is called into ``used``. A call passes a door, which knows its declaration; a layer that is
    read like ``MLCActivationLayer.relu`` is given by a ``static_prop``."""

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code, caller = frame.f_code, frame.f_back.f_code.co_qualname if frame.f_back else ""
        if code.co_filename == "<mlc_torch door>" and code.co_name == "door":
            declaration, target = frame.f_globals["explain"].declaration, frame.f_locals["target"]
            by_selector = caller == "selector_method.<locals>.call"
            how = declaration.selector if by_selector else str(declaration.signature)
            used.add((target if isinstance(target, type) else type(target), how))
        elif code.co_qualname == "static_prop.__get__":
            used.add((frame.f_locals["cls"], frame.f_locals["self"].name))
        elif code.co_qualname == "MLCObject.__init_subclass__.<locals>.<lambda>":
            used.add((frame.f_locals["c"], frame.f_locals["p"].selector))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def used_by(make: Callable[[], Any]) -> Used:
    used: Used = set()
    with noticing(used):
        make()
    return used


@pytest.fixture(scope="module")
def recorded() -> Used:
    """What the records call."""
    used: Used = set()
    with noticing(used):
        for parameter in all_of("RECORDS"):
            (record,) = parameter.values
            record.make()
            if record.objc is not None:
                record.objc()
    return used


def test_a_call_is_noticed_in_both_spellings():
    layer = mlc_torch.MLCGramMatrixLayer
    assert used_by(lambda: layer(scale=1)) == {(layer, "init(scale: Float)")}
    assert used_by(lambda: layer.layerWithScale_(1)) == {(layer, "layerWithScale:")}
    assert used_by(lambda: mlc_torch.MLCActivationLayer.tanh) == {(mlc_torch.MLCActivationLayer, "tanh")}
    assert used_by(mlc_torch.MLCActivationLayer.tanhLayer) == {(mlc_torch.MLCActivationLayer, "tanhLayer")}


@pytest.mark.parametrize("cls", LAYERS, ids=lambda cls: cls.__name__)
def test_records_use_every_way_to_make_a_layer(cls, recorded):
    demanded = set(ways(cls))
    assert demanded, "a layer without an initializer cannot be made"
    missing = demanded - {how for used, how in recorded if used is cls}
    assert not missing, f"no record in tests/layers/*_records.py makes {cls.__name__} by {sorted(missing)}"


def test_every_layer_of_the_room_is_public():
    """A class that ``layers/__init__.py`` does not name would escape the test above."""
    found = {n for n, c in CLASSES.items() if issubclass(c, MLCLayer) and n.startswith("MLC")} - {"MLCLayer"}
    assert found == {cls.__name__ for cls in LAYERS}
