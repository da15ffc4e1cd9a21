"""What a program reads and steers, on two processes as on one: outputs, gradients, links, own shares, inference alone."""

from __future__ import annotations

import io
import os
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
import torch
from checking import RANK, check, run_all
from comparing import ALONE, MANY, ON_GPU, STEPS, assert_alike, assert_close, both, compare, flat, many_devices

import mlc_torch as mlc
from mlc_torch import ranks, unwrap
from mlc_torch.__main__ import main as command
from mlc_torch.interop import TorchLayer, TorchOptimizer, load_checkpoint, save_checkpoint

COMPILE = mlc.MLCGraphCompilationOptions
SYNCHRONOUS = [mlc.MLCExecutionOptions.synchronous]
HAS_BARS = find_spec("tqdm") is not None


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def with_outputs(device):
    net = nets.Net(7)
    net.classes(4)
    hidden = net.tanh(net.dense(net.input(6), 6, 8))
    result = net.dense(hidden, 8, 4)
    positive = net.add(
        mlc.MLCComparisonLayer(operation=mlc.MLCComparisonOperation.greater),
        hidden,
        net.constant(np.zeros((1, 8), np.float32)),
    )
    net.outputs = {"hidden": hidden, "result": result, "positive": positive}
    net.dense(hidden, 8, 4)
    return net.compile(device, nets.loss(), nets.sgd())


@check
def declared_outputs_are_whole():
    one, many, batches, before = both(with_outputs)
    for n in range(6):
        batch = (7, 4, 1)[n % 3]
        found = []
        for net in (one, many):
            buffers = {
                "hidden": np.full((7, 8), 9, np.float32),
                "result": np.full((7, 4), 9, np.float32),
                "positive": np.full((7, 8), 1, np.bool_),
            }
            given = {name: nets.data(array) for name, array in buffers.items()}
            assert net.step(batches[n % 4], batch, outputsData=given)[0], mlc.last_refusal()
            for name, tensor in net.outputs.items():
                close(tensor.numpy()[:batch], buffers[name][:batch])
            found.append(buffers)
        for name in found[0]:
            close(found[1][name][:batch], found[0][name][:batch])
        assert (found[1]["hidden"][batch:] == 9).all()
    assert_close(one, many, before)


@check
def outputs_and_gradients_of_the_phases():
    def make(device):
        net = with_outputs(device)
        net.training.sourceGradientTensors(for_=net.graph.layers[1])
        return net

    one, many, batches, before = both(make)
    for n in range(4):
        losses = [net.phases(batches[n], (7, 4)[n % 2]) for net in (one, many)]
        close(*losses)
        for name in one.outputs:
            rows = slice((7, 4)[n % 2])
            close(many.outputs[name].numpy()[rows], one.outputs[name].numpy()[rows])
        own = [net.training.sourceGradientTensors(for_=net.graph.layers[1])[0].numpy() for net in (one, many)]
        assert own[0].any()
        close(*own)
    assert_close(one, many, before)


@check
def other_results_hold_the_own_samples():
    _, many, batches, _ = both(lambda d: nets.perceptron(d, batch=6))
    hidden = many.training.resultTensors(for_=many.graph.layers[0])[0]
    assert many.step(batches[0])[0]
    mine = np.zeros(6, bool)
    mine[RANK * 3 : RANK * 3 + 3] = True
    assert hidden.numpy()[mine].any() and not hidden.numpy()[~mine].any()


@check
def gradients_are_whole():
    def make(device):
        net = nets.perceptron(device, batch=5, options=[COMPILE.computeAllGradients])
        net.asked = net.training.sourceGradientTensors(for_=net.graph.layers[2])
        net.of_result = net.training.resultGradientTensors(for_=net.graph.layers[2])
        return net

    one, many, batches, _ = both(make)
    for n, batch in enumerate((5, 3, 1)):
        found = []
        for net in (one, many):
            net.bind(batches[n])
            assert net.training.executeForward(batchSize=batch, options=SYNCHRONOUS)
            assert net.training.executeGradient(batchSize=batch, options=SYNCHRONOUS)
            layer = net.graph.layers[0]
            own = [net.training.gradientData(forParameter=t, layer=layer) for t in (layer.weights, layer.biases)]
            asked = net.training.sourceGradientTensors(for_=net.graph.layers[2])
            asked += net.training.resultGradientTensors(for_=net.graph.layers[2])
            asked.append(net.training.gradientTensor(forInput=net.inputs["x"]))
            found.append([*(np.frombuffer(g, np.float32) for g in own), *(t.numpy() for t in asked)])
            assert net.training.executeOptimizerUpdate(options=SYNCHRONOUS)
        for mine, theirs in zip(found[1], found[0], strict=True):
            assert mine.any()
            close(mine, theirs)
    close(many.asked[0].numpy()[:5], one.asked[0].numpy()[:5])  # handed out before there was a gradient


@check
def gradients_asked_for_late_are_refused():
    _, many, batches, _ = both(nets.perceptron)
    many.bind(batches[0])
    assert many.training.executeForward(batchSize=0) and many.training.executeGradient(batchSize=0)
    assert many.training.resultGradientTensors(for_=many.graph.layers[1]) == []
    assert "before the gradient phase" in str(mlc.last_refusal())
    assert many.training.executeOptimizerUpdate()
    assert many.step(batches[1])[0]


@check
def gradients_from_outside():
    one, many, batches, before = both(nets.given_gradient)
    for n in range(STEPS):
        batch = (6, 5, 1)[n % 3]
        (_, expected, _), (answer, value, _) = (net.step(batches[n % 4], batch) for net in (one, many))
        assert answer
        close(value[:batch], expected[:batch])
    assert_close(one, many, before)
    assert_alike(many)


@check
def a_gradient_from_outside_beside_a_loss():
    def make(device):
        net = nets.Net(6)
        net.classes(4)
        hidden = net.tanh(net.dense(net.input(6), 6, 8))
        net.dense(hidden, 8, 4)
        net.compile(device, nets.loss(), nets.sgd())
        layers = net.graph.layers
        (at,) = net.training.resultTensors(for_=layers[1])
        own = net.training.resultTensors(for_=net.training.layers[-1])[0]
        for tensor, values in ((at, net.numbers(6, 8, scale=0.1)), (own, np.array([0.5], np.float32))):
            assert unwrap(net.training.allocateUserGradient(for_=tensor)).bindAndWriteData(nets.data(values), to=device)
        return net

    compare(make, (6, 5, 1))


class Linked:
    """A perceptron cut into two training graphs."""

    def __init__(self, device) -> None:
        self.lower, self.upper = nets.Net(5), nets.Net(5, seed=1)
        self.lower.draw = self.upper.draw
        h = self.lower.dense(self.lower.input(6), 6, 8)
        self.upper.classes(4)
        self.upper.dense(self.upper.tanh(h), 8, 4)
        self.lower.compile(device, None, nets.sgd(), [COMPILE.linkGraphs])
        self.upper.compile(device, nets.loss(), nets.sgd(), [COMPILE.linkGraphs])
        assert self.lower.training.link(with_=[self.upper.training])

    def numbers_now(self):
        return self.lower.numbers_now() + self.upper.numbers_now()

    def statistics_now(self):
        return []

    def batches(self, count):
        return [a | b for a, b in zip(self.lower.batches(count), self.upper.batches(count), strict=True)]

    def step(self, arrays, batch):
        for net in (self.lower, self.upper):
            net.bind({name: arrays[name] for name in (*net.inputs, *net.labels)})
        low, up = self.lower.training, self.upper.training
        for call in (low.executeForward, up.executeForward, up.executeGradient, low.executeGradient):
            assert call(batchSize=batch, options=SYNCHRONOUS), mlc.last_refusal()
        assert low.executeOptimizerUpdate(options=SYNCHRONOUS) and up.executeOptimizerUpdate(options=SYNCHRONOUS)


@check
def linked_graphs():
    one, many, batches, before = both(Linked)
    for n in range(STEPS):
        for net in (one, many):
            net.step(batches[n % 4], (5, 3)[n % 2])
    assert_close(one, many, before)
    assert_alike(many)


@check
def own_shares():
    """Each rank is given its own samples, as many as it likes; together they are one process's batch."""
    device = many_devices()
    device.feeds_own_share = True

    def make(device, batch):
        net = nets.Net(batch)
        trunk = net.tanh(net.dense(net.input(6), 6, 12))
        summed = net.fed("labels", "s", (batch, 3))
        net.classes(4)
        net.add(
            nets.loss(nets.LOSS.meanSquaredError, nets.SUM, weight=0.05), net.dense(trunk, 12, 3), lossLabels=[summed]
        )
        x = net.norm(mlc.MLCBatchNormalizationLayer, net.reshape(trunk, batch, 12, 1, 1), 12)
        net.dense(net.reshape(x, batch, 12), 12, 4)
        return net.compile(device, nets.loss(), nets.sgd())

    one, many = make(ALONE, 12), make(device, 6)
    before, batches = flat(one.numbers_now()), one.batches(4)
    for n in range(STEPS):
        sizes = ((6, 6), (3, 5), (1, 4), (6, 2))[n % 4]
        first = sum(sizes[:RANK])
        own = {k: np.ascontiguousarray(np.roll(v, -first, 0)[:6]) for k, v in batches[n % 4].items()}
        _, expected, _ = one.step(batches[n % 4], sum(sizes))
        answer, value, error = many.step(own, sizes[RANK])
        assert answer, error
        close(value, expected)
    assert_close(one, many, before, movement=1e-4, size=1e-5)
    assert_alike(many)


@check
def local_batch_norm():
    """Each rank normalizes over its own samples; the gradients are those of the halves, put together."""
    device = many_devices()
    device.synchronizes_batch_norm = False

    def make(device, batch):
        return nets.convolutional(device, batch=batch, norm=nets.batch_norm, optimizer=nets.sgd)

    many = make(device, 6)
    batch = many.batches(1)[0]
    before = many.numbers_now()
    halves = []
    for half in range(2):
        one = make(ALONE, 3)
        one.bind({name: np.ascontiguousarray(a[half * 3 : half * 3 + 3]) for name, a in batch.items()})
        assert one.training.executeForward(batchSize=3) and one.training.executeGradient(batchSize=3)
        layers = [(t, layer) for layer in one.graph.layers for t in one.trained if _has(layer, t)]
        halves.append(
            [np.frombuffer(one.training.gradientData(forParameter=t, layer=x), np.float32) for t, x in layers]
        )
    assert many.step(batch)[0]
    by_tensor = {id(t): n for n, t in enumerate(many.trained)}
    order = [by_tensor[id(t)] for layer in many.graph.layers for t in many.trained if _has(layer, t)]
    now = many.numbers_now()
    for number, first, second in zip(order, *halves, strict=True):
        np.testing.assert_allclose(
            now[number].ravel(), before[number].ravel() - 0.05 * (first + second) / 2, rtol=1e-4, atol=1e-6
        )
    statistics = ranks.joined().told([a.tobytes() for a in many.statistics_now()])
    assert statistics[0] != statistics[1]


def _has(layer, tensor) -> bool:
    return any(use.cell is tensor._cell for use in layer._parameter_uses)


@check
def inference_on_one_rank_alone():
    one, many, batches, _ = both(lambda d: nets.convolutional(d, norm=nets.batch_norm, optimizer=nets.sgd))
    assert many.step(batches[0])[0] and one.step(batches[0])[0]
    if RANK == 0:
        infer = mlc.MLCExecutionOptions.forwardForInference
        assert many.step(batches[1], options=[infer, *SYNCHRONOUS])[0]
        inference = mlc.MLCInferenceGraph(graphObjects=[many.graph])
        assert inference.addInputs(many.inputs)
        for device in (MANY, ALONE):
            assert inference.compile(options=[], device=device)
            found = []
            assert inference.execute(
                inputsData={"x": nets.data(batches[2]["x"])}, batchSize=6, options=SYNCHRONOUS,
                completionHandler=lambda result, error, seconds, found=found: found.append(result.numpy().copy()),
            )  # fmt: skip
            assert found[0].shape == (6, 4) and found[0].all()
    assert many.training.compile(options=[], device=MANY)
    assert many.step(batches[1])[0]
    assert_alike(many)


@check
def fit_in_a_line():
    """Accumulated gradients and validation too; only the first rank shows a bar."""
    found = []
    for device in (ALONE, MANY):
        net = nets.perceptron(device, batch=6)
        batches = [(arrays["x"], arrays["t"]) for arrays in net.batches(4)]
        with redirect_stderr(io.StringIO()) as shown:
            history = net.training.fit(batches, epochs=2, validation=batches[:1], accumulate=2, progress=HAS_BARS)
        assert bool(shown.getvalue()) == (HAS_BARS and device.rank == 0)
        found.append([*history.step_losses, net.training.evaluate(batches)])
    close(*found)


@check
def fit_with_own_shares():
    """An epoch's losses and accumulated gradients are those of one process over all samples; all ranks end together."""
    device = many_devices()
    device.feeds_own_share = True
    one, many = nets.perceptron(ALONE, batch=7), nets.perceptron(device, batch=6)
    draw = np.random.default_rng(0)
    whole = [
        (draw.standard_normal((n, 6), np.float32), np.eye(4, dtype=np.float32)[draw.integers(0, 4, n)]) for n in (7, 5)
    ]
    rows = ((slice(6), slice(1)), (slice(6, None), slice(1, None)))[RANK]
    own = [tuple(array[own_rows] for array in batch) for batch, own_rows in zip(whole, rows, strict=True)]
    for how in ({"accumulate": 2}, {}):
        expected = one.training.fit(whole, validation=whole, progress=False, **how)[0]
        found = many.training.fit(own, validation=own, progress=False, **how)[0]
        close([found.loss, found.validation_loss], [expected.loss, expected.validation_loss])
        assert (found.samples, found.steps) == (12, 2)
        assert_alike(many)
    # Rank 0 by itself would go on: what it validates is what is learned. Rank 1 has more that says otherwise.
    far = [(x, np.roll(t, 1, 1)) for x, t in own] * 5 if RANK else own
    history = many.training.fit(own, validation=far, epochs=30, patience=2, progress=False)
    said = ranks.joined().told([history.validation_losses, history.losses, history.stopped_because])
    assert said[0] == said[1] and history.stopped_because == "no better loss for 2 epochs"
    only_first = None if RANK else own
    ended = many.training.fit(
        own, validation=only_first, epochs=9, callbacks=lambda e: RANK and e.number == 3, progress=False
    )
    assert len(ended) == 3 and ended.stopped_because == "a callback ended training after epoch 3"
    close(ended[2].validation_loss, ranks.joined().told(many.training.evaluate(own))[0])
    assert_alike(many)


@check
def a_module_that_shows_an_address():
    """A function lies elsewhere in every process, and is the same."""

    class Applies(torch.nn.Module):
        def __init__(self, function) -> None:
            super().__init__()
            self.function, self.inner = function, torch.nn.Linear(6, 4)

        def forward(self, x):
            return self.function(self.inner(x))

        def extra_repr(self) -> str:
            return f"{self.function}"

    kept = [bytearray(1000) for _ in range(100 * RANK)]  # so that it does
    net = nets.Net(6)
    net.classes(4)
    net.add(TorchLayer(Applies(lambda x: x.tanh())), net.input(6))
    net.compile(MANY, nets.loss(), nets.sgd())
    assert net.step(net.batches(1)[0])[0] and len(kept) == 100 * RANK


@check
def the_doctor_looks_at_the_ranks():
    with redirect_stdout(io.StringIO()) as said:
        assert command(["doctor", "--ranks"]) == 0
    lines = said.getvalue().splitlines()
    if RANK:
        assert lines == []
        return
    assert lines[0].startswith("2 processes over ") and lines[1].startswith("  rank 0: ")
    assert "three steps of training: the same as on one process" in lines
    assert " µs" in lines[-2] and " GiB/s" in lines[-1]


@check
def the_summary_says_how_many():
    _, many, _, _ = both(nets.perceptron)
    assert f"rank {RANK} of 2 shares each batch" in str(many.training.summary())


@check
def everything_begins_as_on_the_first():
    """Weights, statistics, the optimizer's state and what dropout draws from, however they differed before."""
    mlc.MLCPlatform.setRNGSeedTo(20 + RANK)
    net = nets.Net(6, seed=RANK)
    net.classes(4)
    x = nets.batch_norm(net, net.convolution(net.input(2, 4, 4), 2, 4))
    net.dense(net.dropout(net.reshape(x, 6, 64)), 64, 4)
    state = [np.full((1, 256, 1, 1), 0.1 * (RANK + 1), np.float32) for _ in range(2)]
    bound = [mlc.MLCTensorData(bytesNoCopy=a, length=a.nbytes) for a in state]
    assert net.trained[-2].bindOptimizerData(bound, deviceData=None)
    for tensor in net.statistics:
        tensor.numpy()[...] += RANK
    net.compile(MANY, nets.loss(), nets.adam())
    assert_alike(net)
    assert not net.statistics_now()[0].any()
    draw = np.random.default_rng(0)
    arrays = {"x": draw.standard_normal((6, 2, 4, 4), np.float32), "t": np.eye(6, 4, dtype=np.float32)}
    for _ in range(3):
        assert net.step(arrays)[0], mlc.last_refusal()
    assert_alike(net)
    assert net.trained[-2].synchronizeOptimizerData()
    states = ranks.joined().told([a.tobytes() for a in state])
    assert states[0] == states[1] and not (state[0] == np.float32(0.1)).any()


@check
def what_all_save_all_load():
    """Rank 0 writes it, and takes its time: a rank that loads it does not find the one before."""
    many = nets.Net(6)
    many.classes(4)
    many.dense(many.tanh(many.dense(many.input(600), 600, 2000)), 2000, 4)
    many.compile(MANY, nets.loss(), nets.sgd())
    batches = many.batches(4)
    path = Path(os.environ["CHECKS"]) / "saved.safetensors"
    for n in range(4):
        assert many.step(batches[n % 4])[0]
        save_checkpoint(many.training, path)
        load_checkpoint(many.training, path)
        assert_alike(many)


@check
def what_one_rank_saves_for_itself():
    """Rank 0 may, under any name: the others do not take it for what all have saved since, and do not wait for it."""
    _, many, batches, _ = both(nets.perceptron)
    folder = Path(os.environ["CHECKS"])
    last, best, missing = (folder / name for name in ("last.safetensors", "best.safetensors", "nowhere/a.safetensors"))
    for n in range(3):
        for path in (last, best) if RANK == 0 else ():
            save_checkpoint(many.training, path)
        if RANK == 0:
            with pytest.raises(FileNotFoundError, match="nowhere"):
                save_checkpoint(many.training, missing)
        assert many.step(batches[n])[0]
        if RANK == 0:
            save_checkpoint(many.training, best)
            time.sleep(0.2)  # a slow disk
        save_checkpoint(many.training, last if RANK else folder / "." / ".." / folder.name / last.name)
        wanted = many.numbers_now()
        load_checkpoint(many.training, last)
        assert all((a == b).all() for a, b in zip(wanted, many.numbers_now(), strict=True))
        if RANK == 0:
            save_checkpoint(many.training, best)
        ranks.joined().told(None)
        started = time.monotonic()
        load_checkpoint(many.training, best)
        assert time.monotonic() - started < 10, "rank 1 never asked for this one"
        assert all((a == b).all() for a, b in zip(wanted, many.numbers_now(), strict=True))


@check
def a_checkpoint_that_is_being_written_is_awaited():
    together, file = ranks.joined(), Path(os.environ["CHECKS"]) / "words.txt"
    if RANK == 0:
        file.write_text("old", "utf-8")
        with together.writing(file):
            together.told(None)
            time.sleep(0.2)
            file.write_text("new", "utf-8")
    else:
        together.told(None)
        together.await_written(file)
        assert file.read_text("utf-8") == "new"


@check
def an_optimizer_of_torch():
    def make(device):
        net = nets.Net(6)
        net.classes(4)
        net.dense(net.tanh(net.dense(net.input(6), 6, 8)), 8, 4)
        parameters = net.graph.to_module().parameters()
        return net.compile(device, nets.loss(), TorchOptimizer(torch.optim.SGD(parameters, lr=0.1, momentum=0.9)))

    many = compare(make)
    group = many.training.optimizer.optimizer.param_groups[0]
    batch = many.batches(1)[0]
    group["lr"] = 0.1 + 0.1 * RANK
    assert not many.step(batch)[0] and "optimizers with different settings" in str(mlc.last_refusal())
    group["lr"] = 0.05
    assert many.step(batch)[0], mlc.last_refusal()
    assert_alike(many)


@check
def constants_that_differ_are_told():
    """Drawn by each rank for itself."""
    net = nets.Net(6)
    net.targets(3)
    net.plus(net.dense(net.input(6), 6, 3), net.constant(np.full((1, 3), RANK, np.float32)))
    net.compile(MANY, nets.loss(mlc.MLCLossType.meanSquaredError), nets.sgd())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for arrays in net.batches(2):  # a call tells what the one before it showed
            assert net.step(arrays)[0], mlc.last_refusal()
    assert any("different weights or constants" in str(w.message) for w in told) is (RANK == 0 and not ON_GPU)


@check
def an_infinite_loss_stays_one():
    """With one sample the other rank has none, and counts for nothing."""
    net = nets.Net(6)
    net.targets(3)
    net.dense(net.input(6), 6, 3)
    net.compile(MANY, nets.loss(mlc.MLCLossType.meanSquaredError), nets.sgd())
    arrays = net.batches(1)[0] | {"t": np.full((6, 3), 1e30, np.float32)}
    answer, value, _ = net.step(arrays, 1)
    assert answer and np.isposinf(value).all(), value


@check
def labels_that_come_after_the_compile():
    """What is missing at compile is made up for by the first call, together."""
    net = nets.Net(6, seed=RANK)  # other weights on each rank
    label = net.classes(4)
    net.dense(net.input(6), 6, 4)
    training = net.training = mlc.MLCTrainingGraph(
        graphObjects=[net.graph], lossLayer=nets.loss(), optimizer=nets.sgd()
    )
    assert training.addInputs(net.inputs, lossLabels=None) and training.compile(options=[], device=MANY)
    assert training.addInputs(net.inputs, lossLabels={"t": label})
    draw = np.random.default_rng(0)
    arrays = {"x": draw.standard_normal((6, 6), np.float32), "t": np.eye(6, 4, dtype=np.float32)}
    assert net.step(arrays)[0], mlc.last_refusal()
    assert_alike(net)


if __name__ == "__main__":
    run_all()
