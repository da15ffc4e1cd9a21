"""Memory that a pass gives back is held for the next one, where the C library would return it to the system."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from mlc_torch.engine import kept_heap
from mlc_torch.engine.kept_heap import KeptHeap, bytes_made, heap, hold, kept
from tests.graph.programs import regression

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


def test_where_nothing_can_be_held_looks_are_rare(system: System) -> None:
    system.block = None
    watched = KeptHeap(system.takes(PAGES), system.takes(0), MOST)
    for _ in range(1024 + 4):
        watched.forward([])
        watched.backward([])
    assert len(system.sizes) == 2 and system.asked == 8


def test_passes_without_gradients_are_passes_too(system: System) -> None:
    """A training graph that only runs forward, and one whose program changes its mind."""
    watched = KeptHeap(system.takes(PAGES), system.takes(2 * PAGES), MOST)
    for number in range(4):
        assert watched.forward([number]) == [number]
    assert system.sizes == [size_of(PAGES)]
    assert watched.backward([1]) == [1]
    watched.forward([])
    watched.backward([])
    assert system.sizes == [size_of(PAGES), size_of(3 * PAGES)]


def test_forward_passes_alone_are_looked_at_now_and_then(system: System) -> None:
    watched = KeptHeap(system.takes(1), system.takes(1), MOST)
    for _ in range(100):
        watched.forward([])
    assert system.asked == 2 * 7


def test_a_pass_that_breaks_off_counts_for_nothing(system: System) -> None:
    def breaks(given: list[int]) -> None:
        system.pages += PAGES
        raise ZeroDivisionError

    watched = KeptHeap(breaks, system.takes(0), MOST)
    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            watched.forward([])
    assert not system.sizes


BLOCK, HEAP = 64 << 10, 1 << 30


class Place(NamedTuple):
    """A block by where it lies."""

    at: int

    def data_ptr(self) -> int:
        return self.at


def lay(monkeypatch: pytest.MonkeyPatch, places: Iterable[int]) -> list[dict]:
    """Let torch hand out blocks at these places, one after the other; gives how it was asked."""
    left, asked = iter(places), []

    def empty(size: int, **how: object) -> Place:
        assert size == BLOCK
        asked.append(how)
        return Place(next(left))

    monkeypatch.setattr(kept_heap, "heap", lambda: (HEAP, HEAP + BLOCK))
    monkeypatch.setattr(kept_heap.torch, "empty", empty)
    return asked


def test_the_block_that_is_held_is_the_last_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heap grows meanwhile; a few bytes between blocks are the library's own."""
    asked = lay(monkeypatch, (HEAP + 128 + n * (BLOCK + 80) for n in range(1000)))
    assert hold(10 * BLOCK) == Place(HEAP + 128 + 9 * (BLOCK + 80))
    assert asked == [{"dtype": torch.uint8, "device": "cpu"}] * 10


@pytest.mark.parametrize("between", [4 * BLOCK, 5000, -9 * BLOCK, -1])
def test_a_piece_has_no_gaps(monkeypatch: pytest.MonkeyPatch, between: int) -> None:
    holes = [HEAP + n * BLOCK for n in range(9)]
    behind = [holes[-1] + BLOCK + between + n * BLOCK for n in range(100)]
    lay(monkeypatch, [*holes, *behind])
    assert hold(10 * BLOCK) == Place(behind[9])


def test_only_the_heap_of_the_c_library_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    for begin in (HEAP - 1, HEAP + BLOCK):
        lay(monkeypatch, (begin + n * BLOCK for n in range(1000)))
        assert hold(1 << 20) is None
    monkeypatch.undo()
    monkeypatch.setattr(kept_heap, "heap", lambda: (0, 0))
    assert hold(1 << 20) is None


def test_too_much_is_not_tried_and_what_cannot_be_had_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = lay(monkeypatch, (HEAP + n * 3 * BLOCK for n in range(100_000)))
    assert hold((512 << 20) + 1) is None and not asked
    assert hold(1 << 20) is None and len(asked) < 10_000, "in pieces"

    def refuse(*size: int, **how: object) -> Place:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(kept_heap.torch, "empty", refuse)
    assert hold(1 << 20) is None


def test_a_default_device_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_heap, "heap", lambda: (0, 1 << 64))
    with torch.device("meta"):
        block = hold(1 << 18)
    assert block is not None and block.device.type == "cpu"


def test_the_heap_is_where_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = b"1000-2000 r-xp 0 00:00 0 /J\xfcrgen/python\n5000-9a00 rw-p 00000000 00:00 0      [heap]\nf000-ff00 rw-p 0 00:00 0\n"
    monkeypatch.setattr(kept_heap.Path, "read_bytes", lambda self: maps)
    assert heap() == (0x5000, 0x9A00)
    monkeypatch.setattr(kept_heap.Path, "read_bytes", lambda self: b"f000-ff00 rw-p 0 00:00 0\n")
    assert heap() == (0, 0)
    monkeypatch.setattr(kept_heap, "Path", lambda path: Path("/nowhere"))
    assert heap() == (0, 0)


@pytest.mark.parametrize(("rows", "differentiates"), [(4, True), (4096, True), (4096, False)])
def test_only_phases_that_ask_for_much_are_looked_at(rows: int, differentiates: bool) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.relu, (x,))
    made.meta["lies"] = (rows, 32), (32, 1), torch.float32
    phases = (lambda given: ["forward"]), (lambda given: ["backward"])
    forward, backward = kept(*phases, bytes_made(SimpleNamespace(graph=graph)), differentiates)
    assert (forward is phases[0]) is (rows == 4)
    assert (backward is phases[1]) is (rows == 4 or not differentiates)
    for _ in range(4):
        assert (forward([]), backward([])) == (["forward"], ["backward"])


def test_a_gear_on_the_cpu_looks_at_its_memory() -> None:
    program = regression(batch=500, widths=(60, 100, 30))
    assert program.compile() and program.execute()
    (gear,) = [g for s in program.training._facts().sessions for g in s.gears()]
    assert gear._forward.__self__ is gear._backward.__self__ and isinstance(gear._forward.__self__, KeptHeap)


_PASSES = """
import torch
from mlc_torch.engine.kept_heap import heap, kept, new_pages

def forward(given):
    return [torch.empty(96 << 10, dtype=torch.uint8).fill_(1) for _ in range(300)]

def backward(given):
    more = forward(given)
    more.clear()
    given.clear()

def pages(forward, backward):
    found = []
    for _ in range(6):
        before = new_pages()
        backward(forward([]))
        found.append(new_pages() - before)
    return found[-1]

begin, end = heap()
if not begin <= torch.empty(1 << 16, dtype=torch.uint8).data_ptr() < end:
    print("elsewhere")
else:
    print(pages(forward, backward), pages(*kept(forward, backward, 600 * (96 << 10), True)))
"""


def test_memory_that_the_system_took_is_held_from_then_on() -> None:
    """For real: pages that a pass gets anew, with nothing held, and held.

    The C library is told to give back whatever is free at the end of its heap. By itself it learns in time how much a program
    asks for again, and little blocks that it keeps for each thread may lie at the end: that changes from process to process.
    """
    told = {"trim_threshold": 128 << 10, "mmap_threshold": 32 << 20, "tcache_count": 0}
    gives_back = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in told.items())}
    found = subprocess.run(
        [sys.executable, "-c", _PASSES],
        env=os.environ | gives_back,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout.strip()
    if found == "elsewhere":
        pytest.skip("torch's memory is not in the C library's heap")
    without, held = map(int, found.split())
    assert without > 1000 and held < 100
