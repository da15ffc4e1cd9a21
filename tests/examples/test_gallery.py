"""The notebooks of the gallery run from top to bottom, and hold the pictures that readers see without running them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from mlc_torch.testing import seeded

mpl = pytest.importorskip("matplotlib", reason="the notebooks draw with matplotlib, which is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat reads notebooks, and is not installed")

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
NOTEBOOKS = sorted(GALLERY.glob("*.ipynb"))


def code(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(source: str, where: str, names: dict[str, Any]) -> None:
    """A cell as a notebook runs it: the value of a last expression is shown."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), where, "eval"), names)  # type: ignore[attr-defined]
        if hasattr(value, "_repr_png_"):
            assert value._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(notebook, monkeypatch, capsys):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    names: dict[str, Any] = {"__name__": notebook.stem}
    with seeded(0):
        for number, source in enumerate(code(notebook), 1):
            run(source, f"{notebook.name}, cell {number}", names)
    plt.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_can_be_read_without_running_it(notebook):
    read = nbformat.read(notebook, as_version=4)
    nbformat.validate(read)
    outputs = [output for cell in read.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert read.cells[0].source.startswith("# ") and len(read.cells) <= 16
    assert notebook.stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_jupyter_runs_it(notebook):
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    read = nbformat.read(notebook, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
    # nbclient stops only kernels of its own unless it is told to.
    NotebookClient(read, km=manager, timeout=300).execute(cleanup_kc=True)
