"""Random programs against a plain-torch twin: a few always, ten thousand under ``slow``.

``MLC_TORCH_SEED`` says where the seeds of the long form begin, and a failure names the seed of its program.
"""

from __future__ import annotations

import os
import zlib

import pytest

from tests.disturbance.random_programs import check

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))  # the same for all workers of a run
FIRST = int(os.environ.get("MLC_TORCH_SEED") or zlib.crc32(RUN.encode()))
PART = 500


@pytest.mark.parametrize("part", range(4))
def test_some(part):
    for seed in range(20 * part, 20 * (part + 1)):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand(part, record_property):
    first = FIRST + PART * part
    record_property("seed", first)
    print(f"{PART} random programs from seed {first}; MLC_TORCH_SEED={FIRST} begins there again")  # noqa: T201
    for seed in range(first, first + PART):
        check(seed)
