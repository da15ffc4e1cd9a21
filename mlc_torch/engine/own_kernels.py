"""Operations that TorchInductor shall leave to torch's own kernels. As operations of ours they pass untouched.

Some it computes by formulas that lose digits or overflow, and the least of 8-bit numbers wrongly. Without vector code
(the rule of ``kernels``) it writes tanh and erf out element by element, three times as slow as torch's GELU, and calls
oneDNN's convolution gradient. All of this is on the CPU; on a GPU it asks for products and biases at once.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from mlc_torch.engine.cuda_rules import adds_bias_apart, is_measured
from mlc_torch.engine.gelu import CUBE, TWICE
from mlc_torch.engine.kernels import is_plain
from mlc_torch.engine.processor import has_vector_code
from mlc_torch.engine.product_rules import product_of
from mlc_torch.engine.replacements import convolution_backward, convolution_of_one_channel
from mlc_torch.operations import operation

aten, prims = torch.ops.aten, torch.ops.mlc_torch


_INEXACT = {
    operation: operation.overloadpacket.__name__
    for operation in (aten.acosh.default, aten.asinh.default, aten.atanh.default, aten.expm1.default)
}
"""acosh(1e20) is infinite there, atanh(1e-8) and expm1(1e-8) are 0."""

_SMALLEST = (aten.amin.default, aten.argmin.default)


@operation("exactly(Tensor x, str name) -> Tensor", lambda x, name: torch.empty_like(x))
def exactly(x: Tensor, name: str) -> Tensor:
    return getattr(torch, name)(x)


@operation("gelu(Tensor x, str approximate) -> Tensor", lambda x, approximate: torch.empty_like(x))
def gelu(x: Tensor, approximate: str) -> Tensor:
    return aten.gelu(x, approximate=approximate)


@operation(
    "gelu_backward(Tensor grad, Tensor x, str approximate) -> Tensor",
    lambda grad, x, approximate: torch.empty_like(grad),
)
def gelu_backward(grad: Tensor, x: Tensor, approximate: str) -> Tensor:
    return aten.gelu_backward(grad, x, approximate=approximate)


@operation(
    "product(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    lambda x, weight, bias: x.new_empty(x.shape[0], weight.shape[0]),
)
def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    (rows, depth), columns = x.shape, weight.shape[0]
    multiply = product_of(rows, depth, columns, x.dtype)
    return F.linear(x, weight, bias) if multiply is None else multiply(x, weight.t(), bias)


@operation("product_alone(Tensor x, Tensor other) -> Tensor", lambda x, other: x.new_empty(x.shape[0], other.shape[1]))
def product_alone(x: Tensor, other: Tensor) -> Tensor:
    return torch.mm(x, other)


@operation(
    "convolution_of_one_channel(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] shape, "
    "int[] strides) -> Tensor",
    lambda x, weight, bias, stride, padding, shape, strides: x.new_empty_strided(shape, strides),
)
def one_channel(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int], shape: Sequence[int],
    strides: Sequence[int],
) -> Tensor:  # fmt: skip
    return convolution_of_one_channel(x, weight, bias, stride, padding, tuple(strides))


@operation(
    "convolution_backward(Tensor grad, Tensor x, Tensor weight, int[] stride, int[] padding, int[] x_strides, "
    "int[] weight_strides) -> (Tensor, Tensor)",
    lambda grad, x, weight, stride, padding, x_strides, weight_strides: (
        x.new_empty_strided(x.shape, x_strides),
        weight.new_empty_strided(weight.shape, weight_strides),
    ),
)
def both_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], x_strides: Sequence[int],
    weight_strides: Sequence[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    strides = tuple(x_strides), tuple(weight_strides), None
    by_x, by_weight, _ = convolution_backward(grad, x, weight, stride, padding, (True, True, False), strides)
    assert by_x is not None and by_weight is not None
    return by_x, by_weight


@operation(
    "convolution_backward_weight(Tensor grad, Tensor x, Tensor weight, int[] stride, int[] padding, int[] strides) "
    "-> Tensor",
    lambda grad, x, weight, stride, padding, strides: weight.new_empty_strided(weight.shape, strides),
)
def weight_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], strides: Sequence[int]
) -> Tensor:
    _, by_weight, _ = convolution_backward(
        grad, x, weight, stride, padding, (False, True, False), (None, tuple(strides), None)
    )
    assert by_weight is not None
    return by_weight


def gelu_backward_by_sigmoid(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """½(1 + tanh u) is σ(2u), for which an exponential does: the gradient of x·σ(2u), u = √(2/π)·(x + 0.044715·x³)."""
    if approximate != "tanh":
        return NotImplemented
    s = torch.sigmoid(TWICE * (x + CUBE * x * x * x))
    return grad * (s + x * s * (1 - s) * (TWICE * (1 + 3 * CUBE * x * x)))


def decompositions(table: Mapping[Any, Any], device: torch.device) -> Mapping[Any, Any]:
    """What operations are traced as. Without vector code torch's GELU stays one, and its gradient is written our way."""
    if device.type != "cpu" or has_vector_code():
        return table
    ours = {k: v for k, v in table.items() if k is not aten.gelu.default}
    return ours | {aten.gelu_backward.default: gelu_backward_by_sigmoid}


def keep_own_kernels(graph: fx.Graph, device: torch.device) -> None:
    """Put our operations in place of torch's in a traced graph."""
    if is_measured(device):
        _add_biases_apart(graph)
    if device.type != "cpu":
        return
    for node in list(graph.nodes):
        if node.target in _INEXACT and node.meta["val"].is_floating_point():
            node.target, node.args = prims.exactly.default, (node.args[0], _INEXACT[node.target])
        elif node.target in _SMALLEST and node.args[0].meta["val"].dtype in (torch.int8, torch.uint8):
            _in_32_bits(graph, node)
    if not has_vector_code():
        _keep_faster_kernels(graph)


def _add_biases_apart(graph: fx.Graph) -> None:
    """Products without their bias, where ``cuda_rules`` knows that to be faster: of torch's, Inductor would make one again."""
    for node in list(graph.nodes):
        if node.target is not aten.addmm.default or node.kwargs:
            continue
        bias, x, other = node.args
        (rows, depth), (_, columns) = x.meta["val"].shape, other.meta["val"].shape
        if bias.meta["val"].shape == (columns,) and adds_bias_apart(rows, depth, columns, x.meta["val"].dtype):
            with graph.inserting_before(node):
                product = graph.call_function(prims.product_alone.default, (x, other))
            product.meta["val"] = node.meta["val"]
            node.target, node.args = aten.add.Tensor, (product, bias)


def _in_32_bits(graph: fx.Graph, node: fx.Node) -> None:
    """Inductor finds another smallest element of 8-bit numbers than there is."""
    convert = torch.ops.prims.convert_element_type.default

    def converted(source: fx.Node, dtype: torch.dtype) -> fx.Node:
        made = graph.call_function(convert, (source, dtype))
        made.meta["val"] = source.meta["val"].to(dtype)
        return made

    (source,), made = node.all_input_nodes, node.meta["val"]
    with graph.inserting_before(node):
        node.replace_input_with(source, converted(source, torch.int32))
    if node.target is aten.amin.default:
        node.meta["val"] = made.to(torch.int32)
        with graph.inserting_after(node):
            narrow = converted(node, made.dtype)
        node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)


def _keep_faster_kernels(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is aten.gelu.default:
            node.target, node.args, node.kwargs = prims.gelu.default, (node.args[0], _approximate(node)), {}
        elif node.target is aten.gelu_backward.default:
            node.target, node.args, node.kwargs = prims.gelu_backward.default, (*node.args[:2], _approximate(node)), {}
        elif node.target in (aten.addmm.default, aten.mm.default):
            _as_product(node)
        elif node.target is aten.convolution.default and is_plain(node.args[3:9]) and _has_32_bits(node.args[1]):
            given: Any = node.args
            x, weight, bias, stride, padding, *_ = given
            made = node.meta["val"]
            if x.meta["val"].shape[1] == 1:
                node.target = prims.convolution_of_one_channel.default
                node.args = (x, weight, bias, stride, padding, list(made.shape), list(made.stride()))
        elif node.target is aten.convolution_backward.default and _has_32_bits(node.args[1]) and _by_weight(node):
            _replace_gradients(graph, node)
    graph.eliminate_dead_code()


def _as_product(node: fx.Node) -> None:
    """A product with a transposed matrix, where ``product_of`` knows a faster way than torch."""
    given: Any = node.args
    *bias, x, other = given
    source, transposed = x.meta["val"], other.meta["val"]
    rows, depth = source.shape
    if product_of(rows, depth, transposed.shape[1], source.dtype) is None or node.kwargs:
        return
    if other.target is aten.permute.default and transposed.stride() == (1, depth):
        node.target, node.args = prims.product.default, (x, other.args[0], bias[0] if bias else None)


def _has_32_bits(node: Any) -> bool:
    """What the rules of ``kernels`` ask for, too."""
    return node.meta["val"].dtype == torch.float32


def _by_weight(node: fx.Node) -> bool:
    """Whether the gradient by the weights of a plain convolution is asked for."""
    mask: Any = node.args[10]
    return is_plain(node.args[4:10]) and bool(mask[1])


def _approximate(node: fx.Node) -> str:
    return str(node.kwargs.get("approximate", "none"))


def _replace_gradients(graph: fx.Graph, node: fx.Node) -> None:
    given: Any = node.args
    grad, x, weight, _, stride, padding, *_, (by_x, _, by_bias) = given
    of_x, of_weight, of_bias = node.meta["val"]
    parts: dict[int, fx.Node] = {}

    def add(target: Any, args: tuple[Any, ...], value: Any) -> fx.Node:
        made = graph.call_function(target, args)
        made.meta["val"] = value
        return made

    with graph.inserting_before(node):
        common = (grad, x, weight, stride, padding)
        if by_x:
            strides = (list(of_x.stride()), list(of_weight.stride()))
            both = add(prims.convolution_backward.default, (*common, *strides), (of_x, of_weight))
            parts = {0: add(operator.getitem, (both, 0), of_x), 1: add(operator.getitem, (both, 1), of_weight)}
        else:
            one = prims.convolution_backward_weight.default
            parts[1] = add(one, (*common, list(of_weight.stride())), of_weight)
        if by_bias:
            parts[2] = add(aten.sum.dim_IntList, (grad, [0, 2, 3]), of_bias)
    for user in list(node.users):
        if user.args[1] in parts:
            user.replace_all_uses_with(parts[user.args[1]])  # type: ignore[index]
