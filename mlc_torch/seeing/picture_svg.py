"""The picture of a graph as SVG without Graphviz: grandalf, a pure-Python library, finds the places."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from mlc_torch.extras import install
from mlc_torch.seeing.boxes import Box, Edge, Picture
from mlc_torch.seeing.picture_dot import FAINT, FILL, FLOW, INK, LINE

_TITLE, _SMALL = 13.0, 10.0
_LEADING, _PAD_X, _PAD_Y = 15.0, 14.0, 9.0
_GAP_X, _GAP_Y, _MARGIN = 28.0, 40.0, 18.0
_LANE = 26.0
"""The width that an edge takes where it passes other boxes."""
_WIDTH = 0.61
"""The width of a character in sizes of the font: an estimate, since nothing here knows the font."""
_FAMILY = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"

Point = tuple[float, float]


def installed() -> bool:
    return importlib.util.find_spec("grandalf") is not None


def png(picture: Picture) -> bytes:
    try:
        import resvg_py
    except ImportError as error:
        raise RuntimeError(f"a .png needs Graphviz or resvg_py: {install('viz')}") from error
    return bytes(resvg_py.svg_to_bytes(svg_string=text(picture), zoom=2))


@dataclass
class Placed:
    """A box with the middle of its place."""

    box: Box
    w: float
    h: float
    x: float = 0.0
    y: float = 0.0


def text(picture: Picture) -> str:
    places = {box.key: _sized(box) for box in picture.boxes}
    routes = _lay_out(places, picture.edges)
    width = max([p.x + p.w / 2 for p in places.values()] + [x for r in routes for x, _ in r]) + _MARGIN
    height = max(p.y + p.h / 2 for p in places.values()) + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FAMILY}" text-anchor="middle">',
            f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0.6 L8 4 L0 7.4 z" fill="{FLOW}"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            *(_route(edge, route) for edge, route in zip(picture.edges, routes, strict=True)),
            *(_drawn(place) for place in places.values()),
            *_labels(picture.edges, routes),
            "</svg>\n",
        ]
    )


def _sized(box: Box) -> Placed:
    wide = max([len(box.title) * _TITLE * 1.04, *(len(line) * _SMALL for line in box.details)]) * _WIDTH
    return Placed(box, max(wide + 2 * _PAD_X, 70.0), _LEADING * (1 + len(box.details)) + 2 * _PAD_Y)


def _lay_out(places: dict[str, Placed], edges: Sequence[Edge]) -> list[list[Point]]:
    """Give every box its place; gives for each edge the points it passes, one for every row on its way."""
    from grandalf.graphs import Edge as Line
    from grandalf.graphs import Vertex, graph_core
    from grandalf.layouts import SugiyamaLayout

    vertices = {key: Vertex(key) for key in places}
    for key, vertex in vertices.items():
        vertex.view = _View(places[key].w, places[key].h)
    # One line for all tensors that go from one box to another: grandalf knows no parallel edges.
    lines = {(e.tail, e.head): Line(vertices[e.tail], vertices[e.head]) for e in edges}
    left = _MARGIN
    layouts: dict[Any, Any] = {}
    for keys in _parts(places, lines):
        own = [line for (tail, _), line in lines.items() if tail in keys]
        part = graph_core([vertices[key] for key in keys], own)
        layout: Any = SugiyamaLayout(part)
        layout.xspace, layout.yspace, layout.dw = _GAP_X, _GAP_Y, _LANE
        layout.layers = _Rows()
        # No line leads back to where it came from. Told so, grandalf does not look for such lines: it would by a function that
        # calls itself once for every layer of a chain, and Python stops that at about 1000.
        layout.init_all(inverted_edges=[], optimize=True)
        layout.draw(6)
        shown = list(layout.grx)  # the boxes, and where lines pass
        shift_x = left - min(v.view.xy[0] - v.view.w / 2 for v in shown)
        shift_y = _MARGIN - min(v.view.xy[1] - v.view.h / 2 for v in shown)
        for vertex in shown:
            x, y = vertex.view.xy
            vertex.view.xy = x + shift_x, y + shift_y
        for vertex in part.V():
            places[vertex.data].x, places[vertex.data].y = vertex.view.xy
        left = max(v.view.xy[0] + v.view.w / 2 for v in shown) + 2 * _GAP_X
        layouts |= dict.fromkeys(part.V(), layout)
    routes = [_points(lines[e.tail, e.head], layouts[vertices[e.tail]], places) for e in edges]
    for end in (0, -1):
        _spread(edges, routes, places, end)
    return routes


def _parts(places: Iterable[str], lines: Iterable[tuple[str, str]]) -> list[dict[str, None]]:
    """The boxes of each part that no line joins to another, in the order of the picture.

    (grandalf finds them too, by comparing all with all: of 8000 boxes in a minute.)
    """
    beside: dict[str, list[str]] = {key: [] for key in places}
    for tail, head in lines:
        beside[tail].append(head)
        beside[head].append(tail)
    number: dict[str, int] = {}
    parts: list[dict[str, None]] = []
    for first in beside:
        if first not in number:
            parts.append({})
            reached = [first]
            while reached:
                key = reached.pop()
                if key not in number:
                    number[key] = len(parts) - 1
                    reached += beside[key]
    for key in beside:
        parts[number[key]][key] = None
    return parts


class _Rows(list[Any]):
    """grandalf's rows. It asks for the number of each; by equality, as a list would find it, that takes seconds for thousands."""

    def index(self, row: Any, *_: Any) -> int:
        return next(i for i, other in enumerate(self) if other is row)


class _View:
    """What grandalf wants to know of a vertex, and where it puts the answer."""

    def __init__(self, w: float, h: float) -> None:
        self.w, self.h, self.xy = w, h, (0.0, 0.0)


def _points(line: Any, layout: Any, places: dict[str, Placed]) -> list[Point]:
    tail, head = places[line.v[0].data], places[line.v[1].data]
    passed = layout.ctrls.get(line, {})
    between = [passed[rank].view.xy for rank in sorted(passed)[1:-1]]
    return [(tail.x, tail.y + tail.h / 2), *between, (head.x, head.y - head.h / 2)]


def _spread(edges: Sequence[Edge], routes: list[list[Point]], places: dict[str, Placed], end: int) -> None:
    """Lines that meet at one side of a box (end -1: its top, 0: its bottom) get a point of their own there."""
    meeting: dict[str, list[list[Point]]] = {}
    for edge, route in zip(edges, routes, strict=True):
        meeting.setdefault(edge.head if end else edge.tail, []).append(route)
    for key, there in meeting.items():
        step = min(_LANE, places[key].w / (len(there) + 1))
        there.sort(key=lambda route: route[1 if end == 0 else -2][0])
        for i, route in enumerate(there):
            x, y = route[end]
            route[end] = x + (i - (len(there) - 1) / 2) * step, y


def _route(edge: Edge, points: Sequence[Point]) -> str:
    """A smooth line that leaves downwards and arrives from above."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        path += f" C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    dash = ' stroke-dasharray="5 4"' if edge.stopped else ""
    return f'<path d="{path}" fill="none" stroke="{FLOW}" stroke-width="1.2" marker-end="url(#tip)"{dash}/>'


def _labels(edges: Sequence[Edge], routes: Sequence[Sequence[Point]]) -> list[str]:
    """Shapes beside the lines; of lines that run side by side the outer ones have theirs on the outside."""
    beside: dict[tuple[str, str], list[tuple[Edge, Sequence[Point]]]] = {}
    for edge, route in zip(edges, routes, strict=True):
        beside.setdefault((edge.tail, edge.head), []).append((edge, route))
    made = []
    for group in beside.values():
        group.sort(key=lambda one: one[1][0][0])
        for (edge, route), side in zip((group[-1], *group[:-1][:1]), (1, -1), strict=False):
            (x0, y0), (x1, y1) = route[:2]
            made.append(
                f'<text x="{(x0 + x1) / 2 + 5 * side:.1f}" y="{(y0 + y1) / 2 + 3:.1f}" font-size="9" fill="{FAINT}" '
                f'text-anchor="{"start" if side == 1 else "end"}" stroke="white" stroke-width="3" paint-order="stroke">'
                f"{escape(edge.shape)}</text>"
            )
    return made


def _drawn(place: Placed) -> str:
    box = place.box
    left, top = place.x - place.w / 2, place.y - place.h / 2
    round_ = place.h / 2 if box.kind in ("input", "label", "constant", "output") else 7
    rows = [
        f'<text x="{place.x:.1f}" y="{top + _PAD_Y + 12:.1f}" font-size="{_TITLE:g}" font-weight="bold" fill="{INK}">'
        f"{escape(box.title)}</text>"
    ]
    for i, line in enumerate(box.details, 1):
        y = top + _PAD_Y + 11 + i * _LEADING
        rows.append(f'<text x="{place.x:.1f}" y="{y:.1f}" font-size="{_SMALL:g}" fill="{FAINT}">{escape(line)}</text>')
    return (
        f"<g><title>{escape(box.hint)}</title>"
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{place.w:.1f}" height="{place.h:.1f}" rx="{round_:g}" '
        f'fill="{FILL[box.kind]}" stroke="{LINE[box.kind]}" stroke-width="1.2"/>{"".join(rows)}</g>'
    )
