"""``TorchLayer`` over torch's recurrent modules, whose weights ``flatten_parameters`` moves."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mlc_torch as mlc
from tests.interop.programs import device
from tests.interop.trained import PLAIN, RATE, Trained, made


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_module_has_its_own_weights_behind_a_recording(kind):
    """Where it finds others in its next pass, it moves them on CUDA."""
    module = made(lambda: nn.Sequential(kind(3, 5, num_layers=2, batch_first=True)))
    laid_out = []
    module[0].flatten_parameters = lambda: laid_out.append(True)
    trained = Trained(module, (2, 4, 3), (2, 4, 5))
    trained.train(2)
    assert trained.gear() == "planned" and laid_out, "the recording's own were laid out"
    laid_out.clear()
    module(torch.zeros(2, 4, 3))
    assert not laid_out
    assert all(a is b for a, b in zip(module[0]._flat_weights, module[0].parameters(), strict=True))


class Flattening(nn.Module):
    """Lays the weights of its LSTM side by side in each pass, as torch's documentation advises."""

    def __init__(self, kind: type[nn.LSTM]) -> None:
        super().__init__()
        self.lstm = kind(3, 5, num_layers=2, batch_first=True)

    def forward(self, x):
        self.lstm.flatten_parameters()
        return self.lstm(x)[0]


class MovesAlways(nn.LSTM):
    """As CUDA's does, on the CPU too."""

    def flatten_parameters(self) -> None:
        for p in self.parameters():
            p.data = p.data.clone()


@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["planned", "plain"])
def test_a_module_may_flatten_its_weights_in_each_pass(options, torch_device):
    flattened(nn.LSTM, torch_device.type, options)


@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["planned", "plain"])
def test_weights_that_flattening_has_moved_are_put_back(options):
    flattened(MovesAlways, "cpu", options)


def flattened(kind: type[nn.LSTM], where: str, options: list[mlc.MLCGraphCompilationOptions]) -> None:
    """Train such a module by the graph and by torch; both come to the same."""
    module = made(lambda: Flattening(kind))
    twin = copy.deepcopy(module)
    trained = Trained(module, (2, 4, 3), (2, 4, 5), where, options)
    optimizer = torch.optim.SGD(twin.parameters(), lr=RATE)
    expected = []
    for step in range(3):
        x, y = map(torch.from_numpy, trained.batch(step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(twin(x), y)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert trained.train(3) == pytest.approx(expected, rel=1e-4)
    assert where != "cpu" or trained.gear() == ("plain" if options else "planned")
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_recurrent_module_keeps_its_weights_in_one_block_on_cuda():
    """Otherwise cuDNN warns, which is an error here, and joins them before each run."""
    module = made(lambda: nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True))
    trained = Trained(module, (2, 4, 3), (2, 4, 10), "cuda")
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    assert len(own) == 1 and all(p.is_cuda for p in module.parameters())
    before = [p.detach().cpu().clone() for p in module.parameters()]
    trained.train(3)
    assert {p.untyped_storage().data_ptr() for p in module.parameters()} == own
    assert not any(torch.equal(p.detach().cpu(), old) for p, old in zip(module.parameters(), before, strict=True))
    for where in ("cpu", "cuda"):
        assert trained.training.compile(options=[], device=device(where))
        trained.train(1)
    assert len({p.untyped_storage().data_ptr() for p in module.parameters()}) == 1
