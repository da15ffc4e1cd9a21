"""The command ``mlc-torch``. It lies beside the package, so that starting it does not import torch for those that need none."""

from __future__ import annotations

import importlib.util
import sys


def main() -> int:
    if sys.argv[1:2] == ["swift"]:
        _without_torch()
    from mlc_torch.__main__ import main as run

    return run()


def _without_torch() -> None:
    """Make the package's rooms importable before the package itself: a Swift program imports torch in a process of its own."""
    spec = importlib.util.find_spec("mlc_torch")
    assert spec is not None
    sys.modules["mlc_torch"] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    sys.exit(main())
