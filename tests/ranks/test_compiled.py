"""The compiled gear on two processes. On request: TorchInductor takes its time, once for each process."""

from __future__ import annotations

import pytest

from .launching import launch


@pytest.mark.slow
def test_compiled_phases(tmp_path):
    launch(tmp_path, "compiled.py", seconds=600).assert_all_passed()
