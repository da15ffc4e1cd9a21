"""Two processes that share one GPU, over gloo, through the plain gear: the checks of two processes on the CPU."""

from __future__ import annotations

import behaviour  # noqa: F401
import equality  # noqa: F401
import refusals  # noqa: F401
from checking import run_all

run_all()
