"""``step``, ``evaluate`` and ``fit``: gradient descent as NumPy does it, and everything around the loop."""

from __future__ import annotations

import io
import math
import sys
import threading
from contextlib import redirect_stderr
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDataType,
    MLCGraph,
    MLCReductionType,
    MLCTensor,
    MLCTrainingGraph,
    MLCTrainingWarning,
    strict,
)
from mlc_torch.refusals import MLCRefusal
from mlc_torch.running.history import Epoch, History
from tests.graph.programs import cpu, data, dense, loss, placeholder, sgd, values

BATCH, RATE = 8, 0.1


def program(
    reduction: MLCReductionType = MLCReductionType.mean, rate: float = RATE, optimizes: bool = True
) -> MLCTrainingGraph:
    """A dense layer from six inputs to two outputs."""
    graph, x, t = MLCGraph(), placeholder(BATCH, 6), placeholder(BATCH, 2)
    graph.node(dense(6, 2), source=x)
    optimizer = sgd(rate) if optimizes else None
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(reduction=reduction), optimizer=optimizer)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    return training


@dataclass
class Reference:
    """The same, written out."""

    weights: np.ndarray
    biases: np.ndarray

    @classmethod
    def of(cls, training: MLCTrainingGraph) -> Reference:
        layer = training.layers[0]
        return cls(layer.weights.numpy().reshape(2, 6).astype(float), layer.biases.numpy().ravel().astype(float))

    def loss(self, x, t) -> float:
        return float(((x @ self.weights.T + self.biases - t) ** 2).mean())

    def step(self, x, t) -> float:
        found, slope = self.loss(x, t), 2 * (x @ self.weights.T + self.biases - t) / t.size
        self.weights -= RATE * slope.T @ x
        self.biases -= RATE * slope.sum(0)
        return found


def batches(count: int = 4, size: int = BATCH) -> list[tuple[np.ndarray, np.ndarray]]:
    xs = [values(size, 6, seed=n) for n in range(count)]
    return [(x, np.stack([x.sum(1), x[:, 0] - x[:, 1]], 1).astype(np.float32)) for x in xs]


def same(training: MLCTrainingGraph, reference: Reference) -> None:
    layer = training.layers[0]
    np.testing.assert_allclose(layer.weights.numpy().reshape(2, 6), reference.weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(layer.biases.numpy().ravel(), reference.biases, rtol=1e-4, atol=1e-6)


FORMS = {
    "arrays": lambda x, t: (x, t),
    "torch tensors": lambda x, t: (torch.from_numpy(x), torch.from_numpy(t)),
    "dictionaries": lambda x, t: ({"x": x}, {"t": t}),
    "lists": lambda x, t: ([x], (t,)),
    "data": lambda x, t: (data(x), data(t)),
    "tensors": lambda x, t: (MLCTensor.from_numpy(x), MLCTensor.from_numpy(t)),
    "doubles, not contiguous": lambda x, t: (np.asfortranarray(x.astype(float)), torch.from_numpy(t).double()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_step_is_a_step_of_gradient_descent(form):
    training = program()
    reference = Reference.of(training)
    for x, t in batches():
        assert training.step(*FORMS[form](x, t)) == pytest.approx(reference.step(x, t), rel=1e-4)
    same(training, reference)


def test_a_smaller_batch_counts_as_it_is():
    training = program()
    reference = Reference.of(training)
    x, t = batches(1, 3)[0]
    assert training.step(x, t) == pytest.approx(reference.step(x, t), rel=1e-4)
    same(training, reference)


def test_a_loss_without_reduction_is_its_mean():
    training = program(MLCReductionType.none, rate=0.0)
    x, t = batches(1)[0]
    assert training.step(x, t) == pytest.approx(Reference.of(training).loss(x, t), rel=1e-4)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_of_a_smaller_batch_only_its_own_losses_count(accumulate):
    training = program(MLCReductionType.none, rate=0.0)
    given = [*batches(1), *batches(1, 3)]
    want = [Reference.of(training).loss(x, t) for x, t in given]
    assert training.step(*given[1]) == pytest.approx(want[1], rel=1e-4)
    history = training.fit(given, progress=False, accumulate=accumulate)
    assert history.step_losses == pytest.approx(want, rel=1e-4)
    assert training.evaluate(given) == pytest.approx(np.average(want, weights=[BATCH, 3]), rel=1e-4)


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_refused_step_raises(is_strict):
    training = program()
    x, t = batches(1)[0]
    with strict(is_strict), pytest.raises(MLCRefusal, match="no data for the label"):
        training.step(x)
    with pytest.raises(TypeError, match="2 inputs were given, addInputs declared 1: x"):
        training.step([x, x], t)
    with strict(is_strict), pytest.raises(MLCRefusal, match="'x'"):
        training.step(x[:, :5], t)
    assert training.step(x, t) > 0


def test_evaluate_trains_nothing():
    training = program()
    reference, given = Reference.of(training), [*batches(3), *batches(1, 5)]
    sizes = [len(x) for x, _ in given]
    want = np.average([reference.loss(x, t) for x, t in given], weights=sizes)
    assert training.evaluate(given) == pytest.approx(want, rel=1e-4)
    same(training, reference)


def test_fit_is_the_loop():
    training = program()
    reference, given, unseen = Reference.of(training), [*batches(3), *batches(1, 5)], batches(2)[1:]
    history = training.fit(given, epochs=3, validation=unseen, progress=False)
    sizes = [len(x) for x, _ in given]
    for epoch in history.epochs:
        losses = [reference.step(x, t) for x, t in given]
        assert epoch.loss == pytest.approx(np.average(losses, weights=sizes), rel=1e-4)
        assert epoch.validation_loss == pytest.approx(reference.loss(*unseen[0]), rel=1e-4)
        assert (epoch.steps, epoch.samples) == (4, sum(sizes)) and epoch.seconds > 0
    same(training, reference)
    assert [e.number for e in history.epochs] == [1, 2, 3] and len(history.step_losses) == 12
    assert history.best is history.epochs[-1] and history.stopped_because == ""


def test_fit_takes_a_data_loader_and_a_function():
    x, t = (np.concatenate(parts) for parts in zip(*batches(), strict=True))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(t)), BATCH
    )
    first, second = program(), program()
    losses = first.fit(loader, epochs=2, progress=False).losses
    assert second.fit(lambda: iter(batches()), epochs=2, progress=False).losses == losses


def test_an_iterator_serves_one_epoch():
    training = program()
    with pytest.raises(TypeError, match="batches is an iterator, which is empty after one epoch"):
        training.fit(iter(batches()), epochs=2)
    assert len(training.fit(iter(batches()), progress=False)) == 1


def test_errors_say_which_batch():
    good, (x, t) = batches(2), batches(1)[0]
    with pytest.raises(MLCRefusal) as found:
        program().fit([*good, (x[:, :4], t)], progress=False)
    assert found.value.__notes__ == ["in batch 3 of epoch 1"]
    with pytest.raises(
        TypeError, match=r"a batch is \(inputs, labels\) or \(inputs, labels, weights\), got ndarray"
    ) as late:
        program().fit(iter([x]), progress=False)
    assert late.value.__notes__ == ["in batch 1 of epoch 1"]
    with pytest.raises(ValueError, match="epoch 1 has no batches"):
        program().fit([], progress=False)
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        program().fit(good, epochs=0)


X, T = batches(1)[0]
WRONG = {
    "arrays": (lambda t: t.fit(X, T), "too many positional arguments; call it as training.fit([(x1, y1), (x2, y2)], epochs=10)"),
    "nothing": (lambda t: t.fit(), "missing a required argument: 'batches'; call it as"),
    "a wrong name": (lambda t: t.fit([(X, T)], epoch=3), "unexpected keyword argument 'epoch'; closest: epochs; call it as"),
    "one pair": (lambda t: t.fit((X, T)), "batches must be an iterable of (inputs, labels), for example [(x1, y1)"),
    "one array": (lambda t: t.fit(X), "batches must be an iterable of (inputs, labels), for example"),
    "none": (lambda t: t.fit(None), "batches must be an iterable of (inputs, labels), for example"),
    "a dictionary": (lambda t: t.evaluate({"x": X}), "batches must be an iterable of (inputs, labels), for example"),
    "validation": (lambda t: t.fit([(X, T)], validation=(X, T)), "validation must be an iterable of (inputs, labels)"),
    "no callback": (lambda t: t.fit([(X, T)], callbacks=3), "callbacks must be a function that is called with the Epoch"),
    "callback of 0": (lambda t: t.fit([(X, T)], callbacks=lambda: 0), "of fit is called with (epoch), this one takes ()"),
    "callback of 2": (lambda t: t.fit([(X, T)], callbacks=[print, lambda a, b: 0]), "with (epoch), this one takes (a, b)"),
    "half epochs": (lambda t: t.fit([(X, T)], epochs=2.5), "epochs must be a whole number, got 2.5 (float)"),
    "no epochs": (lambda t: t.fit([(X, T)], epochs=None), "epochs must be a whole number, got None (NoneType)"),
    "min_delta text": (lambda t: t.fit([(X, T)], min_delta="a"), "min_delta must be a number, got 'a' (str)"),
    "no min_delta": (lambda t: t.fit([(X, T)], min_delta=None, patience=1), "min_delta must be a number, got None"),
    "min_delta beyond floats": (
        lambda t: t.fit([(X, T)], min_delta=10**400),
        "min_delta must be a number that a float holds, got 1000",
    ),
    "callbacks of no dimension": (
        lambda t: t.fit([(X, T)], callbacks=np.array(1.0)),
        "callbacks must be a function that is called with the Epoch",
    ),
    "callbacks as text": (lambda t: t.fit([(X, T)], callbacks=""), "or a list of such, got '' (str)"),
    "callbacks by name": (lambda t: t.fit([(X, T)], callbacks={}), "or a list of such, got {} (dict)"),
    "min_delta NaN": (lambda t: t.fit([(X, T)], min_delta=float("nan")), "min_delta must be finite, got nan"),
    "progress": (lambda t: t.fit([(X, T)], progress="yes"), "fit: argument 'progress' expects a bool, got 'yes' (str)"),
    "tensorboard": (lambda t: t.fit([(X, T)], tensorboard=5), "fit: argument 'tensorboard' expects a path"),
    "progress 1": (lambda t: t.fit([(X, T)], progress=1), "fit: argument 'progress' expects a bool, got 1 (int)"),
    "a function of 5": (lambda t: t.fit(lambda: 5), "what a function gives for batches must be an iterable of (inputs, labels)"),
    "a function of functions": (lambda t: t.evaluate(lambda: list), "what a function gives for batches must be"),
    "text": (lambda t: t.step("a", "b"), "expected an array of numbers, got 'a' (str)"),
    "texts": (lambda t: t.step([["a"]], T), "expected an array of numbers, got ['a'] (list)"),
    "rows of several lengths": (lambda t: t.step({"x": [[1.0], [1.0, 2.0]]}, T), "whose rows differ in length"),
    "bytes": (lambda t: t.step(np.zeros((8, 6), "V4"), T), "expected an array of numbers, got an array of shape"),
    "records": (lambda t: t.step(np.zeros((8, 6), [("a", "f4")]), T), "expected an array of numbers, got an array of shape"),
    "no validation": (lambda t: t.fit([(X, T)], validation=[]), "the validation has no batches"),
    "complex": (lambda t: t.step(X.astype(complex), T), "expected an array of numbers, got an array of shape"),
    "complex torch": (lambda t: t.step(torch.ones(8, 6) * 1j, T), "expected a tensor of real numbers"),
    "masked": (lambda t: t.step(np.ma.masked_less(X, 0), T), "would be taken; pass array.filled(value)"),
    "nested": (lambda t: t.step(torch.nested.nested_tensor([torch.ones(6)] * 8), T), "is a nested torch tensor"),
    "meta": (lambda t: t.step(torch.ones(8, 6, device="meta"), T), "on the device meta, which has no memory"),
    "sparse": (lambda t: t.step(torch.ones(8, 6).to_sparse(), T), "of the layout torch.sparse_coo; pass tensor.to_dense()"),
    "one input": (lambda t: t.step([X, X], T), "2 inputs were given, addInputs declared 1: x"),
    "a row of numbers": (lambda t: t.step([1.0, 2.0], T), "a row of numbers is an array: np.array(numbers, np.float32)"),
    "fewer inputs": (lambda t: t.step(X[:4], T), "4 in the input 'x', 8 in the label 't'"),
    "fewer labels": (lambda t: t.step(X, T[:4]), "8 in the input 'x', 4 in the label 't'"),
    "no samples": (lambda t: t.fit([(X[8:], T[8:])]), "a batch has no samples: the input 'x' is an array without rows"),
    "classes": (lambda t: t.step(X, T[:, 0]), "its shape is [8], and each of its 8 samples takes [2]"),
    "bytes of too few": (lambda t: t.step(X, data(memoryview(T[:, 0].tobytes()))), "for each sample of a batch give a row of"),
    "transposed": (lambda t: t.step(X.T, T), "is an array of shape [6, 8], the tensor's shape is [8, 6]"),
    "an unknown name": (lambda t: t.step({"X": X}, {"t": T}), "inputsData names 'X'; addInputs declared for it: x; closest: x"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_told_with_what_is_expected(case, caplog):
    """Each is raised, once, and nothing has been trained."""
    training, (call, words) = program(), WRONG[case]
    before = training.layers[0].weights.numpy().copy()
    with pytest.raises((TypeError, ValueError)) as found:
        call(training)
    assert words in str(found.value)
    assert not caplog.records and np.array_equal(training.layers[0].weights.numpy(), before)


def test_a_graph_that_is_not_ready_says_what_to_do():
    graph, x = MLCGraph(), placeholder(BATCH, 6)
    graph.node(dense(6, 2), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    for call in (lambda: training.step(X, T), lambda: training.fit([(X, T)]), lambda: training.evaluate([(X, T)])):
        with pytest.raises(
            MLCRefusal, match=r"MLCTrainingGraph: the graph is not compiled; call compile\(options:device:\)"
        ):
            call()
    assert training.compile(options=[], device=cpu())
    with pytest.raises(TypeError, match="1 input was given, addInputs declared 0: name it in its inputs"):
        training.step(X, T)


def test_one_input_of_two_is_counted_in_the_singular():
    graph, x, y, t = MLCGraph(), placeholder(BATCH, 6), placeholder(BATCH, 6), placeholder(BATCH, 6)
    graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, y])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"x": x, "y": y}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    with (
        pytest.warns(MLCTrainingWarning),
        pytest.raises(TypeError, match="1 input was given, addInputs declared 2: x, y"),
    ):
        training.step(X, X)


def test_without_an_optimizer_it_warns_once_for_a_compiled_graph():
    training = program()
    training._optimizer = None
    training._changed()
    with pytest.warns(MLCTrainingWarning, match="no optimizer, so that step and fit change no parameter"):
        training.fit(batches(), progress=False)
    training.step(X, T)


def test_an_epoch_is_an_entry_of_the_history():
    history = program().fit(batches(), epochs=3, progress=False)
    assert history[0] is history.epochs[0] and history[-1] is history.epochs[-1] and list(history) == history.epochs
    assert history[1:] == history.epochs[1:] and len(history) == 3
    with pytest.raises(TypeError, match="history\\['loss'\\] does not exist.*best, epochs, losses, plot, step_losses"):
        history["loss"]


@pytest.mark.parametrize("count", [4, 5])
def test_accumulated_gradients_are_those_of_one_large_batch(count):
    """Two batches to an update; the fifth, and the smaller one, has an update for itself."""
    training = program()
    reference, given = Reference.of(training), [*batches(count - 1), *batches(1, 3)]
    history = training.fit(given, accumulate=2, progress=False)
    losses = []
    for first in range(0, count, 2):
        pair = given[first : first + 2]
        losses += [reference.loss(x, t) for x, t in pair]
        reference.step(*(np.concatenate(parts) for parts in zip(*pair, strict=True)))
    assert history.step_losses == pytest.approx(losses, rel=1e-4)
    same(training, reference)


BETWEEN = {
    "evaluate": lambda training: training.evaluate([batches(1)[0]]),
    "isUpdatable": lambda training: setattr(training.layers[0].biasesParameter, "isUpdatable", True),
    "asked": lambda training: training.resultGradientTensors(for_=training.layers[0]),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_what_happens_between_accumulated_batches_takes_nothing_away(what):
    """A generator that fills its arrays anew for each batch, and does something before, between and behind them."""
    training = program()
    reference, parts = Reference.of(training), batches(4)

    def given():
        x, t = (np.empty_like(part) for part in parts[0])
        for source, label in parts:
            x[:], t[:] = source, label
            BETWEEN[what](training)
            yield x, t
        BETWEEN[what](training)

    training.fit(given, progress=False, accumulate=2)
    for first in (0, 2):
        reference.step(*(np.concatenate(two) for two in zip(*parts[first : first + 2], strict=True)))
    same(training, reference)


def test_what_runs_behind_a_last_smaller_group_takes_its_gradients():
    """A generator that looks at the graph behind its last batch, when the last group waits for its update."""
    training = program()
    x, t = batches(1)[0]

    def given():
        yield from batches(3)
        training.evaluate([(x, t)])

    with pytest.raises(MLCRefusal, match="their gradients are gone"):
        training.fit(given, progress=False, accumulate=2)
    reference = Reference.of(training)
    assert training.step(x, t) == pytest.approx(reference.step(x, t), rel=1e-4)
    same(training, reference)


def test_a_generator_sees_the_update_behind_its_batches():
    """Two batches to an update, and each is passed before the next one is asked for."""
    training = program()
    seen: list[float] = []

    def given():
        for part in batches(4):
            seen.append(training.evaluate([batches(1)[0]]))
            yield part

    training.fit(given, progress=False, accumulate=2)
    assert seen[0] == seen[1] > seen[2] == seen[3]


def test_other_trained_tensors_between_accumulated_batches_are_refused():
    training = program()

    def given():
        yield from batches(2)
        assert training.stopGradient(for_=[training.layers[0].biases])
        assert training.compile(options=[], device=cpu())
        yield from batches(1)

    with pytest.raises(MLCRefusal, match="other tensors are trained"):
        training.fit(given, progress=False, accumulate=3)
    assert training.step(*batches(1)[0]) > 0


def test_what_is_asked_late_of_accumulated_batches_is_no_other_batch_s():
    """The arrays hold something else by then."""
    training = program(optimizes=False)
    x, t = batches(1)[0]
    with pytest.warns(MLCTrainingWarning, match="no optimizer"):
        training.fit([(x, t)] * 2, accumulate=2, progress=False)
    x[:] = 3
    (gradient,) = training.resultGradientTensors(for_=training.layers[0])
    with pytest.raises(ValueError, match="holds no data"):
        gradient.numpy()


def test_accumulated_batches_stay_bound_to_nothing():
    training = program()
    x, t = batches(1)[0]
    training.fit(batches(3), progress=False, accumulate=2)
    for missing, call in (("label 't'", lambda: training.step(x)), ("input 'x'", lambda: training.step({}, t))):
        with pytest.raises(MLCRefusal, match=f"no data for the {missing}"):
            call()


def test_accumulated_gradients_of_two_threads_are_each_their_own():
    """At rate 0 the weights stay, so that every update is given one of two gradients."""
    training = program(rate=0.0)
    (x, t), found = batches(1)[0], {}
    given = {"a": (x, t), "b": (x * 2, t * 0)}
    reference, seen = Reference.of(training), []
    update = training._optimizer._update

    def watched(params, gradients, *more, **how):
        seen.append(gradients[0].numpy().copy().reshape(2, 6))
        return update(params, gradients, *more, **how)

    training._optimizer._update = watched

    def run(name: str) -> None:
        found[name] = set(training.fit([given[name]] * 148, accumulate=4, progress=False).step_losses)

    threads = [threading.Thread(target=run, args=(name,)) for name in given]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    for name, (source, label) in given.items():
        assert [pytest.approx(reference.loss(source, label), rel=1e-5)] == list(found[name])
    slopes = [2 * (s @ reference.weights.T + reference.biases - y).T @ s / y.size for s, y in given.values()]
    which = [int(np.argmin([np.abs(g - slope).max() for slope in slopes])) for g in seen]
    assert sorted(which) == [0] * 37 + [1] * 37
    for gradient, number in zip(seen, which, strict=True):
        np.testing.assert_allclose(gradient, slopes[number], rtol=1e-4, atol=1e-5)


def test_without_an_optimizer_accumulated_batches_change_nothing_either():
    training = program(optimizes=False)
    reference = Reference.of(training)
    with pytest.warns(MLCTrainingWarning, match="no optimizer"):
        losses = training.fit(batches(3), accumulate=2, progress=False).step_losses
    assert losses == pytest.approx([reference.loss(*batch) for batch in batches(3)], rel=1e-5)
    same(training, reference)


@pytest.mark.parametrize("labels", [(), (None,), ({},)])
def test_a_loss_without_labels_is_refused(labels):
    training = program()
    x, t = batches(1)[0]
    for run in (training.evaluate, lambda given: training.fit([(x, t)], validation=given, progress=False)):
        with pytest.raises(MLCRefusal, match="evaluate: no data for the label 't'"):
            run([(x, *labels)])
    assert training.step(x, t) > 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_no_numbers(kind):
    training = program()
    x, t = batches(1)[0]
    with pytest.raises(TypeError, match="the input 'x': expected an array of numbers, got .*b"):
        training.step(kind(x.tobytes()), t)


def test_an_error_of_a_batch_names_what_it_was_given_for():
    training = program()
    x, t = batches(1)[0]
    with pytest.raises(TypeError, match="the label 't': expected an array of numbers, got .* complex128"):
        training.step(x, t.astype(complex))
    with pytest.raises(ValueError, match="the input 'x': a tensor is a torch tensor on the device meta"):
        training.step(torch.empty(x.shape, device="meta"), t)


def test_a_nan_epoch_is_never_the_best():
    history = History([Epoch(n, loss, None, 1, 1, 0.0) for n, loss in enumerate((math.nan, 2.0, 1.0, math.nan), 1)])
    assert history.best is history[2]


@pytest.mark.parametrize("answer", [7, "written", [1], None, False, np.bool_(False)])
def test_what_a_callback_gives_by_the_way_ends_nothing(answer):
    assert len(program().fit(batches(), epochs=3, callbacks=lambda epoch: answer, progress=False)) == 3


@pytest.mark.parametrize("answer", [True, np.bool_(True), np.array(True), torch.tensor(True)])
def test_a_callback_ends_training_in_python_s_words_numpy_s_or_torch_s(answer):
    assert len(program().fit(batches(), epochs=3, callbacks=lambda epoch: answer, progress=False)) == 1


def test_callbacks_may_end_training():
    seen: list[Epoch] = []

    def stop(epoch: Epoch) -> bool:
        seen.append(epoch)
        return epoch.number == 2

    history = program().fit(batches(), epochs=9, callbacks=[stop, lambda epoch: None], progress=False)
    assert seen == history.epochs and len(history) == 2
    assert len(program().fit(batches(), epochs=9, callbacks=stop, progress=False)) == 2
    assert history.stopped_because == "a callback ended training after epoch 2"


def test_early_stopping_watches_the_validation():
    training = program(rate=0.0)  # nothing gets better
    history = training.fit(batches(), epochs=9, validation=batches(1), patience=2, progress=False)
    assert len(history) == 3 and history.stopped_because == "no better loss for 2 epochs"
    learning = program().fit(batches(), epochs=9, patience=2, progress=False)
    assert len(learning) == 9
    demanding = program().fit(batches(), epochs=9, patience=1, min_delta=100.0, progress=False)
    assert len(demanding) == 2


def test_a_loss_that_is_no_number_is_warned_of():
    training = program(rate=1e30)
    with pytest.warns(MLCTrainingWarning, match="the loss is NaN"):
        training.fit(batches(), progress=False)


def test_label_weights_are_the_third_of_a_batch():
    graph, x, t, w = MLCGraph(), placeholder(BATCH, 6), placeholder(BATCH, 2), placeholder(BATCH, 1)
    graph.node(dense(6, 2), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.0))
    assert training.addInputs({"x": x}, lossLabels={"t": t}, lossLabelWeights={"w": w})
    assert training.compile(options=[], device=cpu())
    given, label = batches(1)[0]
    half = np.array([[1.0]] * 4 + [[0.0]] * 4, np.float32)
    want = Reference.of(training).loss(given[:4], label[:4]) / 2
    assert training.step(given, label, half) == pytest.approx(want, rel=1e-4)


# What it shows


def test_the_bar_shows_the_loss():
    pytest.importorskip("tqdm")
    text = io.StringIO()
    with redirect_stderr(text):
        program().fit(batches(), epochs=2, validation=batches(1), progress=True)
    assert "epoch 2/2" in text.getvalue() and "validation=" in text.getvalue()
    text = io.StringIO()
    with redirect_stderr(text):
        program().fit(batches())
    assert text.getvalue() == "", "nobody watches"


class Stream(torch.utils.data.IterableDataset):
    """Samples that come one by one; how many there will be is not known."""

    def __iter__(self):
        for x, t in batches():
            yield from zip(torch.from_numpy(x), torch.from_numpy(t), strict=True)


class Counted:
    """Batches with an answer to ``len``."""

    def __init__(self, answer: int | Exception) -> None:
        self.answer = answer

    def __iter__(self):
        return iter(batches())

    def __len__(self) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("progress", [None, True])
@pytest.mark.parametrize(
    ("given", "total"),
    [
        (lambda: torch.utils.data.DataLoader(Stream(), BATCH), None),
        (lambda: Counted(TypeError("nobody knows")), None),
        (lambda: Counted(NotImplementedError()), None),
        (lambda: (batch for batch in batches()), None),
        (lambda: Counted(4), 4),
        (lambda: iter(batches()), 4),
    ],
    ids=["a stream", "TypeError", "NotImplementedError", "a generator", "a list", "an iterator that knows"],
)
def test_batches_need_not_know_how_many_they_are(given, total, progress):
    pytest.importorskip("tqdm")
    text = io.StringIO()
    with redirect_stderr(text):
        training = program()
        reference = Reference.of(training)
        history = training.fit(given(), progress=progress)
    for x, t in batches():
        reference.step(x, t)
    same(training, reference)
    assert history[0].steps == 4
    if progress:
        assert f" 4/{total} " in text.getvalue() if total else " 4batch " in text.getvalue(), text.getvalue()


def test_what_a_program_s_own_len_raises_is_raised():
    pytest.importorskip("tqdm")
    with pytest.raises(ZeroDivisionError, match="by mistake"):
        program().fit(Counted(ZeroDivisionError("by mistake")))


@pytest.mark.parametrize("progress", [None, True])
def test_where_there_is_no_standard_error_there_is_no_bar(monkeypatch, progress):
    """As under pythonw, in a program with windows, in a service."""
    pytest.importorskip("tqdm")
    closed = io.StringIO()
    closed.close()
    for nobody in (None, closed):
        monkeypatch.setattr(sys, "stderr", nobody)
        training = program()
        reference = Reference.of(training)
        assert len(training.fit(batches(1), progress=progress)) == 1
        reference.step(*batches(1)[0])
        same(training, reference)


def without(monkeypatch, package: str) -> None:
    """Let this package be missing."""
    for name in [n for n in sys.modules if n.partition(".")[0] == package or n == "torch.utils.tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


def test_it_runs_without_tqdm(monkeypatch):
    without(monkeypatch, "tqdm")
    assert len(program().fit(batches())) == 1
    with pytest.raises(ModuleNotFoundError, match="a progress bar needs tqdm: python -m pip install tqdm"):
        program().fit(batches(), progress=True)


def test_the_history_without_matplotlib(monkeypatch):
    without(monkeypatch, "matplotlib")
    history = program().fit(batches(), progress=False)
    assert history._repr_png_() is None and repr(history).startswith("epoch  loss")
    with pytest.raises(ModuleNotFoundError, match="a plot needs matplotlib: python -m pip install"):
        history.plot()


def test_tensorboard_is_asked_for_by_its_package(monkeypatch, tmp_path):
    without(monkeypatch, "tensorboard")
    with pytest.raises(ModuleNotFoundError, match="TensorBoard needs its package: python -m pip install"):
        program().fit(batches(), tensorboard=tmp_path, progress=False)


class Written(list):
    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.append((name, value, step))


def test_tensorboard_gets_the_numbers():
    writer = Written()
    history = program().fit(batches(2), epochs=2, validation=batches(1), tensorboard=writer, progress=False)
    assert [w for w in writer if w[0] == "loss/step"] == [
        ("loss/step", value, step) for step, value in enumerate(history.step_losses, 1)
    ]
    assert [w for w in writer if w[0] == "loss/training"] == [
        ("loss/training", e.loss, e.number) for e in history.epochs
    ]
    assert [w[1] for w in writer if w[0] == "loss/validation"] == history.validation_losses


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own imports
def test_tensorboard_writes_into_a_folder(tmp_path):
    pytest.importorskip("tensorboard")
    program().fit(batches(), tensorboard=tmp_path / "run", progress=False)
    assert [p.name for p in (tmp_path / "run").iterdir() if p.name.startswith("events.")]


def test_the_history_draws_and_prints_itself(tmp_path):
    pytest.importorskip("matplotlib")
    history = program().fit(batches(), epochs=3, validation=batches(1), progress=False)
    for wrong in (5, b"loss.png"):
        with pytest.raises(TypeError, match=rf"History.plot: argument 'path' expects a path .*, got {wrong!r}"):
            history.plot(wrong)
    figure = history.plot(tmp_path / "loss.png")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["training", "validation"]
    assert axes.lines[0].get_ydata() == pytest.approx(history.losses)
    assert axes.lines[1].get_ydata() == pytest.approx(history.validation_losses)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert history._repr_png_().startswith(b"\x89PNG") and History()._repr_png_() is None
    lines = str(history).splitlines()
    assert len(lines) == 4 and lines[1].split()[:2] == ["1", f"{history.epochs[0].loss:.6g}"]


def test_integer_inputs_keep_their_type():
    """An embedding's indices are converted to what was declared."""
    from mlc_torch import MLCEmbeddingDescriptor, MLCEmbeddingLayer
    from tests.layers.records import tensor

    rows = values(5, 2)
    layer = MLCEmbeddingLayer(
        descriptor=MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=2), weights=tensor(rows)
    )
    graph, x, t = MLCGraph(), placeholder(4, 3, type_=MLCDataType.int32), placeholder(4, 3, 2)
    graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.0))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    indices = np.random.default_rng(0).integers(0, 5, (4, 3))
    want = float((rows[indices] ** 2).mean())
    assert training.step(indices, np.zeros((4, 3, 2))) == pytest.approx(want, rel=1e-4)
    for wrong, says in (
        (2**32 + 1, "4294967297, which is 1 as (torch.)?int32"),
        (0.7, "0.7, which is 0 as (torch.)?int32"),
    ):
        for wrap in (np.asarray, torch.as_tensor):
            given = np.array(indices, type(wrong))
            given[1, 2] = wrong
            with pytest.raises(ValueError, match=says):
                training.step(wrap(given), np.zeros((4, 3, 2)))
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match=r"is a sparse matrix \(csr_matrix\); pass matrix.toarray\(\)"):
        training.step(sparse.csr_matrix(indices), np.zeros((4, 3, 2)))
    with pytest.raises(TypeError, match=r"matrix.toarray\(\) makes one of a sparse matrix"):
        training.bindAndWriteData({"x": sparse.csr_matrix(indices)}, forInputs={"x": x}, to=cpu(), synchronous=True)
    with pytest.raises(TypeError, match="got one of Python objects"):
        training.step(indices, np.full((4, 3, 2), None))
    assert training.step(indices.astype(float), np.zeros((4, 3, 2))) == pytest.approx(want, rel=1e-4)
