"""Parameters that were replaced, moved or tied in a way that a graph cannot follow: it says so, and trains nothing else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, parametrizations, parametrize, prune, vector_to_parameters

import mlc_torch as mlc
from mlc_torch.engine.watched import Watched
from mlc_torch.interop import TorchLayer
from tests.interop.programs import (
    BATCH,
    INPUTS,
    Classifier,
    data,
    dense,
    device,
    empty,
    holding,
    numbers,
    settings,
    squared_error,
)
from tests.interop.trained import PLAIN, RATE, Trained, made, plain_loop

LIES_ELSEWHERE, REPLACED = "no longer lies in the layer's memory", "was replaced, added or removed"


# Parts of a graph as a module


def test_parts_of_a_shared_module_refuse_what_it_refuses():
    program = Classifier()
    module = program.graph.to_module()
    before = {n: (p.data_ptr(), p.dtype) for n, p in module.named_parameters()}
    for part in (module.dense1, module.BatchNorm, copy.copy(module), copy.copy(module.dense1)):
        assert part.cpu().float() is part
        for breaking in (
            part.half,
            part.share_memory,
            lambda part=part: part.to("meta"),
            lambda part=part: part.load_state_dict(part.state_dict(), assign=True),
        ):
            with pytest.raises(RuntimeError, match=r"copy\.deepcopy"):
                breaking()
    assert {n: (p.data_ptr(), p.dtype) for n, p in module.named_parameters()} == before


def test_lists_of_parameters_refuse_it_too():
    gates, graph = range(4), mlc.MLCGraph()
    layer = mlc.MLCLSTMLayer(
        descriptor=mlc.MLCLSTMDescriptor(inputSize=3, hiddenSize=2, layerCount=1),
        inputWeights=[holding(numbers(2, 3, seed=n)) for n in gates],
        hiddenWeights=[holding(numbers(2, 2, seed=n)) for n in gates],
        biases=[holding(numbers(2, seed=n)) for n in gates],
    )
    graph.node(layer, source=empty(2, 4, 3))
    module = graph.to_module()
    x = torch.from_numpy(numbers(2, 4, 3))
    for part in (module.LSTM, module.LSTM.inputWeights, module.LSTM.biases):
        with pytest.raises(RuntimeError, match=r"copy\.deepcopy"):
            part.double()
    copied = copy.deepcopy(module).double()
    torch.testing.assert_close(copied(x.double()), module(x).double(), rtol=1e-5, atol=1e-6)


def test_a_deep_copy_of_a_part_is_independent():
    module = Classifier().graph.to_module()
    x = torch.from_numpy(numbers(BATCH, INPUTS)).double()
    copied = copy.deepcopy(module.dense1).double()
    own = module.dense1
    torch.testing.assert_close(copied(x), x @ own.weights.double().T + own.biases.double())
    assert own.weights.dtype == torch.float32 and copied.weights.data_ptr() != own.weights.data_ptr()


# Layers of our own


class Dense:
    """One dense layer without biases, and its loss by NumPy."""

    def __init__(self) -> None:
        self.layer, self.x, self.y = dense(3, 2, "dense", seed=3), empty(4, 3), empty(4, 2)
        graph = mlc.MLCGraph()
        graph.node(self.layer, source=self.x)
        rule = mlc.MLCSGDOptimizer(descriptor=settings(RATE))
        self.training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
        self.training.addInputs({"x": self.x}, lossLabels={"y": self.y})
        assert self.compile(), mlc.last_refusal()

    def compile(self) -> bool:
        return self.training.compile(options=[], device=device())

    def step(self) -> tuple[float, float]:
        """The loss that a step gives, and what it is by the values of the tensors."""
        x, y = numbers(4, 3, seed=1), numbers(4, 2, seed=2)
        made = x @ self.layer.weights.numpy().reshape(2, 3).T + self.layer.biases.numpy().reshape(2)
        return self.training.step(x, y), float(((made - y) ** 2).mean())


def by_vector(module):
    vector_to_parameters(parameters_to_vector(module.parameters()).detach() * 2, module.parameters())


def by_data(module):
    module.weight.data = module.weight.data.clone()


@pytest.mark.parametrize("change", [by_vector, by_data, nn.Module.half, lambda m: m.half().float()])
def test_a_layer_s_parameter_in_other_memory_is_refused_at_compile(change):
    program = Dense()
    program.step()
    before = program.layer.weights.numpy().copy()
    change(program.layer.module)
    assert not program.compile()
    assert LIES_ELSEWHERE in mlc.last_refusal().reason and "layer 'dense'" in mlc.last_refusal().reason
    np.testing.assert_array_equal(program.layer.weights.numpy(), before)
    for use in program.layer._parameter_uses:  # as the refusal says
        use.torch.data = mlc.MLCTensor._of(use.cell).torch.view(use.torch.shape)
    assert program.compile()
    losses = [program.step() for _ in range(3)]
    np.testing.assert_allclose(*np.transpose(losses), rtol=1e-5)
    assert losses[2][0] < losses[0][0]


def test_a_layer_s_parameter_in_other_memory_is_refused_by_a_new_session():
    """One is made, for example, when the weights of another layer, or here the biases, are bound anew."""
    program = Dense()
    program.step()
    by_data(program.layer.module)
    assert program.layer.biases.bindAndWriteData(data(np.ones(2, np.float32)), to=device())
    with pytest.raises(mlc.MLCRefusal, match=LIES_ELSEWHERE):
        program.step()


def test_a_layer_s_replaced_parameter_is_refused_at_compile():
    program = Dense()
    program.layer.module.weight = nn.Parameter(torch.zeros(2, 3))
    assert not program.compile() and REPLACED in mlc.last_refusal().reason


def test_pruning_a_part_of_a_shared_module_is_refused_and_the_graph_works_on():
    """Its hook would be the layer's, too, whose own module has no parameter of that name."""
    program = Dense()
    module = program.training.to_module()
    with pytest.raises(RuntimeError, match=r"'weights_orig' cannot be added.*copy\.deepcopy"):
        prune.l1_unstructured(module.dense, "weights", amount=0.5)
    copied = copy.deepcopy(module)
    prune.l1_unstructured(copied.dense, "weights", amount=0.5)
    assert (copied.dense.weights == 0).sum() == 3
    losses = [program.step() for _ in range(3)]
    np.testing.assert_allclose(*np.transpose(losses), rtol=1e-5)
    assert losses[2][0] < losses[0][0]
    torch.testing.assert_close(module.dense.weights.detach(), program.layer.weights.torch.view(2, 3))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of its older functions
@pytest.mark.parametrize(
    "reparametrize",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        lambda part, name: parametrize.register_parametrization(part, name, nn.Tanh()),
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        nn.Module.__delattr__,
        lambda part, name: setattr(part, name, None),
    ],
    ids=["weight_norm", "spectral_norm", "orthogonal", "own", "old weight_norm", "old spectral_norm", "del", "None"],
)
def test_other_parameters_for_a_part_are_refused_and_change_nothing(reparametrize):
    program = Dense()
    module = program.training.to_module()
    kind, hooks = type(module.dense), len(module.dense._forward_pre_hooks)
    weights = program.layer.weights.torch.clone()
    inputs = torch.from_numpy(numbers(4, 3))
    expected = inputs @ weights.view(2, 3).T + program.layer.biases.torch.view(2)
    with pytest.raises(RuntimeError, match=r"'weights' cannot be .*copy\.deepcopy"):
        reparametrize(module.dense, "weights")
    assert type(module.dense) is kind and len(module.dense._forward_pre_hooks) == hooks
    assert not parametrize.is_parametrized(module.dense)
    assert [n for n, _ in module.named_parameters()] == ["dense.weights", "dense.biases"]
    assert torch.equal(module.dense.weights.detach(), weights.view(2, 3))
    assert module.dense.weights.data_ptr() == program.layer.weights.torch.data_ptr()
    torch.testing.assert_close(module(inputs).detach(), expected)
    losses = [program.step() for _ in range(3)]
    np.testing.assert_allclose(*np.transpose(losses), rtol=1e-5)
    torch.testing.assert_close(module.dense.weights.detach(), program.layer.weights.torch.view(2, 3))


def test_parametrizations_of_a_name_that_is_no_parameter_are_refused_in_words():
    """torch takes ``weight`` where no name is given."""
    module = Dense().training.to_module()
    for norm in (parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal):
        with pytest.raises(
            RuntimeError, match=r"'weight' cannot be .*copy\.deepcopy.* \(under the names weights, biases\)$"
        ):
            norm(module.dense)
    assert not parametrize.is_parametrized(module.dense, "scale")


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_deep_copy_takes_parametrizations_as_a_module_of_torch_does(norm):
    copied, linear = copy.deepcopy(Dense().training.to_module()), nn.Linear(3, 2)
    linear.load_state_dict({"weight": copied.dense.weights.detach(), "bias": copied.dense.biases.detach()})
    for part, name in ((copied.dense, "weights"), (linear, "weight")):
        torch.manual_seed(0)
        norm(part, name)
        assert parametrize.is_parametrized(part, name)
    inputs, optimizers = torch.from_numpy(numbers(4, 3)), []
    for network in (copied, linear):
        network(inputs).square().sum().backward()
        optimizers.append(torch.optim.SGD(network.parameters(), lr=0.1))
        optimizers[-1].step()
    torch.testing.assert_close(copied.eval()(inputs), linear.eval()(inputs))


def test_the_old_weight_norm_of_a_name_that_is_no_parameter_is_refused_in_words():
    module = Dense().training.to_module()
    with (
        pytest.raises(RuntimeError, match=r"'weight' cannot be removed here.*copy\.deepcopy"),
        pytest.warns(FutureWarning),
    ):
        nn.utils.weight_norm(module.dense)


# Modules of the program


def network():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2), nn.PReLU())


def replaces_one_number(net):
    net[3].weight = nn.Parameter(net[3].weight.detach().clone())


def deletes(net):
    del net[2].bias


CHANGES = {
    "assign": (REPLACED, lambda net: net.load_state_dict({n: t * 3 for n, t in net.state_dict().items()}, assign=True)),
    "another parameter": (REPLACED, lambda net: setattr(net[0], "weight", nn.Parameter(torch.zeros(5, 3)))),
    "one of the same memory": (REPLACED, lambda net: setattr(net[0], "weight", nn.Parameter(net[0].weight.data))),
    "one number": (REPLACED, replaces_one_number),
    "another part": (REPLACED, lambda net: net.__setitem__(2, nn.Linear(5, 2))),
    "a parameter less": (REPLACED, deletes),
    "half": (LIES_ELSEWHERE, nn.Module.half),
    "other data": (LIES_ELSEWHERE, lambda net: setattr(net[2].bias, "data", torch.ones(2))),
}


@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_replaced_since_compile_is_refused_by_the_next_step(change, options):
    net = made(network)
    program = Trained(net, (4, 3), (4, 2), options=options)
    program.train(2)
    words, replace = CHANGES[change]
    replace(net)
    now = {n: p.detach().clone() for n, p in net.named_parameters()}
    cells = [(use.cell, use.cell.value.clone()) for use in program.layer._parameter_uses]
    x, y = (data(a) for a in program.batch(0))
    step = {"inputsData": {"x": x}, "lossLabelsData": {"y": y}, "lossLabelWeightsData": None, "batchSize": 4}
    assert not program.training.execute(**step) and words in mlc.last_refusal().reason
    bound = {"x": x, "y": y}
    program.training.bindAndWriteData(bound, forInputs={"x": program.x, "y": program.y}, to=device(), synchronous=True)
    assert not program.training.executeForward(batchSize=4) and words in mlc.last_refusal().reason
    assert all(torch.equal(p, now[n]) for n, p in net.named_parameters())
    assert all(torch.equal(cell.value, before) for cell, before in cells), "nothing was trained"


@pytest.mark.parametrize("change", CHANGES)
def test_and_by_the_next_inference(change):
    net = made(network)
    graph, x = mlc.MLCGraph(), empty(4, 3)
    graph.node(TorchLayer(net), source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=device())
    given = {"inputsData": {"x": data(numbers(4, 3))}, "batchSize": 4, "options": []}
    for _ in range(4):  # the last ones go the short way
        assert inference.execute(**given)
    words, replace = CHANGES[change]
    replace(net)
    assert not inference.execute(**given) and words in mlc.last_refusal().reason


@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
def test_what_is_written_or_shared_is_no_change(options):
    ours, theirs = made(network), made(network)
    program = Trained(ours, (4, 3), (4, 2), options=options)
    for net in (ours, theirs):
        with torch.no_grad():
            net[0].weight.mul_(2)
            net.load_state_dict({n: t + 1 for n, t in net.state_dict().items()})
    ours.share_memory()  # moves the memory of parameter and tensor together
    np.testing.assert_allclose(program.train(3), plain_loop(theirs, (4, 3), (4, 2), 3), rtol=1e-5)
    torch.testing.assert_close(ours[0].weight, theirs[0].weight, rtol=1e-5, atol=1e-6)


def test_a_module_that_is_as_it_was_has_not_changed():
    net = made(network)
    watched, own, part = Watched([net]), net[0].weight, net[2]
    assert not watched.has_changed()
    net[0].weight, net[2] = nn.Parameter(torch.zeros(5, 3)), nn.Linear(5, 2)
    assert watched.has_changed()
    net[0].weight, net[2] = own, part
    assert not watched.has_changed()


# Ties


class Autoencoder(nn.Module):
    """The decoder's weights lie in the encoder's memory: transposed, the same, or as columns beside it."""

    def __init__(self, tie: str) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 3), nn.Linear(3, 3)
        block = torch.rand(3, 6)
        if tie == "columns":
            self.encoder.weight.data, self.decoder.weight.data = block[:, :3], block[:, 3:]
        elif tie == "overlapping columns":
            self.encoder.weight.data, self.decoder.weight.data = block[:, :3], block[:, 2:5]
        elif tie == "rows":
            block = block.view(6, 3)
            self.encoder.weight.data, self.decoder.weight.data = block[:3], block[3:]
        else:
            shared = self.encoder.weight.data
            self.decoder.weight.data = shared.t() if tie == "transposed" else shared

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


@pytest.mark.parametrize("tie", ["transposed", "overlapping columns"])
def test_a_tie_that_a_copy_would_break_is_refused(tie):
    net = Autoencoder(tie)
    before = {n: (p.data_ptr(), p.stride()) for n, p in net.named_parameters()}
    assert TorchLayer(net) is None
    reason = mlc.last_refusal().reason
    assert "'decoder.weight'" in reason and "'encoder.weight'" in reason and "one nn.Parameter" in reason
    assert {n: (p.data_ptr(), p.stride()) for n, p in net.named_parameters()} == before


def test_so_is_one_between_two_layers():
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    layer = TorchLayer(one)
    two.weight.data = one.weight.data.t()
    assert layer is not None and TorchLayer(two) is None
    assert "'weight' [3, 3] lies in the memory of 'weight'" in mlc.last_refusal().reason
    assert two.weight.data_ptr() == one.weight.data_ptr()


@pytest.mark.parametrize("tie", ["same", "rows", "columns"])
def test_other_modules_with_shared_memory_train_as_in_torch(tie):
    ours, theirs = made(lambda: Autoencoder(tie)), made(lambda: Autoencoder(tie))
    program = Trained(ours, (4, 3), (4, 3))
    np.testing.assert_allclose(program.train(4), plain_loop(theirs, (4, 3), (4, 3), 4), rtol=1e-5)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-5, atol=1e-6)
