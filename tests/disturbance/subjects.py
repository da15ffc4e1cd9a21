"""Small training programs that are disturbed, and how one is compared with a twin that is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mlc_torch as mlc
from mlc_torch.interop import TorchOptimizer, load_checkpoint, save_checkpoint
from tests.interop.programs import data, dense, device, empty, holding, normalization, numbers, settings, squared_error

BATCH = 4
SECONDS = 60
"""How long a call of another thread may take before it counts as hanging. The machine may be busy."""


@dataclass
class Subject:
    """A training graph, an inference graph over the same layers, and numbers for any step."""

    graph: mlc.MLCGraph
    x: mlc.MLCTensor
    y: mlc.MLCTensor
    rule: mlc.MLCOptimizer
    parameters: list[mlc.MLCTensor]
    statistics: list[mlc.MLCTensor] = field(default_factory=list)
    dropouts: list[mlc.MLCDropoutLayer] = field(default_factory=list)
    options: Any = ()

    def __post_init__(self) -> None:
        self.t = empty(*self.y.descriptor.shape)
        self.training = mlc.MLCTrainingGraph(graphObjects=[self.graph], lossLayer=squared_error(), optimizer=self.rule)
        assert self.training.addInputs({"x": self.x}, lossLabels={"t": self.t})
        self.inference = mlc.MLCInferenceGraph(graphObjects=[self.graph])
        assert self.inference.addInputs({"x": self.x}) and self.inference.addOutputs({"y": self.y})

    def given(self, step: int) -> tuple[dict[str, mlc.MLCTensorData], dict[str, mlc.MLCTensorData]]:
        x, t = (numbers(*tensor.descriptor.shape, seed=step + k) for k, tensor in ((1000, self.x), (2000, self.t)))
        return {"x": data(x)}, {"t": data(t)}

    # Calls, all of which answer True undisturbed

    def compile(self, step: int = 0) -> bool:
        return self.training.compile(options=list(self.options), device=device()) and self.inference.compile(
            options=[], device=device()
        )

    def execute(self, step: int, batch: int = BATCH, **more: Any) -> bool:
        x, t = self.given(step)
        return self.training.execute(inputsData=x, lossLabelsData=t, lossLabelWeightsData=None, batchSize=batch, **more)

    def short(self, step: int) -> bool:
        return self.execute(step, batch=BATCH - 1)

    def bind(self, step: int) -> bool:
        x, t = self.given(step)
        return self.training.bindAndWriteData(
            x | t, forInputs={"x": self.x, "t": self.t}, to=device(), synchronous=True
        )

    def forward(self, step: int, **more: Any) -> bool:
        return self.training.executeForward(batchSize=0, **more)

    def gradient(self, step: int, **more: Any) -> bool:
        return self.training.executeGradient(batchSize=0, **more)

    def update(self, step: int, **more: Any) -> bool:
        return self.training.executeOptimizerUpdate(**more)

    def phases(self, step: int) -> bool:
        return all(phase(self, step) for phase in PHASES)

    def infer(self, step: int, **more: Any) -> bool:
        return self.inference.execute(inputsData=self.given(step)[0], batchSize=BATCH, **more)

    def save(self, path: Path) -> bool:
        save_checkpoint(self.training, path)
        return True

    def load(self, path: Path) -> bool:
        load_checkpoint(self.training, path)
        return True

    # What they leave

    def learned(self) -> dict[str, Any]:
        """What an update changes: it changes as a whole or not at all."""
        found: dict[str, Any] = {"learning rate": self.rule.learningRate}
        if "timeStep" in type(self.rule).__properties__:
            found["time step"] = self.rule.timeStep
        if isinstance(self.rule, TorchOptimizer):
            states, found["torch"] = self.rule.saved_state()
            found |= {name: state.numpy().tobytes() for name, state in states.items()}
        for number, tensor in enumerate(self.parameters):
            found[f"parameter {number}"] = tensor.numpy().tobytes()
            for k, state in enumerate(tensor.optimizerDeviceData):
                found[f"state {k} of {number}"] = state._state.numpy().tobytes()
        return found

    def moved(self) -> list[torch.Tensor]:
        """What a forward pass in training moves on, layer by layer: running statistics and the streams of dropout."""
        values = [torch.from_numpy(tensor.numpy().copy()) for tensor in self.statistics]
        return values + [layer.module.noise.stream(torch.device("cpu")).get_state() for layer in self.dropouts]

    def move_back(self, values: list[torch.Tensor]) -> None:
        for tensor, value in zip(self.statistics, values, strict=False):
            tensor.torch.copy_(value)
        for layer, value in zip(self.dropouts, values[len(self.statistics) :], strict=True):
            layer.module.noise.stream(torch.device("cpu")).set_state(value)

    def load_from(self, twin: Subject) -> None:
        """Take over all numbers of a twin, where other roundings have been at work."""
        for a, b in zip((*self.parameters, *self.statistics), (*twin.parameters, *twin.statistics), strict=True):
            a.torch.copy_(b.torch)
            for mine, other in zip(a.optimizerDeviceData, b.optimizerDeviceData, strict=True):
                mine._state.copy_(other._state)
        self.move_back(twin.moved())

    def predictions(self, step: int) -> np.ndarray:
        assert self.infer(step), mlc.last_refusal()
        return self.y.numpy().copy()


PHASES: tuple[Callable[[Subject, int], bool], ...] = (
    Subject.bind,
    Subject.forward,
    Subject.gradient,
    Subject.update,
)


# Networks


def perceptron(optimizer: str = "Adam", options: Any = ()) -> Subject:
    """Two dense layers. A forward pass leaves nothing behind, so that every number is the twin's."""
    x, graph = empty(BATCH, 5), mlc.MLCGraph()
    first, second = dense(5, 6, "first", 0), dense(6, 3, "second", 10)
    y = graph.node(mlc.MLCActivationLayer.tanh, source=graph.node(first, source=x))
    y = graph.node(second, source=y)
    parameters = [t for layer in (first, second) for t in (layer.weights, layer.biases)]
    return Subject(graph, x, y, RULES[optimizer](graph), parameters, options=options)


def normalized(optimizer: str = "RMSProp", options: Any = ()) -> Subject:
    """Convolution, two batch normalizations, dropout with a stream of its own, a dense layer."""
    x, graph = empty(BATCH, 2, 5, 5), mlc.MLCGraph()
    weights = holding(numbers(1, 6, 3, 3))
    convolution = mlc.MLCConvolutionLayer(
        weights=weights,
        biases=None,  # the normalization behind it takes a bias away again, and its gradient would be rounding alone
        descriptor=mlc.MLCConvolutionDescriptor(
            kernelSizes=(3, 3), inputFeatureChannelCount=2, outputFeatureChannelCount=3
        ),
    )
    norms = [normalization(3), normalization(3)]
    dropout = mlc.MLCDropoutLayer(rate=0.2, seed=7)
    head = dense(75, 2, "head", 5)
    y = graph.node(norms[0], source=graph.node(convolution, source=x))
    y = graph.node(norms[1], source=graph.node(mlc.MLCActivationLayer.relu, source=y))
    y = graph.node(dropout, source=graph.reshape(shape=[BATCH, 75], source=y))
    y = graph.node(head, source=y)
    parameters = [weights, head.weights, head.biases, *(t for n in norms for t in (n.gamma, n.beta))]
    statistics = [t for n in norms for t in (n.mean, n.variance)]
    return Subject(graph, x, y, RULES[optimizer](graph), parameters, statistics, [dropout], options)


RULES: dict[str, Callable[[mlc.MLCGraph], mlc.MLCOptimizer]] = {
    "SGD": lambda graph: mlc.MLCSGDOptimizer(descriptor=settings()),
    "momentum": lambda graph: mlc.MLCSGDOptimizer(descriptor=settings(), momentumScale=0.9, usesNesterovMomentum=False),
    "Nesterov": lambda graph: mlc.MLCSGDOptimizer(descriptor=settings(), momentumScale=0.9, usesNesterovMomentum=True),
    "Adam": lambda graph: mlc.MLCAdamOptimizer(descriptor=settings(0.01)),
    "AMSGrad": lambda graph: mlc.MLCAdamOptimizer(
        descriptor=settings(0.01), beta1=0.8, beta2=0.99, epsilon=1e-7, usesAMSGrad=True, timeStep=1
    ),
    "AdamW": lambda graph: mlc.MLCAdamWOptimizer(
        descriptor=mlc.MLCOptimizerDescriptor(
            learningRate=0.01,
            gradientRescale=0.5,
            regularizationType=mlc.MLCRegularizationType.l2,
            regularizationScale=0.1,
        )
    ),
    "RMSProp": lambda graph: mlc.MLCRMSPropOptimizer(
        descriptor=settings(0.01), momentumScale=0.5, alpha=0.9, epsilon=1e-7, isCentered=True
    ),
    "torch Adam": lambda graph: TorchOptimizer(torch.optim.Adam(graph.to_module().parameters(), lr=0.01)),
    "torch SGD": lambda graph: TorchOptimizer(torch.optim.SGD(graph.to_module().parameters(), lr=0.1, momentum=0.9)),
}
NETWORKS: dict[str, Callable[..., Subject]] = {"perceptron": perceptron, "normalized": normalized}


# The comparison


class Pair:
    """A subject and its twin, which make the same steps; only the subject's are disturbed."""

    def __init__(self, make: Callable[[], Subject], steps: int = 2) -> None:
        self.subject, self.twin, self.step = make(), make(), 0
        for one in self.both():
            assert one.compile()
        for _ in range(steps):
            self.together()

    def both(self) -> tuple[Subject, Subject]:
        return self.subject, self.twin

    def together(self, call: Callable[[Subject, int], bool] = Subject.execute) -> None:
        """One undisturbed step of both, after which they agree."""
        for one in self.both():
            assert call(one, self.step), mlc.last_refusal()
        self.step += 1
        self.agree()

    def agree(self) -> None:
        assert self.subject.learned() == self.twin.learned()
        assert all(torch.equal(a, b) for a, b in zip(self.subject.moved(), self.twin.moved(), strict=True))

    def disturb(self, call: Callable[[Subject, int], bool], disturbance: AbstractContextManager[Any]) -> Any:
        """Make a whole step, disturbed; then the two agree again. Gives the answer, or what was raised.

        The step was made or it was not, and then it can be made again.
        """
        subject, before, moved = self.subject, self.subject.learned(), self.subject.moved()
        answer = self.answer_of(lambda: call(subject, self.step), disturbance)
        self.others_can_call()
        assert call(self.twin, self.step), mlc.last_refusal()
        after, now = self.twin.learned(), subject.learned()
        assert now in (before, after), f"neither before nor after the step: {_difference(now, before, after)}"
        assert now == after or answer is not True, "it answered True and did nothing"
        if now == before and before != after:
            if call is Subject.phases:
                subject.move_back(moved)  # a forward pass counts, whatever becomes of the phases behind it
            assert all(map(torch.equal, subject.moved(), moved)), "statistics or streams have moved on without the step"
            assert call(subject, self.step), mlc.last_refusal()
        elif now == before:
            subject.move_back(self.twin.moved())
        self.step += 1
        self.agree()
        self.together()
        return answer

    def disturb_phase(self, number: int, disturbance: AbstractContextManager[Any]) -> Any:
        """Disturb one of the four calls of a step in phases. Those behind it go on or are refused, but do nothing wrong."""
        subject, before, moved = self.subject, self.subject.learned(), self.subject.moved()
        for phase in PHASES[:number]:
            assert phase(subject, self.step), mlc.last_refusal()
        answer = self.answer_of(lambda: PHASES[number](subject, self.step), disturbance)
        self.others_can_call()
        assert self.twin.phases(self.step), mlc.last_refusal()
        after = self.twin.learned()
        if number == 0 and answer is not True:
            assert subject.bind(self.step)  # half of the data may have been bound
        going = True
        for phase in PHASES[number + 1 :]:
            going = going and phase(subject, self.step)
        now = subject.learned()
        assert now in (before, after), f"neither before nor after the step: {_difference(now, before, after)}"
        assert now == after or answer is not True, "it answered True, and the step could not be finished"
        if now == before:
            subject.move_back(moved)
            assert subject.phases(self.step), mlc.last_refusal()
        else:
            subject.move_back(self.twin.moved())
        self.step += 1
        self.agree()
        self.together()
        self.together(Subject.phases)
        return answer

    def answer_of(self, call: Callable[[], Any], disturbance: AbstractContextManager[Any]) -> Any:
        try:
            with disturbance:
                return call()
        except BaseException as error:  # noqa: BLE001 - Ctrl-C is one of them
            return error
        finally:
            self.why = str(mlc.last_refusal())

    def others_can_call(self) -> None:
        """No lock is held any more: another thread gets an answer."""
        done = threading.Event()

        def call() -> None:
            self.subject.training.synchronizeUpdates()
            done.set()

        threading.Thread(target=call, daemon=True).start()
        assert done.wait(SECONDS), "a lock is held for ever"


def _difference(now: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> str:
    said = []
    for name in before | after | now:
        if now.get(name) == before.get(name) != after.get(name):
            said.append(f"{name} is as before")
        elif now.get(name) != before.get(name):
            said.append(f"{name} is {'as after' if now.get(name) == after.get(name) else 'neither'}")
    return ", ".join(said)
