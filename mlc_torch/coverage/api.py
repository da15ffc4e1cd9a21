"""The list of everything ML Compute has: classes, members in both spellings, enumerations, functions."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any


@functools.cache
def api() -> dict[str, Any]:
    """The contents of ``mlcompute.json``. Shared by all callers: read it, do not change it."""
    return json.loads(resources.files(__package__).joinpath("mlcompute.json").read_text("utf-8"))


def constants() -> dict[str, int]:
    """Objective-C's flat constants, ``MLCDataTypeFloat32`` and the like, with those that Swift does not have."""
    found = {}
    for kind in ("enums", "option_sets"):
        for cases in api()[kind].values():
            found.update({name: case["raw"] for name, case in cases.items()})
    return found


_GROUPS = {
    "MLCTensor": "tensor",
    "MLCTensorData": "tensor",
    "MLCTensorParameter": "tensor",
    "MLCTensorOptimizerDeviceData": "tensor",
    "MLCDevice": "device",
    "MLCPlatform": "platform",
}
_ENDINGS = {"Descriptor": "descriptors", "Optimizer": "optimizers", "Layer": "layers", "Graph": "graphs"}


def group(name: str) -> str:
    """The group that a name of the API belongs to, as the report and its test count them."""
    for kind in ("enums", "option_sets", "functions", "typealiases"):
        if name in api()[kind]:
            return kind
    if name in _GROUPS:
        return _GROUPS[name]
    return next(group for ending, group in _ENDINGS.items() if name.endswith(ending))
