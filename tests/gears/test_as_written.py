"""The switch that lets compiled functions run as they were written: turned back whatever a Ctrl-C strikes in."""

from __future__ import annotations

import threading

import pytest
import torch

from mlc_torch.engine.as_written import _AsWritten


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
    as_written = _AsWritten()
    switch["strikes"] = True
    with pytest.raises(KeyboardInterrupt), as_written:
        pass
    switch["strikes"] = False
    for _ in range(2):
        with as_written:
            assert switch["stance"] == "force_eager"
        assert switch["stance"] == "default"


def test_an_interruption_before_the_end_is_settled(switch):
    as_written = _AsWritten()
    depth = as_written.depth()
    as_written.__enter__()  # and the block's end never comes
    as_written.settle(depth)
    as_written.settle(depth)
    assert switch["stance"] == "default"
    with as_written, as_written:
        inner = as_written.depth()
        as_written.__enter__()
        as_written.settle(inner)
        assert switch["stance"] == "force_eager"
    assert switch["stance"] == "default"


def test_the_last_thread_turns_it_back(switch):
    as_written, entered, leave = _AsWritten(), threading.Event(), threading.Event()

    def other() -> None:
        with as_written:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with as_written:
        thread.start()
        assert entered.wait(10)
    assert switch["stance"] == "force_eager"
    leave.set()
    thread.join(10)
    assert switch["stance"] == "default"
