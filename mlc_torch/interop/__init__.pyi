# Written by tools/stubs.py from the declarations. Do not edit; run the tool again.
from mlc_torch import MLCGraph
from mlc_torch import MLCLayer
from mlc_torch import MLCOptimizer
from mlc_torch import MLCTensorParameter
from mlc_torch.interop.checkpoint import describe_checkpoint as describe_checkpoint
from pathlib import Path as _Path
from typing import Any
from typing import TYPE_CHECKING
from typing_extensions import Self
import os as _os
import torch as _torch

__all__ = [
    "TorchLayer",
    "TorchOptimizer",
    "describe_checkpoint",
    "export_onnx",
    "export_program",
    "load_checkpoint",
    "save_checkpoint",
]

class TorchLayer(MLCLayer):
    """``TorchLayer(module, label=None)``: the sources are the arguments of ``module``, its tensors the results. Ours."""
    def __new__(cls, module: Any, /, *, label: str | None = ...) -> Self: ...
    if not TYPE_CHECKING:
        def __init__(self, module: Any, /, *, label: str | None = ...) -> None: ...
    @property
    def parameters_by_name(self) -> dict[str, MLCTensorParameter]: """The module's parameters under its own names; each has a ``tensor``, and ``isUpdatable`` freezes it."""

class TorchOptimizer(MLCOptimizer):
    """``TorchOptimizer(torch.optim.AdamW(graph.to_module().parameters()))``: torch decides how weights change. Ours."""
    def __new__(cls, optimizer: Any, /) -> Self: ...
    if not TYPE_CHECKING:
        def __init__(self, optimizer: Any, /) -> None: ...
    learningRate: float
    """That of the first group; setting it sets that of all groups."""
    @property
    def timeStep(self) -> int: ...

def export_onnx(graph: MLCGraph, path: str | _os.PathLike[str], *, dynamic_batch: bool = ...) -> _Path: """Write the graph in inference mode, without its loss layers, as ONNX; gives the path."""

def export_program(graph: MLCGraph, *, dynamic_batch: bool = ...) -> _torch.export.ExportedProgram: """The graph in inference mode, without its loss layers, as a program of ``torch.export`` over the same weights."""

def load_checkpoint(graph: MLCGraph, path: str | _os.PathLike[str], *, resume: bool = ...) -> None: """Bring ``graph`` to where it was when ``path`` was written; raises ``MLCRefusal``, and changes nothing, if it cannot."""

def save_checkpoint(graph: MLCGraph, path: str | _os.PathLike[str]) -> None: """Write everything that training changed, and a description of the graph, to ``path`` as safetensors."""
