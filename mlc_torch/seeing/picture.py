"""``graph.draw(path)``: a graph as a picture. What is in it stands here; how it looks, in ``picture_dot`` and ``picture_svg``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mlc_torch.extras import install
from mlc_torch.layers import MLCLossLayer
from mlc_torch.nodes.node import Node
from mlc_torch.printable import printable
from mlc_torch.seeing import picture_dot, picture_svg
from mlc_torch.seeing.boxes import LONGEST, Box, Edge, Picture
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.spelling.own import as_path
from mlc_torch.tensor import TensorState

RENDERED = ("svg", "png", "pdf")
_WAYS_OUT = f"install Graphviz (https://graphviz.org), or the pure-Python layout: {install('viz')}"


def picture_of(graph: GraphFacts) -> Picture:
    """Boxes and edges in the order of the nodes."""
    names, numbering = graph.names(), graph.numbering()
    boxes: dict[str, Box] = {}
    edges: list[Edge] = []
    for node in graph.nodes:
        here = numbering.node(node)
        for cell in node.reads:
            tail = numbering.origin(cell)
            if numbering.maker(cell) is None and tail not in boxes:
                boxes[tail] = _outer(tail, cell, node, *names.get(id(cell), ("", "")))
            edges.append(Edge(tail, here, shape_text(cell), id(cell) in graph.stopped))
        boxes[here] = _inner(here, node, graph.is_loss(node.layer))
    for cell, name in _outputs(graph.nodes, names):
        key = f"o{cell.tensor_id}"
        boxes[key] = Box.of(key, "output", name, (shape_text(cell),), f"output {cell.label}, {_type(cell)}")
        edges.append(Edge(numbering.origin(cell), key, shape_text(cell), False))
    return Picture(tuple(boxes.values()), tuple(edges))


def _outer(key: str, cell: TensorState, reader: Node, kind: str, name: str) -> Box:
    """A tensor that comes from outside."""
    if not kind:
        held = cell.host is not None or cell.value is not None
        kind = "constant" if held else "label" if cell in reader.labels else "input"
    kind = "label" if kind == "label weight" else kind
    return Box.of(key, kind, name or cell.label, (kind, shape_text(cell)), f"{kind} {cell.label}, {_type(cell)}")


def _inner(key: str, node: Node, is_loss: bool) -> Box:
    layer = node.layer
    kind = "loss" if is_loss else "layer"
    shapes = "  ".join(shape_text(c) for c in node.results)
    name, words = type(layer).__name__, ", ".join(layer._repr_words())
    details = [name, *([printable(words, LONGEST)] if words else []), shapes]
    return Box.of(key, kind, layer.label or name, details, repr(layer))


def _outputs(nodes: Sequence[Node], names: dict[int, tuple[str, str]]) -> Iterator[tuple[TensorState, str]]:
    """What was declared as output; where nothing was, the results that no node reads, losses aside."""
    read = {id(c) for node in nodes for c in node.reads}
    declared = any(kind == "output" for kind, _ in names.values())
    for node in nodes:
        for cell in node.results:
            kind, name = names.get(id(cell), ("", ""))
            if kind == "output":
                yield cell, name
            elif not declared and id(cell) not in read and not isinstance(node.layer, MLCLossLayer):
                yield cell, cell.label


def shape_text(cell: TensorState) -> str:
    return "×".join(map(str, cell.shape))


def _type(cell: TensorState) -> str:
    return f"{list(cell.shape)} {cell.descriptor.dataType.name}"


def draw(graph: GraphFacts, path: str | Path) -> Path:
    """Write the picture; the suffix says how: ``.svg``, ``.png``, ``.pdf`` or ``.dot``."""
    path = as_path(f"{graph.title}.draw", path)
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in (*RENDERED, "dot"):
        raise ValueError(f"draw writes .svg, .png, .pdf or .dot, not {path.name!r}")
    picture = picture_of(graph)
    if not picture.boxes:
        raise ValueError("the graph has no nodes to draw")
    if suffix == "dot":
        content = picture_dot.text(picture).encode()
    elif picture_dot.installed():
        content = picture_dot.rendered(picture, suffix)
    else:
        content = _without_graphviz(picture, suffix)
    path.write_bytes(content)
    return path


def svg(graph: GraphFacts) -> str | None:
    """The picture for a notebook, or ``None`` where nothing can lay it out."""
    picture = picture_of(graph)
    if not picture.boxes:
        return None
    if picture_dot.installed():
        return picture_dot.rendered(picture, "svg").decode()
    return picture_svg.text(picture) if picture_svg.installed() else None


def _without_graphviz(picture: Picture, suffix: str) -> bytes:
    if not picture_svg.installed():
        raise RuntimeError(f"a picture needs a layout; {_WAYS_OUT}")
    if suffix == "svg":
        return picture_svg.text(picture).encode()
    if suffix == "png":
        return picture_svg.png(picture)
    raise RuntimeError(f"a .{suffix} needs Graphviz; {_WAYS_OUT} and draw an .svg or a .png")
