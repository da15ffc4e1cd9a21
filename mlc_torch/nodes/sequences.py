"""Sequence lengths that reach an LSTM without being one of its sources.

The first SDKs took them under an input name, which the documentation spells in two ways, and a tensor may carry them in
its descriptor (evidence.md A.4, D.17). Either way they become the layer's last source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from mlc_torch.enums import MLCDataType
from mlc_torch.layers import MLCLSTMLayer
from mlc_torch.nodes.node import Node
from mlc_torch.refusals import refuse
from mlc_torch.tensor import MLCTensorData, MLCTensorDescriptor, TensorState

NAMES = ("sortedSequenceLengths", "sortedSequenceLength")


def with_lengths(nodes: Sequence[Node], inputs: Mapping[str, TensorState], known: dict[int, TensorState]) -> list[Node]:
    """The nodes, where an LSTM without a source of lengths gets one. ``known`` keeps the tensors made for this."""
    return [_with_lengths(node, inputs, known) for node in nodes]


def _with_lengths(node: Node, inputs: Mapping[str, TensorState], known: dict[int, TensorState]) -> Node:
    if not isinstance(node.layer, MLCLSTMLayer) or len(node.sources) in (2, 4):
        return node
    named = [inputs[name] for name in NAMES if name in inputs]
    lengths = named[0] if named else _from_descriptor(node.layer, node.sources[0], known)
    if lengths is None:
        return node
    return Node(node.layer, (*node.sources, lengths), node.results, node.labels, node.updates)


def _from_descriptor(layer: MLCLSTMLayer, source: TensorState, known: dict[int, TensorState]) -> TensorState | None:
    lengths = source.descriptor._sequenceLengths
    time, batch, _ = layer._layout(source.shape).extent(source.shape)
    if lengths is None:
        return None
    if len(lengths) != batch:
        refuse(
            f"the tensor {source.label!r} of shape {list(source.shape)} has {len(lengths)} sequence lengths, the layer "
            f"{layer._label!r} reads {batch} samples of {time} steps from it"
        )
    if min(lengths) == time:
        return None
    if id(source) not in known:
        descriptor = MLCTensorDescriptor._create((batch,), MLCDataType.int32)
        made = TensorState(descriptor, MLCTensorData._over(torch.tensor(lengths, dtype=torch.int32, device="cpu")))
        made.label = f"sequence lengths of {source.label}"
        known[id(source)] = made
    return known[id(source)]
