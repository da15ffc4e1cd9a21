"""Memory that a pass gives back is held for the next one, where the C library would return it to the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mlc_torch.engine import kept_heap
from mlc_torch.engine.kept_heap import KeptHeap, heap, hold, kept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are counted on Linux alone")
PAGES = 1000
MOST = 1 << 40


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
    watched = KeptHeap(system.takes(PAGES), system.takes(2 * PAGES), MOST)
    for _ in range(40):
        assert watched.forward([1], (2,)) == [1, 2]
        assert watched.backward([3]) == [3]
    assert system.sizes == [size_of(3 * PAGES)] * 4


def test_no_more_is_held_than_a_pass_can_ask_for(system: System) -> None:
    watched = KeptHeap(system.takes(PAGES), None, 1 << 20)
    for _ in range(3):
        watched.forward([])
    assert system.sizes == [5 << 18]


@pytest.mark.parametrize(("rest", "held"), [(PAGES, 0), (PAGES // 4, 4)])
def test_what_was_held_in_vain_is_let_go(system: System, rest: int, held: int) -> None:
    pages = iter([0, 0, PAGES])
    watched = KeptHeap(lambda given: setattr(system, "pages", system.pages + next(pages, rest)), None, MOST)
    for _ in range(40):
        watched.forward([])
    assert len(system.sizes) == 4 and len(watched._held) == held


def test_few_blocks_are_held_however_often_memory_goes(system: System) -> None:
    numbers = iter(range(1, 2000))
    watched = KeptHeap(
        lambda given: setattr(system, "pages", system.pages + PAGES * (next(numbers) % 18 == 3)), None, MOST
    )
    for _ in range(1000):
        watched.forward([])
    assert len(system.sizes) > 20 and len(watched._held) == 4


def test_passes_that_keep_their_memory_are_looked_at_now_and_then(system: System) -> None:
    watched = KeptHeap(system.takes(1), None, MOST)
    for _ in range(100):
        watched.forward([])
    assert system.asked == 2 * 7 and not system.sizes


def test_memory_that_goes_later_is_held_then(system: System) -> None:
    pages = iter([PAGES, PAGES, 0, *[0] * 15, PAGES, *[0] * 100])

    def phase(given: list[int]) -> None:
        system.pages += next(pages)

    watched = KeptHeap(phase, None, MOST)
    for _ in range(60):
        watched.forward([])
    assert system.sizes == [size_of(PAGES)]


def test_where_nothing_can_be_held_nobody_looks_any_more(system: System) -> None:
    system.block = None
    watched = KeptHeap(system.takes(PAGES), system.takes(0), MOST)
    for _ in range(50):
        watched.forward([])
        watched.backward([])
    assert len(system.sizes) == 1 and system.asked == 4


def test_phases_that_are_called_out_of_turn_are_run(system: System) -> None:
    """A forward pass whose gradient never comes, several in a row."""
    watched = KeptHeap(system.takes(PAGES), system.takes(2 * PAGES), MOST)
    for number in range(10):
        assert watched.forward([number]) == [number]
    assert not system.sizes
    assert watched.backward([1]) == [1]
    assert system.sizes == [size_of(3 * PAGES)]


def test_a_pass_that_breaks_off_counts_for_nothing(system: System) -> None:
    def breaks(given: list[int]) -> None:
        system.pages += PAGES
        raise ZeroDivisionError

    watched = KeptHeap(breaks, system.takes(0), MOST)
    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            watched.forward([])
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


@pytest.mark.parametrize(("rows", "differentiates"), [(4, True), (4096, True), (4096, False)])
def test_only_phases_that_ask_for_much_are_looked_at(rows: int, differentiates: bool) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.relu, (x,))
    made.meta["lies"] = (rows, 32), (32, 1), torch.float32
    recording = SimpleNamespace(graph=graph, backward=[made] if differentiates else [])
    phases = (lambda given: ["forward"]), (lambda given: ["backward"])
    forward, backward = kept(*phases, recording)
    assert (forward is phases[0]) is (rows == 4)
    assert (backward is phases[1]) is (rows == 4 or not differentiates)
    for _ in range(4):
        assert (forward([]), backward([])) == (["forward"], ["backward"])


_STEPS = """
import torch
from benchmarks.contenders import MLCompute
from benchmarks.workloads import WORKLOADS
from mlc_torch.engine.kept_heap import heap, new_pages

begin, end = heap()
if not begin <= torch.empty(1 << 16, dtype=torch.uint8).data_ptr() < end:
    print("elsewhere")
else:
    network, found = MLCompute(WORKLOADS["{name}"], torch.device("cpu")), []
    for _ in range(12):
        before = new_pages()
        network.run(8)
        found.append((new_pages() - before) / 8)
    print(*found)
"""


@pytest.mark.parametrize("name", ["LeNet", "transformer"])
def test_steps_get_no_pages_anew(name: str) -> None:
    """Pages a step, of 8 steps at a time: what is found missing by one of them is there for those that follow."""
    found = subprocess.run(
        [sys.executable, "-c", _STEPS.format(name=name)], capture_output=True, text=True, timeout=300, check=True
    ).stdout.strip()
    if found == "elsewhere":
        pytest.skip("torch's memory is not in the C library's heap")
    later = sorted(map(float, found.split()[3:]))
    assert later[len(later) // 2] < 64, found
