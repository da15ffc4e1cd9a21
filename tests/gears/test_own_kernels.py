"""The operations that pass through TorchInductor untouched, against autograd and against float64."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from mlc_torch.engine import own_kernels, product_rules
from mlc_torch.engine.own_kernels import decompositions, gelu_backward_by_sigmoid, keep_own_kernels

aten, ours = torch.ops.aten, torch.ops.mlc_torch
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_vector_code(monkeypatch):
    """Whatever this processor has: the rule for one without is on trial."""
    monkeypatch.setattr(own_kernels, "has_vector_code", lambda: False)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_gradient_of_gelu_by_a_sigmoid():
    x = torch.cat([draw(1000) * 3, torch.tensor([0.0, -0.0, 1e-6, -30.0, 30.0, 1e4, -1e4])])
    exact = x.double().requires_grad_()
    F.gelu(exact, approximate="tanh").sum().backward()
    mine = gelu_backward_by_sigmoid(torch.ones_like(x), x, approximate="tanh")
    theirs = aten.gelu_backward(torch.ones_like(x), x, approximate="tanh")
    torch.testing.assert_close(mine.double(), exact.grad, rtol=1e-5, atol=1e-6)
    assert (mine - exact.grad).abs().max() <= 2 * (theirs - exact.grad).abs().max() + 1e-6


def test_the_exact_gelu_is_left_to_torch():
    x = draw(5)
    assert gelu_backward_by_sigmoid(x, x) is NotImplemented


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("by_source", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_graph_with_our_operations_gives_the_same(channels, by_source, bias, approximate):
    x, weight, biases = draw(2, channels, 7, 6), draw(4, channels, 3, 3, seed=1), draw(4, seed=2)

    def step(x, weight, biases):
        leaves = [t.detach().requires_grad_() for t in (x, weight, biases)]
        leaves[0].requires_grad_(by_source)
        made = F.gelu(F.conv2d(leaves[0], leaves[1], leaves[2] if bias else None, 2, 1), approximate=approximate)
        wanted = [leaf for leaf, on in zip(leaves, (by_source, True, bias), strict=True) if on]
        return [made, *torch.autograd.grad(made.square().sum(), wanted)]

    with torch.enable_grad():
        graph = make_fx(step, decomposition_table=decompositions({}, CPU), tracing_mode="fake")(x, weight, biases)
    keep_own_kernels(graph.graph, CPU)
    graph.recompile()
    spaces = {n.target.namespace for n in graph.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    assert "mlc_torch" in spaces
    assert all(n.target is not aten.convolution_backward.default for n in graph.graph.nodes)
    for got, want in zip(graph(x, weight, biases), step(x, weight, biases), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=5e-5)
        assert got.stride() == want.stride()


def test_convolutions_of_16_bits_are_left_to_torch():
    """Its own kernel takes a hundred times as long for them."""
    x, weight = draw(2, 1, 7, 6).half(), draw(4, 1, 3, 3, seed=1).half()

    def step(x, weight):
        leaf = weight.detach().requires_grad_()
        made = F.conv2d(x, leaf)
        return [made, *torch.autograd.grad(made.sum(), [leaf])]

    with torch.enable_grad():
        graph = make_fx(step, tracing_mode="fake")(x, weight)
    keep_own_kernels(graph.graph, CPU)
    targets = {n.target for n in graph.graph.nodes}
    assert {aten.convolution.default, aten.convolution_backward.default} <= targets


@pytest.mark.parametrize("name", ["acosh", "asinh", "atanh", "expm1"])
def test_what_inductor_computes_inexactly_is_left_to_torch(name):
    function, x = getattr(torch, name), torch.tensor([1e-8, 0.5, 1.5, 1e20])
    graph = make_fx(lambda x: function(x), tracing_mode="fake")(x)
    keep_own_kernels(graph.graph, CPU)
    graph.recompile()
    assert torch.equal(graph(x).nan_to_num(-7), function(x).nan_to_num(-7))
    assert any(n.target is torch.ops.mlc_torch.exactly.default for n in graph.graph.nodes)
    torch.library.opcheck(ours.exactly.default, (torch.tensor([1.5 if name == "acosh" else 0.5]), name))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_the_least_of_small_numbers_is_sought_in_32_bits(dtype):
    x = torch.tensor([[5, 3, 9], [4, 7, 100]], dtype=dtype)
    graph = make_fx(lambda x: [torch.amin(x, 1), torch.argmin(x, 0)], tracing_mode="fake")(x)
    keep_own_kernels(graph.graph, CPU)
    graph.recompile()
    assert any(n.target is torch.ops.prims.convert_element_type.default for n in graph.graph.nodes)
    for got, want in zip(graph(x), [torch.amin(x, 1), torch.argmin(x, 0)], strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)


@pytest.mark.parametrize("name", ["gelu", "gelu_backward"])
def test_what_is_promised_of_gelu_is_kept(name):
    x = draw(3, 4)
    args = (x, "tanh") if name == "gelu" else (x, x, "tanh")
    torch.library.opcheck(getattr(ours, name).default, args)


def test_what_is_promised_of_the_convolutions_is_kept():
    x, one, weight, narrow = draw(2, 3, 5, 5), draw(2, 1, 5, 5), draw(4, 3, 3, 3), draw(4, 1, 3, 3)
    made, grad, how = F.conv2d(one, narrow, None, 1, 1), draw(2, 4, 5, 5), ([1, 1], [1, 1])
    torch.library.opcheck(
        ours.convolution_of_one_channel.default, (one, narrow, None, *how, list(made.shape), list(made.stride()))
    )
    strides = list(x.stride()), list(weight.stride())
    torch.library.opcheck(ours.convolution_backward.default, (grad, x, weight, *how, *strides))
    torch.library.opcheck(ours.convolution_backward_weight.default, (grad, x, weight, *how, strides[1]))


@pytest.fixture
def arm(monkeypatch):
    """Wherever this runs: torch as built with the Arm Compute Library."""
    monkeypatch.setattr(product_rules, "multiplies_by_acl", lambda: True)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "chosen"),
    [
        (32, 128, 10, product_rules.product_with_transposed_weight),
        (32, 784, 128, product_rules.product_with_transposed_source),
        (1024, 128, 512, product_rules.product_with_transposed_weight),
        (1, 784, 128, None),
        (32, 784, 8, None),
        (256, 784, 128, None),
    ],
)
@pytest.mark.parametrize("biased", [True, False])
def test_a_product_by_the_chosen_kernel(arm, rows, depth, columns, chosen, biased):
    assert product_rules.product_of(rows, depth, columns, torch.float32) is chosen
    assert product_rules.product_of(rows, depth, columns, torch.float16) is None
    x, weight, bias = draw(rows, depth), draw(columns, depth, seed=1), draw(columns, seed=2) if biased else None
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    results = [ours.product(x, weight, bias)] + ([] if chosen is None else [chosen(x, weight.t(), bias)])
    for made in results:
        torch.testing.assert_close(made.double(), exact, rtol=1e-5, atol=1e-4)
        assert made.is_contiguous()
    torch.library.opcheck(ours.product.default, (x, weight, bias))


def test_products_that_are_traced_become_ours(arm):
    x, weight, bias = draw(32, 128), draw(10, 128, seed=1), draw(10, seed=2)

    def products(x, weight, bias):
        wide = torch.addmm(bias, x, weight.permute(1, 0))
        return [wide, x @ weight.permute(1, 0), wide @ weight]

    graph = make_fx(products, tracing_mode="fake")(x, weight, bias)
    keep_own_kernels(graph.graph, CPU)
    graph.recompile()
    assert [n.target for n in graph.graph.nodes].count(ours.product.default) == 2  # the third is not transposed
    for got, want in zip(graph(x, weight, bias), products(x, weight, bias), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
