"""Ranks that part ways for good are told so, each by a ``RanksLost`` that says what the other did."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch

from mlc_torch.engine.exchange_message import Message

from .launching import PROGRAMS

EXPECTED = {
    "different_calls": (
        "in execute of graph 1: rank 1 waited in executeForward",
        "rank 0 waited in execute of graph 1",
    ),
    "different_graphs": ("in execute of graph 1: rank 1 waited in execute of graph 2", "rank 0 waited in execute of"),
    "a_compile_beside_a_step": (
        "rank 1 waited in compile of graph 1",
        "in compile of graph 1: rank 0 waited in execute",
    ),
    "fewer_batches": ("rank 1 has ended", None),
    "an_interruption_that_is_caught": ("rank 1 was ended by KeyboardInterrupt in execute", "rank 1 of 2 was ended by"),
    "an_interruption_of_a_compile": (
        "rank 0 of 2 was ended by KeyboardInterrupt in compile of graph 1",
        "rank 0 was ended by KeyboardInterrupt in compile of graph 1",
    ),
    "an_interruption_of_a_rank_that_refused": (
        "rank 0 of 2 was ended by KeyboardInterrupt in execute of graph 1",
        "rank 0 was ended by KeyboardInterrupt in execute of graph 1",
    ),
    "a_group_of_the_program_s": ("another process is gone or too late (Timed out", None),
}
"""What each rank is told of the other; ``None`` for the one that came to an end."""


def test_whatever_a_rank_does_the_other_is_told(tmp_path):
    environment = os.environ | {"CHECKS": str(tmp_path), "MLC_TORCH_RANKS_TIMEOUT": "10", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(PROGRAMS / "apart.py")], env=environment, check=True, timeout=240)
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert found.pop("a_share_of_everything") == [[0, "the end"]]
    assert found.pop("a_group_that_is_destroyed") == [[0, "the end"]] * 2
    assert found.pop("a_handler_that_exits") == [[0, "the end"], [0, "gone"]], "rank 0 has saved what there was"
    assert found.keys() == EXPECTED.keys()
    for name, came in found.items():
        assert [code for code, _ in came] == [0, 0], (name, came)
        lost = [(what, words) for (_, what), words in zip(came, EXPECTED[name], strict=True) if words is not None]
        assert all(what.startswith("RanksLost: rank ") for what, _ in lost), (name, came)
        # Who gives up much earlier than the other cannot know what that one will have done.
        assert any(words in what for what, words in lost), (name, came)


def test_tensors_in_a_message_begin_where_tensors_of_their_own_would():
    """A GPU adds up in another order what begins elsewhere, so that clipping would divide by another norm."""
    sizes = {n: ((n, 3), (torch.float32, torch.float64, torch.float16, torch.bool)[n % 4]) for n in range(1, 12)}
    message = Message(sizes, rows=3, columns=5, device=torch.device("cpu"))
    assert message.table.shape == (3, 5)
    flats = {flat.untyped_storage().data_ptr() for flat in message.flats}
    taken = [set() for _ in flats]
    for number, (shape, dtype) in sizes.items():
        view = message.views[number]
        first = view.data_ptr() - view.untyped_storage().data_ptr()
        assert view.shape == shape and view.dtype == dtype and first % 128 == 0
        own = taken[sorted(flats).index(view.untyped_storage().data_ptr())]
        places = set(range(first, first + view.nbytes))
        assert not own & places
        own |= places
    message.table.fill_(1)
    assert not any(view.any() for view in message.views.values())
