"""What of a graph goes into a checkpoint, under which names: weights, statistics, optimizer state, random streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch

from mlc_torch.device import offered, randomness
from mlc_torch.graph import MLCGraph
from mlc_torch.graph.torch_module import layer_names
from mlc_torch.interop.names import spelled, unused
from mlc_torch.layers.base import MLCLayer
from mlc_torch.layers.noise import Noise
from mlc_torch.nodes.node import unique_layers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.optimizer_state import state_of

TRAINED, OPTIMIZER, GENERATOR = "trained/", "optimizer/", "generator/"
"""Begin the names of what is no weight. A layer's name never holds a slash."""


def standing_cells(graph: MLCGraph) -> tuple[dict[str, TensorState], dict[str, TensorState]]:
    """The tensors that training changes, by name: those with a gradient, then running statistics.

    A tensor with several uses bears the name of the first.
    """
    nodes = graph._all_nodes()
    names = layer_names(nodes)
    parameters: dict[str, TensorState] = {}
    statistics: dict[str, TensorState] = {}
    seen: set[int] = set()
    for layer in unique_layers(nodes):
        name = names[id(layer)]
        for use in layer._parameter_uses:
            if id(use.cell) not in seen:
                parameters[f"{name}.{use.role}"] = use.cell
                seen.add(id(use.cell))
        for buffer, cell in _buffers(layer):
            if id(cell) not in seen:
                statistics[f"{name}.{buffer}"] = cell
                seen.add(id(cell))
    for name, cell in _trained_tensors(graph):
        if id(cell) not in seen:
            parameters[unused(spelled(name), parameters)] = cell
            seen.add(id(cell))
    return parameters, statistics


def _buffers(layer: MLCLayer) -> Iterator[tuple[str, TensorState]]:
    """The layer's own, by their names in its module. Of others, only what ``state_dict`` leaves out, too, is left out."""
    own = layer._buffer_cells
    for cell in own:
        memory_of(cell)
    there: list[TensorState] = []
    for name, buffer in layer.module.named_buffers():
        found = next((cell for cell in own if cell.is_seen_by(buffer)), None)
        if found is not None:
            there.append(found)
            yield name, found
        elif buffer.numel() and name in layer.module.state_dict():
            _refuse_other_buffers(layer, f"{name!r} of its module is not in the layer's memory")
    if len(there) < len(own):
        _refuse_other_buffers(layer, "that its module had is no longer there")


def _refuse_other_buffers(layer: MLCLayer, what: str) -> NoReturn:
    refuse(
        f"layer {layer.label!r} ({type(layer).__name__}): buffer {what}: it was replaced, added or removed since the layer was "
        "made, and a checkpoint holds those of then. Write into a buffer that is there (buffer.copy_(values)); one with "
        "persistent=False may be added"
    )


def _trained_tensors(graph: MLCGraph) -> Iterator[tuple[str, TensorState]]:
    """Tensors trained for themselves, by the name they were declared under, else by their label, else by their place."""
    declared = {key: name for key, (_, name) in graph._facts().names().items()}
    for place, cell in enumerate(graph._facts().trained_tensors):
        # A label that counts the tensors of this process means nothing in the next.
        numbered = cell.label == f"data{cell.tensor_id}"
        yield TRAINED + declared.get(id(cell), str(place) if numbered else cell.label), cell


def memory_of(cell: TensorState) -> torch.Tensor:
    """Where a tensor's value lies, on whichever device."""
    return cell.placed(writable=True)


def names_by_address(parameters: dict[str, TensorState]) -> dict[int, str]:
    """By where they lie: a torch optimizer knows parameters by their memory alone."""
    return {memory_of(cell).data_ptr(): name for name, cell in parameters.items()}


def optimizer_states(parameters: dict[str, TensorState], optimizer: MLCOptimizer) -> dict[str, list[torch.Tensor]]:
    """The state of each parameter that has some."""
    count = len(optimizer._state_names())
    if not count:
        return {}
    for cell in parameters.values():
        memory_of(cell)
    found = {name: state_of(cell, count, optimizer) for name, cell in parameters.items()}
    return {name: states for name, states in found.items() if states is not None}


def state_name(parameter: str, state: str) -> str:
    return f"{OPTIMIZER}{parameter}/{state}"


# Random streams


def streams(graph: MLCGraph, device: torch.device) -> dict[str, torch.Generator]:
    """What dropout draws from on ``device``: the platform's stream, and those of layers with a seed of their own."""
    nodes = graph._all_nodes()
    names = layer_names(nodes)
    found = {"platform": randomness.stream(device)}
    for layer in unique_layers(nodes):
        for path, noise in layer.module.named_modules():
            if isinstance(noise, Noise) and noise.rate > 0 and noise.seed:
                found[".".join(filter(None, (names[id(layer)], path)))] = noise.stream(device)
    return {f"{GENERATOR}{name}/{device.type}": stream for name, stream in found.items()}


def devices(graph: MLCGraph) -> list[torch.device]:
    """Where the graph draws: its device, or before it is compiled any that there is."""
    return [graph._device.torch_device] if graph._device is not None else [torch.device("cpu"), *offered()]


# A description


def description(graph: MLCGraph) -> dict[str, Any]:
    """The graph as data, for people and programs that look into a checkpoint."""
    nodes = graph._all_nodes()
    names, known = layer_names(nodes), {key: name for key, (_, name) in graph._facts().names().items()}
    made = {}
    for node in nodes:
        for number, cell in enumerate(node.results):
            made[id(cell)] = names[id(node.layer)] + (f"[{number}]" if len(node.results) > 1 else "")
    return {
        "class": type(graph).__name__,
        "nodes": [
            {
                "name": names[id(node.layer)],
                "layer": type(node.layer).__name__,
                "label": node.layer.label,
                "sources": [made.get(id(c), known.get(id(c), c.label)) for c in node.reads],
                "results": [_like(c) for c in node.results],
                "parameters": {use.role: _like(use.cell) for use in node.layer._parameter_uses},
            }
            for node in nodes
        ],
        "declared": [{"kind": kind, "name": name} for kind, name in graph._facts().names().values()],
    }


def _like(cell: TensorState) -> dict[str, Any]:
    return {"shape": list(cell.shape), "type": cell.descriptor.dataType.name}
