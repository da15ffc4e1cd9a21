"""Random sequences of calls over one program, held to a model of what each call must answer and to a twin in plain torch.

The model is written from the contract, not from the library: which phase may follow which, what is refused and by which
name, how often a handler is called. ``tox run -e slow`` runs 2,000 programs, the ordinary run 150; fewer on a GPU.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch.nn import functional as F

from mlc_torch import (
    MLCActivationLayer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.running.completion import wait_for_handlers
from tests.graph.programs import on

BATCH, INPUTS, HIDDEN, OUTPUTS = 4, 6, 5, 3
RATE = 0.05
Run = MLCExecutionOptions


def memory(array: np.ndarray) -> MLCTensorData:
    return MLCTensorData(bytesNoCopy=array, length=array.nbytes)


def dense(weights: MLCTensor, inputs: int, outputs: int) -> MLCFullyConnectedLayer:
    bias = MLCTensor(shape=[1, outputs, 1, 1], fillWithData=0.1, dataType=MLCDataType.float32)
    descriptor = MLCConvolutionDescriptor(
        kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
    )
    return MLCFullyConnectedLayer(weights=weights, biases=bias, descriptor=descriptor)


def weight_tensor(array: np.ndarray) -> MLCTensor:
    return MLCTensor(shape=[1, array.size, 1, 1], data=memory(array), dataType=MLCDataType.float32)


@dataclass
class Twin:
    """The same network by hand: what it computes, and which phase it is in."""

    parameters: list[torch.Tensor]
    phase: str = "idle"
    samples: int = 0
    updates: list[bool] = field(default_factory=lambda: [True] * 4)
    loss: torch.Tensor | None = None
    rate: float = RATE

    def predict(self, x: np.ndarray) -> torch.Tensor:
        w1, b1, w2, b2 = self.parameters
        return F.linear(F.relu(F.linear(torch.from_numpy(x), w1, b1)), w2, b2)

    def forward(self, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, float]:
        predicted = self.predict(x)
        self.loss = F.mse_loss(predicted, torch.from_numpy(t))
        self.phase, self.samples = "forward", len(x)
        return predicted.detach().numpy(), float(self.loss.detach())

    def gradient(self, from_user: np.ndarray | None = None) -> None:
        assert self.loss is not None
        self.gradients = torch.autograd.grad(self.loss, self.parameters)
        self.phase = "gradient"

    def update(self) -> None:
        for parameter, gradient, updates in zip(self.parameters, self.gradients, self.updates, strict=True):
            if updates:
                parameter.data -= self.rate * gradient
        self.phase = "updated"


@dataclass
class Style:
    """How a program happens to write a call."""

    handler: bool
    outputs: bool
    selector: bool
    options: list
    in_thread: bool


STYLES = st.builds(
    Style,
    handler=st.booleans(),
    outputs=st.booleans(),
    selector=st.booleans(),
    options=st.sampled_from([[], [Run.synchronous]]),
    in_thread=st.sampled_from([False, False, False, True]),
)
SAMPLES = st.sampled_from([0, BATCH, BATCH, 1, 3])
SEEDS = st.integers(0, 10_000)


class Calls(RuleBasedStateMachine):
    """A perceptron that is trained and asked in every style, and a second graph over one of its input tensors."""

    device: MLCDevice

    @initialize(seed=SEEDS)
    def make(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        first = (rng.standard_normal((HIDDEN, INPUTS)) * 0.4).astype(np.float32)
        second = (rng.standard_normal((OUTPUTS, HIDDEN)) * 0.4).astype(np.float32)
        self.x, self.t = MLCTensor(shape=[BATCH, INPUTS]), MLCTensor(shape=[BATCH, OUTPUTS])
        self.graph = MLCGraph()
        layers = [
            dense(weight_tensor(first.copy()), INPUTS, HIDDEN),
            dense(weight_tensor(second.copy()), HIDDEN, OUTPUTS),
        ]
        hidden = self.graph.node(layers[0], source=self.x)
        active = self.graph.node(MLCActivationLayer.relu, source=hidden)
        self.y = self.graph.node(layers[1], source=active)
        self.layers = layers
        self.parameters = [p for layer in layers for p in (layer.weights, layer.biases)]
        self.training = MLCTrainingGraph(
            graphObjects=[self.graph],
            lossLayer=MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1),
            optimizer=MLCSGDOptimizer(
                descriptor=MLCOptimizerDescriptor(
                    learningRate=RATE,
                    gradientRescale=1,
                    regularizationType=MLCRegularizationType.none,
                    regularizationScale=0,
                )
            ),
        )
        assert self.training.addInputs({"x": self.x}, lossLabels={"t": self.t})
        assert self.training.addOutputs({"y": self.y})
        assert self.training.compile(options=[], device=self.device)
        self.twin = Twin(
            [torch.from_numpy(first), torch.full((HIDDEN,), 0.1), torch.from_numpy(second), torch.full((OUTPUTS,), 0.1)]
        )
        for p in self.twin.parameters:
            p.requires_grad_()
        self.bound: dict[str, np.ndarray] = {}
        self.known = dict.fromkeys("xt", 0)
        """How many samples were ever bound."""
        self.shared: tuple[MLCInferenceGraph, MLCTensor] | None = None

    # Making calls in a style

    def numbers(self, seed: int, *shape: int) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

    def call(self, style: Style, swift: str, labels: dict, selector: str) -> tuple[bool, list, np.ndarray | None]:
        """Make the call; gives its answer, what the handler saw, and the output buffer."""
        seen: list = []
        buffer = np.full((BATCH, OUTPUTS), 7, np.float32) if style.outputs and "outputsData" in labels else None
        labels = dict(labels)
        if "outputsData" in labels:
            if buffer is None:
                labels.pop("outputsData")
            else:
                labels["outputsData"] = {"y": memory(buffer)}
        labels["options"] = style.options
        if style.handler or style.selector:
            handler = (
                (lambda r, e, s: seen.append((None if r is None else r.numpy().copy(), e))) if style.handler else None
            )
            labels["completionHandler"] = handler
        answers: list = []

        def work() -> None:
            if style.selector:
                names = selector.split(":")[:-1]
                if buffer is None:
                    names = [n for n in names if n != "outputsData"]
                flat = {k[0].lower() + k[1:]: v for k, v in labels.items()}
                values = [
                    flat[(n.partition("With")[2] or n)[0].lower() + (n.partition("With")[2] or n)[1:]] for n in names
                ]
                answers.append((getattr(self.training, "_".join(names) + "_")(*values), last_refusal()))
            else:
                answers.append((getattr(self.training, swift)(**labels), last_refusal()))

        if style.in_thread:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
        assert wait_for_handlers() == []  # on a GPU they, and output buffers, come when it has computed
        ((answer, self.refusal),) = answers
        if style.handler:
            assert len(seen) == 1, "a handler is called once"
        else:
            assert seen == []
        return answer, seen, buffer

    def expect_refusal(self, style: Style, answer: bool, seen: list, member: str, *words: str) -> None:
        assert answer is False
        assert self.refusal is not None and member in str(self.refusal), f"{self.refusal} should name {member}"
        assert all(word in str(self.refusal) for word in words), str(self.refusal)
        if style.handler:
            result, error = seen[0]
            assert result is None and error is self.refusal

    def member(self, style: Style, name: str, phase_labels: str) -> str:
        """The overload that was called, in Swift's words."""
        return f"MLCTrainingGraph.{name}({phase_labels})"

    # One call

    def execute_labels(self, x, t, samples: int) -> dict:
        given = {"inputsData": {"x": memory(x)}, "lossLabelsData": {"t": memory(t)}, "lossLabelWeightsData": None}
        return {**given, "outputsData": None, "batchSize": samples}

    EXECUTE = (
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:outputsData:batchSize:options:completionHandler:"
    )

    def execute_name(self, style: Style) -> str:
        outputs = "outputsData:" if style.outputs else ""
        data = f"inputsData:lossLabelsData:lossLabelWeightsData:{outputs}"
        return f"MLCTrainingGraph.execute({data}batchSize:options:completionHandler:)"

    @rule(seed=SEEDS, samples=SAMPLES, style=STYLES)
    def execute(self, seed: int, samples: int, style: Style) -> None:
        count = samples or BATCH
        x, t = self.numbers(seed, BATCH, INPUTS), self.numbers(seed + 1, BATCH, OUTPUTS)
        answer, seen, buffer = self.call(style, "execute", self.execute_labels(x, t, samples), self.EXECUTE)
        assert answer is True, last_refusal()
        predicted, loss = self.twin.forward(x[:count], t[:count])
        self.twin.gradient()
        self.twin.update()
        if buffer is not None:
            np.testing.assert_allclose(buffer[:count], predicted, rtol=1e-4, atol=1e-5)
            assert (buffer[count:] == 7).all()
        if style.handler:
            np.testing.assert_allclose(seen[0][0], [loss], rtol=1e-4, atol=1e-6)
            assert seen[0][1] is None

    @rule(
        seed=SEEDS,
        style=STYLES,
        spoil=st.sampled_from(
            ["too many", "negative", "no input", "short input", "unknown output", "read-only output"]
        ),
    )
    def execute_refused(self, seed: int, style: Style, spoil: str) -> None:
        x, t = self.numbers(seed, BATCH, INPUTS), self.numbers(seed + 1, BATCH, OUTPUTS)
        labels = self.execute_labels(x, t, BATCH)
        if spoil in ("unknown output", "read-only output"):
            style = Style(style.handler, False, False, style.options, style.in_thread)
            bad = {"z": memory(x)} if spoil == "unknown output" else {"y": memory(np.frombuffer(bytes(48), np.float32))}
            labels["outputsData"] = bad
            seen: list = []
            handler = (lambda r, e, s: seen.append((r, e))) if style.handler else None
            answer = self.training.execute(**labels, options=style.options, completionHandler=handler)
            assert wait_for_handlers() == []
            self.refusal = last_refusal()
            self.expect_refusal(
                style, answer, seen, "outputsData:batchSize", {"unknown output": "'z'"}.get(spoil, "read-only")
            )
            return
        if spoil == "too many":
            labels["batchSize"] = BATCH + 1
        elif spoil == "negative":
            labels["batchSize"] = -1
        elif spoil == "no input":
            if "x" in self.bound:
                return  # what was bound is used
            labels["inputsData"] = {}
        else:
            labels["inputsData"] = {"x": memory(x[:1])}
        before = [p.numpy().copy() for p in self.parameters]
        answer, seen, _ = self.call(style, "execute", labels, self.EXECUTE)
        self.expect_refusal(style, answer, seen, self.execute_name(style))
        for tensor, old in zip(self.parameters, before, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), old)

    # The phases

    @rule(seed=SEEDS, samples=SAMPLES, selector=st.booleans())
    def bind(self, seed: int, samples: int, selector: bool) -> None:
        count = samples or BATCH
        x, t = self.numbers(seed, BATCH, INPUTS), self.numbers(seed + 1, BATCH, OUTPUTS)
        given, tensors = {"x": memory(x), "t": memory(t)}, {"x": self.x, "t": self.t}
        if selector:
            assert self.training.bindAndWriteData_forInputs_toDevice_batchSize_synchronous_(
                given, tensors, self.device, samples, True
            )
        elif samples:
            assert self.training.bindAndWriteData(
                given, forInputs=tensors, to=self.device, batchSize=samples, synchronous=True
            )
        else:
            assert self.training.bindAndWriteData(given, forInputs=tensors, to=self.device, synchronous=True)
        for name, new in (("x", x), ("t", t)):
            whole = name == "x" and self.shared is not None  # as weights of a layer it is bound whole
            read = BATCH if whole else count
            old = self.bound.get(name, np.zeros_like(new)).copy()
            old[:read] = new[:read]
            self.bound[name] = old
            self.known[name] = max(self.known[name], read)
        if self.shared is not None:
            self.check_shared()  # as weights the tensor lies in the caller's memory
        else:
            x += 100  # the data has been read

    def phase_labels(self, samples: int | None) -> dict:
        return {"batchSize": samples, "outputsData": None} if samples is not None else {}

    @rule(samples=SAMPLES, style=STYLES)
    def forward(self, samples: int, style: Style) -> None:
        selector = "executeForwardWithBatchSize:options:outputsData:completionHandler:"
        answer, seen, buffer = self.call(style, "executeForward", self.phase_labels(samples), selector)
        outputs = "outputsData:" if style.outputs else ""
        if "x" not in self.bound:
            self.expect_refusal(
                style, answer, seen, f"executeForward(batchSize:options:{outputs}completionHandler:)", "no data"
            )
            return
        count = samples or BATCH
        if count > min(self.known.values()):
            said = f"of the {count} samples of the", "were bound; bind the others too"
            self.expect_refusal(
                style, answer, seen, f"executeForward(batchSize:options:{outputs}completionHandler:)", *said
            )
            return
        assert answer is True, last_refusal()
        predicted, loss = self.twin.forward(self.bound["x"][:count], self.bound["t"][:count])
        if buffer is not None:
            np.testing.assert_allclose(buffer[:count], predicted, rtol=1e-4, atol=1e-5)
        if style.handler:
            np.testing.assert_allclose(seen[0][0], [loss], rtol=1e-4, atol=1e-6)

    @rule(samples=st.sampled_from([0, 0, BATCH, 1]), style=STYLES)
    def gradient(self, samples: int, style: Style) -> None:
        style = Style(style.handler, False, style.selector, style.options, style.in_thread)
        selector = "executeGradientWithBatchSize:options:outputsData:completionHandler:"
        answer, seen, _ = self.call(style, "executeGradient", self.phase_labels(samples), selector)
        name = "executeGradient(batchSize:options:completionHandler:)"
        if self.twin.phase != "forward":
            self.expect_refusal(style, answer, seen, name, "executeForward")
            return
        if samples not in (0, self.twin.samples):
            self.expect_refusal(style, answer, seen, name, "batchSize")
            return
        assert answer is True, last_refusal()
        self.twin.gradient()
        for tensor, want, layer in zip(
            self.parameters, self.twin.gradients, [*self.layers[:1] * 2, *self.layers[1:] * 2], strict=True
        ):
            got = np.frombuffer(self.training.gradientData(forParameter=tensor, layer=layer), np.float32)
            np.testing.assert_allclose(got, want.numpy().ravel(), rtol=1e-3, atol=1e-5)

    @rule(style=STYLES)
    def update(self, style: Style) -> None:
        style = Style(style.handler, False, style.selector, style.options, style.in_thread)
        selector = "executeOptimizerUpdateWithOptions:completionHandler:"
        answer, seen, _ = self.call(style, "executeOptimizerUpdate", {}, selector)
        if self.twin.phase not in ("gradient", "updated"):
            name = "executeOptimizerUpdate(options:completionHandler:)"
            self.expect_refusal(style, answer, seen, name, "executeGradient")
            return
        assert answer is True, last_refusal()
        self.twin.update()

    # What happens in between

    @rule(seed=SEEDS)
    def infer(self, seed: int) -> None:
        """A pass for inference takes no labels, and leaves nothing to differentiate."""
        x, buffer = self.numbers(seed, BATCH, INPUTS), np.zeros((BATCH, OUTPUTS), np.float32)
        assert self.training.execute(
            inputsData={"x": memory(x)},
            lossLabelsData=None,
            lossLabelWeightsData=None,
            outputsData={"y": memory(buffer)},
            batchSize=BATCH,
            options=[Run.forwardForInference],
        )
        assert wait_for_handlers() == []
        np.testing.assert_allclose(buffer, self.twin.predict(x).detach().numpy(), rtol=1e-4, atol=1e-5)
        self.twin.phase = "idle"

    @rule(rate=st.sampled_from([0.0, 0.01, 0.1]))
    def set_learning_rate(self, rate: float) -> None:
        self.training.optimizer.learningRate = rate
        self.twin.rate = float(np.float32(rate))

    @rule(which=st.integers(0, 1), updates=st.booleans())
    def freeze(self, which: int, updates: bool) -> None:
        self.layers[which].weightsParameter.isUpdatable = updates
        self.twin.updates[2 * which] = updates

    @rule()
    def compile_again(self) -> None:
        assert self.training.compile(options=[], device=self.device)
        self.twin.phase = "idle"

    @rule()
    def hold_a_result(self) -> None:
        self.held = self.training.resultTensors(for_=self.layers[0])

    @precondition(lambda self: self.shared is None and "x" in self.bound)
    @rule(seed=SEEDS)
    def share(self, seed: int) -> None:
        """After a run, the input becomes the weights of a layer in another graph, and is bound again."""
        self.execute(seed, BATCH, Style(False, False, False, [], False))
        graph, source = MLCGraph(), MLCTensor(shape=[1, INPUTS])
        result = graph.node(dense(self.x, INPUTS, BATCH), source=source)
        inference = MLCInferenceGraph(graphObjects=[graph])
        assert inference.addInputs({"s": source}) and inference.compile(options=[], device=self.device)
        self.shared = (inference, result)
        self.bind(seed, 0, False)

    def check_shared(self) -> None:
        assert self.shared is not None
        inference, result = self.shared
        s = self.numbers(5, 1, INPUTS)
        assert inference.execute(inputsData={"s": memory(s)}, batchSize=1), last_refusal()
        want = s @ self.x.numpy().reshape(BATCH, INPUTS).T + 0.1
        np.testing.assert_allclose(result.numpy(), want, rtol=1e-4, atol=1e-5)

    @invariant()
    def weights_agree(self) -> None:
        if not hasattr(self, "twin"):
            return
        for tensor, twin in zip(self.parameters, self.twin.parameters, strict=True):
            np.testing.assert_allclose(tensor.numpy().ravel(), twin.detach().numpy().ravel(), rtol=1e-3, atol=2e-5)


def _settings(programs: int) -> settings:
    return settings(
        max_examples=programs,
        stateful_step_count=18,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def on_device(torch_device: torch.device) -> type[Calls]:
    return type("Calls", (Calls,), {"device": on(torch_device)})


def test_sequences_of_calls(torch_device):
    run_state_machine_as_test(on_device(torch_device), settings=_settings(150 if torch_device.type == "cpu" else 25))


@pytest.mark.slow
def test_many_sequences_of_calls(torch_device):
    run_state_machine_as_test(on_device(torch_device), settings=_settings(2000 if torch_device.type == "cpu" else 300))
