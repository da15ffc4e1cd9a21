"""Memory that a pass gives back is held for the next one, where the C library would return it to the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mlc_torch.engine import kept_heap
from mlc_torch.engine.kept_heap import KeptHeap, heap, hold

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are counted on Linux alone")
PAGES = 1000


class System:
    """Counts pages as a test says, and what is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages, self.asked, self.sizes = 0, 0, []
        self.block: torch.Tensor | None = torch.empty(1)
        monkeypatch.setattr(kept_heap, "new_pages", self._new_pages)
        monkeypatch.setattr(kept_heap, "hold", self._hold)

    def _new_pages(self) -> int:
        self.asked += 1
        return self.pages

    def _hold(self, size: int) -> torch.Tensor | None:
        self.sizes.append(size)
        return self.block

    def takes(self, pages: int):
        def phase(given: list[int], more: tuple[int, ...] = ()) -> list[int]:
            self.pages += pages
            return [*given, *more]

        return phase


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def size_of(pages: int) -> int:
    return pages * kept_heap.resource.getpagesize() * 5 // 4


def test_what_both_phases_got_anew_is_held_but_not_for_ever(system: System) -> None:
    kept = KeptHeap(system.takes(PAGES), system.takes(2 * PAGES))
    for _ in range(40):
        assert kept.forward([1], (2,)) == [1, 2]
        assert kept.backward([3]) == [3]
    assert system.sizes == [size_of(3 * PAGES)] * 8


def test_passes_that_keep_their_memory_are_looked_at_now_and_then(system: System) -> None:
    kept = KeptHeap(system.takes(1), None)
    for _ in range(100):
        kept.forward([])
    assert system.asked == 2 * 7 and not system.sizes


def test_memory_that_goes_later_is_held_then(system: System) -> None:
    pages = iter([PAGES, PAGES, 0, *[0] * 15, PAGES, *[0] * 100])

    def phase(given: list[int]) -> None:
        system.pages += next(pages)

    kept = KeptHeap(phase, None)
    for _ in range(60):
        kept.forward([])
    assert system.sizes == [size_of(PAGES)]


def test_where_nothing_can_be_held_nobody_looks_any_more(system: System) -> None:
    system.block = None
    kept = KeptHeap(system.takes(PAGES), system.takes(0))
    for _ in range(50):
        kept.forward([])
        kept.backward([])
    assert len(system.sizes) == 1 and system.asked == 4


def test_phases_that_are_called_out_of_turn_are_run(system: System) -> None:
    """A forward pass whose gradient never comes, several in a row."""
    kept = KeptHeap(system.takes(PAGES), system.takes(2 * PAGES))
    for number in range(10):
        assert kept.forward([number]) == [number]
    assert not system.sizes
    assert kept.backward([1]) == [1]
    assert system.sizes == [size_of(3 * PAGES)]


def test_a_pass_that_breaks_off_counts_for_nothing(system: System) -> None:
    def breaks(given: list[int]) -> None:
        system.pages += PAGES
        raise ZeroDivisionError

    kept = KeptHeap(breaks, system.takes(0))
    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            kept.forward([])
    assert not system.sizes


def test_only_the_heap_of_the_c_library_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_heap, "heap", lambda: (0, 0))
    assert hold(1 << 20) is None


def test_a_block_stands_behind_a_piece_or_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_heap, "heap", lambda: (0, 1 << 64))
    block = hold(1 << 20)
    assert block is not None and block.nbytes < 128 << 10
    assert hold(1 << 40) is None


def test_the_heap_is_where_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = "1000-2000 r-xp 0 00:00 0 /bin/python\n5000-9a00 rw-p 00000000 00:00 0          [heap]\nf000-ff00 rw-p 0 00:00 0\n"
    monkeypatch.setattr(kept_heap.Path, "read_text", lambda self: maps)
    assert heap() == (0x5000, 0x9A00)
    monkeypatch.setattr(kept_heap.Path, "read_text", lambda self: "f000-ff00 rw-p 0 00:00 0\n")
    assert heap() == (0, 0)
    monkeypatch.setattr(kept_heap, "Path", lambda path: Path("/nowhere"))
    assert heap() == (0, 0)


_STEPS = """
import torch
from benchmarks.contenders import MLCompute
from benchmarks.workloads import WORKLOADS
from mlc_torch.engine.kept_heap import heap, new_pages

begin, end = heap()
if not begin <= torch.empty(1 << 16, dtype=torch.uint8).data_ptr() < end:
    print("elsewhere")
else:
    network = MLCompute(WORKLOADS["{name}"], torch.device("cpu"))
    network.run(24)
    before = new_pages()
    network.run(8)
    print((new_pages() - before) / 8)
"""


@pytest.mark.parametrize("name", ["LeNet", "transformer", "train perceptron 256"])
def test_steps_get_no_pages_anew(name: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _STEPS.format(name=name)], capture_output=True, text=True, timeout=300, check=True
    ).stdout.strip()
    if found == "elsewhere":
        pytest.skip("torch's memory is not in the C library's heap")
    assert float(found) < 64
