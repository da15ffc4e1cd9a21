"""Little results are written where the last pass has written them; what a program was given stays as it was.

That nothing else that gets out of a pass stands, ``test_records.py`` holds for every record.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCTensor,
    MLCTensorParameter,
    MLCTrainingGraph,
)
from mlc_torch import MLCGraphCompilationOptions as Compile
from mlc_torch.engine import planned
from mlc_torch.engine.emit import direct
from mlc_torch.engine.standing_results import TOLD_WHERE
from mlc_torch.interop import TorchLayer, TorchOptimizer
from tests.gears.plans import memory_of
from tests.gears.test_emit import asked
from tests.graph.networks import NETWORKS, made
from tests.graph.programs import (
    Program,
    array,
    compiled,
    cpu,
    data,
    dense,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    tensor,
    values,
)

PLAIN = [Compile.disableLayerFusion]


# Where torch is told to write


@pytest.mark.parametrize("operation", sorted(TOLD_WHERE, key=str), ids=str)
def test_an_operation_computes_the_same_where_it_is_told_to(operation):
    args, named, want = by_hand(operation)
    into = torch.full_like(want, 7)
    assert direct(operation)(*args, **named, out=into) is into
    assert into.dtype == want.dtype
    assert torch.equal(into.view(torch.uint8), want.view(torch.uint8))


def by_hand(operation):
    """What an operation is given, and what it makes of that."""
    x, aten = torch.linspace(0.1, 0.9, 16).reshape(4, 4), torch.ops.aten
    special = {
        aten.cat.default: ([x, x], 1),
        aten.bmm.default: (x[None], x[None]),
        aten.baddbmm.default: (x[None], x[None], x[None]),
        aten.index_select.default: (x, 0, torch.tensor([2, 0])),
        aten.where.self: (x > 0.5, x, -x),
        aten._log_softmax_backward_data.default: (x, x, 1, torch.float32),
        aten.pow.Tensor_Scalar: (x, 2),
        aten.sum.dim_IntList: (x, 1, True),
        aten.mean.dim: (x, 0, False),
        aten.amax.default: (x, [1], False),
        aten.clamp.default: (x, 0.2, 0.7),
        aten.acos.default: (x,),
        aten._softmax.default: (x, 1, False),
        aten._log_softmax.default: (x, 1, False),
        aten.asin.default: (x,),
    }
    if operation in special:
        return special[operation], {}, operation(*special[operation])
    found = asked(operation)
    assert found is not None
    return found


# What stands, and what does not


def standing_bytes(program: Program) -> int:
    return program.training.memory()["workspace"]


def test_it_is_used_where_it_should_be():
    """A perceptron's gradients and what lies between its layers are the same memory again, and the numbers plain ones."""
    program = compiled()
    for _ in range(3):
        assert program.phases()
    session = program.training._runs.last
    before = memory_of(session.gradients)
    assert len(before) > 2 and program.phases() and memory_of(session.gradients) == before


def test_of_much_nothing_stands():
    few, many = (regression(sgd(1e-6), widths=[8] * (count + 1)) for count in (10, 400))
    large = regression(sgd(1e-6), widths=(40, 300, 300), batch=600)
    for program in (few, many, large):
        for layer in program.layers:
            layer.weights.torch.mul_(0.1)
        assert program.compile()
        for _ in range(3):
            assert program.execute()
    assert 0 < standing_bytes(few) < standing_bytes(many) < 1 << 20
    held = large.training._runs.last.gradients
    gear = large.training._runs.last.gear
    assert large.execute() and large.training._runs.last.gear is gear
    sizes = {g.nbytes for g in held}
    assert max(sizes) > 16 << 10
    now = large.training._runs.last.gradients
    for old, new in zip(held, now, strict=True):
        assert (old.data_ptr() == new.data_ptr()) is (old.nbytes <= 16 << 10)


def test_nothing_stands_for_other_batch_sizes():
    program = regression(sgd(1e-3), widths=(6, 50, 50, 3), batch=40)
    assert program.compile() and program.execute()
    before = standing_bytes(program)
    for size in range(1, 40):
        for _ in range(3):
            assert program.execute(batchSize=size)
    assert program.training._runs.last.gear.name == "planned"
    assert (
        standing_bytes(program) < before + 40 * 1024
    )  # what passes of 39 sizes must keep, and losses of one number each


# What a program keeps


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_whatever_was_handed_out_stays_as_it_was(network, torch_device):
    """Gradients of every kind, held over passes in phases and in one call."""
    fast, _ = made(network, sgd(0.05), on(torch_device))
    plain, _ = made(network, sgd(0.05), on(torch_device))
    assert fast.compile([Compile.computeAllGradients]) and plain.compile([Compile.computeAllGradients, *PLAIN])
    held: list[tuple[np.ndarray, np.ndarray]] = []

    def look(program) -> list[np.ndarray]:
        assert program.phases()
        training = program.training
        found = [training.gradientTensor(forInput=one) for one in program.inputs.values()]
        for node in program.layers:
            found += training.sourceGradientTensors(for_=node) + training.resultGradientTensors(for_=node)
        seen = [t.numpy() for t in found if t is not None and t.data is not None]
        for layer in program.layers:
            for use in layer._parameter_uses:
                bytes_ = training.gradientData(forParameter=MLCTensor._of(use.cell), layer=layer)
                seen += [] if bytes_ is None else [np.frombuffer(bytes_, np.float32)]
        numbers = [one.copy() for one in seen]
        held.extend(zip(seen, numbers, strict=True))
        assert program.update()
        return numbers

    rng = np.random.default_rng(0)
    for step in range(4):
        for name, numbers in fast.given.items():
            if numbers.dtype == np.float32 and name in fast.inputs:
                numbers += rng.standard_normal(numbers.shape, np.float32) * 0.1
                plain.given[name][...] = numbers
        for mine, theirs in zip(look(fast), look(plain), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-5)
        assert fast.execute() and plain.execute()
        for seen, copy in held:
            np.testing.assert_array_equal(seen, copy, err_msg=f"step {step}")
    assert len(held) > 10


def test_a_result_of_an_inference_stays_as_it_was():
    graph, x = MLCGraph(), placeholder(3, 6)
    h = graph.node(MLCActivationLayer.tanh, source=graph.node(dense(6, 5), source=x))
    y = graph.node(dense(5, 4, seed=3), source=h)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"h": h, "y": y})
    assert inference.compile(options=[], device=cpu())
    kept = []
    for seed in range(6):
        assert inference.execute(inputsData={"x": data(values(3, 6, seed=seed))}, batchSize=3)
        kept.append([(t.torch, array(t)) for t in (h, y)])
    for pair in kept:
        for seen, copy in pair:
            np.testing.assert_array_equal(seen.numpy(), copy)
    assert len({seen.data_ptr() for pair in kept for seen, _ in pair}) == 12


def test_the_gradient_of_a_module_of_the_program_may_be_changed_in_place():
    """As before: what ``weight.grad`` shows is what the update reads."""
    linear = torch.nn.Linear(6, 3)
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    graph.node(TorchLayer(linear), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(1.0))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    program = Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 6), "t": values(4, 3, seed=1)})
    assert program.compile()
    for _ in range(3):
        assert program.phases()
        before, shown = linear.weight.detach().clone(), linear.weight.grad
        shown.zero_()
        assert program.update()
        assert torch.equal(linear.weight, before)


class Remembering(torch.optim.Optimizer):
    """Goes by how the gradient has changed, and keeps the gradients themselves, as a program of its own may."""

    def __init__(self, params) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                last = self.state[p].get("last")
                with torch.no_grad():
                    p.sub_(p.grad if last is None else p.grad + 0.5 * (p.grad - last), alpha=group["lr"])
                self.state[p]["last"] = p.grad


def test_an_optimizer_may_keep_the_gradients_it_was_given(torch_device):
    twins = []
    for options in ([], PLAIN):
        program = regression(widths=(6, 5, 3), device=on(torch_device))
        assert program.compile(options)
        module = program.graph.to_module()
        assert program.training.compileOptimizer(TorchOptimizer(Remembering(module.parameters())))
        for _ in range(5):
            assert program.execute()
        program.training.synchronizeUpdates()
        twins.append([layer.weights.numpy().copy() for layer in program.layers])
    for mine, theirs in zip(*twins, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def _by_hook(optimizer, look):
    optimizer.register_step_pre_hook(lambda *_: look())


def _by_step(optimizer, look):
    step = optimizer.step
    optimizer.step = lambda: (look(), step())


@pytest.mark.parametrize("way", [_by_hook, _by_step])
def test_whoever_looks_at_an_optimizer_s_work_may_keep_gradients(way, torch_device):
    program, kept = regression(widths=(6, 5, 3), device=on(torch_device)), []
    assert program.compile()
    parameters = [*program.graph.to_module().parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    way(optimizer, lambda: kept.extend((p.grad, p.grad.clone()) for p in parameters))
    assert program.training.compileOptimizer(TorchOptimizer(optimizer))
    for _ in range(4):
        assert program.execute()
    assert len(kept) == 4 * len(parameters)
    for held, then in kept:
        assert torch.equal(held, then)


_library = torch.library.Library("mlc_torch_standing_results", "FRAGMENT")
_library.define("noted(Tensor x) -> Tensor")
_noted: list[tuple[torch.Tensor, torch.Tensor]] = []


def _note(x):
    made = x * 2
    _noted.extend((t, t.clone()) for t in (x, made))
    return made


_library.impl("noted", _note, "CPU")
torch.library.register_fake("mlc_torch_standing_results::noted", torch.empty_like, lib=_library)
torch.library.register_autograd("mlc_torch_standing_results::noted", lambda ctx, g: g * 2, lib=_library)


def test_a_program_s_own_operation_may_keep_what_it_is_given_and_gives():
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)

        def forward(self, x):
            inside = torch.tanh(self.first(x))
            return self.second(torch.relu(torch.ops.mlc_torch_standing_results.noted(inside - 0.1)))

    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    graph.node(TorchLayer(Network()), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    program = Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 6), "t": values(4, 3, seed=1)})
    assert program.compile()
    _noted.clear()
    for seed in range(4):
        program.given["x"][...] = values(4, 6, seed=seed)
        assert program.execute()
    assert training._runs.last.gear.name == "planned" and len(_noted) >= 6
    for held, then in _noted:
        assert torch.equal(held, then)


def test_whatever_runs_in_between_writes_elsewhere():
    """Short batches, whole ones and inferences each have a gear, and none writes where another will read."""
    program, plain = compiled(), regression(widths=(6, 5, 3))
    assert plain.compile(PLAIN)
    rng = np.random.default_rng(1)
    for _ in range(12):
        assert program.phases() and plain.phases()
        which = int(rng.integers(3))
        for one in (program, plain):
            if which == 0:
                assert one.update()
            elif which == 1:
                assert one.update() and one.execute(batchSize=2)
            else:
                assert one.update() and one.training.evaluate([(one.given["x"], one.given["t"])]) is not None
    for mine, theirs in zip(program.layers, plain.layers, strict=True):
        np.testing.assert_allclose(mine.weights.numpy(), theirs.weights.numpy(), rtol=1e-4, atol=1e-6)


def test_what_other_graphs_compute_may_have_another_shape():
    """A linked graph's samples: nothing stands behind them, since a recording does not know how many come."""
    first, second, x = MLCGraph(), MLCGraph(), placeholder(4, 6)
    h = first.node(dense(6, 5), source=x)
    body = MLCInferenceGraph(graphObjects=[first])
    y = second.node(dense(5, 3, seed=2), source=second.node(MLCActivationLayer.tanh, source=h))
    head = MLCInferenceGraph(graphObjects=[second])
    assert body.addInputs({"x": x}) and head.addInputs({}) and head.link(with_=[body])
    assert body.compile(options=[], device=cpu()) and head.compile(options=[], device=cpu())
    numbers = values(4, 6, seed=4)
    for batch in (4, 2, 4, 1, 3, 2, 2, 4):
        assert body.execute(inputsData={"x": data(numbers)}, batchSize=batch)
        assert head.execute(inputsData={}, batchSize=batch)
        weights = [layer.weights.numpy() for layer in (*first.layers, second.layers[-1])]
        biases = [layer.biases.numpy().ravel() for layer in (*first.layers, second.layers[-1])]
        want = (
            np.tanh(numbers[:batch] @ weights[0].reshape(5, 6).T + biases[0]) @ weights[1].reshape(3, 5).T + biases[1]
        )
        np.testing.assert_allclose(array(y)[:batch], want, rtol=1e-4, atol=1e-6)


def test_without_it_the_numbers_are_the_same_to_the_last_bit(monkeypatch):
    """Where a result lies changes nothing about how it is computed."""
    twins = []
    for stand in (planned.standing_results, lambda recording, gradients_too: ()):
        monkeypatch.setattr(planned, "standing_results", stand)
        program = regression(sgd(1e-3), widths=(6, 20, 20, 3))
        assert program.compile()
        losses = [program.step() for _ in range(10)]
        twins.append((losses, [layer.weights.numpy().copy() for layer in program.layers]))
    assert twins[0][0] == twins[1][0]
    for mine, theirs in zip(twins[0][1], twins[1][1], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_gradient_of_a_trained_tensor_stays_as_it_was(torch_device):
    held, t, graph, free = tensor(values(4, 6, seed=5)), placeholder(4, 3), MLCGraph(), dense(6, 3)
    y = graph.node(free, source=held)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=held)])
    assert training.addInputs({}, lossLabels={"t": t})
    program = Program(training, graph, {}, {"t": t}, {"t": values(4, 3, seed=6)}, [free], y, on(torch_device))
    assert program.compile()
    kept = []
    for _ in range(4):
        assert program.phases()
        gradient = training.gradientTensor(forInput=held)
        kept.append((gradient, array(gradient)))
        assert program.update()
    for gradient, then in kept:
        np.testing.assert_array_equal(array(gradient), then)
    assert not np.array_equal(kept[0][1], kept[1][1])
