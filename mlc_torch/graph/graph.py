"""``MLCGraph``: records layers and infers their results. Nothing runs here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlc_torch.device import MLCDevice
from mlc_torch.engine.shared_module import SharedGraphModule
from mlc_torch.graph.binding import Part, bind
from mlc_torch.graph.locks import Locks, locked
from mlc_torch.graph.torch_module import torch_module
from mlc_torch.layers import (
    MLCConcatenationLayer,
    MLCGatherLayer,
    MLCLayer,
    MLCLossLayer,
    MLCReshapeLayer,
    MLCScatterLayer,
    MLCSelectionLayer,
    MLCSplitLayer,
    MLCTransposeLayer,
)
from mlc_torch.nodes.node import Node, handles, infer, unique_layers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.seeing.dot_description import dot_description
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.seeing.summary import Summary
from mlc_torch.spelling import MLCObject, declare, objc_only, prop
from mlc_torch.spelling.own import as_switch
from mlc_torch.tensor import MLCTensor, MLCTensorParameter, TensorState

_LAYER = "with layer: MLCLayer"
_BIND = "_ inputsData: [String : MLCTensorData], forInputs inputTensors: [String : MLCTensor], to device: MLCDevice"


class MLCGraph(MLCObject):
    """A graph of layers. ``node`` adds a layer and gives the tensor of its result."""

    _device: Any
    device = prop("MLCDevice?", "The device that the graph was compiled for, or ``None``.")

    @declare("init()", "graph")
    def _create(cls):
        """A graph without layers."""
        return cls._make(nodes=[], device=None, lock=Locks())

    @classmethod
    def _bare(cls) -> Any:
        return cls._create()

    def _all_nodes(self) -> list[Node]:
        """Every node this graph runs, in order."""
        return self._nodes

    def _is_loss(self, layer: MLCLayer) -> bool:
        return isinstance(layer, MLCLossLayer)

    @prop("[MLCLayer]")
    def layers(self):
        """Each layer once, in the order of addition."""
        return unique_layers(self._all_nodes())

    @prop("String")
    def summarizedDOTDescription(self):
        """The graph in the DOT language; dashed edges are those where the gradient stops."""
        return dot_description(self._facts())

    def _stopped_cells(self) -> set[int]:
        return set()

    def _parameters_to_train(self) -> list[MLCTensorParameter]:
        """Tensors that are trained for themselves, from the next compile on."""
        return []

    def _update_rule(self) -> MLCOptimizer | None:
        """What updates the parameters."""
        return None

    # Seeing it (ours)

    def _facts(self) -> GraphFacts:
        """What reports and modules may know of this graph."""
        nodes = self._all_nodes()
        losses = frozenset(id(n.layer) for n in nodes if self._is_loss(n.layer))
        device = None if self._device is None else self._device.torch_device
        idle = "an MLCGraph only records; make a training or an inference graph of it"
        return GraphFacts(type(self).__name__, nodes, losses, device=device, idle=idle)

    def summary(self) -> Summary:
        """A table of the layers; below it parameters, losses, device, and which gear runs and why."""
        return Summary(self._facts())

    def draw(self, path: str | Path) -> Path:
        """Write a picture of the graph: ``.svg``, ``.png``, ``.pdf`` or ``.dot``. Dashed lines carry no gradient."""
        from mlc_torch.seeing.picture import draw  # what draws is loaded for who draws

        return draw(self._facts(), path)

    def _repr_svg_(self) -> str | None:
        from mlc_torch.seeing.picture import svg

        return svg(self._facts())

    # Adding nodes

    @declare(f"node({_LAYER}, source: MLCTensor) -> MLCTensor?", "nodeWithLayer:source:")
    @declare(f"node({_LAYER}, sources: [MLCTensor]) -> MLCTensor?", "nodeWithLayer:sources:")
    @declare(
        f"node({_LAYER}, sources: [MLCTensor], disableUpdate: Bool) -> MLCTensor?",
        "nodeWithLayer:sources:disableUpdate:",
    )
    @declare(
        f"node({_LAYER}, sources: [MLCTensor], lossLabels: [MLCTensor]) -> MLCTensor?",
        "nodeWithLayer:sources:lossLabels:",
    )
    def _node(self, layer, source=None, sources=(), disableUpdate=False, lossLabels=()):
        """Add a layer, and give the tensor that it will compute, or ``None`` where the sources do not fit."""
        sources = [source] if source is not None else sources
        return self._add(layer, sources, not disableUpdate, lossLabels)[0]

    @locked
    def _add(
        self, layer: MLCLayer, sources: list[MLCTensor], updates: bool = True, labels: list[MLCTensor] | tuple = ()
    ) -> list[MLCTensor]:
        """Record a node; gives all its results."""
        if not sources:
            refuse(f"layer {layer.label!r} got no sources")
        read = tuple(t._cell for t in sources)
        labelled = tuple(t._cell for t in labels)
        owner = layer._belongs_to()
        if owner is not None and owner is not self:
            refuse(f"layer {layer.label!r} belongs to another graph; a layer serves one graph")
        node = Node(layer, read, infer(layer, read + labelled), labelled, updates)
        if owner is None:
            layer._enter(self, len(unique_layers(self._all_nodes())) + 1)
        self._nodes.append(node)
        self._changed()
        return handles(node.results)

    def _changed(self) -> None:
        """Called when a node was added."""

    def _forget_runs(self) -> None:
        """Drop what earlier runs left behind: their gradients, and plans that count optimizer steps."""

    @declare("concatenate(sources: [MLCTensor], dimension: Int) -> MLCTensor?", "concatenateWithSources:dimension:")
    def _concatenate(self, sources, dimension):
        """Add a layer that joins the sources along a dimension."""
        return self._add(MLCConcatenationLayer._create(dimension), sources)[0]

    @declare("reshape(shape: [Int], source: MLCTensor) -> MLCTensor?", "reshapeWithShape:source:")
    def _reshape(self, shape, source):
        """Add a layer that gives the source another shape; one dimension may be -1."""
        return self._add(MLCReshapeLayer._create(shape), [source])[0]

    @declare("transpose(dimensions: [Int], source: MLCTensor) -> MLCTensor?", "transposeWithDimensions:source:")
    def _transpose(self, dimensions, source):
        """Add a layer that reorders the dimensions of the source."""
        return self._add(MLCTransposeLayer._create(dimensions), [source])[0]

    @declare(
        "split(source: MLCTensor, splitCount: Int, dimension: Int) -> [MLCTensor]?",
        "splitWithSource:splitCount:dimension:",
    )
    def _split(self, source, splitCount, dimension):
        """Add a layer that cuts the source into equal parts, and give the parts."""
        return self._add(MLCSplitLayer._create(splitCount, dimension), [source])

    @declare(
        "split(source: MLCTensor, splitSectionLengths: [Int], dimension: Int) -> [MLCTensor]?",
        "splitWithSource:splitSectionLengths:dimension:",
    )
    def _split_by_lengths(self, source, splitSectionLengths, dimension):
        """Add a layer that cuts the source into parts of these lengths, and give the parts."""
        return self._add(MLCSplitLayer._of_lengths(splitSectionLengths, dimension), [source])

    @objc_only("- selectWithSources: [MLCTensor], condition: MLCTensor -> MLCTensor?")
    @declare("select(sources: [MLCTensor], condition: MLCTensor) -> MLCTensor?", ours=True)
    def _select(self, sources, condition):
        """Add a layer that picks from the first source where the condition is true, and from the second elsewhere."""
        return self._add(MLCSelectionLayer._create(), [condition, *sources])[0]

    @declare(
        "gather(withDimension dimension: Int, source: MLCTensor, indices: MLCTensor) -> MLCTensor?",
        "gatherWithDimension:source:indices:",
    )
    def _gather(self, dimension, source, indices):
        """Add a layer that picks elements of the source along a dimension by index."""
        return self._add(MLCGatherLayer._create(dimension), [source, indices])[0]

    @declare(
        "scatter(withDimension dimension: Int, source: MLCTensor, indices: MLCTensor, copyFrom: MLCTensor, "
        "reductionType: MLCReductionType) -> MLCTensor?",
        "scatterWithDimension:source:indices:copyFrom:reductionType:",
    )
    def _scatter(self, dimension, source, indices, copyFrom, reductionType):
        """Add a layer that writes or adds the source into a copy of ``copyFrom``, by index."""
        return self._add(MLCScatterLayer._create(dimension, reductionType), [source, indices, copyFrom])[0]

    # Asking

    @declare("sourceTensors(for layer: MLCLayer) -> [MLCTensor]", "sourceTensorsForLayer:")
    def _sources_of(self, layer):
        """The sources of a layer of this graph."""
        return [t for node in self._nodes_of(layer) for t in handles(node.sources)]

    @declare("resultTensors(for layer: MLCLayer) -> [MLCTensor]", "resultTensorsForLayer:")
    def _results_of(self, layer):
        """The results of a layer of this graph."""
        cells = [c for node in self._nodes_of(layer) for c in node.results]
        self._hand_out(cells)
        return handles(cells)

    def _nodes_of(self, layer: MLCLayer) -> list[Node]:
        """Those of a layer of this graph, of which there is at least one."""
        found = [node for node in self._all_nodes() if node.layer is layer]
        if not found:
            refuse(f"the layer {layer._label!r} is not in this graph")
        return found

    def _hand_out(self, cells: list[TensorState]) -> None:
        """Called when a program asks for these results; the graphs that run this one keep them from then on.

        Where one of them has run, its last run fills them at once. Where several have, it is not known whose is meant.
        """
        for place in self._lock.places:
            place.asked.update({id(c): c for c in cells})
            running = [graph for ref in tuple(place.runners) if (graph := ref()) is not None]
            fills = sum(graph._has_run() for graph in running) == 1
            for graph in running:  # each takes its locks itself, in their order
                graph._keep(cells, fills)

    # Data

    @declare(
        f"bindAndWriteData({_BIND}, synchronous: Bool) -> Bool",
        "bindAndWriteData:forInputs:toDevice:synchronous:",
        nil=("inputsData", "inputTensors"),
    )
    @declare(
        f"bindAndWriteData({_BIND}, batchSize: Int, synchronous: Bool) -> Bool",
        "bindAndWriteData:forInputs:toDevice:batchSize:synchronous:",
        nil=("inputsData", "inputTensors"),
    )
    def _bind(self, inputsData, inputTensors, device, synchronous, batchSize=0):
        """Copy data to the device for later calls; names that stand in both dictionaries are bound.

        The data of inputs has been read when this returns; parameters stay with the memory that was given.
        """
        self._raise_late_failure()
        if inputsData is None or inputTensors is None:  # Objective-C's nil (measured, evidence.md G)
            refuse("the inputs are nil")
        # On one line, as everywhere where a lock is held (locks.py).
        if (lock := self._lock.one) is not None:
            with lock: bind(self, inputsData, inputTensors, device, batchSize)  # noqa: E701  # fmt: skip
        else:
            self._lock.holding(bind, self, inputsData, inputTensors, device, batchSize)
        return True

    def _raise_late_failure(self) -> None:
        """What a completion handler raised on its thread is raised by the next call, before it does anything."""

    def _compiled_for(self, device: MLCDevice) -> None:
        """A graph that runs this one was compiled for ``device``."""
        self._device = device

    def _batches(self, cells: Mapping[str, TensorState], batch_size: int) -> dict[str, Part]:
        """How many samples ``batchSize`` means, and which dimension counts them, of each tensor that is not bound whole, as
        initial states are."""
        fitting = [name for name, cell in cells.items() if batch_size <= cell.shape[0]]
        # Where it is no number of samples, it is refused for each of them.
        return dict.fromkeys(fitting if fitting and batch_size > 0 else cells, (0, batch_size))

    def __copy__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied: a layer belongs to one graph")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled; save a checkpoint instead")

    def __repr__(self) -> str:
        where = f", on {self._device.torch_device}" if self._device is not None else ""
        return f"{type(self).__name__}({len(self._all_nodes())} nodes{where})"

    # With PyTorch (ours)

    def to_module(self, *, loss: bool = False) -> SharedGraphModule:
        """The graph as an ``nn.Module`` over the same memory, without its loss layers unless ``loss`` is true.

        ``forward`` takes the inputs in the order of ``addInputs`` (with ``loss`` then labels and label weights), else the
        tensors that hold no data in the order in which layers read them. It gives the last result, or a dictionary of
        the outputs where ``addOutputs`` declared several; a copy where the output is not computed but an input, a parameter or
        a constant. With ``loss`` it gives the loss, together with such outputs if
        there are any; of several losses the sum, but for those that are outputs themselves. A graph without a loss is
        refused. Parameters are named ``label.role``: ``dense1.weights``; they lie on the device that the graph was last
        compiled for.
        """
        loss = as_switch(f"{type(self).__name__}.to_module", "loss", loss)
        return self._lock.holding(lambda: torch_module(self._facts(), loss))
