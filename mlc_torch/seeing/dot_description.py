"""A graph as text in the DOT language, as ``summarizedDOTDescription`` gives it."""

from __future__ import annotations

from mlc_torch.nodes.node import Node
from mlc_torch.printable import printable
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.tensor import TensorState


def dot_description(graph: GraphFacts) -> str:
    """Layers are boxes, tensors from outside ellipses; an edge carries the shape that flows along it.

    Without nodes it is the 42 characters that the real framework gives (evidence.md G).
    """
    numbering = graph.numbering()
    lines, drawn = [], set()
    for node in graph.nodes:
        lines.append(f'  {numbering.node(node)} [label="{_layer_text(node)}" shape=box];')
        for cell in node.reads:
            style = " style=dashed" if id(cell) in graph.stopped else ""
            tail = numbering.origin(cell)
            if numbering.maker(cell) is None and tail not in drawn:
                drawn.add(tail)
                lines.append(f'  {tail} [label="{quoted(printable(cell.label))}" shape=ellipse];')
            lines.append(f'  {tail} -> {numbering.node(node)} [label="{_shape(cell)}"{style}];')
    return "\n".join(["digraph MLCGraph {", " node [style=filled];", *lines, "}"])


def _layer_text(node: Node) -> str:
    shapes = " ".join(_shape(c) for c in node.results)
    return f"{node.layer.layerID}: {quoted(printable(node.layer.label or ''))}\\n{shapes}"


def _shape(cell: TensorState) -> str:
    return "x".join(map(str, cell.shape))


def quoted(text: str) -> str:
    """A line between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
