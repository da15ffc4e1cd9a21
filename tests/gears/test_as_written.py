"""The switch that lets compiled functions run as they were written: turned back whatever a Ctrl-C strikes in."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch

from mlc_torch.engine.as_written import _AsWritten, as_written


@pytest.fixture
def switch(monkeypatch):
    """What the switch says, and what happens when it is turned."""
    said = {"stance": "default", "strikes": False}

    class Stance:
        def __init__(self, stance: str) -> None:
            if said["strikes"]:
                raise KeyboardInterrupt
            self.prev, said["stance"] = said["stance"], stance

        def __exit__(self, *error: object) -> None:
            said["stance"] = self.prev

    monkeypatch.setattr(torch.compiler, "set_stance", Stance)
    return said


def test_an_interruption_while_it_is_turned_leaves_nothing(switch):
    own = _AsWritten()
    switch["strikes"] = True
    with pytest.raises(KeyboardInterrupt), own:
        pass
    switch["strikes"] = False
    for _ in range(2):
        with own:
            assert switch["stance"] == "force_eager"
        assert switch["stance"] == "default"


def test_an_interruption_before_the_end_is_settled(switch):
    own = _AsWritten()
    depth = own.depth()
    own.__enter__()  # and the block's end never comes
    own.settle(depth)
    own.settle(depth)
    assert switch["stance"] == "default"
    with own, own:
        inner = own.depth()
        own.__enter__()
        own.settle(inner)
        assert switch["stance"] == "force_eager"
    assert switch["stance"] == "default"


def test_the_last_thread_turns_it_back(switch):
    own, entered, leave = _AsWritten(), threading.Event(), threading.Event()

    def other() -> None:
        with own:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with own:
        thread.start()
        assert entered.wait(10)
    assert switch["stance"] == "force_eager"
    leave.set()
    thread.join(10)
    assert switch["stance"] == "default"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on: threads and fork
@pytest.mark.parametrize("holds", [True, False], ids=["turning", "recording"])
def test_a_forked_child_waits_for_no_thread_of_its_parent(switch, holds):
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        entered.set()
        leave.wait(30)

    def record() -> None:
        with as_written:
            if not holds:
                stay()
                return
            with as_written._lock:
                stay()

    def records_and_turns_back() -> bool:
        before = switch["stance"]  # the thread that would turn it back is not here
        with as_written:
            during = switch["stance"]
        return (before, during, switch["stance"]) == ("default", "force_eager", "default")

    thread = threading.Thread(target=record)
    thread.start()
    assert entered.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends it if it waits for ever
        os._exit(0 if records_and_turns_back() else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(status) == 0
    assert switch["stance"] == "default"
