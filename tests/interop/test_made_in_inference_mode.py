"""Modules that were made in ``torch.inference_mode()``: nothing can be trained in place there, and compile says so."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch import MLCGraph, MLCTrainingGraph
from mlc_torch.interop import TorchLayer
from tests.graph.programs import cpu, data, loss, placeholder, sgd, values

MODULES = {"parameters": lambda: nn.Linear(3, 3), "statistics": lambda: nn.BatchNorm1d(3)}


def training_over(module):
    graph, x, t = MLCGraph(), placeholder(4, 3), placeholder(4, 3)
    y = graph.node(TorchLayer(module, label="mine"), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"inputsData": {"x": data(values(4, 3))}, "lossLabelsData": {"t": data(values(4, 3, seed=1))}}
    return graph, training, x, y, given | {"lossLabelWeightsData": None, "batchSize": 4, "options": []}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())
def test_compile_is_refused_and_a_copy_trains(make):
    with torch.inference_mode():
        module = make()
    _, training, _, _, _ = training_over(module)
    assert not training.compile(options=[], device=cpu())
    why = str(mlc.last_refusal())
    assert "layer 'mine'" in why and "torch.inference_mode()" in why and "copy.deepcopy(module)" in why
    own = copy.deepcopy(module)
    before = [t.clone() for t in own.state_dict().values()]
    _, training, _, _, given = training_over(own)
    assert training.compile(options=[], device=cpu()) and training.execute(**given)
    assert not all(torch.equal(a, b) for a, b in zip(before, own.state_dict().values(), strict=True))


class Shrinking(nn.Module):
    """Counts its calls, and on demand leaves its count in a shape that it cannot be put back to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.breaks = nn.Linear(3, 3), False
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        if self.breaks:
            self.count.resize_(2)
            raise ValueError("of the module's own")
        return self.linear(x)


def test_going_back_does_not_hide_why_a_step_ended(caplog):
    module = Shrinking()
    _, training, _, _, given = training_over(module)
    plain = [mlc.MLCGraphCompilationOptions.disableLayerFusion]
    assert training.compile(options=plain, device=cpu()) and training.execute(**given)
    module.breaks = True
    with pytest.raises(ValueError, match="of the module's own"):
        training.execute(**given)
    assert "could not be put back" in caplog.text
