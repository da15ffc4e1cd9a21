"""Reports as tables: text for the terminal, HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_torch.printable import printable

LONGEST_LABEL = 60


def shown(label: str) -> str:
    """A label in a table."""
    return printable(label, LONGEST_LABEL)


class Table:
    """A report whose ``str()`` is a text table and which a notebook shows as HTML. A column of numbers stands to the right."""

    def __init__(
        self,
        title: str,
        headers: Sequence[str],
        rows: Sequence[Sequence[str]],
        notes: Sequence[tuple[str, str]] = (),
        numbers: Sequence[str] = (),
    ) -> None:
        self.title, self.headers, self.rows = title, tuple(headers), [tuple(row) for row in rows]
        self.notes = list(notes)
        """What stands below the table: name and text."""
        self._right = [header in numbers for header in headers]

    def __str__(self) -> str:
        lines = [self.title]
        if self.rows:
            widths = [max(map(len, column)) for column in zip(self.headers, *self.rows, strict=True)]
            rule = tuple("-" * width for width in widths)
            lines += ["", *(self._line(row, widths) for row in (self.headers, rule, *self.rows))]
        if self.notes:
            width = max(len(name) for name, _ in self.notes)
            lines += ["", *(f"{name:{width}}  {text}".rstrip() for name, text in self.notes)]
        return "\n".join(lines)

    __repr__ = __str__

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = (f"{c:>{w}}" if right else f"{c:{w}}" for c, w, right in zip(row, widths, self._right, strict=True))
        return "  ".join(cells).rstrip()

    def _repr_html_(self) -> str:
        from html import escape  # for notebooks alone

        def row(cells: Sequence[str], tag: str) -> str:
            sides = ("right" if right else "left" for right in self._right)
            made = (f'<{tag} style="text-align:{s}">{escape(c)}</{tag}>' for c, s in zip(cells, sides, strict=True))
            return f"<tr>{''.join(made)}</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        notes = "".join(
            f"<tr><th style='text-align:left'>{escape(n)}</th><td style='text-align:left'>{escape(t)}</td></tr>"
            for n, t in self.notes
        )
        table = f"<table><thead>{row(self.headers, 'th')}</thead><tbody>{body}</tbody></table>" if self.rows else ""
        return f"<p><b>{escape(self.title)}</b></p>{table}<table>{notes}</table>"


def in_bytes(count: int) -> str:
    """A number of bytes for people: ``512 B``, ``1.5 KiB``, ``3.2 MiB``."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


def in_seconds(seconds: float) -> str:
    """A duration for people: ``12.3 µs``, ``4.56 ms``, ``1.23 s``."""
    scale, unit = next(((s, u) for s, u in ((1e-6, "µs"), (1e-3, "ms")) if seconds < 1000 * s), (1.0, "s"))
    number = seconds / scale
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f} {unit}"
