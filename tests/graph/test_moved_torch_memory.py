"""torch moves the memory of a tensor that was wrapped: everybody goes along, and nobody touches where it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import (
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import close, conv, cpu, data, hyper, inferring, loss, on, placeholder, sgd, values

BATCH, WIDTH = 4, 80
"""80 x 80 weights take more than what is copied at once, and memory of their own from the system."""


def share(tensor: torch.Tensor) -> None:
    """As a queue between processes does."""
    tensor.share_memory_()


def replace(tensor: torch.Tensor) -> None:
    tensor.data = tensor.detach().clone()


def reset(tensor: torch.Tensor) -> None:
    tensor.set_(tensor.detach().clone())


ANY = pytest.mark.parametrize("move", [share, replace, reset], ids=lambda move: move.__name__)


def left(move, tensor: torch.Tensor) -> list[torch.Tensor]:
    """Move a tensor, and let others have the place where it was."""
    place, size = tensor.data_ptr(), tensor.numel()
    move(tensor)
    assert tensor.data_ptr() != place
    return [torch.full((size,), 7.0) for _ in range(20)]


def untouched(others: list[torch.Tensor]) -> bool:
    return all(bool((other == 7).all()) for other in others)


def leading(tensor: torch.Tensor, count: int) -> np.ndarray:
    return tensor.detach().flatten()[:count].double().numpy().copy()


WRAPPED = {
    "from_torch": MLCTensor.from_torch,
    "data": lambda w: MLCTensor(shape=w.shape, data=MLCTensorData(bytesNoCopy=w, length=w.nbytes), dataType=1),
}


def dense(weights: MLCTensor) -> MLCFullyConnectedLayer:
    outputs = weights.shape.numel() // WIDTH
    form = MLCConvolutionDescriptor(
        kernelSizes=(1, 1), inputFeatureChannelCount=WIDTH, outputFeatureChannelCount=outputs
    )
    return MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=form)


def trainer(weights: MLCTensor, optimizer=None) -> MLCTrainingGraph:
    graph, x, t = MLCGraph(), placeholder(BATCH, WIDTH), placeholder(BATCH, WIDTH)
    graph.node(dense(weights), source=x)
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=optimizer or sgd())
    assert made.addInputs({"x": x}, lossLabels={"t": t}) and made.compile(options=[], device=cpu())
    return made


X, T = values(BATCH, WIDTH, seed=1), values(BATCH, WIDTH, seed=2)


def slope(weights: np.ndarray) -> np.ndarray:
    """Of the mean squared error, by hand."""
    w = weights.reshape(WIDTH, WIDTH)
    return (2 / T.size * (X.astype(float) @ w.T - T).T @ X.astype(float)).ravel()


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_weights_are_trained_where_they_lie_now(wrapped):
    owner = torch.from_numpy(values(1, WIDTH * WIDTH, 1, 1)).clone()
    weights = WRAPPED[wrapped](owner)
    training, want = trainer(weights), leading(owner, WIDTH * WIDTH)
    for at in range(4):
        others = left(share, owner) if at == 2 else []
        want -= 0.1 * slope(want)
        training.step(X, T)
        close(leading(owner, WIDTH * WIDTH), want)
        close(weights.numpy().ravel(), want)
        close(np.frombuffer(weights.data, np.float32), want)
        assert untouched(others)
    training.synchronizeUpdates()
    close(leading(owner, WIDTH * WIDTH), want)


def test_weights_stay_in_their_memory_where_the_torch_tensor_leaves_it():
    owner = torch.from_numpy(values(1, WIDTH * WIDTH, 1, 1)).clone()
    weights, seen = WRAPPED["data"](owner), owner.detach()
    training, want = trainer(weights), leading(owner, WIDTH * WIDTH)
    owner.data = other = torch.full_like(owner, 3.0)
    training.step(X, T)
    want -= 0.1 * slope(want)
    for got in (seen.flatten(), weights.numpy().ravel(), np.frombuffer(weights.data, np.float32)):
        close(got, want)
    assert bool((other == 3).all())


def test_a_tensor_that_was_bound_follows():
    owner = torch.ones(WIDTH, WIDTH)
    held = placeholder(WIDTH, WIDTH)
    assert held.bindAndWriteData(MLCTensorData(bytesNoCopy=owner, length=owner.nbytes), to=cpu())
    others = left(share, owner)
    owner.fill_(2)
    assert (held.numpy() == 2).all() and set(np.frombuffer(held.data, np.float32)) == {2.0}
    held.torch.fill_(5)
    assert (leading(owner, WIDTH * WIDTH) == 5).all() and untouched(others)


@pytest.mark.parametrize("rows", [1, WIDTH], ids=["little", "much"])
@ANY
def test_inputs_and_outputs_are_where_their_tensors_are(rows, move):
    matrix = values(WIDTH, WIDTH, seed=3)
    graph, x = MLCGraph(), placeholder(rows, WIDTH)
    y = graph.node(dense(MLCTensor.from_numpy(matrix.reshape(1, -1, 1, 1))), source=x)
    inference = inferring(graph, x)
    assert inference.addOutputs({"y": y}) and inference.compile(options=[], device=cpu())
    given, room = torch.zeros(rows, WIDTH), torch.zeros(rows, WIDTH)
    fed, filled = {"x": data(given)}, {"y": data(room)}
    others: list[torch.Tensor] = []
    for at in range(6):
        if at == 2:
            others += left(move, given) + left(move, room)
        numbers = values(rows, WIDTH, seed=20 + at)
        given.flatten()[: numbers.size] = torch.from_numpy(numbers.ravel())
        assert inference.execute(inputsData=fed, outputsData=filled, batchSize=rows)
        want = numbers.astype(float) @ matrix.astype(float).T
        np.testing.assert_allclose(leading(room, want.size).reshape(want.shape), want, rtol=1e-4, atol=1e-4)
        assert fed["x"].bytes.tobytes() == numbers.tobytes()
    assert untouched(others)


@ANY
def test_optimizer_state_comes_to_where_its_tensor_is(move):
    weights = MLCTensor.from_numpy(values(1, WIDTH * WIDTH, 1, 1))
    training = trainer(weights, MLCAdamOptimizer(descriptor=hyper(0.01)))
    first, second = (torch.zeros(1, WIDTH * WIDTH, 1, 1) for _ in range(2))
    assert training.bindOptimizerData([data(first), data(second)], deviceData=None, with_=weights)
    mean, others = np.zeros(WIDTH * WIDTH), []
    for at in range(4):
        others += left(move, first) + left(move, second) if at == 2 else []
        mean = 0.9 * mean + 0.1 * slope(weights.numpy().astype(float))
        training.step(X, T)
        assert weights.synchronizeOptimizerData()
        close(leading(first, mean.size), mean)
        close(np.frombuffer(weights.optimizerData[0].bytes, np.float32), mean)
    assert untouched(others)


def test_a_result_that_processes_share_shows_its_bytes():
    graph, x = MLCGraph(), placeholder(WIDTH, WIDTH)
    y = graph.node(dense(MLCTensor.from_numpy(values(1, WIDTH * WIDTH, 1, 1))), source=x)
    inference = inferring(graph, x)
    assert inference.execute(inputsData={"x": data(values(WIDTH, WIDTH))}, batchSize=WIDTH)
    assert y.data is not None
    others = left(share, y.torch)
    y.torch.fill_(3)
    assert set(np.frombuffer(y.data, np.float32)) == {3.0} and untouched(others)


def test_what_was_copied_from_read_only_memory_moves_too():
    weights = MLCTensor(
        shape=(1, WIDTH * WIDTH, 1, 1), data=data(values(WIDTH * WIDTH).tobytes(), 4 * WIDTH**2), dataType=1
    )
    training = trainer(weights)
    others = left(share, weights.torch)
    want = weights.numpy().ravel().astype(float)
    training.step(X, T)
    want -= 0.1 * slope(want)
    close(np.frombuffer(weights.data, np.float32), want)
    assert untouched(others)


def test_a_parameter_of_inference_mode_is_trained_and_moves():
    with torch.inference_mode():
        owner = torch.from_numpy(values(1, WIDTH * WIDTH, 1, 1)).clone()
    training, want = trainer(MLCTensor.from_torch(owner)), leading(owner, WIDTH * WIDTH)
    others = left(share, owner)
    training.step(X, T)
    close(leading(owner, WIDTH * WIDTH), want - 0.1 * slope(want))
    assert untouched(others)


def shortened(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros(2)


def retyped(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.double()


def turned(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros(WIDTH, WIDTH).T


@pytest.mark.parametrize(
    ("move", "says"),
    [
        (shortened, "other memory now, 8 bytes of torch.float32; wrap it again"),
        (retyped, f"other memory now, {8 * WIDTH * WIDTH} bytes of torch.float64; wrap it again"),
        (turned, "tensor.contiguous()"),
    ],
)
def test_where_a_tensor_cannot_be_followed_a_call_is_refused(move, says):
    graph, x = MLCGraph(), placeholder(WIDTH, WIDTH)
    graph.node(dense(MLCTensor.from_numpy(values(1, WIDTH * WIDTH, 1, 1))), source=x)
    inference, given = inferring(graph, x), torch.ones(WIDTH, WIDTH)
    fed = {"x": data(given)}
    assert inference.execute(inputsData=fed, batchSize=WIDTH)
    move(given)
    assert not inference.execute(inputsData=fed, batchSize=WIDTH)
    assert says in str(last_refusal())
    assert inference.execute(inputsData={"x": data(values(WIDTH, WIDTH))}, batchSize=WIDTH)


@pytest.mark.parametrize("wrap", [MLCTensor.from_torch, data], ids=["from_torch", "data"])
@pytest.mark.parametrize("size", [0, 16 * WIDTH], ids=["nothing", "more"])
def test_torch_refuses_to_resize_memory_that_is_wrapped(wrap, size):
    """Nobody could follow it to nothing."""
    owner = torch.ones(WIDTH)
    wrapped = wrap(owner)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not resizable"):
            owner.untyped_storage().resize_(size)
        share(owner)
    assert wrapped is not None and owner.untyped_storage().nbytes() == 4 * WIDTH


def test_memory_that_was_given_back_is_not_wrapped():
    owner = torch.ones(WIDTH)[1:]
    owner.untyped_storage().resize_(0)
    assert MLCTensorData(bytesNoCopy=owner, length=4) is None and "was given back" in str(last_refusal())


def test_memory_that_is_to_be_freed_is_not_followed():
    owner, freed = torch.ones(WIDTH), []
    wrapped = MLCTensorData(bytesNoCopy=owner, length=owner.nbytes, deallocator=lambda *given: freed.append(given))
    assert bytes(wrapped.bytes) == owner.numpy().tobytes()
    share(owner)
    assert MLCTensor(shape=[WIDTH], data=wrapped, dataType=1) is None
    assert "deallocator" in str(last_refusal())
    del wrapped
    assert len(freed) == 1


def test_a_tensor_does_not_lie_between_the_elements_of_another():
    raw = torch.zeros(4 * WIDTH + 1, dtype=torch.uint8)[1:]
    assert MLCTensor(shape=[WIDTH], data=data(raw), dataType=1) is None
    assert "begins 1 bytes into its storage" in str(last_refusal())
    held = placeholder(WIDTH)
    assert held.bindAndWriteData(data(raw.clone()), to=cpu())


def test_parts_of_one_storage_are_trained_side_by_side():
    """A flat tensor of all parameters, as programs have it that talk to one another."""
    flat = torch.zeros(2 * WIDTH * WIDTH)
    parts = [nn.Parameter(half.view(1, -1, 1, 1)) for half in flat.chunk(2)]
    with torch.no_grad():
        parts[1].copy_(torch.from_numpy(values(1, WIDTH * WIDTH, 1, 1)))
    training, want = trainer(MLCTensor.from_torch(parts[1])), leading(parts[1], WIDTH * WIDTH)
    others = left(share, flat)
    training.step(X, T)
    close(leading(parts[1], WIDTH * WIDTH), want - 0.1 * slope(want))
    assert not parts[0].any() and untouched(others)


@pytest.mark.parametrize("moves", [False, True], ids=["in place", "moved"])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_has_what_training_made_of_it(duplicate, moves, torch_device):
    """By hand: w -= m, m = 0.5·m + g, with the mean squared error's g of inputs and targets that are 1 and 0."""
    start = values(2, 3)
    weights, momenta = MLCTensor.from_numpy(start.copy()), np.zeros((2, 3), np.float32)
    layer = MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=conv(3, 2, 1))
    weights.bindOptimizerData([data(momenta)], deviceData=None)
    graph, x, t = MLCGraph(), placeholder(BATCH, 3), placeholder(BATCH, 2)
    graph.node(layer, source=x)
    optimizer = MLCSGDOptimizer(descriptor=hyper(1.0), momentumScale=0.5, usesNesterovMomentum=False)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=optimizer)
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.compile(options=[], device=on(torch_device))
    if moves:
        layer.module.share_memory()
    given = {"x": np.ones((BATCH, 3), np.float32)}
    w, m = start.astype(np.float64), 0.0
    for _ in range(2):
        assert training.execute(
            inputsData=given,
            lossLabelsData={"t": np.zeros((BATCH, 2), np.float32)},
            lossLabelWeightsData=None,
            batchSize=BATCH,
            options=[],
        )
        m = 0.5 * m + np.repeat(w.sum(1, keepdims=True), 3, 1)  # 2·y/(4·2), summed over four samples
        w = w - m
    made = duplicate(layer).weights
    assert (made is weights) == (duplicate is copy.copy)
    for tensor in (duplicate(weights), made):
        close(tensor.numpy(), w)
        close(np.frombuffer(tensor.optimizerData[0].bytes, np.float32).reshape(2, 3), m)
