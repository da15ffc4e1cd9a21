"""Handlers that fail: what they raise comes out of the call, the step was made, and the next one is the twin's.

And a program's own modules and optimizers that refuse in the middle of a step: it was not made.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer, TorchOptimizer
from mlc_torch.refusals import MLCRefusal, refuse
from tests.disturbance.subjects import BATCH, NETWORKS, RULES, Pair, Subject, normalized
from tests.interop.programs import dense, device, empty, normalization, numbers, settings, squared_error


class Own(Exception):
    """The program's."""


def raising(error: BaseException) -> Any:
    def handler(result: Any, problem: Any, seconds: float) -> None:
        raise error

    return handler


def asserting(result: Any, error: Any, seconds: float) -> None:
    assert result == 3, "a test's own"


def typo(result: Any, error: Any, seconds: float) -> None:
    result.nunpy()


def refusing(result: Any, error: Any, seconds: float) -> None:
    refuse("the program's own refusal")


def strictly(result: Any, error: Any, seconds: float) -> None:
    with mlc.strict():
        mlc.MLCTensor(shape=[])


HANDLERS: dict[str, tuple[Any, type[BaseException]]] = {
    "an assertion": (asserting, AssertionError),
    "a typo": (typo, AttributeError),
    "too few arguments": (lambda result: None, TypeError),
    "too many arguments": (lambda a, b, c, d: None, TypeError),
    "its own exception": (raising(Own("handler")), Own),
    "a refusal": (refusing, MLCRefusal),
    "a refusal in strict mode": (strictly, MLCRefusal),
    "Ctrl-C": (raising(KeyboardInterrupt()), KeyboardInterrupt),
    "SystemExit": (raising(SystemExit(3)), SystemExit),
    "lack of memory": (raising(MemoryError("handler")), MemoryError),
    "torch's error": (raising(RuntimeError("handler")), RuntimeError),
}
failing = pytest.mark.parametrize(("handler", "error"), HANDLERS.values(), ids=HANDLERS.keys())
networks = pytest.mark.parametrize("network", NETWORKS)


@failing
@networks
def test_execute(network, handler, error):
    pair = Pair(NETWORKS[network])
    answer = pair.disturb(
        lambda one, step: one.execute(step, completionHandler=tell(pair, one, handler)), nullcontext()
    )
    assert isinstance(answer, error)


def tell(pair: Pair, one: Subject, handler: Any) -> Any:
    """Only the subject's handler fails, and only at its first call."""
    if one is pair.twin:
        return lambda *given: None
    return handler


@failing
@pytest.mark.parametrize("phase", [Subject.forward, Subject.gradient, Subject.update], ids=lambda phase: phase.__name__)
def test_a_phase(phase, handler, error):
    """The phase is done when its handler is called, so the others follow it."""
    pair = Pair(normalized)
    for one in pair.both():
        assert one.bind(pair.step)
        for each in (Subject.forward, Subject.gradient, Subject.update):
            if each is phase and one is pair.subject:
                with pytest.raises(error):
                    each(one, pair.step, completionHandler=handler)
            else:
                assert each(one, pair.step), mlc.last_refusal()
    pair.others_can_call()
    pair.step += 1
    pair.agree()
    pair.together()


@failing
def test_inference(handler, error):
    pair = Pair(normalized)
    with pytest.raises(error):
        pair.subject.infer(1, completionHandler=handler)
    pair.others_can_call()
    assert pair.subject.predictions(2).tobytes() == pair.twin.predictions(2).tobytes()
    pair.together()


@failing
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_of_a_refused_call(strict, handler, error):
    """Its exception is raised, with the refusal as its cause."""
    pair = Pair(normalized)
    with mlc.strict(strict), pytest.raises(error) as raised:
        pair.subject.execute(pair.step, batch=99, completionHandler=handler)
    if issubclass(error, Exception):
        assert isinstance(raised.value.__cause__, MLCRefusal) and "batchSize is 99" in str(raised.value.__cause__)
    pair.others_can_call()
    pair.together()


class Refusing(torch.nn.Module):
    """Passes everything on, until it is told to refuse."""

    refuses = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.refuses:
            refuse("the program's own refusal")
        return x * 1.0


def with_a_module(module: Refusing, optimizer: str = "Adam") -> Subject:
    """The module stands behind a normalization, whose statistics have moved when it refuses."""
    x, graph, norm, head = empty(BATCH, 5, 1, 1), mlc.MLCGraph(), normalization(5), dense(5, 2, "head", 1)
    y = graph.node(TorchLayer(module), source=graph.node(norm, source=x))
    y = graph.node(head, source=graph.reshape(shape=[BATCH, 5], source=y))
    trained, plain = [head.weights, head.biases, norm.gamma, norm.beta], [mlc.MLCGraphCompilationOptions.debugLayers]
    return Subject(graph, x, y, RULES[optimizer](graph), trained, [norm.mean, norm.variance], options=plain)


@pytest.mark.parametrize("call", [Subject.execute, Subject.short], ids=["whole", "short"])
def test_a_module_that_refuses_in_the_middle(call):
    module = Refusing()
    pair = Pair(lambda: with_a_module(module))
    module.refuses = True
    before, moved = pair.subject.learned(), pair.subject.moved()
    assert call(pair.subject, pair.step) is False and "own refusal" in str(mlc.last_refusal())
    module.refuses = False
    assert pair.subject.learned() == before and all(map(torch.equal, pair.subject.moved(), moved))
    pair.together(call)


def test_an_optimizer_that_refuses_in_the_middle():
    """It holds none of the graph's parameters, which is seen only when it is to update them."""
    pair = Pair(normalized)
    stranger = TorchOptimizer(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))
    own, moved = pair.subject.rule, pair.subject.moved()
    for rule, answer in ((stranger, False), (own, True)):
        assert pair.subject.training.compileOptimizer(rule)
        if rule is own:
            assert pair.twin.training.compileOptimizer(pair.twin.rule)
        assert all(map(torch.equal, pair.subject.moved(), moved))
        assert pair.subject.execute(pair.step) is answer
    assert pair.twin.execute(pair.step)
    assert all(map(torch.equal, pair.subject.moved(), pair.twin.moved()))


def test_another_graph_s_steps_stand_whatever_becomes_of_a_step_that_began_before():
    x, t, graph, layer = empty(8, 3, 2, 2), empty(8, 3, 2, 2), mlc.MLCGraph(), normalization(3)
    y = graph.node(layer, source=x)

    def trained(rule: mlc.MLCOptimizer | None) -> mlc.MLCTrainingGraph:
        made = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
        assert made.addInputs({"x": x}, lossLabels={"t": t}) and made.compile(options=[], device=device())
        return made

    # The other one moves statistics and no weights, which would take this step's forward pass from it.
    first, second = trained(mlc.MLCSGDOptimizer(descriptor=settings())), trained(None)
    want = torch.nn.BatchNorm2d(3, momentum=0.1)

    def refusing(gradient: torch.Tensor) -> None:
        raise ValueError("the program's own")

    first.register_gradient_hook(y, refusing)
    labels = numbers(8, 3, 2, 2)
    batches = [numbers(8, 3, 2, 2, seed=k) + k for k in range(4)]
    for batch in batches:
        want(torch.from_numpy(batch))
    given = {"x": batches[0], "t": labels}
    assert first.bindAndWriteData(given, forInputs={"x": x, "t": t}, to=device(), synchronous=True)
    assert first.executeForward(batchSize=0)
    for batch in batches[1:]:
        given = {"inputsData": {"x": batch}, "lossLabelsData": {"t": labels}, "lossLabelWeightsData": None}
        assert second.execute(**given, batchSize=0)
    with pytest.raises(ValueError, match="the program's own"):
        first.executeGradient(batchSize=0)
    torch.testing.assert_close(torch.from_numpy(layer.mean.numpy().ravel()), want.running_mean)
