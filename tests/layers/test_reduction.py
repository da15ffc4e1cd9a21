"""Reductions beyond the records: types, ties, properties."""

from __future__ import annotations

import pytest
import torch

from mlc_torch.enums import MLCReductionType as Kind
from mlc_torch.layers.reduction import MLCReductionLayer
from tests.layers.records import descriptor


@pytest.mark.parametrize("kind", [Kind.argMax, Kind.argMin], ids=lambda k: k.name)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int32])
def test_positions_are_float32_whatever_the_source_is(kind, dtype, torch_device):
    dtype = torch.float32 if torch_device.type == "mps" and dtype is torch.float64 else dtype
    got = MLCReductionLayer(reductionType=kind, dimension=1).module(
        torch.arange(6, device=torch_device).view(2, 3).to(dtype)
    )
    assert got.dtype is torch.float32
    assert got.flatten().tolist() == ([2, 2] if kind is Kind.argMax else [0, 0])


def test_the_type_rule_for_half_precision():
    source = [descriptor((2, 3), "float16")]
    for kind in (Kind.sum, Kind.mean, Kind.max, Kind.min, Kind.l1Norm):
        assert MLCReductionLayer(reductionType=kind, dimension=0)._infer(source)[0].dataType.name == "float16"
    for kind in (Kind.argMax, Kind.argMin):
        assert MLCReductionLayer(reductionType=kind, dimension=0)._infer(source)[0].dataType.name == "float32"


def test_dimensions_listed_in_another_order_are_counted_through_in_that_order():
    x = torch.zeros(1, 2, 3)
    x[0, 1, 0] = 1
    assert MLCReductionLayer(reductionType=Kind.argMax, dimensions=[1, 2]).module(x).item() == 3
    assert MLCReductionLayer(reductionType=Kind.argMax, dimensions=[2, 1]).module(x).item() == 1


@pytest.mark.parametrize("kind", [Kind.max, Kind.min], ids=lambda k: k.name)
def test_equal_extremes_share_the_gradient(kind):
    x = torch.tensor([[5.0, 5.0], [5.0, 5.0]], requires_grad=True)
    MLCReductionLayer(reductionType=kind, dimensions=[0, 1]).module(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 2), 0.25))


def test_the_norm_of_zeros_has_gradient_zero():
    x = torch.zeros(2, 3, requires_grad=True)
    MLCReductionLayer(reductionType=Kind.l1Norm, dimension=1).module(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(2, 3))


def test_properties():
    one = MLCReductionLayer(reductionType=Kind.sum, dimension=2)
    several = MLCReductionLayer(reductionType=Kind.mean, dimensions=[3, 1])
    assert (one.dimension, one.dimensions, one.reductionType) == (2, [2], Kind.sum)
    assert (several.dimension, several.dimensions) == (3, [3, 1])
    assert one.label == "Reduction"
    several.dimensions.append(0)
    assert several.dimensions == [3, 1]
