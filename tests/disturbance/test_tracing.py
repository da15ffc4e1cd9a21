"""``torch.jit.trace`` around calls: refused before torch does anything, and the trace and the graph are as if nothing was asked.

In a child: torch ends the process where one of its errors is caught while it traces.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
import torch
import mlc_torch as mlc
from tests.graph.programs import array, close, data, regression

program = regression(widths=(6, 3))
options = [mlc.MLCGraphCompilationOptions.disableLayerFusion] if sys.argv[1] == "plain" else []
inference = mlc.MLCInferenceGraph(graphObjects=[program.graph])
assert inference.addInputs(program.inputs) and inference.addOutputs({"y": program.result})
assert program.compile(options) and inference.compile(options=options, device=program.device)
x, made = program.given["x"], np.zeros((4, 3), np.float32)

def infer(given):
    return inference.execute(inputsData={"x": given}, outputsData={"y": data(made)}, batchSize=4)

def stepped():
    try:
        return program.training.step({"x": x}, {"t": program.given["t"]})
    except mlc.MLCRefusal:
        return False

assert program.execute() and program.phases() and all(infer(data(x)) for _ in range(3))
(layer,) = program.layers
before = [array(t).copy() for t in (layer.weights, layer.biases)]
calls = {
    "infer": lambda v: infer(data(x)), "infer a tensor": infer, "execute": lambda v: program.execute(),
    "bind": lambda v: program.training.bindAndWriteData(
        {"x": v}, forInputs=program.inputs, to=program.device, synchronous=True),
    "forward": lambda v: program.forward(), "gradient": lambda v: program.gradient(), "update": lambda v: program.update(),
    "compile": lambda v: program.compile(options), "step": lambda v: stepped(),
}

def traced(v):
    for name, call in calls.items():
        assert call(v) is False, name
        assert "inside torch.jit.trace" in str(mlc.last_refusal()), (name, mlc.last_refusal())
    return v * 2

doubled = torch.jit.trace(traced, torch.from_numpy(x), check_trace=False)
assert [n.kind() for n in doubled.graph.nodes()] == ["prim::Constant", "aten::mul"], doubled.graph
assert doubled(torch.ones(2)).tolist() == [2, 2]
weights, biases = (array(t) for t in (layer.weights, layer.biases))
assert weights.tobytes() == before[0].tobytes() and biases.tobytes() == before[1].tobytes()
assert infer(data(x))
close(made, x.astype(float) @ weights.reshape(3, 6).T + biases.ravel())
assert program.phases() and program.update() and program.execute()
"""


@pytest.mark.parametrize("gear", ["planned", "plain"])
def test_calls_inside_a_trace_are_refused(gear):
    done = subprocess.run([sys.executable, "-c", PROGRAM, gear], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
