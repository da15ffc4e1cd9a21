"""``graph.summary()``: a graph as a table, layer by layer, and below it what it takes and how it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mlc_torch.engine.session import Session
from mlc_torch.nodes.node import Node, unique_layers
from mlc_torch.printable import printable
from mlc_torch.seeing.facts import GraphFacts, Numbering
from mlc_torch.seeing.table import LONGEST_LABEL, Table, in_bytes, shown
from mlc_torch.tensor import TensorState

_HEADERS = ("#", "layer", "label", "sources", "result", "parameters", "result bytes")
_NUMBERS = ("#", "parameters", "result bytes")


class Summary(Table):
    """What ``summary()`` gives: ``str()`` is the table, and these are the numbers in it."""

    def __init__(self, graph: GraphFacts) -> None:
        nodes = graph.nodes
        layers = unique_layers(nodes)
        cells = {id(use.cell): use.cell for layer in layers for use in layer._parameter_uses}
        buffers = {id(c): c for layer in layers for c in layer._buffer_cells if id(c) not in cells}
        results = [c for node in nodes for c in node.results]
        session = graph.session
        self.parameters = sum(map(elements, cells.values()))
        """The elements of all parameters; a tensor that several layers use counts once."""
        self.trained: int | None = None
        """Those that the optimizer updates; ``None`` as long as no plan says which."""
        self.result_bytes = sum(c.descriptor._nbytes for c in results)
        self.gear, self.why = _gear(graph, session)

        size = in_bytes(sum(c.descriptor._nbytes for c in cells.values()))
        text = f"{self.parameters:,} ({size})"
        if session is not None and session.plan.trained:
            updates = graph.optimizer is not None
            self.trained = sum(
                elements(t.cell) for t in session.plan.trained if updates and t.updated and id(t.cell) in cells
            )
            text += f": {self.trained:,} trained, {self.parameters - self.trained:,} frozen"
        notes = [("parameters", text)]
        if buffers:
            held = buffers.values()
            notes.append(
                ("statistics", f"{sum(map(elements, held)):,} ({in_bytes(sum(c.descriptor._nbytes for c in held))})")
            )
        notes.append(("results", f"{len(results)} ({in_bytes(self.result_bytes)})"))
        notes += _declared(graph)
        notes += [("loss", printable(repr(layer), 3 * LONGEST_LABEL)) for layer in layers if graph.is_loss(layer)]
        notes += _training(graph, session)
        notes.append(("device", "none yet" if graph.device is None else str(graph.device)))
        if graph.session is not None and graph.session.ranks:
            notes.append(("ranks", graph.session.ranks))
        notes.append(("gear", f"{self.gear}: {self.why}" if self.why else self.gear))
        count = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
        rows = _rows(nodes, graph.names(), graph.numbering())
        super().__init__(f"{graph.title}: {count}", _HEADERS, rows, notes, _NUMBERS)


def _rows(nodes: Sequence[Node], names: Mapping[int, tuple[str, str]], numbering: Numbering) -> list[tuple[str, ...]]:
    first: dict[int, int] = {}

    def source(cell: TensorState) -> str:
        node = numbering.maker(cell)
        if node is None:
            return shown(names[id(cell)][1] if id(cell) in names else cell.label)
        part = f".{[id(c) for c in node.results].index(id(cell))}" if len(node.results) > 1 else ""
        return f"#{numbering.of(node)}{part}"

    rows: list[tuple[str, ...]] = []
    for i, node in enumerate(nodes, 1):
        layer = node.layer
        known = first.setdefault(id(layer), i)
        own = {id(use.cell): use.cell for use in layer._parameter_uses}
        count = f"{sum(map(elements, own.values())):,}" if own else ""
        rows.append(
            (
                str(i),
                type(layer).__name__,
                shown(layer.label or ""),
                ", ".join(source(c) for c in node.reads),
                " ".join(str(list(c.shape)) for c in node.results),
                count if known == i else f"as #{known}",
                f"{sum(c.descriptor._nbytes for c in node.results):,}",
            )
        )
    return rows


def elements(cell: TensorState) -> int:
    return math.prod(cell.shape)


def _declared(graph: GraphFacts) -> list[tuple[str, str]]:
    """Inputs, labels and outputs under the names they were declared by."""
    found: dict[str, list[str]] = {}
    used = {id(c) for node in graph.nodes for c in (*node.reads, *node.results)}
    for kind, name, cell in graph.declared:
        shape = f"{list(cell.shape)} {cell.descriptor.dataType.name}" if id(cell) in used else "(no node reads it)"
        found.setdefault(f"{kind}s", []).append(f"{shown(name)} {shape}")
    return [(kind, ", ".join(texts)) for kind, texts in found.items()]


def _training(graph: GraphFacts, session: Session | None) -> list[tuple[str, str]]:
    notes = []
    if session is not None:
        own = [shown(t.cell.label) for t in session.plan.trained if t.slot is not None]
        if own:
            notes.append(("trained inputs", ", ".join(own)))
    optimizer = graph.optimizer
    if optimizer is not None:
        notes.append(("optimizer", f"{type(optimizer).__name__}, learning rate {optimizer.learningRate:g}"))
    return notes


def _gear(graph: GraphFacts, session: Session | None) -> tuple[str, str]:
    """Which gear runs the graph, and why that one."""
    if session is None:
        return "none", graph.idle
    why = session.why_plain()
    if why is not None:
        return "plain", why
    gear = session.prepared or session.gear
    if gear is None:
        return "none", "chosen at the next execute, when linked graphs have run"
    return gear.name, gear.why
