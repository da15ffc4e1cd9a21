"""Writes down what torch does while it runs, operation by operation, as a graph of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch.engine.views import PLAINER, UNSAFE
from mlc_torch.torch_private.modes import pop_mode, push_mode


class NotRecordable(Exception):
    """The plan does something whose course depends on values; it has to be run module by module."""


_UNFIT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded}
_NUMBERS = (torch.int64, torch.int32)
_KERNEL_MATTERS = {
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.mm.default,
}
"""Operations whose kernel is chosen afterwards, by their shapes."""
MAKERS = {
    torch.ops.aten.new_ones.default,
    torch.ops.aten.new_zeros.default,
    torch.ops.aten.new_full.default,
    torch.ops.aten.ones_like.default,
    torch.ops.aten.zeros_like.default,
    torch.ops.aten.full_like.default,
    torch.ops.aten.ones.default,
    torch.ops.aten.zeros.default,
    torch.ops.aten.full.default,
    torch.ops.aten.arange.default,
    torch.ops.aten.arange.start,
}
"""Operations that give the same at every run, whatever tensor they are asked of."""
_FEW = 2**16
"""A constant of at most this many elements is kept, rather than made again at every run."""
_EASIER = {torch.ops.aten._efficientzerotensor.default: torch.ops.aten.zeros.default}
"""What is done in an operation's place, with the same arguments. Autograd makes zeros without memory for the gradient of ``sgn``,
and where somebody watches, ``aten.mul.Scalar`` of those calls itself until the stack is full and the process dies (torch 2.6 and
2.13)."""
_SAME = {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}


class Recorder(TorchDispatchMode):
    """Writes every operation into an fx graph.

    A tensor is known by where it lies and how: autograd hands saved tensors back as new objects over the same memory.
    Nothing is let go while recording, so that no address is used twice.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch loads its compiler, for seconds, to keep it away from a mode that compiled code never meets."""
        return False

    def __enter__(self) -> Recorder:
        push_mode(self)
        return self

    def __exit__(self, *_: object) -> None:
        pop_mode()

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self._nodes: dict[Any, fx.Node] = {}
        self._held: list[Any] = []
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def placeholder(self, tensor: torch.Tensor) -> fx.Node:
        node = self.graph.placeholder(f"in{len(self._held)}")
        self._know(tensor, node)
        return node

    def node_of(self, tensor: torch.Tensor | None) -> fx.Node | None:
        if tensor is None:
            return None
        node = self._nodes.get(where_it_lies(tensor))
        if node is None:
            # A tensor that no recorded operation made: a module's own constant.
            name = f"constant{len(self.constants)}"
            self.constants[name] = tensor.detach()
            node = self.graph.create_node("get_attr", name)
            self._know(tensor, node)
        return node

    def _know(self, tensor: torch.Tensor, node: fx.Node) -> None:
        if tensor.is_sparse:
            raise NotRecordable("a module computes with sparse tensors (nn.Embedding(sparse=True) does)")
        self._nodes[where_it_lies(tensor)] = node
        node.meta.setdefault("lies", (tuple(tensor.shape), tensor.stride(), tensor.dtype))
        self._held.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        func = _EASIER.get(func, func)
        if self._paused:
            return func(*args, **kwargs)
        nodes = [fx.node.map_aggregate(a, self._argument) for a in args]
        if _UNFIT & set(func.tags) and not (_draws_nothing(func, args, kwargs) or _counts_nothing(func, args, nodes)):
            raise NotRecordable(f"{func} gives what only its values, or chance, decide")
        named = {k: fx.node.map_aggregate(v, self._argument) for k, v in kwargs.items()}
        made = func(*args, **kwargs)
        if func in _SAME or _looks_the_same(func, args, made):
            self._know(made, nodes[0])
            return made
        node = self.graph.call_function(PLAINER.get(func, func), tuple(nodes), named)
        if func in MAKERS and made.numel() <= _FEW:
            node.meta["made"] = made
        if func in _KERNEL_MATTERS:
            node.meta["strides"] = _strides(made)
            node.meta["shapes"] = [tuple(a.shape) if isinstance(a, torch.Tensor) else None for a in args]
            node.meta["dtype"] = args[1].dtype
        if isinstance(made, torch.Tensor):
            self._know(made, node)
        elif isinstance(made, (tuple, list)):
            self._know_parts(made, node)
        elif made is not None and any(isinstance(a, fx.Node) for a in node.all_input_nodes):
            raise NotRecordable(f"{func} gives a {type(made).__name__}")
        return made

    def _know_parts(self, made: Any, node: fx.Node) -> None:
        """Those of several results; cuDNN's LSTM has a list among them."""
        for number, part in enumerate(made):
            if isinstance(part, torch.Tensor):
                self._know(part, self.graph.call_function(operator.getitem, (node, number)))
            elif isinstance(part, (tuple, list)) and part:
                self._know_parts(part, self.graph.call_function(operator.getitem, (node, number)))

    def _argument(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, torch.Tensor) else value


def _draws_nothing(func: Any, args: Any, kwargs: Any) -> bool:
    """Attention kernels count as random because of their dropout, which is never theirs here."""
    names = [a.name for a in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    rates = [name for name in ("dropout_p", "dropout") if name in names]
    return bool(rates) and not any(given.get(name, 0.0) for name in rates)


def _counts_nothing(func: Any, args: Any, nodes: Any) -> bool:
    """Indices count as deciding how much there is, because a mask is one, too; those that are numbers do not.

    They are computed of what the graph is given; others a module brings along, and may bring others the next time.
    """
    if func is not torch.ops.aten.index.Tensor or not all(i is None or i.dtype in _NUMBERS for i in args[1]):
        return False
    return any(n.op == "placeholder" for n in _all_behind(i for i in nodes[1] if i is not None))


def _all_behind(nodes: Iterable[fx.Node]) -> dict[fx.Node, None]:
    """The nodes, and whatever they are made of."""
    found = dict.fromkeys(nodes)
    rest = list(found)
    while rest:
        given = [n for n in rest.pop().all_input_nodes if n not in found]
        found.update(dict.fromkeys(given))
        rest += given
    return found


def _looks_the_same(func: Any, args: Any, made: Any) -> bool:
    """Whether a view shows what it was given, unchanged: torch makes several for a product of matrices."""
    if not (func.is_view or func in UNSAFE) or not isinstance(made, torch.Tensor):
        return False
    return where_it_lies(made) == where_it_lies(args[0])


def _strides(made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return tuple(_strides(part) for part in made)
    return made.stride() if isinstance(made, torch.Tensor) else None


def where_it_lies(tensor: torch.Tensor) -> Any:
    if tensor.numel() == 0:
        return id(tensor)
    turned = tensor.is_conj(), tensor.is_neg()  # views that torch tells apart by a mark alone
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device, turned
