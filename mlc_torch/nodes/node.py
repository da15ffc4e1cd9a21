"""What a graph records: which layer reads which tensors and fills which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from mlc_torch.layers.base import MLCLayer
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.torch_private.memory import counts_writes


@dataclass(eq=False, slots=True)
class Node:
    """One use of a layer."""

    layer: MLCLayer
    sources: tuple[TensorState, ...]
    results: tuple[TensorState, ...]
    labels: tuple[TensorState, ...] = ()
    """Loss labels, and after them label weights."""
    updates: bool = True
    """False where the node was added with ``disableUpdate``."""

    @property
    def reads(self) -> tuple[TensorState, ...]:
        """What the layer's module is called with."""
        return self.sources + self.labels


def infer(layer: MLCLayer, reads: Sequence[TensorState]) -> tuple[TensorState, ...]:
    """New tensors for the results of ``layer``; a refusal names the layer and what it was given."""
    try:
        if layer._is_bare:
            refuse("the layer was made by new() and has no parameters; make it by an initializer that takes them")
        return tuple(TensorState(d) for d in layer._infer([c.descriptor for c in reads]))
    except MLCRefusal as why:
        refuse(f"{describe(layer, reads)}: {why.reason}")


def check(node: Node) -> None:
    """Refuse what the framework refuses at compile, and tell the layer what else it gets.

    The rule for results is asked again where labels came after the node.
    """
    descriptors = [c.descriptor for c in node.reads]
    try:
        if node.labels:
            node.layer._infer(descriptors)
        node.layer._check(descriptors)
        node.layer._note_sources(descriptors)
    except MLCRefusal as why:
        refuse(f"{describe(node.layer, node.reads)}: {why.reason}")


def check_modules(nodes: Iterable[Node]) -> None:
    """Refuse layers whose modules would compute with other parameters than those that are trained."""
    for node in nodes:
        try:
            node.layer._check_module()
        except MLCRefusal as why:
            refuse(f"{describe(node.layer, node.reads)}: {why.reason}")


def check_memory_kind(nodes: Iterable[Node], moved: Iterable[torch.Tensor]) -> None:
    """Refuse tensors that a training step moves and torch never lets be written to."""
    unwritable = {id(t) for t in moved if not counts_writes(t)}
    if not unwritable:
        return
    for node in nodes:
        module = node.layer.module
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            if id(tensor) in unwritable:
                refuse(
                    f"{describe(node.layer, node.reads)}: {name!r} of its module was made in torch.inference_mode(), and no "
                    "training step can write to it; make the module outside of that mode, or make the layer of "
                    "copy.deepcopy(module)"
                )


def describe(layer: MLCLayer, reads: Iterable[TensorState]) -> str:
    given = ", ".join(f"{c.label} {list(c.shape)}" for c in reads)
    return f"layer {layer.label!r} ({type(layer).__name__}) on {given or 'nothing'}"


def producers(nodes: Iterable[Node]) -> dict[int, Node]:
    """The node that computes each result, by the result's identity."""
    return {id(c): node for node in nodes for c in node.results}


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Each node once, behind those whose results it reads, and otherwise as given."""
    nodes = list(dict.fromkeys(nodes))
    made_by = producers(nodes)
    ordered: dict[Node, None] = {}
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting[-1]
        before = [made_by[id(c)] for c in node.reads if id(c) in made_by and made_by[id(c)] not in ordered]
        if before and node not in ordered:
            waiting += reversed(before)
        else:
            ordered.setdefault(waiting.pop())
    return list(ordered)


def reached(
    nodes: Sequence[Node], ends: Iterable[TensorState], stopped: Iterable[TensorState]
) -> tuple[set[int], set[int]]:
    """What a gradient that starts at ``ends`` and does not pass ``stopped`` reaches: nodes and tensors, by identity."""
    tensors, blocked, seen = {id(c) for c in ends}, {id(c) for c in stopped}, set()
    for node in reversed(nodes):
        if any(id(c) in tensors for c in node.results):
            seen.add(id(node))
            tensors |= {id(c) for c in node.reads} - blocked
    return seen, tensors


def handles(cells: Iterable[TensorState]) -> list[MLCTensor]:
    return [MLCTensor._of(c) for c in cells]


def own_states(layer: MLCLayer) -> tuple[TensorState, ...]:
    """The tensors that are a layer's own: its parameters, and its running statistics."""
    return (*(use.cell for use in layer._parameter_uses), *layer._buffer_cells)


def unique_layers(nodes: Iterable[Node]) -> list[MLCLayer]:
    return list({id(node.layer): node.layer for node in nodes}.values())
