"""Tests that compile Swift run on request only: they carry the marker ``swift`` and take minutes."""

from __future__ import annotations

import os

import pytest

from mlc_torch.swift.saying import SwiftTrouble
from mlc_torch.swift.toolchain import toolchain

WANTED = os.environ.get("MLC_TORCH_SWIFT_TESTS") == "1"


def pytest_runtest_setup(item):
    if not WANTED and item.get_closest_marker("swift"):
        pytest.skip("compiles Swift, which needs a toolchain and minutes: tox run -e swift")


def pytest_collection_finish(session):
    if WANTED:
        try:
            toolchain()
        except SwiftTrouble as trouble:
            pytest.exit(str(trouble), returncode=1)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Where Swift's tests were asked for, one that was skipped is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if WANTED and reporter and reporter.stats.get("skipped"):
        session.exitstatus = 1
