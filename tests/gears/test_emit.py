"""Generated code calls torch's own bindings: held to the operations that were recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mlc_torch import MLCGraph, MLCInferenceGraph
from mlc_torch.engine.emit import direct
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from tests.gears.plans import Formula
from tests.graph.programs import array, cpu, data, placeholder, values

SHAPES = [(5,), (4, 4), (2, 3, 4), (2, 3, 4, 4), (2, 3, 4, 4, 4)]
"""Of the first that an operation takes."""


def fitting(argument: Any, shape: tuple[int, ...], named: bool) -> Any:
    """Something of an argument's type; ``None`` where nothing simple is."""
    kind = str(argument.type)
    if argument.name in ("target", "indices", "index") and named:
        return torch.zeros(shape[:1], dtype=torch.int64)
    if kind == "Tensor":
        return torch.linspace(0.1, 0.9, math.prod(shape)).reshape(shape)
    if kind == "List[Tensor]":
        return [torch.linspace(0.1, 0.9, math.prod(shape)).reshape(shape) for _ in range(2)]
    plain = {"int": 1, "float": 0.5, "number": 2, "bool": True, "List[int]": [1, 1], "List[float]": [1.5, 1.5]}
    return plain.get(kind)


def with_defaults() -> Iterator[Any]:
    """Operations that leave something out when they are recorded, and that torch's own bindings are called for. Not what makes
    sparse tensors, which takes any numbers for indices, and no cells: torch 2.6 reads their weights wherever they should lie.
    The least squares of what has no rank are any."""
    schemas = torch._C._jit_get_all_schemas()  # torch.ops.aten itself lists those that somebody has asked for
    names = {schema.name.removeprefix("aten::") for schema in schemas if schema.name.startswith("aten::")}
    for name in sorted(name for name in names if name.isidentifier() and not name.startswith("_")):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            op = getattr(packet, overload)
            has_default = any(a.has_default_value() for a in op._schema.arguments)
            is_known = torch.Tag.nondeterministic_seeded not in op.tags and "empty" not in name and name != "Generator"
            is_known &= not op._schema.is_mutable and "sparse" not in name and not name.endswith(("_cell", "_lstsq"))
            if has_default and is_known:
                yield op


def asked(op: Any) -> tuple[list[Any], dict[str, Any], Any] | None:
    """What an operation is given, what by name, and what it makes of that; ``None`` where it takes nothing of ours."""
    for shape in SHAPES:
        for named in (False, True):
            needed = [a for a in op._schema.arguments if not a.has_default_value()]
            given = {a.name: fitting(a, shape, named) for a in needed}
            if any(value is None for value in given.values()):
                return None
            by_name = {a.name: given.pop(a.name) for a in needed if a.kwarg_only}
            try:
                return [*given.values()], by_name, op(*given.values(), **by_name)
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue
    return None


def is_same(made: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        same = isinstance(made, torch.Tensor) and made.shape == want.shape and made.dtype == want.dtype
        return same and (want.layout is not torch.strided or torch.allclose(made, want, 0, 0, equal_nan=True))
    if isinstance(want, (list, tuple)):
        return len(made) == len(want) and all(is_same(*pair) for pair in zip(made, want, strict=True))
    return made == want


@pytest.mark.filterwarnings("ignore")
def test_what_a_call_leaves_out_means_the_same_to_torch_s_binding():
    compared, unlike = [], []
    for op in with_defaults():
        found = asked(op) if direct(op) is not op else None
        if found is None:
            continue
        args, by_name, want = found
        compared.append(str(op))
        if not is_same(direct(op)(*args, **by_name), want):
            unlike.append(str(op))
    assert not unlike
    assert len(compared) > 200  # of 272, torch 2.13


LOSSES = {
    "mse": F.mse_loss,
    "huber": F.huber_loss,
    "smooth l1": F.smooth_l1_loss,
    "cross entropy": F.binary_cross_entropy,
    "with logits": F.binary_cross_entropy_with_logits,
    "soft margin": F.soft_margin_loss,
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_inside_of_a_module_is_the_mean(kind):
    def compute(x):
        inside = torch.sigmoid(x)
        return x * LOSSES[kind](inside, torch.full_like(inside, 0.25))

    graph, x = MLCGraph(), placeholder(4, 3)
    y = graph.node(TorchLayer(Formula(compute)), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    numbers = values(4, 3, seed=1)
    assert inference.execute(inputsData={"x": data(numbers)}, batchSize=4)
    assert inference._runs.sessions[Variant.whole].gear.name == "planned"
    np.testing.assert_allclose(array(y), compute(torch.from_numpy(numbers)), rtol=1e-5)
