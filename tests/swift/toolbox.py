"""How the tests run ``mlc-torch swift`` and what it built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PATHS = os.pathsep.join(path for path in sys.path if path)


def environment(**more: str) -> dict[str, str]:
    """Without what a surrounding shell may have set, and with this Python's packages."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MLC_TORCH_") or name in KEPT}
    return {**ours, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", **more}


KEPT = ("MLC_TORCH_CACHE", "MLC_TORCH_SWIFT")


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "_mlc_torch_command", "swift", *map(str, words)]


def swift(
    *words: str | Path, cwd: Path | None = None, given: str = "", timeout: float = 900, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=cwd or HERE,
        env=environment(**more),
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run(*words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """``swift run`` of files of this folder, which must compile."""
    done = swift("run", *words, **more)
    assert not re.search(r"\.swift:\d+:\d+: error:", done.stderr), done.stderr
    return done


def written(folder: Path, **files: str) -> Path:
    """Files of these contents; ``__`` in a name stands for a slash, and ``.swift`` is added."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".swift")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
