"""Warnings of what a graph silently does not do: train, read what it is given, make what was declared. Each cause once for a
compiled graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from mlc_torch.engine.plan import Plan, Trained
from mlc_torch.enums import MLCLossType, MLCSoftmaxOperation
from mlc_torch.layers import MLCLossLayer, MLCSoftmaxLayer
from mlc_torch.nodes.node import Node, own_states, producers, reached, unique_layers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import MLCTrainingWarning, warn_the_program
from mlc_torch.running.state import GradientState
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.state_owners import bound_for

NO_PROBABILITIES = "no probabilities"
"""The cause of a warning that explains a NaN loss as well."""

_CLASS_LOSSES = (MLCLossType.softmaxCrossEntropy, MLCLossType.categoricalCrossEntropy)
_PROBABILITIES = (MLCLossType.categoricalCrossEntropy, MLCLossType.log)


def warn_once(warned: set[str], cause: str, text: str) -> None:
    """Warn of each cause once."""
    if cause in warned:
        return
    warned.add(cause)
    warn_the_program(text, MLCTrainingWarning)


def _kind(layer: Any) -> MLCLossType | None:
    if not isinstance(layer, MLCLossLayer):
        return None
    descriptor = getattr(layer, "_descriptor", None)
    return getattr(descriptor, "lossType", None)


def warn_untrained(warned: set[str], nodes: Sequence[Node], learns: bool) -> None:
    """What can be seen when a training graph is compiled."""
    made_by = producers(nodes)
    for node in nodes:
        kind = _kind(node.layer)
        if kind is None:
            continue
        name = f"loss layer {node.layer.label!r} ({kind.name})"
        if kind in _CLASS_LOSSES and any(not c.dtype.is_floating_point for c in node.labels):
            warn_once(
                warned,
                "integer labels",
                f"{name} has integer labels; ML Compute wants one-hot float32 labels, one number for each class",
            )
        before = made_by.get(id(node.sources[0]))
        if kind is MLCLossType.softmaxCrossEntropy and before is not None and isinstance(before.layer, MLCSoftmaxLayer):
            warn_once(
                warned,
                "softmax twice",
                f"{name} applies softmax itself and stands behind the softmax layer {before.layer.label!r}; "
                "the double softmax learns slowly or not at all",
            )
    if not learns:
        warn_once(
            warned,
            "nothing to update",
            "no parameter can be updated: no layer has parameters that a loss depends on, the gradient is stopped before "
            "them, isUpdatable is False or disableUpdate was given everywhere",
        )


def may_learn(plan: Plan, nodes: Sequence[Node], stopped: Sequence[TensorState]) -> bool:
    """Whether a gradient comes to anything that may be updated, as far as the graph tells: what modules do with it, the first
    update shows."""
    if not plan.differentiates:
        return True  # a gradient from outside may be promised later: execute looks again
    ends = [plan.cells[slot] for slot in (*plan.losses, *plan.injected)]
    seen, tensors = reached(nodes, ends, stopped)
    layers = unique_layers(n for n in nodes if id(n) in seen and n.updates)
    tensors |= {id(use.cell) for layer in layers for use in layer._parameter_uses}
    return any(t.updated and id(t.cell) in tensors for t in plan.trained)


def warn_unmade(warned: set[str], nodes: Sequence[Node], outputs: Mapping[str, TensorState], plan: Plan) -> None:
    """Outputs that were declared and that nothing computes, nor gives a call data for: a buffer for one stays as it is."""
    made_by = producers(nodes)
    fed = {id(cell) for cell in plan.cells[: plan.fed_count]}
    for name, cell in outputs.items():
        if id(cell) not in made_by and id(cell) not in fed and cell.gradient_of is None:
            warn_once(warned, f"output {name}", f"no node of the graph produces the output {name!r} ({cell.label})")


def warn_unread(
    warned: set[str], nodes: Sequence[Node], declared: Sequence[tuple[str, Mapping[str, TensorState]]]
) -> None:
    """Inputs, labels and weights that were declared and that no node of the graph reads, or under several names."""
    read = {id(c) for node in nodes for c in node.reads}
    known: dict[int, str] = {}
    for kind, cells in declared:
        for name, cell in cells.items():
            first = known.setdefault(id(cell), f"the {kind} {name!r}")
            if id(cell) in read and first != f"the {kind} {name!r}":
                warn_once(
                    warned,
                    f"one tensor {kind} {name}",
                    f"{first} and the {kind} {name!r} are one tensor ({cell.label}): execute asks for data under both names, and "
                    "computes with that for the first alone",
                )
            if id(cell) not in read:
                warn_once(
                    warned,
                    f"unread {kind} {name}",
                    f"no node of the graph reads the {kind} {name!r} ({cell.label}); what is given for it is ignored",
                )


def warn_computed(
    warned: set[str], nodes: Sequence[Node], declared: Sequence[tuple[str, Mapping[str, TensorState]]]
) -> None:
    """Inputs, labels and weights that a node of this very graph computes, as where the result was declared in the label's place.

    What another graph computes is none of these: that is how labels come from it.
    """
    made_by, read = producers(nodes), {id(c) for node in nodes for c in node.reads}
    for kind, cells in declared:
        for name, cell in cells.items():
            if id(cell) in made_by and id(cell) in read:
                warn_once(
                    warned,
                    f"computed {kind} {name}",
                    f"the {kind} {name!r} ({cell.label}) is a result of the layer {made_by[id(cell)].layer._label!r} of this "
                    "graph; what is given for it is ignored",
                )


def warn_half_trained(warned: set[str], nodes: Sequence[Node], trained: Iterable[Trained]) -> None:
    """Parameters of a layer that another layer reads as a source: of that use there is no gradient."""
    readers = {id(c): node.layer for node in nodes for c in node.reads}
    for item in trained:
        reader = readers.get(id(item.cell))
        if reader is not None and item.slot is None:
            warn_once(
                warned,
                f"half trained {item.cell.tensor_id}",
                f"the tensor {item.cell.label!r} is a parameter of a layer and a source of the layer {reader._label!r}, and the "
                "gradient of the second does not count; give it to setTrainingTensorParameters too",
            )


def warn_unrelated(warned: set[str], nodes: Sequence[Node], steering: GradientState) -> None:
    """Tensors that are to be stopped, or trained, and that the graph has nothing to do with."""
    there = {id(c) for node in nodes for c in (*node.reads, *node.results, *own_states(node.layer))}
    asked = [("stopGradient", cell) for cell in steering.stopped]
    asked += [("setTrainingTensorParameters", p._tensor._cell) for p in steering.trained]
    for who, cell in asked:
        if id(cell) not in there:
            warn_once(
                warned,
                f"{who} {cell.tensor_id}",
                f"{who} names the tensor {cell.label!r}, which no layer of the graph reads or computes: it changes nothing",
            )


def warn_of_spare_state(warned: set[str], optimizer: MLCOptimizer | None, cells: Iterable[TensorState]) -> None:
    """Tensors with more optimizer data than the optimizer keeps."""
    kept = 0 if optimizer is None else len(optimizer._state_names())
    for cell in cells:
        bound = len(bound_for(cell, optimizer))
        if bound > kept:
            warn_once(
                warned,
                "spare optimizer data",
                f"the optimizer keeps {kept} tensors for {cell.label!r}, {bound} are bound as optimizer "
                f"data; {'the first are used' if kept else 'they are not used'}",
            )


_NAN_LOSS, _NAN_INFERRED = "loss is NaN", "loss of an inference is NaN"


def warn_of_loss(warned: set[str], loss: torch.Tensor, inferred: bool = False) -> None:
    """A loss that is NaN. One look at a value that is on the host already: elsewhere it would have to be waited for."""
    if _NAN_LOSS in warned or (inferred and _NAN_INFERRED in warned):
        return
    value = loss.item() if loss.numel() == 1 else loss.sum().item()
    if value != value and bool(loss.isnan().any()):  # the sum of inf and -inf is NaN too
        places = "in the data, a division by zero, the logarithm of zero, or a learning rate that"
        if inferred:
            text = f"the loss of this inference is NaN; look for NaN or infinity {places} was too large"
        else:
            text = (
                "the loss is NaN, and so is every parameter that was or will be updated by its gradient; look for NaN or "
                f"infinity {places} is too large"
            )
        warn_once(warned, _NAN_INFERRED if inferred else _NAN_LOSS, text)


def probabilities_of(nodes: Sequence[Node]) -> list[TensorState]:
    """What losses that take probabilities are given, where no softmax vouches for it."""
    made_by = producers(nodes)
    found = []
    for node in nodes:
        if _kind(node.layer) in _PROBABILITIES:
            before = made_by.get(id(node.sources[0]))
            softmax = before.layer if before is not None and isinstance(before.layer, MLCSoftmaxLayer) else None
            if softmax is None or softmax.operation is not MLCSoftmaxOperation.softmax:
                found.append(node.sources[0])
    return found


def warn_of_values(
    warned: set[str], nodes: Sequence[Node], value_of: Callable[[TensorState], torch.Tensor | None]
) -> None:
    """What the values of a first run show: cross-entropy on what are no probabilities."""
    for cell in probabilities_of(nodes):
        value = value_of(cell)
        if value is not None and bool(torch.any((value < 0) | (value > 1))):
            warn_once(
                warned,
                NO_PROBABILITIES,
                f"a cross-entropy takes probabilities, and {cell.label!r} has values outside 0...1; put a softmax or "
                "sigmoid before it, or use a loss that takes logits",
            )
