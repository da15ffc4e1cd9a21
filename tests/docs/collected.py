"""Which tests there are, for pages that name some."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable

from tests.docs.pages import ROOT


def collected(named: Iterable[str]) -> set[str]:
    """The ids of all tests in the files that the named tests are in, with and without their parameters."""
    files = sorted({test.partition("::")[0] for test in named})
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr
    ids = {line for line in found.stdout.splitlines() if line.startswith("tests/") and "::" in line}
    return ids | {re.sub(r"\[.*", "", one) for one in ids}
