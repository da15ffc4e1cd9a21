"""The update as CUDA records it, its numbers in memory and its gradients in one place, against NumPy, on any machine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch.engine import pieces, updater
from mlc_torch.engine.compiled import compiled_update
from mlc_torch.engine.plan import Trained
from mlc_torch.engine.updater import Updater
from tests.graph.optimizer_bench import KINDS, PREPARATIONS, descriptor, gradients, starts
from tests.graph.programs import cpu, tensor
from tests.graph.reference_optimizers import Settings

STEPS = 4


class Recorded:
    """An updater that reads its numbers from memory, and the memory its gradients lie in."""

    def __init__(self, optimizer) -> None:
        cells = [tensor(start.astype(np.float32))._cell for start in starts()]
        for cell in cells:
            cell.place(cpu(), writable=True)
        self.updater = Updater(optimizer, [Trained(cell) for cell in cells], torch.device("cpu"))
        assert self.updater.keeps_numbers_in(torch.zeros(self.updater.number_count))
        self.gradients = [torch.zeros(cell.shape) for cell in cells]

    def begin(self, number: int) -> None:
        for memory, given in zip(self.gradients, gradients(number), strict=True):
            memory.copy_(torch.from_numpy(given))
        self.updater.prepare()


def follows(recorded: Recorded, twin, update) -> None:
    for number in range(STEPS):
        recorded.begin(number)
        update()
        recorded.updater.count()
        twin.step(gradients(number))
        for got, want in zip(recorded.updater.params, twin.params, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=2e-6, err_msg=f"step {number}")


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas_with_numbers_in_memory(kind, preparation):
    settings = PREPARATIONS[preparation]
    recorded = Recorded(kind.make(descriptor(settings)))
    follows(recorded, kind.twin(starts(), settings), lambda: recorded.updater.apply(recorded.gradients))


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas_in_pieces(kind, preparation, monkeypatch):
    """Clipping by a norm sees whole gradients all the same."""
    cut = []

    def listen(*kinds):
        cut.append((len(kinds[0]), len((made := pieces.in_pieces(*kinds))[0])))
        return made

    monkeypatch.setattr(pieces, "_SIZES", (2,))
    monkeypatch.setattr(pieces, "_TOGETHER", 1000)
    monkeypatch.setattr(updater, "in_pieces", listen)
    settings = PREPARATIONS[preparation]
    recorded = Recorded(kind.make(descriptor(settings)))
    follows(recorded, kind.twin(starts(), settings), lambda: recorded.updater.apply(recorded.gradients))
    assert len(cut) == STEPS and all(after > before for before, after in cut)


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        ([100352, 128, 1280, 10], 4096),
        ([65536, 65536, 49152, 16384, 512, 384, 128, 128], 8192),
        ([10, 20], None),
        ([5_000_000, 800_000], None),
        ([], None),
    ],
    ids=["perceptron", "transformer", "small", "large", "none"],
)
def test_the_size_of_pieces(sizes, size):
    assert pieces.piece_size(sizes) == size


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k.name == "adam" else pytest.mark.slow) for k in KINDS], ids=lambda k: k.name
)
def test_the_formulas_compiled(kind):
    settings = Settings(clips="norm", max_norm=0.5, rescale=0.5, regularization="l2", scale=0.05)
    recorded = Recorded(kind.make(descriptor(settings)))
    recorded.updater.prepare()
    update = compiled_update(recorded.updater, [g.clone() for g in recorded.gradients])
    # By whichever gradients it is given: those that it was compiled for are gone by then.
    follows(recorded, kind.twin(starts(), settings), lambda: update([g.clone() for g in recorded.gradients]))
