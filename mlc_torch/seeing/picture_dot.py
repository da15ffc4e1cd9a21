"""The picture of a graph in the DOT language, and Graphviz to render it where ``dot`` is installed."""

from __future__ import annotations

import shutil
import subprocess
from html import escape

from mlc_torch.seeing.boxes import Box, Edge, Picture
from mlc_torch.seeing.dot_description import quoted

FONT = "Helvetica,Arial,sans-serif"
FILL = {
    "layer": "#ffffff",
    "loss": "#fde8e8",
    "input": "#e1f0ff",
    "label": "#fff3d6",
    "constant": "#eceff1",
    "output": "#e2f5e5",
}
LINE = {
    "layer": "#607d8b",
    "loss": "#c62828",
    "input": "#1565c0",
    "label": "#b26a00",
    "constant": "#78909c",
    "output": "#2e7d32",
}
INK, FAINT, FLOW = "#1c2b33", "#5f7480", "#78909c"
_SECONDS = 120


def installed() -> bool:
    return shutil.which("dot") is not None


def rendered(picture: Picture, suffix: str) -> bytes:
    """What ``dot`` makes of the picture."""
    command = [shutil.which("dot") or "dot", f"-T{suffix}", *(["-Gdpi=144"] if suffix == "png" else [])]
    made = subprocess.run(command, input=text(picture).encode(), capture_output=True, timeout=_SECONDS, check=False)
    if made.returncode or not made.stdout:
        raise RuntimeError(f"dot could not draw the graph: {made.stderr.decode(errors='replace').strip()}")
    return made.stdout


def text(picture: Picture) -> str:
    lines = [
        "digraph MLCGraph {",
        '  graph [rankdir=TB, bgcolor=white, pad=0.25, nodesep=0.3, ranksep="0.42"];',
        f'  node [shape=box, style="rounded,filled", fontname="{FONT}", fontcolor="{INK}", margin="0.16,0.08"];',
        f'  edge [fontname="{FONT}", fontsize=9, color="{FLOW}", fontcolor="{FAINT}", arrowsize=0.7];',
        *map(_box, picture.boxes),
        *map(_edge, picture.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    small = "".join(f'<br/><font point-size="9" color="{FAINT}">{_html(line)}</font>' for line in box.details)
    label = f'<<b><font point-size="12">{_html(box.title)}</font></b>{small}>'
    return f'  {box.key} [label={label}, fillcolor="{FILL[box.kind]}", color="{LINE[box.kind]}", tooltip="{quoted(box.hint)}"];'


def _edge(edge: Edge) -> str:
    style = ", style=dashed" if edge.stopped else ""
    return f'  {edge.tail} -> {edge.head} [label="  {quoted(edge.shape)}"{style}];'


def _html(line: str) -> str:
    return escape(line) or " "  # an empty <b></b> is a syntax error to dot
