"""Every check in one start of two processes, which takes longer than most of them."""

from __future__ import annotations

import behaviour  # noqa: F401
import equality  # noqa: F401
import heard_late  # noqa: F401
import primitives  # noqa: F401
import refusals  # noqa: F401
from checking import run_all

run_all()
