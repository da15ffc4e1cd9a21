"""Which tensors a training graph's own loss layer reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from mlc_torch.layers import MLCLossLayer
from mlc_torch.layers.base import MLCLayer
from mlc_torch.nodes.node import Node, infer
from mlc_torch.tensor import TensorState

Form = tuple[tuple[int, ...], torch.dtype]
"""The shape of a tensor, and what its elements are."""


def own_loss_node(
    layer: MLCLayer,
    nodes: Sequence[Node],
    labels: Mapping[str, TensorState],
    weights: Mapping[str, TensorState],
    made: dict[Form, tuple[TensorState, ...]],
) -> Node | None:
    """The loss over the last result that is no loss itself, and over the labels that no other loss reads.

    Before labels are declared the result is inferred as if they had the predictions' shape, since programs ask for it
    then already (evidence.md H.1). ``made`` remembers the result, so that it stays the same tensor.
    """
    predicted = [n for n in nodes if not isinstance(n.layer, MLCLossLayer)]
    if not predicted:
        return None
    predictions = predicted[-1].results[0]
    # A loss may have got its labels as a source, too.
    given = [c for n in nodes if isinstance(n.layer, MLCLossLayer) for c in n.sources[1:]]
    taken = {id(c) for c in (*given, *(c for n in nodes for c in n.labels))}
    reads: tuple[TensorState, ...] = ()
    if isinstance(layer, MLCLossLayer):
        name, label = _fitting(predictions, {n: c for n, c in labels.items() if id(c) not in taken})
        if label is not None:
            named = weights.get(name or "")
            weight = named if named is not None else _fitting(predictions, weights, loose=len(weights) == 1)[1]
            reads = (label,) if weight is None or id(weight) in taken else (label, weight)
    stand_in = reads or ((predictions,) if isinstance(layer, MLCLossLayer) else ())
    key = predictions.shape, predictions.dtype
    if key not in made:
        made[key] = infer(layer, (predictions, *stand_in))
    return Node(layer, (predictions,), made[key], reads)


def _fitting(
    predictions: TensorState, cells: Mapping[str, TensorState], loose: bool = True
) -> tuple[str | None, TensorState | None]:
    """The first tensor with as many elements as the predictions, or the first at all."""
    for name, cell in cells.items():
        if math.prod(cell.shape) == math.prod(predictions.shape):
            return name, cell
    return next(iter(cells.items())) if cells and loose else (None, None)


def no_labels(loss: Node, nodes: Sequence[Node], labels: Mapping[str, TensorState]) -> str:
    """The words for a loss that has no labels: none were declared, or other losses read them all."""
    read = [
        f"{name!r} is read by the loss layer {node.layer.label!r}"
        for name, cell in labels.items()
        for node in nodes
        if isinstance(node.layer, MLCLossLayer) and any(cell is c for c in node.reads[1:])
    ]
    if not read:
        return f"loss layer {loss.layer.label!r} has no labels; declare them with addInputs(_:lossLabels:)"
    return (
        f"loss layer {loss.layer.label!r} has no labels of its own ({', '.join(read)}); declare another label for it with "
        "addInputs(_:lossLabels:)"
    )
