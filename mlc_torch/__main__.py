"""``python -m mlc_torch COMMAND``, also installed as ``mlc-torch``."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import platform
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from mlc_torch import commands


class _Version(argparse.Action):
    """Torch is imported to say its version, and for the commands that need it, but not to choose a command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import torch

        import mlc_torch

        python = platform.python_version()
        sys.stdout.write(f"mlc_torch {mlc_torch.__version__}, torch {torch.__version__}, Python {python}\n")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that ``arguments`` name and give its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="mlc-torch", description="Apple's ML Compute, computed by PyTorch.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the versions of mlc_torch, torch and Python")
    choices = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    names = [found.name for found in pkgutil.iter_modules(commands.__path__)]
    more: list[str] | None = None
    # The command that is named is loaded alone: some need torch, and others start faster without it.
    for name, module in (_loaded(n for n in names if [n] == words[:1]) or _loaded(names)).items():
        about = (module.__doc__ or "").partition(": ")[2].strip().rstrip(".")
        chosen = choices.add_parser(name, help=about, description=about)
        module.add_arguments(chosen)
        chosen.set_defaults(run=module.run)
        if getattr(module, "TAKES_MORE", False) and words[:1] == [name]:
            at = words.index("--") if "--" in words else len(words)
            words, more = words[:at], words[at + 1 :]
    given, unknown = parser.parse_known_args(words)
    if unknown:
        hint = f"; {given.more_is} stand after --" if getattr(given, "more_is", "") else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    given.more = more
    return int(given.run(given))


def _loaded(names: Iterable[str]) -> dict[str, Any]:
    """Those of the modules that are commands; the others belong to one."""
    modules = {name: importlib.import_module(f"{commands.__name__}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "run")}


if __name__ == "__main__":
    sys.exit(main())
