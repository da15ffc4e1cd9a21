"""Whole graphs in training: every gear against the plain one, step by step and left to run."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mlc_torch import MLCDevice, MLCGraph, MLCInferenceGraph, MLCTensor, MLCTensorData, unwrap
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from tests.gears.plans import mlc_device, no_further
from tests.gears.training import (
    GRAPHS,
    PLAIN,
    batch,
    bind,
    convolutional,
    perceptron,
    step,
    train,
    training_graph,
    with_dropout,
)

STEPS = 20


def _tensors(network):
    return [t._cell.value for t in (*network.parameters, *network.statistics)]


def _exact_gradients(session, feeds):
    """The gradients of the same modules in float64, under plain autograd."""
    plan = session.plan
    twins: dict[int, torch.nn.Module] = {}
    env = {i: (f.cpu().double() if f.is_floating_point() else f.cpu()) for i, f in enumerate(feeds)}
    for s in plan.steps:
        twin = twins.setdefault(id(s.module), copy.deepcopy(s.module).cpu().double().train())
        made = twin(*(env[i] for i in s.sources))
        env.update(zip(s.results, made if isinstance(made, tuple) else [made], strict=True))
    named = {}
    for s in plan.steps:
        named |= dict(zip(map(id, s.module.parameters()), twins[id(s.module)].parameters(), strict=True))
    leaves = [named[id(leaf)] for leaf in plan.leaves]
    found = torch.autograd.grad(sum(env[slot].sum() for slot in plan.losses), leaves, allow_unused=True)
    totals = iter(found)
    return [sum(next(totals).reshape(t.cell.shape) for _ in t.uses) for t in plan.trained]


@pytest.mark.parametrize("make", [g for g in GRAPHS if g is not with_dropout], ids=lambda g: g.__name__)
def test_each_step_from_the_plain_gear_s_state(make, torch_device):
    """Each of 20 steps starts from the plain gear's parameters; its gradients are held to a float64 run."""
    device = mlc_device(torch_device)
    plain_network, fast_network = make(), make()
    plain, fast = training_graph(plain_network, device, PLAIN), training_graph(fast_network, device)
    for number in range(STEPS):
        with torch.no_grad():
            for mine, theirs in zip(_tensors(fast_network), _tensors(plain_network), strict=True):
                mine.copy_(theirs)
        for graph, network in ((plain, plain_network), (fast, fast_network)):
            bind(graph, network, number, device)
            if graph is plain:
                session = plain._session(Variant.whole)
                exact = _exact_gradients(session, [c.value for c in session.plan.cells[: session.plan.fed_count]])
            assert graph.executeForward(batchSize=0)
            assert graph.executeGradient(batchSize=0)
        assert plain._runs.last.gear.name == "plain"
        assert fast._runs.last.gear.name == ("captured" if torch_device.type == "cuda" else "planned")
        whole = float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in exact])))
        for mine, theirs, true in zip(fast._runs.last.gradients, plain._runs.last.gradients, exact, strict=True):
            assert no_further(mine, theirs, true, whole)
        assert plain.executeOptimizerUpdate()
        assert fast.executeOptimizerUpdate()


@pytest.mark.parametrize("make", [g for g in GRAPHS if g is not convolutional], ids=lambda g: g.__name__)
def test_free_running_trajectories_agree(make, torch_device):
    """Without batch norm, with SGD: twenty steps side by side, dropout included."""
    device = mlc_device(torch_device)
    plain, fast = (train(make, STEPS, options, device, kind="sgd") for options in (PLAIN, ()))
    for mine, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", GRAPHS, ids=lambda g: g.__name__)
def test_the_same_program_gives_the_same_numbers(make, torch_device):
    """Run after run, bit by bit."""
    first, second = (train(make, 5, device=mlc_device(torch_device)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        if torch_device.type == "cpu":
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_one_call_and_three_phases_give_the_same(torch_device):
    device = mlc_device(torch_device)
    one, three = perceptron(), perceptron()
    at_once, by_phase = training_graph(one, device), training_graph(three, device)
    for number in range(5):
        step(at_once, batch(one, number))
        bind(by_phase, three, number, device)
        assert by_phase.executeForward(batchSize=0)
        assert by_phase.executeGradient(batchSize=0)
        assert by_phase.executeOptimizerUpdate()
    for a, b in zip(one.parameters, three.parameters, strict=True):
        assert torch.equal(a.torch, b.torch)


def test_a_first_compile_loads_no_compiler():
    """Torch's compiler takes seconds to load; a small network compiles in a fraction of one."""
    program = (
        "import sys; from tests.gears.training import GRAPHS, train; [train(make, 1) for make in GRAPHS];"
        "sys.exit(any(name in sys.modules for name in ('torch._dynamo', 'torch._inductor')))"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0


def test_a_graph_compiled_in_inference_mode_follows_its_weights():
    """There torch shows a conversion of the weights as one operation that looks like a view, and may be a copy."""
    layer = torch.nn.Conv2d(3, 4, 3)
    base, x = MLCGraph(), unwrap(MLCTensor(shape=[2, 3, 5, 5]))
    y = unwrap(base.node(TorchLayer(layer), source=x))
    graph = MLCInferenceGraph(graphObjects=[base])
    values = np.random.default_rng(0).standard_normal((2, 3, 5, 5), np.float32)
    with torch.inference_mode():
        assert graph.addInputs({"x": x}) and graph.compile(options=[], device=MLCDevice.cpu())
    for scale in (1, 3):
        with torch.no_grad():
            layer.weight.mul_(scale)
            want = layer(torch.from_numpy(values)).numpy()
        assert graph.execute(inputsData={"x": MLCTensorData(bytesNoCopy=values, length=values.nbytes)}, batchSize=2)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)
