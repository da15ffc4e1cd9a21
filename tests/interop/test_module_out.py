"""``to_module()``: the graph as an ``nn.Module`` over the same memory."""

from __future__ import annotations

import copy
import importlib
import pickle

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch.refusals import MLCRefusal
from tests.interop.programs import (
    BATCH,
    CLASSES,
    HIDDEN,
    INPUTS,
    Classifier,
    data,
    dense,
    device,
    empty,
    holding,
    numbers,
)
from tests.layers.records import descriptor
from tests.layers.test_every_layer import FAMILIES, expected


def logits(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The classifier in inference, written out."""
    x = x @ state["dense1.weights"].T + state["dense1.biases"]
    x = (x - state["BatchNorm.running_mean"]) / torch.sqrt(state["BatchNorm.running_var"] + 1e-5)
    x = torch.tanh(x * state["BatchNorm.gamma"] + state["BatchNorm.beta"])
    return x @ state["dense2.weights"].T + state["dense2.biases"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_computes_the_same(family):
    for record in importlib.import_module(f"tests.layers.{family}").RECORDS:
        layer, graph = record.make(), mlc.MLCGraph()
        sources = [mlc.MLCTensor(descriptor=descriptor(s.shape, s.dtype.name)) for s in record.sources]
        if isinstance(layer, mlc.MLCLossLayer):
            graph.node(layer, sources=sources[:1], lossLabels=sources[1:])
        else:
            graph.node(layer, sources=sources)
        module = graph.to_module(loss=isinstance(layer, mlc.MLCLossLayer)).train(record.training)
        with torch.no_grad():
            got = module(*(torch.from_numpy(np.array(s)) for s in record.sources))
        np.testing.assert_allclose(
            got.numpy(), expected(record)[0], rtol=record.rtol, atol=record.atol, err_msg=record.name
        )
        (name,) = module._modules
        assert set(dict(module.named_parameters())) <= {f"{name}.{use.role}" for use in layer._parameter_uses}


def test_names_and_code_can_be_read():
    program = Classifier()
    module = program.training.to_module()
    assert [(n, tuple(p.shape)) for n, p in module.named_parameters()] == [
        ("dense1.weights", (HIDDEN, INPUTS)),
        ("dense1.biases", (HIDDEN,)),
        ("BatchNorm.gamma", (HIDDEN,)),
        ("BatchNorm.beta", (HIDDEN,)),
        ("dense2.weights", (CLASSES, HIDDEN)),
        ("dense2.biases", (CLASSES,)),
    ]
    assert [n for n, _ in module.named_buffers()] == ["BatchNorm.running_mean", "BatchNorm.running_var"]
    assert list(module._modules) == ["dense1", "BatchNorm", "Activation", "Dropout", "Dropout_1", "dense2"]
    assert "def forward(self, image)" in module.code and "self.dense1(image)" in module.code
    assert "Loss" not in module.code
    assert "FullyConnected(in_features=5, out_features=6" in repr(module)


def test_it_shares_memory_both_ways():
    program = Classifier().compiled()
    module = program.training.to_module()
    assert module.dense1.weights.data_ptr() == program.dense1.weights.torch.data_ptr()
    program.train(0, 2)
    assert np.array_equal(module.dense1.weights.detach().numpy().ravel(), program.dense1.weights.numpy().ravel())
    with torch.no_grad():
        module.dense2.biases.fill_(3.0)
    assert (program.dense2.biases.numpy() == 3.0).all()
    image = numbers(BATCH, INPUTS)
    want = logits(module.state_dict(), torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(program.predict(image), want, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        np.testing.assert_allclose(module.eval()(torch.from_numpy(image)).numpy(), want, rtol=1e-5, atol=1e-6)


def test_new_memory_is_followed():
    """Parameters are the layers' own, so that a tensor that is bound anew takes the module along."""
    program = Classifier()
    module = program.graph.to_module()
    weights = numbers(1, INPUTS * HIDDEN, 1, 1, seed=77)
    assert program.dense1.weights.bindAndWriteData(data(weights), to=device())
    assert np.array_equal(module.dense1.weights.detach().numpy().ravel(), weights.ravel())
    program.compiled().train(0, 1)
    assert np.array_equal(module.dense1.weights.detach().numpy().ravel(), weights.ravel())


def test_a_torch_loop_trains_the_graph():
    """The loop is held to one over tensors of its own, and the graph sees every step."""
    program = Classifier().compiled()
    image = numbers(BATCH, INPUTS, seed=9)
    before = program.predict(image)
    module = program.training.to_module().eval()
    free = {n: t.detach().clone().requires_grad_(t.is_floating_point()) for n, t in module.state_dict().items()}
    learned = [n for n, _ in module.named_parameters()]
    ours = torch.optim.Adam(module.parameters(), lr=0.05)
    theirs = torch.optim.Adam([free[n] for n in learned], lr=0.05)
    for step in range(4):
        x, y = (torch.from_numpy(numbers(BATCH, n, seed=step)) for n in (INPUTS, CLASSES))
        for optimizer, result in ((ours, module(x)), (theirs, logits(free, x))):
            optimizer.zero_grad()
            ((result - y) ** 2).mean().backward()
            optimizer.step()
    for name in learned:
        np.testing.assert_allclose(module.state_dict()[name], free[name].detach(), rtol=1e-4, atol=1e-6)
    assert np.abs(program.predict(image) - before).max() > 0.01
    np.testing.assert_allclose(
        program.predict(image), logits(free, torch.from_numpy(image)).detach().numpy(), rtol=1e-4, atol=1e-6
    )


def test_state_dict_goes_around():
    source, target = Classifier(seed=1).compiled(), Classifier(seed=2)
    source.train(0, 2)
    assert not target.training.to_module().load_state_dict(source.training.to_module().state_dict()).missing_keys
    assert np.array_equal(target.dense1.weights.numpy(), source.dense1.weights.numpy())
    image = numbers(BATCH, INPUTS)
    assert np.array_equal(source.predict(image), target.predict(image))


def test_with_the_loss():
    program = Classifier()
    module = program.training.to_module(loss=True).eval()
    assert list(module.inputs) == ["image", "target"]
    image, target = numbers(BATCH, INPUTS), numbers(BATCH, CLASSES)
    with torch.no_grad():
        got = module(torch.from_numpy(image), torch.from_numpy(target))
    want = ((logits(module.state_dict(), torch.from_numpy(image)).numpy() - target) ** 2).mean()
    np.testing.assert_allclose(got.numpy(), [want], rtol=1e-5)


def test_with_the_loss_beside_declared_outputs():
    program = Classifier()
    image, target = numbers(BATCH, INPUTS), numbers(BATCH, CLASSES)
    alone = program.training.to_module(loss=True).eval()
    scores = program.training.to_module().eval()
    program.training.addOutputs({"scores": program.graph.resultTensors(for_=program.dense2)[0]})
    module = program.training.to_module(loss=True).eval()
    with torch.no_grad():
        found = module(torch.from_numpy(image), torch.from_numpy(target))
        assert sorted(found) == ["Loss", "scores"]
        torch.testing.assert_close(found["Loss"], alone(torch.from_numpy(image), torch.from_numpy(target)))
        torch.testing.assert_close(found["scores"], scores(torch.from_numpy(image)))


def several_losses(*reductions, own=False):
    """A dense layer under squared errors of these reductions, each with labels of its own; the last may be the graph's own."""
    graph, x, labels = mlc.MLCGraph(), empty(4, 3), [empty(4, 2) for _ in reductions]
    losses = [mlc.MLCLossLayer.meanSquaredError(reductionType=r, weight=n + 1) for n, r in enumerate(reductions)]
    y = graph.node(dense(3, 2, "dense", 0), source=x)
    pairs = list(zip(losses, labels, strict=True))[: -1 if own else None]
    results = [graph.node(layer, sources=[y], lossLabels=[label]) for layer, label in pairs]
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=losses[-1] if own else None, optimizer=None)
    named = {f"t{n}": label for n, label in enumerate(labels)}
    assert training.addInputs({"x": x}, lossLabels=named)
    return training, (x, *labels), (y, *results)


NONE, SUM, MEAN = mlc.MLCReductionType.none, mlc.MLCReductionType.sum, mlc.MLCReductionType.mean


@pytest.mark.parametrize("own", [False, True], ids=["nodes", "an own loss"])
@pytest.mark.parametrize(
    "reductions", [(MEAN, MEAN), (SUM, MEAN), (MEAN, NONE), (NONE, NONE), (NONE, SUM, MEAN)], ids=str
)
def test_of_several_losses_the_module_gives_the_sum_that_the_graph_differentiates(reductions, own):
    training, (x, *labels), _ = several_losses(*reductions, own=own)
    module = training.to_module(loss=True)
    given = [numbers(4, 3), *(numbers(4, 2) + n for n, _ in enumerate(labels))]
    found = module(*map(torch.from_numpy, given))
    found.backward()
    weights, biases = (
        module.get_parameter(f"dense.{n}").detach().double().requires_grad_() for n in ("weights", "biases")
    )
    y = torch.from_numpy(given[0]).double() @ weights.view(2, 3).T + biases.view(-1)
    want = torch.zeros((), dtype=torch.float64)
    for number, (reduction, label) in enumerate(zip(reductions, given[1:], strict=True)):
        each = (number + 1) * (y - torch.from_numpy(label).double()) ** 2
        want = want + (each.mean() if reduction is MEAN else each.sum())
    want.backward()
    assert found.shape == (1,)
    np.testing.assert_allclose(found.item(), want.item(), rtol=1e-5)
    np.testing.assert_allclose(module.dense.weights.grad.numpy(), weights.grad.numpy(), rtol=1e-4)
    assert training.compile(options=[], device=mlc.MLCDevice.cpu())
    fed = dict(zip(("x", *(f"t{n}" for n, _ in enumerate(labels))), given, strict=True))
    tensors = dict(zip(fed, (x, *labels), strict=True))
    assert training.bindAndWriteData(fed, forInputs=tensors, to=mlc.MLCDevice.cpu(), synchronous=True)
    assert training.executeForward(batchSize=4) and training.executeGradient(batchSize=4)
    layer = training.layers[0]
    gradient = np.frombuffer(training.gradientData(forParameter=layer.weights, layer=layer), np.float32)
    np.testing.assert_allclose(gradient, weights.grad.numpy().ravel(), rtol=1e-4)


def test_losses_among_the_declared_outputs_keep_their_names_and_the_rest_is_one_sum():
    training, _, (y, first, second) = several_losses(MEAN, SUM, MEAN, own=True)
    given = [torch.from_numpy(a) for a in (numbers(4, 3), *(numbers(4, 2) + n for n in range(3)))]
    predicted = training.to_module()(given[0])
    each = [(n + 1) * (predicted - t) ** 2 for n, t in enumerate(given[1:])]
    want = [each[0].mean().item(), each[1].sum().item(), each[2].mean().item()]
    assert training.addOutputs({"y": y, "second": second})
    found = training.to_module(loss=True)(*given)
    (other,) = found.keys() - {"y", "second"}
    np.testing.assert_allclose([found["second"].item(), found[other].item()], [want[1], want[0] + want[2]], rtol=1e-5)
    assert training.addOutputs({"first": first})
    found = training.to_module(loss=True)(*given)
    (other,) = found.keys() - {"y", "first", "second"}
    np.testing.assert_allclose([found[n].item() for n in ("first", "second", other)], want, rtol=1e-5)


def test_a_loss_that_is_not_there_is_refused():
    graph = mlc.MLCGraph()
    graph.node(dense(3, 2, "dense", 0), source=empty(4, 3))
    for made in (graph, mlc.MLCInferenceGraph(graphObjects=[graph])):
        with pytest.raises(MLCRefusal, match="the graph has no loss"):
            made.to_module(loss=True)
        for wrong in ("yes", 1, None):
            with pytest.raises(
                TypeError, match=rf"{type(made).__name__}.to_module: argument 'loss' expects a bool, got {wrong!r}"
            ):
                made.to_module(loss=wrong)


def test_modes():
    program = Classifier()
    assert program.graph.to_module().training
    assert program.training.to_module().Dropout.training
    inference = mlc.MLCInferenceGraph(graphObjects=[program.graph])
    module, other = inference.to_module(), program.graph.to_module()
    assert not any(m.training for m in module.modules())
    assert other.train().Dropout.training and not module.Dropout.training


def test_dropout_draws_from_the_platform():
    """In training mode the module drops what the graph would drop, and leaves torch's generator alone."""
    x = empty(4, 50)
    graph = mlc.MLCGraph()
    graph.node(mlc.MLCDropoutLayer(rate=0.5, seed=3), source=x)
    before = torch.get_rng_state()
    got = graph.to_module()(torch.ones(4, 50))
    assert torch.equal(torch.get_rng_state(), before)
    mask = torch.empty(4, 50).bernoulli_(0.5, generator=torch.Generator().manual_seed(3)) / 0.5
    assert torch.equal(got, mask)


# Inputs and outputs


def two_inputs() -> tuple[mlc.MLCGraph, list[mlc.MLCTensor]]:
    a, b = empty(2, 3), empty(2, 3)
    a.label, b.label = "left", "right"
    graph = mlc.MLCGraph()
    scale = holding(np.full((1, 3), 2.0, np.float32))
    scale.label = "scale"
    scaled = graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.multiply), sources=[b, scale])
    total = graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), sources=[a, scaled])
    return graph, [a, b, scaled, total, scale]


def test_undeclared_inputs_come_as_layers_read_them():
    graph, (_, _, _, _, scale) = two_inputs()
    module = graph.to_module()
    assert list(module.inputs) == ["right", "left"]
    right, left = torch.ones(2, 3), torch.full((2, 3), 5.0)
    assert torch.equal(module(right, left), torch.full((2, 3), 7.0))
    assert dict(module.named_buffers())["scale"].data_ptr() == scale.torch.data_ptr()
    scale.torch.fill_(3.0)
    assert torch.equal(module(right=right, left=left), torch.full((2, 3), 8.0))


def test_declared_inputs_and_outputs():
    graph, (a, b, scaled, total, _) = two_inputs()
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"a": a, "b": b})
    assert list(inference.to_module().inputs) == ["a", "b"]
    inference.addOutputs({"scaled": scaled})
    assert torch.equal(inference.to_module()(torch.zeros(2, 3), torch.ones(2, 3)), torch.full((2, 3), 2.0))
    inference.addOutputs({"total": total})
    module = inference.to_module()
    got = module(torch.ones(2, 3), torch.ones(2, 3))
    assert module.outputs == ["scaled", "total"] == list(got)
    assert torch.equal(got["total"], torch.full((2, 3), 3.0))


def test_labels_become_names():
    x = empty(2, 3)
    graph = mlc.MLCGraph()
    result = x
    labels = ["dense 1", "dense 1", "2nd", "class", "forward", "training", "", "_parameters", "größe", "ﬁ", "²", "a.b"]
    for n, label in enumerate(labels):
        result = graph.node(dense(3, 3, label, n), source=result)
    module = graph.to_module()
    names = list(module._modules)
    assert names == [
        "dense_1",
        "dense_1_1",
        "layer_2nd",
        "class_",
        "forward_",
        "training_",
        "MLCFullyConnectedLayer",
        "parameters_",
        "größe",
        "fi",
        "layer_2",
        "a_b",
    ]
    assert len(set(names)) == len(labels)
    module(torch.ones(2, 3))


def test_a_tensor_that_is_trained_is_a_parameter():
    x, bias = empty(2, 3), holding(numbers(1, 3))
    bias.label = "offset"
    graph = mlc.MLCGraph()
    graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), sources=[x, bias])
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    training.addInputs({"x": x}, lossLabels=None)
    training.setTrainingTensorParameters([mlc.MLCTensorParameter(tensor=bias)])
    module = training.to_module()
    assert [n for n, _ in module.named_parameters()] == ["offset"]
    module(torch.zeros(2, 3)).sum().backward()
    assert torch.equal(module.offset.grad, torch.full((1, 3), 2.0))


def test_freezing_is_the_graphs_own_and_a_torch_loop_does_not_see_it():
    """As the documentation says: the module's parameters are the layers', and ``requires_grad`` there would freeze more."""
    x, graph, layer, fixed = empty(2, 3), mlc.MLCGraph(), dense(3, 3, "first", 0), dense(3, 2, "second", 1)
    graph.node(fixed, sources=[graph.node(layer, source=x)], disableUpdate=True)
    layer.weightsParameter.isUpdatable = False
    module, before = graph.to_module(), [t.weights.numpy().copy() for t in (layer, fixed)]
    assert all(p.requires_grad for p in module.parameters())
    module(torch.ones(2, 3)).sum().backward()
    torch.optim.SGD([module.second.weights], lr=1.0).step()  # a parameter that is left out stays
    assert np.array_equal(layer.weights.numpy(), before[0])
    gradient = module.second.weights.grad.numpy().ravel()
    np.testing.assert_allclose(fixed.weights.numpy().ravel(), before[1].ravel() - gradient, rtol=1e-6)


def test_stopped_gradients_stop():
    x = empty(2, 3)
    graph = mlc.MLCGraph()
    first, second = dense(3, 3, "first", 0), dense(3, 3, "second", 1)
    middle = graph.node(first, source=x)
    graph.node(second, source=middle)
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    training.addInputs({"x": x}, lossLabels=None)
    training.stopGradient(for_=[middle])
    module = training.to_module()
    module(torch.ones(2, 3)).sum().backward()
    assert module.first.weights.grad is None
    assert module.second.weights.grad is not None


def test_one_tensor_in_two_layers_is_one_parameter():
    x, weights = empty(2, 3), holding(numbers(1, 9, 1, 1))
    graph = mlc.MLCGraph()
    shape = mlc.MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=3, outputFeatureChannelCount=3)
    first = graph.node(mlc.MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=shape), source=x)
    graph.node(mlc.MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=shape), source=first)
    module = graph.to_module()
    assert [n for n, _ in module.named_parameters()] == ["FullyConnected.weights"]
    assert sorted(module.state_dict()) == ["FullyConnected.weights", "FullyConnected_1.weights"]
    given = torch.from_numpy(numbers(2, 3, seed=1))
    module(given).sum().backward()
    free = torch.from_numpy(weights.numpy().reshape(3, 3).copy()).requires_grad_()
    (given @ free.T @ free.T).sum().backward()
    torch.testing.assert_close(module.FullyConnected.weights.grad, free.grad)


def test_an_lstm_has_its_tensors_in_lists():
    gates = range(4)
    layer = mlc.MLCLSTMLayer(
        descriptor=mlc.MLCLSTMDescriptor(inputSize=3, hiddenSize=2, layerCount=1),
        inputWeights=[holding(numbers(2, 3, seed=n)) for n in gates],
        hiddenWeights=[holding(numbers(2, 2, seed=n)) for n in gates],
        biases=[holding(numbers(2, seed=n)) for n in gates],
    )
    graph = mlc.MLCGraph()
    graph.node(layer, source=empty(2, 4, 3))
    module = graph.to_module()
    lists = ("inputWeights", "hiddenWeights", "biases")
    assert {n for n, _ in module.named_parameters()} == {f"LSTM.{kind}.{n}" for kind in lists for n in gates}
    module(torch.ones(2, 4, 3)).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


# Its own memory


def test_a_deep_copy_is_independent():
    program = Classifier()
    module = program.graph.to_module()
    copied = copy.deepcopy(module)
    assert module.shares_memory and not copied.shares_memory
    copied.double()
    with torch.no_grad():
        copied.dense1.weights.zero_()
    assert copied(torch.ones(BATCH, INPUTS, dtype=torch.float64)).dtype == torch.float64
    assert module.dense1.weights.abs().min() > 0
    again = pickle.loads(pickle.dumps(module))
    assert torch.equal(again.dense1.weights, module.dense1.weights)
    assert again.dense1.weights.data_ptr() != module.dense1.weights.data_ptr()


def test_what_would_break_the_sharing_is_not_done():
    module = Classifier().graph.to_module()
    assert module.cpu().float().to("cpu") is module
    before = module.dense1.weights.data_ptr()
    for breaking in (
        module.double,
        module.half,
        module.share_memory,
        lambda: module.to("meta"),
        lambda: module.load_state_dict(module.state_dict(), assign=True),
    ):
        with pytest.raises(RuntimeError, match=r"copy\.deepcopy"):
            breaking()
    assert module.dense1.weights.data_ptr() == before and module.dense1.weights.dtype == torch.float32


def test_hooks_are_the_layers_own():
    program = Classifier()
    module, seen = program.graph.to_module(), []
    module.dense1.register_forward_hook(lambda m, args, result: seen.append(result.shape))
    module(torch.ones(BATCH, INPUTS))
    program.compiled().train(0, 1)
    assert seen == [(BATCH, HIDDEN)] * 2


def test_a_graph_without_layers_is_refused():
    with pytest.raises(MLCRefusal, match="no layers"):
        mlc.MLCGraph().to_module()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend):
    module = Classifier().graph.to_module().eval()
    x = torch.from_numpy(numbers(BATCH, INPUTS))
    torch.testing.assert_close(torch.compile(module, backend=backend)(x), module(x))
    module.zero_grad()
    torch.compile(module, backend=backend)(x).sum().backward()
    assert module.dense1.weights.grad is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads
def test_torch_compile_with_inductor():
    module = Classifier().graph.to_module().eval()
    x = torch.from_numpy(numbers(BATCH, INPUTS))
    torch.testing.assert_close(torch.compile(module)(x), module(x))
