"""Three tests of a program that uses ML Compute; the fixtures come from mlc_torch's pytest plugin."""

from __future__ import annotations

import numpy as np
import pytest
from thermometer import Thermometer

from mlc_torch import MLCDevice, MLCRefusal
from mlc_torch.testing import assert_close

READINGS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(8, 1)
DEGREES = (1.8 * READINGS + 32 / 50).astype(np.float32)


def test_it_learns_the_line(mlc_device, mlc_seed):
    """Runs once on every device of this machine, each time from the same random start."""
    thermometer = Thermometer(len(READINGS), mlc_device)
    assert thermometer.calibrate(READINGS, DEGREES, steps=300)
    assert_close(thermometer.scale, np.full((1, 1, 1, 1), 1.8), rtol=1e-3, atol=0)
    assert_close(thermometer.offset, np.full((1, 1, 1, 1), 0.64), rtol=1e-3, atol=0)


def test_too_many_readings_are_refused(mlc_strict):
    """ML Compute returns False here; in strict mode the refusal is an exception that says what was wrong."""
    thermometer = Thermometer(4, MLCDevice.cpu())
    with pytest.raises(MLCRefusal, match="batchSize is 8, the inputs hold 4 samples"):
        thermometer.calibrate(READINGS, DEGREES, steps=1)


@pytest.mark.mlc_gpu
def test_a_gpu_agrees_with_the_cpu(mlc_device, mlc_seed):
    """Where there is no GPU this is skipped, and the end of the run says so."""
    here, there = Thermometer(8, MLCDevice.cpu()), Thermometer(8, mlc_device)
    for thermometer in (here, there):
        assert thermometer.calibrate(READINGS, DEGREES, steps=20)
    assert_close(there.scale, here.scale, rtol=1e-4, atol=1e-6)
