"""Formulas as MathML, written when the pages are built: browsers draw it themselves, without a script or a network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(f'<span class="math">{drawn(node.astext())}</span>')
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{drawn(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def drawn(latex: str, display: str = "inline") -> str:
    """A formula as MathML; one that cannot be read stops the build rather than leave a gap in a page."""
    try:
        made = convert(latex, display=display)
    except Exception as error:
        raise ExtensionError(f"the formula {latex!r} cannot be drawn: {error!r}") from error
    if "\\" in made or "&amp;" in made:
        raise ExtensionError(f"the formula {latex!r} holds a command that cannot be drawn: {made}")
    return made


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
