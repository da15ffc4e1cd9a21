"""Whether tensors still hold the bytes of their copies, by however many threads."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import pytest
import torch

from mlc_torch.engine import same_bytes
from mlc_torch.engine.same_bytes import Copied, memory_differs


def pretend(monkeypatch, threads: int, cores: int = 16) -> None:
    """Torch says that it has so many, and what is little is enough for all of them."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(same_bytes, "cores", lambda: cores)
    monkeypatch.setattr(same_bytes, "_MUCH_BYTES", 1)
    monkeypatch.setattr(same_bytes, "_MUCH_FOR_TWO", 1)


@pytest.fixture(params=[(1, 16), (2, 16), (2, 2), (3, 16), (8, 8)], ids=lambda p: f"{p[0]} threads, {p[1]} cores")
def threads(request, monkeypatch):
    pretend(monkeypatch, *request.param)


def pairs_of(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    parts = [torch.randn(size) for size in sizes]
    return [(part.clone(), part) for part in parts]


@pytest.mark.parametrize("changed", range(5))
def test_one_byte_of_any_tensor_is_noticed(threads, changed):
    pairs = pairs_of(7, 7, 64, 64, 1001)
    copied = Copied(pairs)
    assert not copied.differ()
    for at in (0, -1):
        as_bytes = pairs[changed][1].view(torch.uint8)
        before = as_bytes[at].item()
        as_bytes[at] ^= 1
        assert copied.differ()
        as_bytes[at] = before
        assert not copied.differ()


def test_bytes_are_compared_and_not_numbers(threads):
    numbers = torch.full((9,), float("nan"))[1:]
    copy = numbers.clone()
    copied = Copied([(copy, numbers), (copy, numbers)])
    assert not copied.differ()
    numbers[-1] = copy[-1] = 0.0
    assert not copied.differ()
    numbers[-1] = -0.0
    assert copied.differ()


def test_memory_that_moved_is_followed(threads):
    pairs = pairs_of(32, 32)
    copied = Copied(pairs)
    for _, part in pairs:
        part.untyped_storage().share_memory_()
    assert not copied.differ()
    pairs[1][1][3] += 1
    assert copied.differ()


def test_memory_for_comparing_is_the_processor_s_whatever_a_program_s_default_is(threads):
    pairs = pairs_of(8, 8)
    with torch.device("meta"):
        copied = Copied(pairs)
    assert not copied.differ()


@pytest.mark.parametrize(
    ("count", "cores", "by_torch", "beside"),
    [(1, 16, 0, 0), (2, 16, 0, 4), (2, 2, 2, 0), (4, 16, 4, 0), (8, 8, 4, 0)],
)
def test_who_compares_goes_by_the_number_of_threads_cores_and_bytes(monkeypatch, count, cores, by_torch, beside):
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    monkeypatch.setattr(same_bytes, "cores", lambda: cores)
    quarter, mebibyte = 1 << 16, 1 << 18
    copied = Copied(pairs_of(*[64] * 4, *[quarter] * 2, *[mebibyte] * 2))
    assert len(copied._by_torch) == by_torch
    assert (len(copied._beside._at) if copied._beside else 0) == beside
    assert Copied(pairs_of(*[64] * 8))._beside is None


def test_two_threads_compare(monkeypatch):
    pretend(monkeypatch, 2)
    copied, seen, begun = Copied(pairs_of(8, 8)), set(), threading.Event()

    def beside(*given):
        seen.add(threading.get_ident())
        begun.set()
        return memory_differs()(*given)

    def here(*given):
        seen.add(threading.get_ident())
        assert begun.wait(30)  # so little would be compared before the other thread wakes up
        return memory_differs()(*given)

    copied._here._compare, copied._beside._compare = here, beside
    assert not copied.differ()
    assert len(seen) == 2


@pytest.fixture
def no_thread_yet(monkeypatch):
    monkeypatch.setattr(same_bytes, "_seconds", {})


def test_where_no_thread_can_be_had_one_compares_all(monkeypatch, no_thread_yet):
    """The limit of a process; nothing is left to be done later."""
    pretend(monkeypatch, 2)
    pairs = pairs_of(8, 8)
    copied = Copied(pairs)

    def refused(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", refused)
        assert not copied.differ()
    assert same_bytes.second_thread() is None
    pairs[1][1][0] += 1
    assert copied.differ()


def test_a_comparison_inside_of_one_is_made_by_whoever_asks(monkeypatch):
    """A finalizer may run on the second thread, which then asks for what only itself would do."""
    pretend(monkeypatch, 2)
    copied, inner, answers = Copied(pairs_of(8, 8)), Copied(pairs_of(8, 8)), []

    def asking(compare):
        def asks(*given):
            answers.append(inner.differ())
            return compare(*given)

        return asks

    for one in (copied._here, copied._beside):
        one._compare = asking(one._compare)
    done = threading.Thread(target=lambda: answers.append(copied.differ()), daemon=True)
    done.start()
    done.join(10)
    assert not done.is_alive() and answers == [False] * 3


def test_a_second_thread_that_does_not_come_to_an_end_is_not_waited_for(monkeypatch):
    """It may be in a finalizer that waits for the graph of the one that asks."""
    pretend(monkeypatch, 2)
    pairs = pairs_of(8, 8)
    copied, free, me = Copied(pairs), threading.Event(), threading.get_ident()
    real = copied._beside._compare

    def stuck(*given):
        if threading.get_ident() != me:
            free.wait(20)
        return real(*given)

    copied._beside._compare = stuck
    for differs in (False, True):
        assert copied.differ() is differs
        pairs[1][1][0] += 1
    free.set()


def test_a_signal_in_the_middle_of_asking_may_ask_as_well(monkeypatch):
    pretend(monkeypatch, 2)
    copied, inner, answers = Copied(pairs_of(8, 8)), Copied(pairs_of(8, 8)), []
    real, asked = same_bytes.Asked.__init__, []

    def interrupted(self, pairs):
        real(self, pairs)
        if not asked:
            asked.append(1)
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(same_bytes.Asked, "__init__", interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_: answers.append(inner.differ()))
    try:
        assert not copied.differ() and answers == [False]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_fork_has_a_second_thread_of_its_own(monkeypatch):
    pretend(monkeypatch, 2)
    pairs = pairs_of(8, 8)
    copied = Copied(pairs)
    assert not copied.differ()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python warns of forks beside threads, of which this is about
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # a comparison that nobody makes would be waited for
        same = copied.differ()
        pairs[1][1][0] += 1
        os._exit(0 if not same and copied.differ() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
