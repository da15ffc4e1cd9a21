"""Starts a program under torchrun, with a hard limit: what hangs must fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Launch:
    """How it ended: the exit code, what was printed, and what each rank found, by check."""

    code: int
    output: str
    found: list[dict[str, str | None]]

    def assert_all_passed(self, ranks: int = 2) -> None:
        """Every rank ran every check, and none failed."""
        failed = [f"rank {r}, {name}: {why}" for r, own in enumerate(self.found) for name, why in own.items() if why]
        assert not failed, "\n".join(failed)
        assert self.code == 0, self.output[-4000:]
        assert len(self.found) == ranks and all(own.keys() == self.found[0].keys() for own in self.found), self.output
        assert self.found[0], "no check was run"


def launch(
    folder: Path,
    program: str | Path,
    *arguments: str,
    seconds: float,
    ranks: int = 2,
    restarts: int = 0,
    module: bool = False,
    **environment: str,
) -> Launch:
    """Run ``program`` on ``ranks`` processes of one thread each."""
    path = [str(program)] if module else [str(PROGRAMS / program)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [f"--max-restarts={restarts}", *(["-m"] if module else []), *path, *arguments]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MLC_TORCH_", "TORCHELASTIC_"))}
    own |= {"OMP_NUM_THREADS": "1", "MLC_TORCH_RANKS_TIMEOUT": "60", "CHECKS": str(folder)} | environment
    process = subprocess.Popen(
        command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{program} did not end within {seconds} s:\n{output[-4000:]}") from None
    finally:
        # torchrun's own children, where it was stopped before them.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    files = sorted(folder.glob("rank*.json"))
    return Launch(process.returncode, output, [json.loads(f.read_text("utf-8")) for f in files])
