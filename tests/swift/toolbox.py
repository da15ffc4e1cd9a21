"""How the tests run ``mlc-torch swift`` and what it built."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mlc_torch.swift.toolchain import toolchain

HERE = Path(__file__).parent
PATHS = os.pathsep.join(path for path in sys.path if path)


def environment(**more: str) -> dict[str, str]:
    """Without what a surrounding shell may have set, and with this Python's packages."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MLC_TORCH_") or name in KEPT}
    return {**ours, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", **more}


KEPT = ("MLC_TORCH_CACHE", "MLC_TORCH_SWIFT")


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "_mlc_torch_command", "swift", *map(str, words)]


MAPS = """import Foundation
freopen("/proc/self/maps", "r", stdin)
while let line = readLine() { print(line) }
"""


@functools.cache
def host() -> list[str]:
    """This Python with the C library that compiled programs have, which may be a newer one than Python's own.

    A library with Swift in it can be loaded only so, and its mathematics differ in a last digit between versions.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "maps.swift"), Path(folder, "maps")
        source.write_text(MAPS)
        subprocess.run([toolchain().swiftc, source, "-o", program], check=True, cwd=folder, capture_output=True)
        maps = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    libraries = dict.fromkeys(re.findall(r"(/\S+\.so[.\d]*)$", maps, re.MULTILINE))
    (loader,) = [path for path in libraries if Path(path).name.startswith("ld-linux")]
    if loader in Path("/proc/self/maps").read_text("utf-8"):
        return [sys.executable]
    folders = os.pathsep.join(dict.fromkeys(str(Path(path).parent) for path in libraries))
    return [loader, "--library-path", folders, sys.executable]


def hosted(*words: str | Path) -> list[str]:
    """The command in :func:`host`."""
    return [*host(), *command(*words)[1:]]


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


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What stands on standard error beside the command's own lines: it may have had to build the module, or to wait."""
    return [line for line in done.stderr.splitlines() if not line.startswith("mlc-torch: ")]


def interrupted(start: Callable[[], subprocess.Popen[str]], *, group: bool = False) -> tuple[int, str]:
    """Status and standard error of a process that gets a Ctrl-C, alone or with its group, which must end it within a second.

    On a busy machine a process may wait that long for its turn, and gets another; one that is always late has no excuse.
    """
    for _ in range(5):
        # What is started in the background ignores Ctrl-C and hands that on, as tests may be; a process in front does not.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            running = start()
        finally:
            signal.signal(signal.SIGINT, before)
        time.sleep(0.3)
        sent = time.monotonic()
        (os.killpg if group else os.kill)(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=100)
        if time.monotonic() - sent < 1:
            return running.returncode, errors
    raise AssertionError(f"took {time.monotonic() - sent} s to end")


def session(leader: int) -> list[str]:
    """The commands that run in the session of a process that was started with one of its own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, _, of = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:4]
            if int(of) == leader and state != "Z":
                found.append((entry / "cmdline").read_text("utf-8", "replace").replace("\0", " "))
    return found


def left_of(leader: int) -> list[str]:
    """What still runs in a session that was ended; on a busy machine a killed process may need a moment."""
    last = time.monotonic() + 30
    while (found := session(leader)) and time.monotonic() < last:
        time.sleep(0.05)
    return found


def written(folder: Path, **files: str) -> Path:
    """Files of these contents; ``__`` in a name stands for a slash, and ``.swift`` is added."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".swift")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
