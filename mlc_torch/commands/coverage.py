"""``python -m mlc_torch coverage``: how much of ML Compute is here, class by class, in both spellings."""

from __future__ import annotations

import argparse
import json
import sys

from mlc_torch.coverage.compare import entries
from mlc_torch.coverage.report import as_data, as_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "classes", nargs="*", metavar="CLASS", help="list the members of these classes, each in its spelling"
    )
    parser.add_argument("--members", action="store_true", help="list the members of all classes and enumerations")
    parser.add_argument("--json", action="store_true", help="print data for a program to read")


def run(arguments: argparse.Namespace) -> int:
    found = entries()
    if unknown := set(arguments.classes) - {entry.owner for entry in found}:
        sys.stderr.write(f"ML Compute has no {', '.join(sorted(unknown))}\n")
        return 2
    if arguments.classes:
        found = [entry for entry in found if entry.owner in arguments.classes]
    members = arguments.members or bool(arguments.classes)
    sys.stdout.write((json.dumps(as_data(found), indent=1) if arguments.json else as_text(found, members)) + "\n")
    return 0
