"""The example that takes a torch network through ML Compute and out to ONNX."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from tests.interop.programs import DEVICES

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_round_trip.py"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # torch's own tracer
@pytest.mark.parametrize("device", ["cpu", *(["gpu"] if len(DEVICES) > 1 else [])])
def test_a_torch_network_goes_in_and_comes_out(device, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("torch_round_trip", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    before = torch.get_rng_state()
    found = example.main(["--device", device, "--epochs", "200", "--out", str(tmp_path)])
    assert torch.equal(torch.get_rng_state(), before)
    assert min(found["accuracy"].values()) > 0.95
    assert found["apart"] < (1e-4 if device == "cpu" else 1e-2)  # a GPU multiplies more coarsely
    assert np.mean(found["losses"][-10:]) < 0.3 * found["losses"][0]
    session = onnxruntime.InferenceSession(found["onnx"])
    assert [i.name for i in session.get_inputs()] == ["points"]
    assert "right" in capsys.readouterr().out
    assert (tmp_path / "torch_round_trip.png").read_bytes().startswith(b"\x89PNG")
