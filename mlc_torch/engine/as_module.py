"""A network of modules as one ``nn.Module`` with readable code, over the very memory that the graph trains."""

from __future__ import annotations

import functools
import keyword
import operator
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import torch
from torch import fx, nn

from mlc_torch.engine.shared_module import FixedParameters, Input, SharedGraphModule, SharedPart
from mlc_torch.tensor import TensorState


class Use(Protocol):
    """What the module is told of a layer's tensor."""

    @property
    def role(self) -> str:
        """Its name in the module: ``weights``, ``inputWeights.0``."""

    @property
    def cell(self) -> TensorState:
        """The tensor."""

    @property
    def torch(self) -> nn.Parameter:
        """Its memory, as the layer's own module has it."""


@dataclass(frozen=True, eq=False)
class Call:
    """One use of a layer: its module, its attribute name, its tensors, and which cells it reads and fills."""

    module: nn.Module
    name: str
    uses: Sequence[Use]
    reads: Sequence[TensorState]
    fills: Sequence[TensorState]
    lists: bool = False
    """Whether the module gives a list even of one result."""
    given: bool = False
    """Whether the program gave the module, and expects to find it as it is."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """As a plan's step has them: of fewer samples than were declared it reads the first rows."""


def as_module(
    calls: Sequence[Call],
    inputs: Sequence[tuple[str, TensorState, int | None]],
    outputs: Sequence[tuple[str, Sequence[TensorState]]],
    trained: Iterable[TensorState] = (),
    stopped: Iterable[int] = (),
    name: str = "GraphModule",
) -> SharedGraphModule:
    """A module whose ``forward`` takes ``inputs``, makes the calls in order, and returns ``outputs``: a tensor, or the sum of
    all elements of several.

    What the calls read and nobody fills is a buffer, or a parameter where it is among ``trained``. Behind the cells
    ``stopped`` (by identity) no gradient flows. Of an output that no call fills (an input, a parameter, a constant) it returns
    a copy.
    """
    root, graph, stopped = nn.Module(), fx.Graph(tracer_cls=Retracer), set(stopped)
    nodes: dict[int, fx.Node] = {}
    described: dict[str, Input] = {}
    for label, (_, cell, axis) in zip(argument_names(n for n, _, _ in inputs), inputs, strict=True):
        node = graph.placeholder(label)
        if (
            node.name != label
        ):  # torch counts on from a number at its end, and 2.6 assigns that to another argument's name
            node._rename(f"given_{len(described)}")
        nodes.setdefault(id(cell), node)
        described[label] = Input(cell.shape, cell.dtype, axis)
    counted = next(((nodes[id(cell)], axis) for _, cell, axis in inputs if axis is not None), ())
    filled = {id(cell) for call in calls for cell in call.fills}
    held = {id(c): c for call in calls for c in call.reads if id(c) not in filled and id(c) not in nodes}
    taken = [*(call.name for call in calls), *described]
    own = {id(cell) for cell in trained}
    for label, cell in zip(attribute_names((c.label for c in held.values()), taken), held.values(), strict=True):
        _hold(root, label, cell, id(cell) in own)
        nodes[id(cell)] = graph.create_node("get_attr", label, name=_variable(label))
    first: dict[int, nn.Parameter] = {}
    for call in calls:
        if call.name not in root._modules:
            root.add_module(call.name, call.module if call.given else under_roles(call.module, call.uses, first))
        sources = [nodes[id(cell)] for cell in call.reads]
        for position, cell in enumerate(call.reads):
            if id(cell) in stopped:
                sources[position] = graph.call_method("detach", (sources[position],))
            if position in call.rows:
                axis = call.rows[position]
                samples = graph.call_method("size", counted)
                sources[position] = graph.call_method("narrow", (sources[position], axis, 0, samples))
        made = graph.create_node("call_module", call.name, tuple(sources), name=_variable(call.name))
        if len(call.fills) == 1 and not call.lists:
            nodes[id(call.fills[0])] = made
            continue
        for number, cell in enumerate(call.fills):
            nodes[id(cell)] = graph.call_function(operator.getitem, (made, number))
    results = {}
    for label, cells in outputs:
        parts = [(nodes[id(c)] if id(c) in filled else _copied(root, graph, c, nodes.get(id(c))), c) for c in cells]
        results[label] = _total(graph, parts)
    graph.output(results if len(results) > 1 else next(iter(results.values())))
    module = SharedGraphModule(root, graph, class_name=name)
    module.shares_memory = True
    module.meta = {"inputs": described, "outputs": list(results)}
    return module


def _total(graph: fx.Graph, parts: Sequence[tuple[fx.Node, TensorState]]) -> fx.Node:
    """One tensor as it is; of several the sum of all elements, in the shape of a loss, [1]."""
    if len(parts) == 1:
        return parts[0][0]
    sums = [
        n if c.shape == (1,) else graph.call_method("reshape", (graph.call_method("sum", (n,)), 1)) for n, c in parts
    ]
    return functools.reduce(lambda a, b: graph.call_function(operator.add, (a, b)), sums)


def _copied(root: nn.Module, graph: fx.Graph, cell: TensorState, source: fx.Node | None) -> fx.Node:
    """A copy, in the tensor's own shape, of what no call fills; ``source`` is its node where it has one already.

    Callers get memory of their own, as from ``execute``; and ``torch.export`` and ONNX tell it from the input that it is.
    """
    if source is None:
        held = chain(root.named_parameters(remove_duplicate=False), root.named_buffers(remove_duplicate=False))
        path = next((name for name, tensor in held if cell.is_seen_by(tensor)), None)
        if path is None:
            (path,) = attribute_names([cell.label], [*root._modules, *root._buffers, *root._parameters])
            _hold(root, path, cell, trained=False)
        source = graph.create_node("get_attr", path, name=_variable(path))
        # A layer's own may have another shape: the weights of a dense one.
        source = graph.call_method("reshape", (source, cell.shape))
    return graph.call_method("clone", (source,))


def _hold(root: nn.Module, name: str, cell: TensorState, trained: bool) -> None:
    """Give ``root`` a tensor that belongs to no layer: a constant, or one that is trained by itself."""
    value = cell.placed(writable=trained)
    if trained:
        shown: torch.Tensor = nn.Parameter(value, requires_grad=value.is_floating_point())
        root.register_parameter(name, shown)  # type: ignore[arg-type]
    else:
        shown = value.detach()
        root.register_buffer(name, shown)
    cell.show(shown, lambda memory: memory)


# Names

_TAKEN = frozenset({*dir(fx.GraphModule), "training", "meta", "inputs", "outputs", "shares_memory"})
_USED_BY_CODE = frozenset(
    {"self", "torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree", "getattr", "slice", "operator", "math"}
)
"""What the code of a ``forward`` that torch writes refers to, and an argument of that name would hide."""


def argument_names(labels: Iterable[str]) -> list[str]:
    """Labels as names of arguments: as ``attribute_names``, and none that the code needs for itself."""
    return attribute_names(f"{label}_" if label in _USED_BY_CODE else label for label in labels)


def _variable(attribute: object) -> str | None:
    """The variable that generated code keeps an attribute's value in. torch chooses it, and would choose ``self`` for one."""
    return "self_" if attribute == "self" else None


class Retracer(fx.Tracer):
    """Makes a graph of a saved module's code again, as torch does when it is loaded. What is a buffer stays one, where torch
    would compute with its value there and then, and variables are named as here."""

    proxy_buffer_attributes = True

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None
    ) -> fx.Node:
        return super().create_node(kind, target, args, kwargs, name or _variable(target), type_expr)


def attribute_names(labels: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Labels as names of attributes: valid, none of a module's own, each only once (``dense``, ``dense_1``).

    Names in checkpoints are made by this, so that what it gives for a label must not change.
    """
    used, names = set(taken), []
    numbers: dict[str, int] = {}  # below which every one of a base is used
    for label in labels:
        # Python compares names in this normal form, and so must the attributes that code refers to by them.
        text = unicodedata.normalize("NFKC", label)
        base = "".join(c if f"_{c}".isidentifier() else "_" for c in text).lstrip("_") or "layer"
        if not base.isidentifier():
            base = f"layer_{base}"
        if base in _TAKEN or keyword.iskeyword(base):
            base += "_"
        number = numbers.get(base, 0)
        while (name := f"{base}_{number}" if number else base) in used:
            number += 1
        numbers[base] = number
        used.add(name)
        names.append(name)
    return names


# A layer's module, its parameters under the names of their roles

Alias = tuple[str, str, tuple[int, ...] | None]
"""A name that the module's code reads, the role it stands for, and the shape it expects where that differs."""


def under_roles(module: nn.Module, uses: Sequence[Use], first: dict[int, nn.Parameter]) -> nn.Module:
    """A twin of the module whose parameters are named by their roles.

    ``first`` holds the parameter that stands for each tensor, so that a tensor with several uses is one parameter here,
    as PyTorch ties weights.
    """
    names = {id(p): n for n, p in module.named_parameters(recurse=False)}
    aliases: list[Alias] = []
    parameters: dict[str, nn.Parameter | None] = {n: p for n, p in module._parameters.items() if p is None}
    listed: dict[str, list[nn.Parameter]] = {}
    for use in uses:
        shown = first.setdefault(id(use.cell), use.torch)
        expected = None if shown.shape == use.torch.shape else tuple(use.torch.shape)
        aliases.append((names[id(use.torch)], use.role, expected))
        group, _, index = use.role.rpartition(".")
        if group:
            members = listed.setdefault(group, [])
            assert int(index) == len(members)
            members.append(shown)
        else:
            parameters[use.role] = shown
    made = _twin(module, parameters, tuple(a for a in aliases if a[0] != a[1] or a[2] is not None))
    for group, members in listed.items():
        made_list = nn.ParameterList(members)
        made.add_module(group, _twin(made_list, made_list._parameters))
    return made


def _twin(module: nn.Module, parameters: dict[str, nn.Parameter | None], aliases: tuple[Alias, ...] = ()) -> nn.Module:
    """What ``module`` is, but for its mode and its parameters: tensors, hooks and random streams are the same objects."""
    holds = next(chain(module.parameters(), module.buffers()), None) is not None
    made = _dressed(type(module), aliases, shared=holds)
    inner = {n: m if m is None else _twin(m, m._parameters) for n, m in module._modules.items()}
    own = FixedParameters(parameters) if holds else parameters
    made.__dict__.update(module.__dict__, _modules=inner, _parameters=own, training=True)
    return made


@functools.cache
def _class_with(base: type[nn.Module], aliases: tuple[Alias, ...], shared: bool) -> type[nn.Module]:
    def reduced(self: nn.Module, protocol: Any) -> Any:
        own = {**self.__dict__, "_parameters": dict(self._parameters)}  # a deep copy has memory of its own
        return _dressed, (base, aliases), own

    members: dict[str, Any] = {name: _reader(role, shape) for name, role, shape in aliases}
    members |= {"__reduce_ex__": reduced, "__module__": base.__module__, "__doc__": base.__doc__}
    return type(base.__name__, (SharedPart, base) if shared else (base,), members)


def _dressed(base: type[nn.Module], aliases: tuple[Alias, ...], shared: bool = False) -> nn.Module:
    """An empty module of class ``base`` that finds its parameters under the names of their roles."""
    cls = _class_with(base, aliases, shared) if aliases or shared else base  # type: ignore[arg-type]
    return cls.__new__(cls)


def _reader(role: str, shape: tuple[int, ...] | None) -> property:
    group, _, index = role.rpartition(".")

    def read(self: nn.Module) -> torch.Tensor:
        found: Any = getattr(self, group)[int(index)] if group else getattr(self, role)
        return found if shape is None else found.view(shape)

    return property(read)
