"""Hooks: on the gradient of a tensor, on a layer's module, on every module, on parameters. They fire and may replace."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.modules import module as every

import mlc_torch
from mlc_torch import MLCGraph, MLCInferenceGraph, MLCTrainingGraph
from mlc_torch.interop import TorchLayer
from tests.graph.programs import (
    array,
    close,
    cpu,
    data,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    slopes,
    values,
)


def test_a_gradient_hook_sees_and_replaces(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    first, second = program.layers
    (h,) = program.training.resultTensors(for_=first)
    assert program.compile()
    seen = []
    watching = program.training.register_gradient_hook(h, lambda g: seen.append(g.detach().cpu().numpy().copy()))
    want = slopes(program)
    assert program.phases()
    close(seen[0], want["h"])
    close(program.gradient_of(first.weights, first).reshape(5, 6), want["w1"])
    halving = program.training.register_gradient_hook(h, lambda g: g * 0.5)
    assert program.phases() and len(seen) == 2
    close(program.gradient_of(first.weights, first).reshape(5, 6), want["w1"] / 2)
    close(program.gradient_of(second.weights, second).reshape(3, 5), want["w2"])
    halving.remove()
    halving.remove()
    watching.remove()
    assert program.phases() and len(seen) == 2
    close(program.gradient_of(first.weights, first).reshape(5, 6), want["w1"])


def test_a_gradient_hook_in_one_call():
    program = regression(widths=(6, 5, 3))
    first, _ = program.layers
    (h,) = program.training.resultTensors(for_=first)
    assert program.compile()
    program.training.register_gradient_hook(h, torch.zeros_like)
    before = array(first.weights)
    assert program.execute()
    np.testing.assert_array_equal(array(first.weights), before)


def test_a_gradient_hook_needs_a_result_and_a_callable():
    program = regression()
    with pytest.raises(ValueError, match="not the result of a node"):
        program.training.register_gradient_hook(program.inputs["x"], lambda g: g)
    says = "MLCTrainingGraph.register_gradient_hook: "
    with pytest.raises(TypeError, match=f"{says}argument 'hook' expects a function of the gradient, got 3 .int"):
        program.training.register_gradient_hook(program.result, 3)
    with pytest.raises(TypeError, match=f"{says}argument 'tensor' expects an MLCTensor, got 'y' .str"):
        program.training.register_gradient_hook("y", lambda g: g)
    with pytest.raises(TypeError, match=f"{says}missing a required argument: 'hook'; call it as graph.register_grad"):
        program.training.register_gradient_hook(program.result)


_A_TENSOR = "must return a torch.Tensor or None, it gave"
_OF_THE_FORM = r"must return what has the form of the gradient, \[4, 3\] float32 on cpu, it gave"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("no", f"{_A_TENSOR} 'no' .str"),
        (np.zeros((4, 3)), rf"{_A_TENSOR} an array of shape \[4, 3\]"),
        (torch.zeros(1, 3), rf"{_OF_THE_FORM} \[1, 3\] float32 on cpu"),
        (torch.zeros(4, 3, dtype=torch.float64), rf"{_OF_THE_FORM} \[4, 3\] float64 on cpu"),
    ],
)
def test_a_gradient_hook_gives_a_gradient_or_nothing(given, says):
    program = regression()
    assert program.compile()
    program.result.label = "prediction"
    handle = program.training.register_gradient_hook(program.result, lambda gradient: given)
    before = array(program.layers[0].weights)
    with pytest.raises(TypeError, match=f"MLCTrainingGraph.register_gradient_hook: the hook of 'prediction' {says}"):
        program.execute()
    np.testing.assert_array_equal(array(program.layers[0].weights), before)
    handle.remove()
    assert program.execute()


def test_the_handle_of_a_gradient_hook_tells_whose_it_is():
    program = regression()
    program.result.label = "prediction"
    handle = program.training.register_gradient_hook(program.result, print)
    assert repr(handle) == "<gradient hook of the tensor 'prediction'>"
    handle.remove()
    assert repr(handle) == "<gradient hook of the tensor 'prediction', removed>"


def test_hooks_on_a_layer_s_module_fire(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    first, second = program.layers
    assert program.compile()
    plain = program.step()
    want, seen = slopes(program), []
    handles = [
        first.module.register_forward_hook(lambda m, args, out: seen.append("forward")),
        first.module.register_forward_pre_hook(lambda m, args: seen.append("before")),
        second.module.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].detach().cpu().numpy().copy())),
    ]
    assert program.phases()
    assert seen[:2] == ["before", "forward"]
    close(seen[2], want["y"])
    close(program.gradient_of(first.weights, first).reshape(5, 6), want["w1"])
    assert program.execute() and len(seen) == 6
    for handle in handles:
        handle.remove()
    assert program.execute() and len(seen) == 6 and program.step() < plain


def test_a_forward_hook_may_replace_the_output():
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.execute()
    handle = program.layers[1].module.register_forward_hook(lambda m, args, out: out * 0)
    assert program.execute()
    assert not array(program.result).any()
    handle.remove()
    assert program.execute() and array(program.result).any()


def test_a_hook_on_a_parameter_fires_and_may_replace(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    first, _ = program.layers
    assert program.compile() and program.execute()
    want, seen = slopes(program), []

    def double(gradient):
        seen.append(gradient.detach().cpu().numpy().copy())
        return gradient * 2

    handle = first.module.weight.register_hook(double)
    assert program.phases()
    close(seen[0].reshape(5, 6), want["w1"])
    close(program.gradient_of(first.weights, first).reshape(5, 6), 2 * want["w1"])
    handle.remove()
    assert program.phases()
    close(program.gradient_of(first.weights, first).reshape(5, 6), want["w1"])
    assert len(seen) == 1


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError])
def test_what_a_hook_raises_is_the_program_s_own(error):
    program = regression(widths=(6, 5, 3))
    plain = regression(widths=(6, 5, 3))
    assert program.compile() and plain.compile()

    def hook(*_):
        raise error("in the hook")

    handle = program.layers[0].module.register_forward_hook(hook)
    with pytest.raises(error, match="in the hook"):
        program.execute()
    handle.remove()
    assert program.step() == plain.step() and program.phases() and program.update()


@pytest.mark.parametrize("beside", [torch, mlc_torch], ids=["torch", "this library"])
def test_what_a_package_of_a_longer_name_raises_is_the_program_s_own(beside):
    """torchvision lies beside torch, and its path begins as torch's does."""
    program = regression()
    assert program.compile()
    scope: dict = {}
    text = "def hook(*_):\n    raise ValueError('in the package')"
    exec(compile(text, f"{Path(beside.__file__).parent}vision/ops.py", "exec"), scope)
    program.layers[0].module.register_forward_hook(scope["hook"])
    with pytest.raises(ValueError, match="in the package"):
        program.execute()


def test_a_module_hook_may_keep_what_it_is_given():
    """Little data is copied to the same memory in every call, but not under the eyes of a hook."""
    program = regression(widths=(6, 5, 3))
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    seen = []
    program.layers[0].module.register_forward_hook(lambda module, given, made: seen.append(given[0]))
    batches = [values(*program.given["x"].shape, seed=n) for n in range(3)]
    for batch in batches:
        assert inference.execute(inputsData={"x": data(batch)}, batchSize=0)
    for kept, batch in zip(seen, batches, strict=True):
        np.testing.assert_array_equal(kept.numpy(), batch)


@pytest.mark.parametrize("kind", ["shrinks", "takes away", "looks"])
@pytest.mark.parametrize("phases", [False, True], ids=["one call", "phases"])
def test_a_hook_that_torch_calls_when_grad_is_there(kind, phases, torch_device):
    """``register_post_accumulate_grad_hook``: what it leaves in ``.grad`` is what the update takes, as in plain torch."""
    ours = torch.nn.Linear(3, 2)
    theirs, seen = copy.deepcopy(ours), {"ours": [], "theirs": []}
    graph, x, t = MLCGraph(), placeholder(8, 3), placeholder(8, 2)
    graph.node(TorchLayer(ours), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=on(torch_device))
    given, labels = values(8, 3), values(8, 2, seed=1)

    def step() -> None:
        if phases:
            bound = {"x": data(given), "t": data(labels)}
            where = on(torch_device)
            assert training.bindAndWriteData(bound, forInputs={"x": x, "t": t}, to=where, synchronous=True)
            assert training.executeForward(batchSize=8) and training.executeGradient(batchSize=8)
            assert training.executeOptimizerUpdate()
        else:
            training.step(given, labels)

    def hook_of(name):
        def hook(parameter):
            seen[name].append(parameter.grad.detach().cpu().clone())
            if kind == "shrinks":
                parameter.grad.mul_(0.1)
            elif kind == "takes away":
                parameter.grad = None

        return hook

    rule = torch.optim.SGD(theirs.parameters(), lr=0.1)
    handles = []
    for number in range(4):
        if number == 1:  # after the graph was compiled, and has run
            hooked = [("ours", ours), ("theirs", theirs)]
            handles = [net.weight.register_post_accumulate_grad_hook(hook_of(name)) for name, net in hooked]
        if number == 3:
            for handle in handles:
                handle.remove()
        step()
        rule.zero_grad()
        torch.nn.functional.mse_loss(theirs(torch.tensor(given)), torch.tensor(labels)).backward()
        rule.step()
        torch.testing.assert_close(ours.weight.detach().cpu(), theirs.weight.detach(), rtol=1e-5, atol=1e-6)
    assert len(seen["ours"]) == 2
    torch.testing.assert_close(seen["ours"], seen["theirs"], rtol=1e-5, atol=1e-6)


def test_what_such_a_hook_raises_leaves_grad_as_it_was():
    net = torch.nn.Linear(3, 2)
    graph, x, t = MLCGraph(), placeholder(8, 3), placeholder(8, 2)
    graph.node(TorchLayer(net), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    net.weight.grad, before = torch.ones(2, 3), net.weight.detach().clone()

    def hook(parameter):
        raise ValueError("in the hook")

    handle = net.weight.register_post_accumulate_grad_hook(hook)
    with pytest.raises(ValueError, match="in the hook"):
        training.step(values(8, 3), values(8, 2))
    assert torch.equal(net.weight.grad, torch.ones(2, 3)) and torch.equal(net.weight, before)
    handle.remove()
    training.step(values(8, 3), values(8, 2))
    assert not torch.equal(net.weight, before)


EVERY = {
    "forward": (every.register_module_forward_hook, lambda seen: lambda m, args, out: seen.append((m, out))),
    "before forward": (every.register_module_forward_pre_hook, lambda seen: lambda m, args: seen.append((m, args[0]))),
    "backward": (
        every.register_module_full_backward_hook,
        lambda seen: lambda m, given, gradients: seen.append((m, gradients[0])),
    ),
    "before backward": (
        every.register_module_full_backward_pre_hook,
        lambda seen: lambda m, gradients: seen.append((m, gradients[0])),
    ),
    "backward, the old one": (
        every.register_module_backward_hook,
        lambda seen: lambda m, given, gradients: seen.append((m, gradients[0])),
    ),
}


@pytest.fixture
def no_old_hooks(monkeypatch):
    """torch remembers for good which kind of backward hook came first, the old or the full one, and refuses the other."""
    monkeypatch.setattr(every, "_global_is_full_backward_hook", None)


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook", "ignore:Full backward hook is firing")
@pytest.mark.parametrize("how", [{}, {"use_inductor": True}], ids=["planned", "inductor"])
@pytest.mark.parametrize("kind", EVERY)
def test_hooks_on_every_module(kind, how, no_old_hooks):
    """Registered before compile, and again when the graph runs fast: each call of a module calls them, with its numbers."""
    register, hook = EVERY[kind]
    program, seen = regression(widths=(6, 5, 3)), []
    first, last = (layer.module for layer in program.layers)
    for _ in range(2):
        handle = register(hook(seen))
        try:
            if program.training.device is None:
                assert program.compile(**how) and seen == []  # nothing has values yet
            x, w, b = (torch.from_numpy(a.copy()) for a in (program.given["x"], *map(array, _of(program.layers[0]))))
            assert program.phases()
            want = {
                "forward": torch.nn.functional.linear(x, w.view(5, 6), b.flatten()),
                "before forward": x,
                **dict.fromkeys([k for k in EVERY if "backward" in k], slopes(program)["y"]),
            }
            shown = last if "backward" in kind else first
            (found,) = [value.detach() for module, value in seen if module is shown]
            close(found, want[kind])
            assert program.training.summary().why == "hooks are registered on every module"
        finally:
            handle.remove()
        seen.clear()
        assert program.execute() and seen == []
        assert program.training.summary().gear == ("compiled" if how else "planned")


def _of(layer):
    return layer.weights, layer.biases


def test_a_hook_on_every_module_is_in_no_recording():
    """One that was there while the graph was compiled, and gone when it runs."""
    program = regression(widths=(6, 3))
    handle = every.register_module_forward_hook(lambda m, args, out: out * 2)
    try:
        assert program.compile()
    finally:
        handle.remove()
    x, (w, b) = program.given["x"], (array(a).copy() for a in _of(program.layers[0]))
    assert program.execute()
    close(array(program.result), x @ w.reshape(3, 6).T + b.reshape(3))


def test_a_hook_on_every_module_sees_no_tensors_without_values():
    """What a module gives is found out on a copy without memory, of which such a hook does not hear."""
    seen, net = [], torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Tanh())
    handle = every.register_module_forward_hook(lambda m, args, out: seen.append(float(out.mean())))
    try:
        result = MLCGraph().node(TorchLayer(net), source=placeholder(4, 6))
    finally:
        handle.remove()
    assert result.descriptor.shape == [4, 3] and seen == []
