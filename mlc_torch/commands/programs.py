"""What the demo and the programs in ``examples/`` share: their options, the device, the progress bar and the picture."""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlc_torch import MLCDevice, MLCDeviceType, MLCRefusal, MLCTensorData, strict, unwrap
from mlc_torch.extras import install
from mlc_torch.refusals import in_one_line

_PACKAGES = {"sklearn": "scikit-learn", "tqdm": "tqdm", "matplotlib": "matplotlib"}


def add_options(parser: argparse.ArgumentParser, epochs: int) -> None:
    """The options that every program takes."""
    parser.add_argument("--device", choices=["cpu", "gpu", "any"], default="any", help="any: the best there is")
    parser.add_argument("--epochs", type=_count, default=epochs, help=f"how long to train (default: {epochs})")
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder for the picture (default: out)")


def options(about: str | None, epochs: int, given: Sequence[str] | None) -> argparse.Namespace:
    """The options of a program that takes no others. ``about`` is its docstring."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n\n")[0])
    add_options(parser, epochs)
    chosen = parser.parse_args(given)
    check_extras()
    check_out(chosen.out)
    return chosen


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is expected, got {text!r}")
    return number


def chosen_device(name: str) -> MLCDevice:
    """The device that ``--device`` names; a program that cannot have it ends here, with the reason."""
    try:
        with strict():
            return unwrap(MLCDevice(type=MLCDeviceType[name]))
    except MLCRefusal as why:
        raise SystemExit(f"--device {name}: {why}") from None


def tensor_data(array: np.ndarray) -> MLCTensorData:
    """The memory of an array, as Swift's ``MLCTensorData(immutableBytesNoCopy:length:)`` takes it."""
    return MLCTensorData(immutableBytesNoCopy=array, length=array.nbytes)


def extra(module: str) -> Any:
    """A module of the ``examples`` extra; a program that lacks it ends here, with the way to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        package = _PACKAGES.get((missing.name or module).partition(".")[0])
        if package is None:
            raise
        raise SystemExit(f"this program needs {package}: {install('examples')}") from missing


def check_extras() -> None:
    """End a program before it starts rather than after its training, where it could not show its progress or draw."""
    extra("tqdm")
    extra("matplotlib.figure")


def check_out(folder: Path) -> None:
    """Likewise where its picture cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        raise SystemExit(f"--out {folder}: nothing can be written there ({in_one_line(error)})") from None


def progress(steps: int, of: str, shown: bool = True) -> Iterator[int]:
    """``range(steps)`` with a progress bar on a terminal; of several processes only one should show it."""
    bar: Iterator[int] = iter(extra("tqdm").tqdm(range(steps), unit=of, disable=None if shown else True))
    return bar


def save_picture(
    path: Path, curves: Mapping[str, Sequence[float]], title: str, x: str, y: str = "loss", logarithmic: bool = True
) -> Path:
    """Draw each curve over its index. Nothing of matplotlib's global state is touched."""
    figure = extra("matplotlib.figure").Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(values, label=name, linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y, yscale="log" if logarithmic else "linear")
    axes.legend()
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
