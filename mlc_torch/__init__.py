"""Apple's ML Compute on PyTorch: the same classes, labels, values and answers, on CPU, CUDA or MPS."""

from __future__ import annotations

import gc
import importlib

# A sweep over all of torch's objects takes as long as the rest of this import, which leaves no garbage.
_collects = gc.isenabled()
gc.disable()

try:
    from mlc_torch.descriptors import *  # noqa: F403
    from mlc_torch.device import MLCDevice, MLCPlatform
    from mlc_torch.enums import *  # noqa: F403
    from mlc_torch.graph import MLCGraph
    from mlc_torch.layers import *  # noqa: F403
    from mlc_torch.optimizers import *  # noqa: F403
    from mlc_torch.refusals import MLCRefusal, MLCTrainingWarning, RanksLost, last_refusal, strict, unwrap
    from mlc_torch.running import MLCInferenceGraph, MLCTrainingGraph
    from mlc_torch.running.handlers import MLCGraphCompletionHandler
    from mlc_torch.spelling import CLASSES
    from mlc_torch.spelling import MLCObject as _Object
    from mlc_torch.spelling.closest import hint as _hint
    from mlc_torch.tensor import (
        MLCTensor,
        MLCTensorData,
        MLCTensorDescriptor,
        MLCTensorOptimizerDeviceData,
        MLCTensorParameter,
    )
except ModuleNotFoundError as missing:
    if missing.name == "torch":
        missing.add_note(
            "mlc_torch computes with PyTorch, which this Python does not have: `pip install .` brings it; the README's commands "
            "make environments of their own."
        )
    raise
finally:  # also where an import fails
    if _collects:
        gc.enable()

__version__ = "0.1.0"

__all__ = sorted(name for name in globals() if name.startswith("MLC"))
__all__ += ["RanksLost", "last_refusal", "strict", "unwrap"]

for _name, _class in CLASSES.items():
    if _name in __all__ and issubclass(_class, _Object):
        # Where users find it: help() says so, and a prompt reads the labels of its members from the stubs beside this.
        _class.__module__ = __name__
del _name, _class, _Object


_ROOMS = ("interop", "objc", "testing")


def __getattr__(name: str) -> object:
    """``mlc_torch.interop``, ``mlc_torch.testing`` and ``mlc_torch.objc`` load when they are first used."""
    if name in _ROOMS:
        return importlib.import_module(f"mlc_torch.{name}")
    there = "" if name.startswith("_") else _hint(name, (*__all__, *_ROOMS))
    raise AttributeError(f"module 'mlc_torch' has no attribute {name!r}{there}")
