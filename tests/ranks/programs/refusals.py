"""A rank that refuses, that fails in the middle, that does something else than the others: all are told, none waits.

Who waits in vain is told that the others are lost when the limit is over, and the check fails.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
import torch
from checking import RANK, check, run_all
from comparing import ALONE, MANY, ON_GPU, assert_alike, assert_close, both, flat, many_devices

import mlc_torch as mlc
from mlc_torch import ranks
from mlc_torch.interop import load_checkpoint, save_checkpoint

SYNCHRONOUS = [mlc.MLCExecutionOptions.synchronous]


def refused_everywhere(answer: Any, words: str, of_rank: str = "") -> str:
    """This rank was refused with these words, or with ``of_rank`` if it is rank 1; and so was the other."""
    assert answer in (False, None), answer
    why = str(mlc.last_refusal())
    assert (of_rank if RANK and of_rank else words) in why, why
    return why


def compiled(make, device) -> bool:
    """Whether a network compiles; nets stop at a refusal."""
    try:
        make(device)
    except AssertionError:
        return False
    return True


@check
def different_graphs():
    def make(device):
        net = nets.Net(6)
        net.classes(4)
        layer = mlc.MLCActivationLayer.relu if RANK else mlc.MLCActivationLayer.tanh
        net.dense(net.add(layer, net.dense(net.input(6), 6, 8)), 8, 4)
        return net.compile(device, nets.loss(), nets.sgd())

    why = refused_everywhere(compiled(make, MANY), "the ranks compile different graphs: rank 0 has")
    assert "Tanh" in why and "ReLU" in why


@check
def different_settings():
    for make in (
        lambda d: nets.perceptron(d, rate=0.1 * (RANK + 1)),
        lambda d: nets.perceptron(d, batch=6 + RANK),
        lambda d: nets.perceptron(d, optimizer=(nets.sgd, nets.adam)[RANK]),
        lambda d: nets.perceptron(d, reduction=(nets.MEAN, nets.SUM)[RANK]),
    ):
        refused_everywhere(compiled(make, MANY), "the ranks compile different graphs")
    device = many_devices()
    device.feeds_own_share = bool(RANK)
    refused_everywhere(compiled(nets.perceptron, device), "own True")


@check
def a_graph_that_one_rank_cannot_compile():
    """No rank can run it then, and none waits for the others to."""
    net = nets.Net(6)
    net.classes(4)
    net.reshape(net.dense(net.input(6), 6, 4), 6, 5 if RANK else 4)
    answer = compiled(lambda device: net.compile(device, nets.loss(), nets.sgd()), MANY)
    refused_everywhere(answer, "rank 1 refused", "the labels must have")
    refused_everywhere(net.step(net.batches(1)[0])[0], "the graph is not compiled", "the labels must have")


@check
def a_layer_that_mixes_samples():
    def make(device):
        net = nets.Net(6)
        net.targets(4)
        layer = mlc.MLCReductionLayer(reductionType=mlc.MLCReductionType.mean, dimension=0)
        layer.label = "over the batch"
        centre = net.add(layer, x := net.dense(net.input(6), 6, 4))
        net.add(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.subtract), x, centre)
        return net.compile(device, nets.loss(nets.LOSS.meanSquaredError), nets.sgd())

    assert compiled(make, ALONE)
    why = refused_everywhere(compiled(make, MANY), "'over the batch'")
    assert "reduces dimension 0, which counts samples" in why


def short(arrays: nets.Arrays) -> nets.Arrays:
    return {name: np.ascontiguousarray(a[:1]) for name, a in arrays.items()}


@check
def a_rank_that_refuses_a_call():
    """Nobody takes the step, statistics and dropout go back, and training goes on as if it had not been tried."""

    def with_everything(device):
        net = nets.Net(6)
        net.classes(4)
        x = net.relu(nets.batch_norm(net, net.convolution(net.input(2, 4, 4), 2, 4)))
        net.dense(net.dropout(net.reshape(x, 6, 64)), 64, 4)
        return net.compile(device, nets.loss(), nets.sgd())

    for make in (nets.perceptron, with_everything):
        one, many, batches, before = both(make)
        mlc.MLCPlatform.setRNGSeedTo(3)
        for n in range(4):
            assert one.step(batches[n])[0]
        mlc.MLCPlatform.setRNGSeedTo(3)
        for n in range(4):
            if n == 2:
                kept = many.numbers_now() + many.statistics_now()
                given = short(batches[n]) if RANK else batches[n]
                answer, _, error = many.step(given)
                refused_everywhere(answer, "rank 1 refused this call, so no rank took the step", "needs")
                assert isinstance(error, mlc.MLCRefusal)
                assert all(
                    (a == b).all() for a, b in zip(kept, many.numbers_now() + many.statistics_now(), strict=True)
                )
            assert many.step(batches[n])[0], mlc.last_refusal()
        assert_alike(many)
        assert_close(one, many, before, movement=1e-4, size=1e-5)


@check
def a_rank_that_refuses_a_phase():
    one, many, batches, before = both(nets.perceptron)
    training = many.training
    assert not training.executeGradient(batchSize=0), "no rank has gone forward"
    many.bind(batches[0])
    answer = training.executeForward(batchSize=8 if RANK else 99, options=SYNCHRONOUS)
    refused_everywhere(answer, "batchSize is 99", "rank 0 refused this call")
    assert training.executeForward(batchSize=8, options=SYNCHRONOUS)
    answer = training.executeGradient(batchSize=7 if RANK else 8, options=SYNCHRONOUS)
    refused_everywhere(answer, "rank 1 refused this call", "the forward pass ran 8 samples")
    for net in (one, many):
        net.phases(batches[0])
        net.step(batches[1])
    assert_alike(many)
    assert_close(one, many, before, movement=1e-4)


@check
def different_calls_that_send_alike():
    _, many, batches, _ = both(nets.perceptron)
    many.bind(batches[0])
    assert many.training.executeForward(batchSize=8, options=SYNCHRONOUS)
    if RANK:
        answer, _, _ = many.step(batches[0])
    else:
        answer = many.training.executeGradient(batchSize=8, options=SYNCHRONOUS)
    refused_everywhere(
        answer, "the ranks made different calls: executeGradient, execute, by rank; no rank took the step"
    )
    assert many.step(batches[0])[0]
    assert_alike(many)


@check
def a_step_that_one_rank_alone_has_taken():
    """From then on all refuse, and say what helps; then it does help."""
    _, many, batches, _ = both(nets.perceptron)
    assert many.step(batches[0])[0]
    saved = Path(os.environ["CHECKS"]) / "steps.safetensors"
    save_checkpoint(many.training, saved)
    ranks.joined().told(None)  # it is there now
    many.bind(batches[1])
    assert many.training.executeForward(batchSize=0) and many.training.executeGradient(batchSize=0)
    if RANK:
        assert many.training.executeOptimizerUpdate(options=SYNCHRONOUS)
    refused_everywhere(
        many.step(batches[1])[0], "different numbers of steps: 2, 3, by rank; no rank took the step; load"
    )
    load_checkpoint(many.training, saved)
    assert many.step(batches[1])[0], mlc.last_refusal()
    assert_alike(many)


@check
def a_step_of_adam_that_one_rank_alone_has_taken():
    """Its rate depends on the step, and is no setting that differs."""
    many = nets.perceptron(MANY, optimizer=nets.adam)
    batch = many.batches(1)[0]
    many.bind(batch)
    assert many.training.executeForward(batchSize=0) and many.training.executeGradient(batchSize=0)
    if RANK:
        assert many.training.executeOptimizerUpdate(options=SYNCHRONOUS)
    refused_everywhere(many.step(batch)[0], "different numbers of steps: 1, 2, by rank; no rank took the step; load")


@check
def a_rank_that_binds_the_same_weights_anew():
    """It plans anew by itself. Nothing differs, so that nothing is refused, and nobody is warned."""
    for rank in range(2):
        _, many, batches, _ = both(nets.perceptron)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert many.step(batches[0])[0]
            if rank == RANK:
                many.training.synchronizeUpdates()
                assert many.trained[0].bindAndWriteData(nets.data(many.trained[0].numpy().copy()), to=MANY)
            for n in range(6):
                assert many.step(batches[n % 4])[0], mlc.last_refusal()
        assert not told, [str(w.message) for w in told]
        assert_alike(many)


@check
def a_parameter_that_one_rank_keeps_for_a_while():
    _, many, batches, _ = both(nets.perceptron)
    assert many.step(batches[0])[0]
    parameter = many.graph.layers[0].weightsParameter
    if RANK:
        parameter.isUpdatable = False
    refused_everywhere(many.step(batches[0])[0], "the ranks run different plans")
    if RANK:
        parameter.isUpdatable = True
    assert many.step(batches[0])[0], mlc.last_refusal()
    assert_alike(many)


@check
def batches_of_different_sizes():
    _, many, batches, _ = both(lambda d: nets.perceptron(d, batch=65))
    for sizes in ((64, 60), (65, 64), (1, 2)):
        before = many.numbers_now()
        answer, _, _ = many.step(batches[0], sizes[RANK])
        why = refused_everywhere(answer, "the ranks were given batches of different sizes")
        assert f"{sizes[0]}, {sizes[1]}" in why
        assert all((a == b).all() for a, b in zip(before, many.numbers_now(), strict=True))
    assert many.step(batches[0])[0]


@check
def data_that_differ():
    """The program trains, and is told once that this is not what one process would train."""
    _, many, batches, _ = both(nets.perceptron)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(3):
            assert many.step(batches[n])[0]
        assert not told, "the same data"
        for n in range(40):
            assert many.step(batches[(n + RANK) % 4])[0]
    assert [w.category for w in told] == ([] if RANK else [mlc.MLCTrainingWarning])
    assert all("the ranks were given different data" in str(w.message) for w in told)
    assert all(w.filename == nets.__file__ for w in told), "at the program's own line"
    assert_alike(many)


@check
def weights_that_one_rank_changed():
    """Told where the weights are within reach: nobody waits for a GPU to look at them."""
    _, many, batches, _ = both(nets.perceptron)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(2):
            assert many.step(batches[n])[0]
        if RANK:
            many.trained[0].torch.add_(1)
        for n in range(2):
            assert many.step(batches[n])[0]
    wanted = [] if RANK or ON_GPU else ["the ranks hold different weights or constants"]
    assert [str(w.message).partition(";")[0] for w in told] == wanted


@check
def a_setting_of_the_optimizer_that_one_rank_changed():
    for name, value in (("learningRate", 0.02), ("appliesGradientClipping", True)):
        _, many, batches, _ = both(nets.perceptron)
        assert many.step(batches[0])[0]
        for rank in range(2):
            if rank == RANK:
                setattr(many.training.optimizer, name, value)
            answer, _, _ = many.step(batches[1])
            if rank == 0:
                refused_everywhere(
                    answer, "have optimizers with different settings; no rank took the step; set the same"
                )
        assert answer
        assert_alike(many)


class Boom(Exception):
    pass


@check
def a_rank_that_fails_in_the_middle():
    """By an error of the program's own, and by one that torch raises."""
    for error, layer in ((Boom, 1), (torch.OutOfMemoryError, 2), (torch.OutOfMemoryError, 0)):
        _, many, batches, _ = both(lambda d: nets.convolutional(d, norm=nets.batch_norm, optimizer=nets.sgd))
        assert many.step(batches[0])[0]
        module = many.graph.layers[layer].module
        if RANK:

            def fail(*_: Any, error=error) -> None:
                raise error("out of memory")

            handle = module.register_full_backward_hook(fail) if layer == 0 else module.register_forward_hook(fail)
        before = many.numbers_now() + many.statistics_now()
        if RANK and error is Boom:
            with pytest.raises(Boom):
                many.step(batches[1])
        else:
            answer, _, _ = many.step(batches[1])
            refused_everywhere(answer, "rank 1 refused this call", "out of memory")
        assert all((a == b).all() for a, b in zip(before, many.numbers_now() + many.statistics_now(), strict=True))
        if RANK:
            handle.remove()
        assert many.step(batches[1])[0], mlc.last_refusal()
        assert_alike(many)


@check
def a_handler_that_raises():
    _, many, batches, _ = both(nets.perceptron)

    def handler(*_: Any) -> None:
        if RANK:
            raise Boom

    def call() -> Any:
        data = many.data(batches[0])
        return many.training.execute(**data, batchSize=8, options=SYNCHRONOUS, completionHandler=handler)

    if RANK:
        with pytest.raises(Boom):
            call()
    else:
        assert call()
    assert many.step(batches[1])[0]
    assert_alike(many)


@check
def different_wishes_after_the_compile():
    """One rank alone asks for a gradient: its plan is another now, and all say so."""
    _, many, batches, _ = both(nets.perceptron)
    if RANK:
        assert many.training.sourceGradientTensors(for_=many.graph.layers[2])
    answer, _, _ = many.step(batches[0])
    refused_everywhere(answer, "the ranks run different plans")
    if not RANK:
        assert many.training.sourceGradientTensors(for_=many.graph.layers[2])
    assert many.step(batches[0])[0], mlc.last_refusal()


class Heard(logging.Handler):
    """The lines that the library logs while it is attached."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> list[str]:
        log = logging.getLogger("mlc_torch")
        self.level_before = log.level
        log.setLevel(logging.INFO)
        log.addHandler(self)
        return self.lines

    def __exit__(self, *_: Any) -> None:
        log = logging.getLogger("mlc_torch")
        log.removeHandler(self)
        log.setLevel(self.level_before)


@check
def one_rank_speaks_for_all():
    """What both are refused is said once, what one alone is refused by that one, with its rank."""
    _, many, batches, _ = both(nets.perceptron)
    with Heard() as alike:
        many.step(short(batches[0]))
        many.step(batches[0], 9)
        many.step(batches[0], 5 + RANK)
    assert len(alike) == (0 if RANK else 3), alike
    with Heard() as one:
        many.step(short(batches[0]) if RANK else batches[0])
    (line,) = one
    assert line.startswith("rank 1: refused: ") if RANK else "rank 1 refused this call" in line
    with Heard() as info, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        net = nets.Net(6)
        net.classes(4)
        net.add(mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation.softmax), net.dense(net.input(6), 6, 4))
        net.compile(MANY, nets.loss(), nets.sgd())
        logging.getLogger("mlc_torch").info("something that all have to say")
        logging.getLogger("mlc_torch").error("it broke")
    assert info == (["rank 1: it broke"] if RANK else ["something that all have to say", "it broke"])
    assert len(warned) == (0 if RANK else 1), [str(w.message) for w in warned]


@check
def strict_mode_raises_on_every_rank():
    _, many, batches, _ = both(nets.perceptron)
    with mlc.strict(), pytest.raises(mlc.MLCRefusal):
        many.step(short(batches[0]) if RANK else batches[0])
    assert flat(many.numbers_now()).any()
    assert ranks.joined().lost is None


if __name__ == "__main__":
    run_all()
