"""``python -m mlc_torch coverage``: how much of ML Compute is here, class by class, in both spellings."""

from __future__ import annotations

import argparse
import json
import sys

from mlc_torch.coverage.compare import entries
from mlc_torch.coverage.report import as_data, as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print data for a program to read")


def run(arguments: argparse.Namespace) -> int:
    found = entries()
    sys.stdout.write((json.dumps(as_data(found), indent=1) if arguments.json else as_text(found)) + "\n")
    return 0
