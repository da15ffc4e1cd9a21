"""Every record, every promise: shape rule, values, gradients, spellings, devices, refusals."""

from __future__ import annotations

import copy
import importlib
import pkgutil

import numpy as np
import pytest
import torch

import mlc_torch
import tests.layers
from mlc_torch.refusals import MLCRefusal, strict
from mlc_torch.tensor import TORCH_TYPES
from tests.layers.records import Record, Refusal, descriptor

FAMILIES = sorted(m.name for m in pkgutil.iter_modules(tests.layers.__path__) if m.name.endswith("_records"))


def all_of(kind: str, wanted=lambda record: True) -> list:
    found = []
    for name in FAMILIES:
        family = importlib.import_module(f"tests.layers.{name}")
        title = name.removesuffix("_records")
        found += [pytest.param(r, id=f"{title}: {r.name}") for r in getattr(family, kind) if wanted(r)]
    return found


def records(wanted=lambda record: True):
    return pytest.mark.parametrize("record", all_of("RECORDS", wanted))


def run(record: Record, device: torch.device, layer=None, dtype: torch.dtype | None = None):
    """The module's results for the record's sources."""
    layer = layer or record.make()
    module = layer.module.train(record.training)
    if device.type != "cpu" or dtype is not None:
        module = copy.deepcopy(module).to(device=device, dtype=dtype)
    sources = [torch.from_numpy(np.array(s)).to(device) for s in record.sources]
    if dtype is not None:
        sources = [s.to(dtype) if s.is_floating_point() else s for s in sources]
    with torch.no_grad():
        results = module(*sources)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def expected(record: Record) -> list[np.ndarray]:
    sources = [s.astype(np.float64) if s.dtype.kind == "f" else s for s in record.sources]
    with np.errstate(all="ignore"):
        results = record.reference(*sources)
    return list(results) if isinstance(results, (tuple, list)) else [results]


def shapes(record: Record) -> list[tuple[int, ...]]:
    return list(map(tuple, record.result)) if isinstance(record.result, list) else [tuple(record.result)]


@records()
def test_the_shape_rule_agrees_with_the_run(record):
    layer = record.make()
    sources = [descriptor(s.shape, s.dtype.name) for s in record.sources]
    inferred = layer._infer(sources)
    layer._check(sources)
    assert [d._shape for d in inferred] == shapes(record)
    assert inferred[0].dataType.name.replace("boolean", "bool") == record.result_type
    for rule, value in zip(inferred, run(record, torch.device("cpu")), strict=True):
        assert tuple(value.shape) == rule._shape
        assert value.dtype == TORCH_TYPES[rule.dataType]


@records()
def test_values_agree_with_numpy(record, torch_device):
    for got, want in zip(run(record, torch_device), expected(record), strict=True):
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=record.rtol, atol=record.atol)


@records(lambda r: r.gradient)
def test_gradients_agree_with_finite_differences(record):
    module = copy.deepcopy(record.make().module).double().train(record.training)
    sources = [torch.from_numpy(np.array(s)) for s in record.sources]
    sources = [s.double().requires_grad_() if s.is_floating_point() else s for s in sources]
    parameters = [p for p in module.parameters() if p.requires_grad]
    buffers = {name: b.clone() for name, b in module.named_buffers()}

    def run_again(*tensors):
        fresh = {name: b.clone() for name, b in buffers.items()}  # finite differences must not see statistics move
        return torch.func.functional_call(module, fresh, tensors[: len(sources)])

    # The parameters are arguments too, so that gradcheck disturbs them in place.
    assert torch.autograd.gradcheck(run_again, (*sources, *parameters), fast_mode=len(parameters) > 8, atol=1e-6)


@records(lambda r: r.objc is not None)
def test_both_spellings_make_the_same_layer(record):
    swift, objc = record.make(), record.objc()
    assert type(swift) is type(objc)
    for a, b in zip(run(record, torch.device("cpu"), swift), run(record, torch.device("cpu"), objc), strict=True):
        assert torch.equal(a, b)


@records(lambda r: r.half and r.result_type == "float32")
def test_half_precision(record, torch_device):
    try:
        results = run(record, torch_device, dtype=torch.float16)
    except RuntimeError as error:
        if torch_device.type == "cpu" and "not implemented for 'Half'" in str(error):
            return
        raise
    for got, want in zip(results, expected(record), strict=True):
        assert got.dtype == torch.float16
        np.testing.assert_allclose(got.float().cpu().numpy(), want, rtol=2e-2, atol=2e-2)


@records()
def test_the_module_is_the_one_listed(record):
    module = record.make().module
    assert isinstance(module, torch.nn.Module)
    if record.module is not None:
        assert type(module) is record.module
    if not type(module).__module__.startswith("torch.nn"):
        assert type(module).__module__.startswith("mlc_torch.layers.")


@pytest.mark.parametrize("refusal", all_of("REFUSALS"))
def test_refusals_say_why(refusal: Refusal):
    if not refusal.sources:
        assert refusal.make() is None
        assert refusal.says in str(mlc_torch.last_refusal())
        with strict(), pytest.raises(MLCRefusal):
            refusal.make()
        return
    layer = refusal.make()
    sources = [descriptor(*s) for s in refusal.sources]
    if refusal.at_compile:
        layer._infer(sources)
    with pytest.raises(MLCRefusal) as why:
        layer._check(sources) if refusal.at_compile else layer._infer(sources)
    assert refusal.says in str(why.value)
