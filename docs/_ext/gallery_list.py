"""The gallery as Markdown: each notebook's title, its first words and its last picture, read from the notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def gallery_markdown(folder: Path) -> str:
    return "\n\n".join(_entry(path) for path in sorted(folder.glob("*.ipynb")))


def _entry(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, _, words = "".join(cells[0]["source"]).removeprefix("# ").partition("\n\n")
    pictures = [png for cell in cells for output in cell.get("outputs", []) if (png := _png(output))]
    shown = f'<img alt="{title}" src="data:image/png;base64,{pictures[-1]}">' if pictures else ""
    return f"## {title}\n\n{words}\n\n{shown}\n\nThe notebook: `examples/gallery/{path.name}`"


def _png(output: dict[str, Any]) -> str:
    return "".join(output.get("data", {}).get("image/png", "")).replace("\n", "")
