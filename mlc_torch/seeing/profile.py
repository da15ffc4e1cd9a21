"""``graph.profile()``: how long each layer takes, forward and backward, measured by ``torch.profiler``."""

from __future__ import annotations

import errno
import gzip
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity

from mlc_torch.engine.plain import MARK
from mlc_torch.engine.recording import synchronize
from mlc_torch.enums import MLCExecutionOptions
from mlc_torch.printable import printable
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.seeing.table import Table, in_seconds, shown
from mlc_torch.spelling.own import as_path
from mlc_torch.whole_files import write_whole

_BY_LAYER = MLCExecutionOptions.perLayerProfiling.value
_BACKWARD = "autograd::engine::evaluate_function"


@dataclass
class Row:
    """One node of the graph."""

    number: int
    layer: str
    label: str
    calls: int = 0
    forward: float = 0.0
    backward: float = 0.0

    @property
    def total(self) -> float:
        return self.forward + self.backward


class Forced(Protocol):
    """Where a graph reads which options hold for every call."""

    forced_options: int


class Profile(Table):
    """Seconds by layer, on the device where that is a GPU. Filled when the block it was made for ends.

    The graph runs module by module meanwhile: shares tell where the time goes, the sum is more than a fast gear takes.
    """

    _is_running = False

    def __init__(self, facts: Callable[[], GraphFacts], runs: Forced) -> None:
        super().__init__("profiling has not ended", (), ())
        self._facts, self._runs = facts, runs
        self._profiler: Any = None
        self._ended = False
        self._trace: bytes | None = None
        self.layers: list[Row] = []
        """One for each node that ran, in the order of the graph."""
        self.elsewhere = 0.0
        """Seconds that belong to no layer: feeding, the optimizer's update."""

    @property
    def total(self) -> float:
        return sum(row.total for row in self.layers) + self.elsewhere

    def save_chrome_trace(self, path: str | Path) -> Path:
        """Write what the profiler saw for ``chrome://tracing`` or https://ui.perfetto.dev."""
        path = as_path("Profile.save_chrome_trace", path)
        if not self._ended:
            raise RuntimeError("nothing has been profiled yet; the trace is there when the with block has ended")
        if self._trace is None:
            self._trace = self._written_by_torch(path)
        write_whole(path, gzip.compress(self._trace) if path.suffix == ".gz" else self._trace)
        return path

    def _written_by_torch(self, path: Path) -> bytes:
        """The trace, which torch writes once only, into a file, and with no more than a line to stderr where it cannot."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace.json")
            self._profiler.export_chrome_trace(str(trace))
            written = trace.read_bytes() if trace.is_file() else b""
        if not written:
            raise OSError(errno.EIO, "torch could not write the trace", str(path))
        return written

    def __enter__(self) -> Profile:
        if self._profiler is not None:
            raise RuntimeError("a profile is made once; call profile() again for another")
        self._place = self._facts().device or torch.device("cpu")
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._place.type == "cuda" else [])]
        if self._runs.forced_options:
            raise RuntimeError("this graph is being profiled already")
        self._profiler = torch.profiler.profile(activities=activities, acc_events=True)
        try:
            self._runs.forced_options = _BY_LAYER
            self._profiler.__enter__()
            self._is_running = True
            return self
        except BaseException:
            self._stop()
            raise

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._ended = True
        self._fill()

    def __del__(self) -> None:
        """A Ctrl-C as the block was left may have come before its end could do anything."""
        if self._is_running:
            with suppress(Exception):  # torch's own was stopped, and only that was not noted
                self._stop()

    def _stop(self) -> None:
        try:
            if self._place.type == "cuda":
                synchronize(self._place)
        finally:
            self._runs.forced_options = 0
            if self._is_running:
                self._profiler.__exit__(None, None, None)
                self._is_running = False

    def _fill(self) -> None:
        device, graph = self._place, self._facts()
        rows = [
            Row(i, type(node.layer).__name__, printable(node.layer.label or type(node.layer).__name__))
            for i, node in enumerate(graph.nodes, 1)
        ]
        on_gpu = device.type == "cuda"
        self.elsewhere = _add_up(list(self._profiler.events()), rows, on_gpu)
        self.layers = [row for row in rows if row.calls]
        total = self.total or 1.0
        self.title = f"{graph.title} on {device}: {in_seconds(self.total)}" + (" (GPU time)" if on_gpu else "")
        self.headers = ("#", "layer", "label", "calls", "forward", "backward", "total", "share")
        self._right = [h not in ("layer", "label") for h in self.headers]
        self.rows = [
            (
                *(str(row.number), row.layer, shown(row.label), str(row.calls)),
                *(in_seconds(row.forward), in_seconds(row.backward) if row.backward else ""),
                *(in_seconds(row.total), f"{row.total / total:.1%}"),
            )
            for row in self.layers
        ]
        self.notes = [("elsewhere", f"{in_seconds(self.elsewhere)} ({self.elsewhere / total:.1%})")]


def _add_up(events: Sequence[Any], rows: list[Row], on_gpu: bool) -> float:
    """Give each layer its time; gives the seconds that are left.

    A gradient belongs to the layer in whose forward pass its operation was recorded: autograd numbers both alike.
    """
    ours = sorted(
        (e for e in events if e.name.startswith(MARK) and not _on_device(e)), key=lambda e: e.time_range.start
    )
    turn = _in_turn([row.label for row in rows])
    owner: dict[int, Row] = {}
    for event in ours:
        place = turn(event.name.removeprefix(MARK))
        if place is None:
            continue
        row = rows[place]
        row.calls += 1
        row.forward += _seconds(event, on_gpu)
        for inner in _below(event):
            if inner.sequence_nr >= 0:
                owner[inner.sequence_nr] = row
    for event in events:
        if event.name.startswith(_BACKWARD) and event.sequence_nr in owner:
            owner[event.sequence_nr].backward += _seconds(event, on_gpu)
    everything = sum(_seconds(e, on_gpu) for e in events if e.cpu_parent is None and not _on_device(e))
    return max(everything - sum(row.total for row in rows), 0.0)


def _in_turn(labels: Sequence[str]) -> Callable[[str], int | None]:
    """Which node an event is of: layers may share a label, and run in the order of the graph."""
    last = -1

    def find(label: str) -> int | None:
        nonlocal last
        for place in (*range(last + 1, len(labels)), *range(last + 1)):
            if labels[place] == label:
                last = place
                return place
        return None

    return find


def _below(event: Any) -> Iterator[Any]:
    for child in event.cpu_children:
        yield child
        yield from _below(child)


def _on_device(event: Any) -> bool:
    return event.device_type.name != "CPU"


def _seconds(event: Any, on_gpu: bool) -> float:
    return (event.device_time_total if on_gpu else event.cpu_time_total) / 1e6
