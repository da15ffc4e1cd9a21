"""ML Compute as PyObjC shows it: ``import mlc_torch.objc as MLCompute``.

PyObjC calls properties (``tensor.descriptor().shape()``), sets them with ``setX_``, spells selectors with underscores
and has constants in place of enumerations. Here is a view of the library's classes that does the same; ``install()`` lets
a script's own ``import MLCompute`` find it.
"""

from __future__ import annotations

from typing import Any

from mlc_torch.objc import nsobject  # noqa: F401 - makes the root of the view classes
from mlc_torch.objc.installing import attribute
from mlc_torch.objc.installing import install as install
from mlc_torch.objc.installing import uninstall as uninstall
from mlc_torch.objc.module_names import all_names
from mlc_torch.objc.views import objc_class as objc_class
from mlc_torch.objc.views import objc_object as objc_object
from mlc_torch.objc.views import unwrap as unwrap
from mlc_torch.objc.views import wrap as wrap


def __getattr__(name: str) -> Any:
    value = attribute(__name__, all_names(), name)
    if name != "__all__":  # which may grow
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*all_names(), "install", "uninstall", "unwrap", "wrap", "objc_class", "objc_object"})
