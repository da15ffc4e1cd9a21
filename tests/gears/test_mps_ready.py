"""No Mac is at hand, so every record runs under a mode that refuses what MPS lacks: float64 and fused optimizers."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCOptimizerDescriptor,
    MLCRegularizationType,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
)
from mlc_torch.engine.planned import Planned
from mlc_torch.torch_private import available
from mlc_torch.torch_private.updates import fused_adam_
from tests.gears.plans import case_of, mode_of
from tests.layers.test_every_layer import records


class LikeMPS(TorchDispatchMode):
    """Raises where MPS would."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "_fused_" in func._schema.name:
            raise AssertionError(f"MPS has no {func}")
        if kwargs.get("dtype") == torch.float64:
            raise AssertionError(f"{func} asks for float64, which MPS does not have")
        made = func(*args, **kwargs)
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64:
                raise AssertionError(f"{func} gives float64, which MPS does not have")
        return made


def test_the_mode_refuses():
    with LikeMPS(), pytest.raises(AssertionError, match="float64"):
        torch.zeros(2, dtype=torch.float64)
    tensors = [torch.ones(3) for _ in range(4)]
    with LikeMPS(), pytest.raises(AssertionError, match="fused"):
        fused_adam_(*([t] for t in tensors), [], lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0)


@records()
def test_records_need_nothing_that_mps_lacks(record):
    case = case_of(record, torch.device("cpu"))
    with LikeMPS():
        gear = Planned(case.plan, case.feeds, (), (), mode_of(record.training, case.differentiates))
        gear.forward(case.feeds, ())
        if case.differentiates:
            gear.gradient(())


_DESCRIPTOR = MLCOptimizerDescriptor(
    learningRate=0.1, gradientRescale=1.0, regularizationType=MLCRegularizationType.l2, regularizationScale=0.01
)


@pytest.mark.parametrize(
    "optimizer",
    [
        MLCSGDOptimizer(descriptor=_DESCRIPTOR, momentumScale=0.9, usesNesterovMomentum=False),
        MLCSGDOptimizer(descriptor=_DESCRIPTOR, momentumScale=0.9, usesNesterovMomentum=True),
        MLCAdamOptimizer(descriptor=_DESCRIPTOR),
        MLCAdamOptimizer(descriptor=_DESCRIPTOR, beta1=0.9, beta2=0.99, epsilon=1e-8, usesAMSGrad=True, timeStep=1),
        MLCAdamWOptimizer(descriptor=_DESCRIPTOR),
        MLCRMSPropOptimizer(descriptor=_DESCRIPTOR, momentumScale=0.5, alpha=0.9, epsilon=1e-8, isCentered=True),
    ],
    ids=lambda o: type(o).__name__,
)
def test_updates_need_nothing_that_mps_lacks(optimizer, monkeypatch):
    for name in ("fused_adam", "fused_sgd"):  # what _fusable() decides on an MPS tensor
        monkeypatch.setitem(available, name, False)
    params = [torch.ones(3), torch.ones(2, 2)]
    states = [[torch.zeros_like(p) for p in params] for _ in optimizer._state_names()]
    with LikeMPS():
        optimizer._update(params, [torch.ones_like(p) for p in params], states, optimizer._scalars(1))
    assert all(bool((p < 1).all()) for p in params)
