"""Lets a script's own imports work: ``import MLCompute``, and ``objc``, ``Foundation`` and ``Metal`` where they are absent.

The finder is asked after all others, so that the real modules always win. The stand-ins have the few names that scripts
for ML Compute use; anything else is an ``AttributeError`` that says what they are.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from mlc_torch.objc import stand_ins
from mlc_torch.objc.module_names import all_names
from mlc_torch.spelling.closest import hint

_MODULES: dict[str, Callable[[], dict[str, Any]]] = {
    "MLCompute": all_names,
    "objc": stand_ins.objc_names,
    "Foundation": stand_ins.foundation_names,
    "Metal": stand_ins.metal_names,
}


_ORIGIN = f"a stand-in by {__package__}"


def attribute(module: str, known: dict[str, Any], name: str) -> Any:
    """The value of ``name``, ``__all__`` included, or an error that names what is close."""
    if name == "__all__":
        return sorted(n for n in known if not n.startswith("_"))
    if name in known:
        return known[name]
    meant = "" if name.startswith("__") else hint(name, known)
    raise AttributeError(f"module {module!r} has no attribute {name!r}{meant}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the four modules after everybody else has failed to."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=_ORIGIN)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        name, known = module.__name__, _MODULES[module.__name__]
        who = f"{name} ({_ORIGIN}: it has what scripts for ML Compute use)"
        module.__doc__ = f"{who}.\n\nNot made by Apple or PyObjC. docs/pyobjc.md says what works and what does not."
        module.__dict__.update(
            __file__=_ORIGIN,  # Python's own error for "from Foundation import NSURL" says where the module comes from
            __getattr__=lambda attr: attribute(name if name == "MLCompute" else who, known(), attr),
            __dir__=lambda: sorted(known()),
        )


_finder = Finder()


def install() -> None:
    """Let ``import MLCompute`` find this view where the real one is absent, and so for objc, Foundation and Metal.

    Libraries that look for ``objc`` to tell whether they run on a Mac will find the stand-in; ``uninstall`` undoes it.
    """
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


def uninstall() -> None:
    """Undo :func:`install`."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in _MODULES:
        module = sys.modules.get(name)
        if module is not None and getattr(module.__spec__, "loader", None) is _finder:
            del sys.modules[name]
