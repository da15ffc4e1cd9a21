"""Turns a recorded graph into straight-line Python: one line an operation, no look-ups, memory let go after its last use."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.standing import is_made_once
from mlc_torch.engine.standing_results import memory
from mlc_torch.engine.views import is_view
from mlc_torch.operations import functions
from mlc_torch.torch_private.autograd import past_autograd

Function = Callable[..., Any]
Send = tuple[Function, Sequence[Sequence[Any]]]
"""A function, and the lists of nodes that it is called with."""


def emit(
    nodes: Sequence[fx.Node],
    inputs: Sequence[fx.Node],
    taken: Sequence[fx.Node],
    outputs: Sequence[Sequence[Any]],
    constants: dict[str, torch.Tensor],
    sends: Sequence[Send] = (),
    empties: bool = True,
    stand: Collection[fx.Node] = (),
    shared: Sequence[fx.Node] = (),
) -> Function:
    """A function that makes the phase function.

    ``make(*inputs, *shared)`` binds what stays the same from call to call (parameters, buffers, other ways to look at them); the
    function it gives takes a list of the tensors ``taken``, which it ``empties``, and returns a list for each part of the
    outputs. ``sends`` are calls made on the way, in their order, each as soon as what it is given is there. The results that
    ``stand`` are written into memory which ``make`` makes, or is given where they are ``shared`` with another phase.
    """
    if sends:
        nodes = _soonest(nodes)
    writer = _Writer(constants)
    last = _last_uses(nodes, [o for part in outputs for o in part])
    calls = _placed(nodes, sends, writer)
    bound_inputs = [writer.name(n) for n in (*inputs, *shared)]
    before, lines = [], []
    if taken:
        lines.append(f"{', '.join(writer.name(n) for n in taken)}, = taken")
        if empties:  # or the list would hold on to what is no longer needed
            lines.append("taken.clear()")
    same_value = set(inputs)
    """What has the same value in each pass, as far as the phase knows."""
    same_tensor = {*inputs, *shared}
    """What is the same tensor in each pass, whatever is written into it: another look at it is made once, a copy is not."""
    for node in nodes:
        given = node.all_input_nodes
        stands = same_value.issuperset(given)
        if (
            node.op == "get_attr"
            or (stands and is_made_once(node))
            or (same_tensor.issuperset(given) and is_view(node))
        ):
            before.append(writer.line(node))
            same_tensor.add(node)
            if stands:
                same_value.add(node)
            lines += calls.pop(node, ())
            continue
        if node in stand:
            if node not in same_tensor:
                before.append(f"{writer.name(node)} = {writer.memory(node)}")
                same_tensor.add(node)
            lines.append(writer.call(node, into=node))
        else:
            lines.append(writer.line(node))
        dead = [writer.name(n) for n in dict.fromkeys(given) if last.get(n) is node and n not in same_tensor]
        if node not in last and node not in same_tensor:
            dead.append(writer.name(node))
        if dead:
            lines.append(" = ".join(dead) + " = None")
        lines += calls.pop(node, ())
    lines += calls.pop(None, ())
    parts = [f"[{', '.join(writer.value(o) for o in part)}]" for part in outputs]
    lines.append(f"return {', '.join(parts)}")
    guard = past_autograd() if len(nodes) >= _MANY else None
    if guard is not None:
        lines = [f"with {writer.bind(guard, 'g')}():", *(f"    {line}" for line in lines)]
    head, body = "".join(f"    {line}\n" for line in before), "".join(f"        {line}\n" for line in lines)
    source = f"def make({', '.join(bound_inputs)}):\n{head}    def phase(taken, more=()):\n{body}    return phase\n"
    scope: dict[str, Any] = dict(writer.bound)
    exec(compile(source, "<mlc_torch phase>", "exec"), scope)  # our own text, made from a recorded graph
    return scope["make"]


_MANY = 24
"""Operations from which on a phase is led past autograd, which looks at every tensor for a gradient that none wants. (They
were recorded below it: what would not work there was not recorded.) To begin and end that takes 4 µs on a Neoverse-N1. Steps of
200 tiny layers with and without, µs: ARM 1,496 and 1,741, x86 with one thread 1,173 and 1,255, with eight 872 and 1,040; of 100
layers on x86 3,034 and 3,388, of a small LSTM 605 and 636."""


def _last_uses(nodes: Sequence[fx.Node], outputs: Sequence[Any]) -> dict[fx.Node, fx.Node | None]:
    last: dict[fx.Node, fx.Node | None] = {}
    for node in nodes:
        for used in node.all_input_nodes:
            last[used] = node
    for output in outputs:
        if isinstance(output, fx.Node):
            last[output] = None
    return last


_LIGHT = {torch.ops.aten.clone.default, torch.ops.aten.add.Tensor}
"""Beside views, what puts a gradient into its tensor's own shape and adds up those of its uses."""


def _soonest(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes in an order in which what only shapes a result stands right behind what it shapes.

    It was recorded behind everything else; a gradient that is sent from there would wait for the whole backward pass.
    Nobody else reads or writes what it reads, so that it may come sooner.
    """
    own, shaping = set(nodes), set()
    for node in reversed(nodes):
        leads_out = all(user.op == "output" or user in shaping for user in node.users)
        is_alone = all(len(given.users) == 1 for given in node.all_input_nodes if given in own)
        if leads_out and is_alone and (is_view(node) or node.target in _LIGHT):
            shaping.add(node)
    turns: dict[fx.Node, int] = {}
    for number, node in enumerate(nodes):
        before = [turns[given] for given in node.all_input_nodes if given in own]
        turns[node] = max(before, default=number) if node in shaping else number
    return sorted(nodes, key=turns.__getitem__)  # which keeps the order of those that are even


def _placed(nodes: Sequence[fx.Node], sends: Sequence[Send], writer: _Writer) -> dict[fx.Node | None, list[str]]:
    """The text of each call, by the node that it stands behind; ``None``: at the end."""
    position = {node: n for n, node in enumerate(nodes)}
    calls: dict[fx.Node | None, list[str]] = {}
    latest = -1
    for function, parts in sends:
        latest = max([latest, *(position.get(o, -1) for part in parts for o in part)])
        lists = ", ".join(f"[{', '.join(writer.value(o) for o in part)}]" for part in parts)
        calls.setdefault(nodes[latest] if latest >= 0 else None, []).append(f"{writer.bind(function, 's')}({lists})")
    return calls


class _Writer:
    def __init__(self, constants: dict[str, torch.Tensor]) -> None:
        self.constants = constants
        self.bound: dict[str, Any] = {}
        self._names: dict[fx.Node, str] = {}
        self._functions: dict[Any, str] = {}

    def name(self, node: fx.Node) -> str:
        return self._names.setdefault(node, f"v{len(self._names)}")

    def bind(self, value: Any, prefix: str) -> str:
        name = f"{prefix}{len(self.bound)}"
        self.bound[name] = value
        return name

    def function(self, target: Any) -> str:
        if target not in self._functions:
            self._functions[target] = self.bind(direct(target), "f")
        return self._functions[target]

    def line(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            return f"{self.name(node)} = {self.bind(self.constants[str(node.target)], 'c')}"
        if node.target is operator.getitem:
            return f"{self.name(node)} = {self.name(node.args[0])}[{node.args[1]}]"  # type: ignore[arg-type]
        return f"{self.name(node)} = {self.call(node)}"

    def call(self, node: fx.Node, into: fx.Node | None = None) -> str:
        """``into``: where the result is written."""
        named = node.kwargs if into is None else {**node.kwargs, "out": into}
        arguments = [self.value(a) for a in node.args] + [f"{k}={self.value(v)}" for k, v in named.items()]
        return f"{self.function(node.target)}({', '.join(arguments)})"

    def memory(self, node: fx.Node) -> str:
        """What makes memory for a node's value, as it lies."""
        return f"{self.bind(memory, 'm')}({', '.join(self.bind(how, 'k') for how in node.meta['lies'])})"

    def value(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.name(value)
        if isinstance(value, (list, tuple)):
            inside = "".join(f"{self.value(v)}, " for v in value)
            return f"[{inside}]" if any(isinstance(v, fx.Node) for v in value) else f"({inside})"
        if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        return self.bind(value, "k")


_HOMES = (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase)


def direct(target: Any) -> Function:
    """torch's own binding of an ATen operation, which costs half as much to call as the operation object."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return functions.get(target, target)  # our own operations, past torch's dispatcher
    if target in _BRIEFER:
        return _BRIEFER[target]
    name = target._schema.name.removeprefix("aten::")
    if name in _NOT_DIRECT or any(_is_read_otherwise(a) for a in target._schema.arguments):
        return target
    for home in _HOMES:
        found = getattr(home, name, None)
        if found is not None:
            return found
    return target._op


# Bindings whose arguments differ from the operation's.
_NOT_DIRECT = frozenset({"_to_copy", "slice", "split", "slice_backward", "select_backward", "max", "min", "to"})

_OTHERWISE_LEFT_OUT = frozenset({"reduction"})
"""Arguments that mean something else to a binding where they are left out, as torch's dispatcher leaves out whatever equals the
operation's default: of a loss the mean, to the binding every element."""


def _is_read_otherwise(argument: Any) -> bool:
    """By a binding: of a list of indices it takes every one for a tensor, and ``x[..., i]`` has none for what comes before."""
    left_out = argument.name in _OTHERWISE_LEFT_OUT and argument.has_default_value()
    return left_out or str(argument.type) == "List[Optional[Tensor]]"


_BRIEFER = {torch.ops.aten.view.default: torch._C._VariableFunctions.reshape}
"""What does the same for less: of a shape, torch's view first wonders whether it is a type (4.6 and 2.6 µs on a Neoverse-N1)."""
