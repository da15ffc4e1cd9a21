"""What the programs under torchrun share: checks that run one after the other on all ranks, and a file of what they found."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_checks: list[Callable[[], Any]] = []

torch.set_num_threads(1)
logging.getLogger("mlc_torch").setLevel(logging.ERROR)


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    _checks.append(function)
    return function


def run_all() -> None:
    """Run the checks in order. After one that failed nothing is certain where there are several, so it is the last."""
    found: dict[str, str | None] = {}
    target = Path(os.environ["CHECKS"]) / f"rank{RANK}.json"
    for function in _checks:
        try:
            function()
            found[function.__name__] = None
        except BaseException:  # noqa: BLE001 - reported to the test
            found[function.__name__] = traceback.format_exc()
            if WORLD > 1:
                break
        finally:
            target.write_text(json.dumps(found), "utf-8")
    if any(found.values()):
        os._exit(1)
