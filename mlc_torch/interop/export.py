"""A graph as a ``torch.export`` program and as an ONNX file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from mlc_torch.engine.shared_module import Input, SharedGraphModule
from mlc_torch.extras import install
from mlc_torch.going_back import undone
from mlc_torch.graph import MLCGraph
from mlc_torch.interop.graphs import expect_graph
from mlc_torch.interop.names import spelled, unused
from mlc_torch.refusals import in_one_line, log, pass_on_signals
from mlc_torch.spelling.own import as_path, as_switch

T = TypeVar("T")

_TRANSLATES_SEVERAL_RESULTS = "2.7"
"""Before this version torch cannot write an operation with several results, such as batch normalization, as ONNX."""

_SOME = 2
"""Samples in the example of a batch whose size is left open: torch takes a batch of one for a fixed one."""


def export_program(graph: MLCGraph, *, dynamic_batch: bool = True) -> torch.export.ExportedProgram:
    """The graph in inference mode, without its loss layers, as a program of ``torch.export`` over the same weights.

    With ``dynamic_batch`` it takes any number of samples, where the layers allow it; a warning says where they do not.
    """
    expect_graph(graph, "export_program")
    dynamic_batch = as_switch("export_program", "dynamic_batch", dynamic_batch)
    return _in_inference_mode(graph, lambda: _exported(graph.to_module(), dynamic_batch)[0])


def export_onnx(graph: MLCGraph, path: str | os.PathLike[str], *, dynamic_batch: bool = True) -> Path:
    """Write the graph in inference mode, without its loss layers, as ONNX; gives the path.

    Inputs and outputs bear the names that ``addInputs`` and ``addOutputs`` gave them, else labels of tensors and layers:
    inputs as valid names of Python, and what several would share made unique.
    """
    expect_graph(graph, "export_onnx")
    target = _new_file(as_path("export_onnx", path))
    dynamic_batch = as_switch("export_onnx", "dynamic_batch", dynamic_batch)
    module = graph.to_module()
    program, free = _in_inference_mode(graph, lambda: _exported(module, dynamic_batch))
    if torch.__version__ < _TRANSLATES_SEVERAL_RESULTS:
        program = program.run_decompositions({torch.ops.aten._native_batch_norm_legit_no_training.default: _normalized})
    # All these dimensions are one symbol of the program; the first use of it names it.
    first = next((name for name, axes in free.items() if axes), None)
    named = {name: dict.fromkeys(axes, "batch") if name == first else {} for name, axes in free.items()} or None
    try:
        made = torch.onnx.export(program, dynamo=True, dynamic_shapes=named, verbose=False)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"writing ONNX needs the package {missing.name}: {install('onnx')}", name=missing.name
        ) from missing
    assert made is not None
    _name_values(made.model.graph, list(module.inputs), module.outputs)
    made.save(str(target), external_data=False)
    return target


def _new_file(path: Path) -> Path:
    """A path that a file can be written to, as far as can be told: the export takes seconds, and writes at its end."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return path


def _name_values(graph: Any, inputs: list[str], outputs: list[str]) -> None:
    """Give the inputs and outputs of an ONNX graph these names. Its values share one space of names, torch's included."""
    used = {*graph.initializers, *inputs}
    names = dict(zip(graph.inputs, inputs, strict=True))
    for value, label in zip(graph.outputs, outputs, strict=True):
        name = unused(spelled(label) or "output", used)
        names.setdefault(value, name)
        used.add(name)
    inner = [v for node in graph for v in node.outputs if v not in names and v.name]
    for value in inner:
        value.name = unused(value.name, used)
        used.add(value.name)
    for value, name in names.items():
        value.name = name


def _normalized(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    momentum: float,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Batch normalization in inference by elementary operations."""
    scale = torch.rsqrt(variance + epsilon) * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - mean * scale
    shape = (-1, *[1] * (x.dim() - 2))
    return x * scale.view(shape) + shift.view(shape), x.new_empty(0), x.new_empty(0)


Free = dict[str, dict[int, Any]]
"""The dimensions of each input whose size is left open."""


def _exported(module: SharedGraphModule, dynamic_batch: bool) -> tuple[torch.export.ExportedProgram, Free]:
    batch = torch.export.Dim("batch")
    free: Free = {n: {} if i.batch_axis is None else {i.batch_axis: batch} for n, i in module.inputs.items()}
    if dynamic_batch and any(free.values()):
        try:
            return _program(module, free), free
        except Exception as error:  # noqa: BLE001 - torch has many ways to say that a size is not free
            pass_on_signals(error)
            _warn_of_fixed(module, error)
    return _program(module, {}), {}


def _warn_of_fixed(module: SharedGraphModule, why: Exception) -> None:
    """Say that the program takes one batch size only, which a caller would find out from a refusal of torch's."""
    sizes = {i.shape[i.batch_axis] for i in module.inputs.values() if i.batch_axis is not None}
    log.warning(
        "the exported program takes batches of %s samples only, since torch.export cannot leave their number open in this graph "
        "(%s); for other batches declare tensors of that size and export again; with dynamic_batch=False this is not said",
        " or ".join(map(str, sorted(sizes))),
        in_one_line(why),
    )


def _program(module: SharedGraphModule, free: Free) -> torch.export.ExportedProgram:
    first = next(module.parameters(), None)
    device = first.device if first is not None else torch.device("cpu")
    example = tuple(_example(i, bool(free.get(n)), device) for n, i in module.inputs.items())
    module.eval()
    with torch.no_grad():
        return torch.export.export(module, example, dynamic_shapes=free or None, strict=False)


def _example(given: Input, free: bool, device: torch.device) -> torch.Tensor:
    shape = list(given.shape)
    if free and given.batch_axis is not None:
        shape[given.batch_axis] = max(shape[given.batch_axis], _SOME)
    return torch.zeros(shape, dtype=given.dtype, device=device)


def _in_inference_mode(graph: MLCGraph, work: Callable[[], T]) -> T:
    """What ``work`` gives, which puts the modules there; those that the program gave get their own mode back."""
    modes = [(m, m.training) for node in graph._all_nodes() for m in node.layer.module.modules()]

    def go_back() -> None:
        for m, training in modes:
            m.training = training

    return undone(work, go_back)
