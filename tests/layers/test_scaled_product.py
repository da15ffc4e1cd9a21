"""Scaled products of float16 whose unscaled ones no float16 holds, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch.descriptors import MLCMatMulDescriptor
from mlc_torch.layers.gram import MLCGramMatrixLayer
from mlc_torch.layers.matmul import MLCMatMulLayer
from tests.layers.records import values

SCALES = [1e-3, -1e-3, 1 / 64, 0.2, 2**-10, 0.0, -0.999, 1.0, 2.5]


def close(got: torch.Tensor, want: np.ndarray) -> None:
    """One bit of a float16 for each rounding: of the product, and of its multiple."""
    assert got.dtype is torch.float16
    np.testing.assert_allclose(got.detach().double().cpu().numpy(), want, rtol=2**-9, atol=2**-9 * abs(want).max())


def given(scale: float, *shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers whose products are in the thousands, unless the scale lets them be."""
    size = 60 if abs(scale) < 0.1 else 2
    return torch.from_numpy(np.abs(values(*shape, seed=seed)) + size).half()


@pytest.mark.parametrize("scale", SCALES)
def test_a_gram_matrix(scale, torch_device):
    x = given(scale, 1, 3, 8, 8)
    exact = x.double().numpy()
    if abs(scale) < 0.1:
        assert np.einsum("nchw,ndhw->ncd", exact, exact).max() > 65504
    y = MLCGramMatrixLayer(scale=scale).module(x.to(torch_device))
    close(y, scale * np.einsum("nchw,ndhw->ncd", exact, exact)[:, :, None])


@pytest.mark.parametrize("alpha", SCALES)
def test_a_product_and_its_gradients(alpha, torch_device):
    x, y = given(alpha, 2, 3, 40), given(alpha, 2, 40, 5, seed=1)
    a, b = x.double().numpy(), y.double().numpy()
    leaves = [t.to(torch_device).requires_grad_() for t in (x, y)]
    layer = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=alpha, transposesX=False, transposesY=False))
    product = layer.module(*leaves)
    close(product, alpha * a @ b)
    slope = torch.from_numpy(values(2, 3, 5, seed=2)).half()
    product.backward(slope.to(torch_device))
    s = slope.double().numpy()
    for leaf, want in zip(leaves, (alpha * s @ b.swapaxes(1, 2), alpha * a.swapaxes(1, 2) @ s), strict=True):
        close(leaf.grad, want)


@pytest.mark.parametrize("alpha", [1e-3, -0.5, 1.0, 3.0])
def test_float32_is_multiplied_first_and_scaled_then(alpha):
    """As it was: no kernel chosen for it changes."""
    x, y = torch.from_numpy(values(2, 3, 40)), torch.from_numpy(values(2, 40, 5, seed=1))
    layer = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=alpha, transposesX=False, transposesY=False))
    assert torch.equal(layer.module(x, y), torch.matmul(x, y) * alpha)
