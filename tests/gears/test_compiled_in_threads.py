"""TorchInductor compiles in one thread while others compile, and run what ``torch.compile`` made."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import MLCActivationLayer, MLCDevice, MLCGraph, MLCInferenceGraph
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from mlc_torch.torch_private import available
from mlc_torch.torch_private.tracer import _KNOWN, traced
from tests.graph.programs import array, data, placeholder

TIMEOUT = 240

quietly = pytest.mark.skipif(not _KNOWN, reason="the tracer of torch before 2.13 sets the process's flag")

_PROGRAM = """
import threading
import numpy as np, torch
from mlc_torch import MLCActivationLayer, MLCDevice, MLCGraph, MLCInferenceGraph
from mlc_torch.torch_private import available
from tests.graph.programs import array, data, placeholder

before = torch.nn.Module.__call__, torch.nn.Module.__getattr__
gate, stop, refused, runs, wrong = threading.Barrier(5), threading.Event(), set(), 0, []
known = torch.compile(torch.nn.Linear(3, 4), backend="eager")
known(torch.ones(2, 3))

def build(rows):
    try:
        base, x = MLCGraph(), placeholder(rows, 3)
        y = base.node(MLCActivationLayer.softSign, source=base.node(MLCActivationLayer.tanh, source=x))
        graph = MLCInferenceGraph(graphObjects=[base])
        gate.wait(60)
        assert graph.addInputs({"x": x}) and graph.compile(options=[], device=MLCDevice.cpu(), use_inductor=True)
        assert graph.summary().gear == "compiled", str(graph.summary())
        values = np.linspace(-2, 2, rows * 3, dtype=np.float32).reshape(rows, 3)
        assert graph.execute(inputsData={"x": data(values)}, batchSize=rows)
        want = np.tanh(values)
        np.testing.assert_allclose(array(y), want / (1 + np.abs(want)), rtol=1e-5)
    except BaseException as error:
        wrong.append(repr(error))

def run():
    global runs
    gate.wait(60)
    while not stop.is_set():
        try:
            known(torch.ones(2, 3))
            runs += 1
        except RuntimeError as error:
            refused.add(str(error))

beside = threading.Thread(target=run)
builders = [threading.Thread(target=build, args=(rows,)) for rows in (5, 6, 7, 8)]
for thread in (beside, *builders):
    thread.start()
for thread in builders:
    thread.join()
stop.set()
beside.join()
assert not wrong, wrong
assert (torch.nn.Module.__call__, torch.nn.Module.__getattr__) == before
assert not torch.fx._symbolic_trace.is_fx_tracing() and not torch.compiler.is_compiling()
seen = []
def backend(graph, examples):
    seen.append(graph)
    return graph
torch.compile(lambda x: x * 3, backend=backend)(torch.ones(2))
assert seen, "torch.compile compiles nothing any more"
assert runs
if hasattr(torch.compiler, "_compile_session_context"):  # without it torch.compile, too, disturbs other threads
    assert not refused, refused
print("all sound")
"""


def test_four_threads_compile_at_once_and_a_fifth_runs_what_torch_compiled(tmp_path, monkeypatch):
    """In a process of its own: what is left behind in torch would be there for the tests after this one."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # so that it has something to do
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.stdout.strip().endswith("all sound"), done.stdout + done.stderr


def inference(module: nn.Module, values: np.ndarray) -> tuple[MLCInferenceGraph, np.ndarray]:
    """The graph of a module and softsign, compiled without Inductor's part, and what it gives."""
    base, x = MLCGraph(), placeholder(*values.shape)
    y = base.node(MLCActivationLayer.softSign, source=base.node(TorchLayer(module), source=x))
    graph = MLCInferenceGraph(graphObjects=[base])
    assert graph.addInputs({"x": x}) and graph.compile(options=[], device=MLCDevice.cpu(), use_inductor=True)
    assert graph.execute(inputsData={"x": data(values)}, batchSize=len(values))
    return graph, array(y)


@pytest.fixture
def only_traced(monkeypatch):
    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", lambda graph: lambda given: graph(*given))


class Asking(nn.Module):
    """Has another thread call a function of ``torch.compile`` while the graph is traced."""

    def __init__(self):
        super().__init__()
        self.other = torch.compile(torch.sin, backend="eager")
        self.told: list[str] = []

    def forward(self, x):
        thread = threading.Thread(target=self.ask)
        thread.start()
        thread.join(TIMEOUT)
        return torch.tanh(x)

    def ask(self):
        try:
            self.told.append(f"{self.other(torch.zeros(2)).tolist()}")
        except RuntimeError as error:
            self.told.append(str(error))


@quietly
@pytest.mark.usefixtures("only_traced")
def test_a_function_of_torch_compile_runs_in_another_thread_while_a_graph_is_traced():
    module, values = Asking(), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    module.other(torch.zeros(2))
    graph, made = inference(module, values)
    want = np.tanh(values)
    np.testing.assert_allclose(made, want / (1 + np.abs(want)), rtol=1e-5)
    assert graph._session(Variant.whole).prepared.name == "compiled"
    assert len(module.told) > 1 and set(module.told) == {"[0.0, 0.0]"}


@quietly
@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_torch_compiled_is_compiled_as_it_was_written(is_whole):
    inner = nn.Linear(3, 2)
    module = torch.compile(inner, backend="eager") if is_whole else nn.Sequential(torch.compile(inner, backend="eager"))
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    weight, bias = inner.weight.detach().double().numpy(), inner.bias.detach().double().numpy()
    graph, made = inference(nn.Sequential(module, nn.Tanh()), values)
    want = np.tanh(values @ weight.T + bias)
    np.testing.assert_allclose(made, want / (1 + np.abs(want)), rtol=1e-5)
    gear = graph._session(Variant.whole).prepared
    assert (gear.name, gear.why) == ("compiled", "")


@pytest.mark.parametrize("quiet", [True, False])
def test_a_traced_function_computes_the_same(quiet, monkeypatch):
    """Gradient, constant and decomposition, by our tracer and by torch's."""
    monkeypatch.setitem(available, "quiet_tracer", quiet)
    constant = torch.tensor([0.5, 2.0, -1.0])

    def function(x, weight):
        leaf = weight.detach().requires_grad_()
        made = nn.functional.silu(x @ leaf) * constant
        return [made.detach(), *torch.autograd.grad(made.sum(), leaf)]

    given = [torch.linspace(-1, 1, 8).reshape(2, 4), torch.linspace(0, 1, 12).reshape(4, 3)]
    aten = torch.ops.aten
    graph = traced(function, given, {aten.silu.default: lambda x: x * torch.sigmoid(x)})
    targets = {node.target for node in graph.graph.nodes}
    assert aten.silu.default not in targets and aten.sigmoid.default in targets
    assert [n.meta["val"].shape for n in graph.graph.nodes if n.op == "placeholder"] == [g.shape for g in given]
    other = [given[0] * 2, given[1] - 1]
    for mine, theirs in zip(graph(*other), function(*other), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_ctrl_c_leaves_torch_free_to_compile(monkeypatch):
    from torch._dynamo.convert_frame import compile_lock

    def strike(graph):
        raise KeyboardInterrupt

    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", strike)
    with pytest.raises(KeyboardInterrupt):
        inference(nn.Tanh(), np.ones((2, 3), np.float32))
    free = []
    thread = threading.Thread(
        target=lambda: free.append(compile_lock.acquire(timeout=10) and not compile_lock.release())
    )
    thread.start()
    thread.join(TIMEOUT)
    assert free == [True]
    assert not torch.fx._symbolic_trace.is_fx_tracing() and not torch.compiler.is_compiling()
