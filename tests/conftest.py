"""Fixtures for the whole suite."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

DEVICES = ["cpu", "cuda", "mps"]


def _find_benchmarks() -> None:
    """Make ``benchmarks`` importable without the checkout on the path: there it would hide the installed package."""
    folder = Path(__file__).parents[1] / "benchmarks"
    spec = spec_from_file_location("benchmarks", folder / "__init__.py", submodule_search_locations=[str(folder)])
    sys.modules.setdefault("benchmarks", module_from_spec(spec))


_find_benchmarks()


def _present(name: str) -> bool:
    return (
        name == "cpu"
        or (name == "cuda" and torch.cuda.is_available())
        or (name == "mps" and torch.backends.mps.is_available())
    )


@pytest.fixture(params=[d for d in DEVICES if _present(d)])
def torch_device(request) -> torch.device:
    """Every device present."""
    if request.param == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch.device(request.param)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests are no garbage: ``gc`` does not look for any among them while they are made, nor ever after.

    That took half a second whenever a test collects what it has made, and a fifth of the time in which tests are found.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def only_what_is_new() -> None:
    """``gc`` collects and lists only what the test makes: what was there before stays out of it from here on."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    absent = [d for d in DEVICES if not _present(d)]
    return (
        "mlc_torch: devices present: "
        + ", ".join(d for d in DEVICES if _present(d))
        + (f"; ABSENT, so their tests do not run: {', '.join(absent)}" if absent else "")
    )
