"""No convolution corrupts memory, whatever the number of threads: each number in a process of its own, which may not die.

Version 4a2312b dies of it on x86 with 4 threads: oneDNN's gradient of strided 1x1 convolutions (``engine/layouts.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKING = next(iter(Path("/lib").glob("*-linux-gnu/libc_malloc_debug.so.0")), None)
"""glibc's allocator that looks whether somebody wrote past his memory, from 2.34 on a library of its own."""


def train_all(threads: int, *more: str, timeout: int) -> str:
    """The grid in a process that has ``threads`` threads and whose allocator looks for overwritten memory."""
    setting = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "MALLOC_CHECK_": "3"}
    if CHECKING is not None:
        setting["LD_PRELOAD"] = str(CHECKING)
    found = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.gears.convolution_grid", "--threads", str(threads), *more],
        cwd=ROOT,
        env=os.environ | setting,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    last = "\n".join(found.stdout.splitlines()[-1:])
    assert found.returncode == 0, (
        f"{threads} threads: ended with {found.returncode} in {last!r}\n{found.stderr[-3000:]}"
    )
    return last


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_a_small_grid_is_sound(threads):
    assert train_all(threads, timeout=1200).endswith("all sound")


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
def test_a_large_grid_is_sound(threads):
    assert train_all(threads, "--large", timeout=3600).endswith("all sound")
