"""Random sequences of inferences, held to a model of what each call must answer and to a twin in plain torch: with the
way past the road that an inference takes which is like the one before it (``running/usual.py``), and without it.

The model is written from the contract, not from the library. ``tox run -e slow`` runs 1,000 programs each way.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from torch.nn import functional as F

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGraph,
    MLCInferenceGraph,
    MLCTensor,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.running import inference
from tests.graph.inference_calls import (
    AROUND,
    BATCH,
    CALLS,
    MANY,
    OF_DATA,
    OUTPUTS,
    RAISED,
    UNTOUCHED,
    UNUSUAL,
    WORDS,
    Call,
    Own,
    Run,
    arguments,
    memory,
)
from tests.graph.programs import cpu, data, dense, loss, placeholder, sgd, values

Arrays = dict[str, np.ndarray]
SEEDS = st.integers(0, 10_000)
KINDS = ["plain", "two inputs", "wide input", "wide output", "held"]


class Inferences(RuleBasedStateMachine):
    """A perceptron that is asked in every style, while its weights, its hooks and its declarations change."""

    @initialize(kind=st.sampled_from(KINDS), seed=SEEDS)
    def make(self, kind: str, seed: int) -> None:
        self.width, hidden = (MANY if kind == "wide input" else 6), (MANY if kind == "wide output" else 5)
        self.rate = 0.05 if self.width + hidden < MANY else 1e-5  # steps that can be seen, and do not run away
        self.inputs = {name: placeholder(BATCH, self.width) for name in ("x", "z")[: 1 + (kind == "two inputs")]}
        self.graph, self.layers = MLCGraph(), [dense(self.width, hidden, seed), dense(hidden, OUTPUTS, seed + 2)]
        source = self.inputs["x"]
        if "z" in self.inputs:
            add = MLCArithmeticLayer(operation=MLCArithmeticOperation.add)
            source = self.graph.node(add, sources=[source, self.inputs["z"]])
        first = self.graph.node(self.layers[0], source=source)
        active = self.graph.node(MLCActivationLayer.relu, source=first)
        last = self.graph.node(self.layers[1], source=active)
        self.inference = MLCInferenceGraph(graphObjects=[self.graph])
        self.outputs = {"y": last} | ({"h": first} if kind == "wide output" else {})
        self.held = first if kind == "held" else None
        assert self.inference.addInputs(self.inputs) and self.inference.addOutputs(self.outputs)
        assert self.inference.compile(device=cpu())
        self.parameters = [p for layer in self.layers for p in (layer.weights, layer.biases)]
        shapes = (hidden, self.width), (hidden,), (OUTPUTS, hidden), (OUTPUTS,)
        self.twin = [torch.tensor(p.numpy().reshape(s)) for p, s in zip(self.parameters, shapes, strict=True)]
        self.standing = {name: data(np.zeros((BATCH, self.width), np.float32)) for name in self.inputs}
        self.bound: Arrays = {}
        self.shown: Arrays = {}
        """What result tensors show: a short batch leaves the other samples as they were."""
        self.last: Arrays | None = None
        """What the last pass was given, as long as results of it that nobody asked for can still be told."""
        self.hook, self.hooked, self.remover = "", 0, None
        self.known = False
        """Whether this thread has called the graph: a thread's first handler is looked at before anything runs."""

    # The model

    def numbers(self, seed: int) -> Arrays:
        return {name: values(BATCH, self.width, seed=seed + n) for n, name in enumerate(self.inputs)}

    def predict(self, given: Arrays) -> Arrays:
        w1, b1, w2, b2 = self.twin
        with torch.autocast("cpu", enabled=False):
            hidden = F.linear(torch.from_numpy(sum(given.values(), np.zeros((), np.float32))), w1, b1)
            hidden = hidden * 2 if self.hook == "doubles" else hidden
            return {"h": hidden.numpy(), "y": F.linear(F.relu(hidden), w2, b2).numpy()}

    def ran(self, given: Arrays) -> None:
        """A pass has been run with these samples."""
        self.last = {name: x.copy() for name, x in given.items()}
        for name, value in self.predict(given).items():
            if name == "h" and self.held is None and "h" not in self.outputs:
                continue
            full = self.shown.get(name, np.zeros((BATCH, value.shape[1]), np.float32)).copy()
            full[: len(value)] = value
            self.shown[name] = full

    def check_shown(self) -> None:
        tensors = self.outputs | ({} if self.held is None else {"h": self.held})
        for name in tensors.keys() & self.shown.keys():
            near(tensors[name].numpy(), self.shown[name])
            near(np.frombuffer(tensors[name].data, np.float32), self.shown[name].ravel())

    # A call

    @rule(call=CALLS, seed=SEEDS, samples=st.sampled_from([0, 2]))
    def execute_between_usual_ones(self, call: Call, seed: int, samples: int) -> None:
        usual = partial(Call, samples=samples)
        for number, each in enumerate(
            [usual(), usual(handler="reads"), usual(), call, usual(handler="reads", outputs="one")]
        ):
            self.execute(each, seed + number)

    @rule(call=CALLS, seed=SEEDS)
    def execute(self, call: Call, seed: int) -> None:
        if call.handler == "two" and call.where == "thread":
            return  # whether its number is that of a thread that has called, the system says
        given, skips = self.numbers(seed), Run.skipWritingInputDataToDevice in call.options
        labels = arguments(call, given, self.standing, self.outputs)
        refused = bool(call.spoilt) and not (skips and call.spoilt in OF_DATA)
        taken = self.bound | {n: x for n, x in given.items() if not (skips or (call.missing and n == "x"))}
        reasons = [WORDS[call.spoilt]] if refused else []
        if len(taken) < len(self.inputs):
            refused, reasons = True, [*reasons, "no data"]  # of two reasons a call names one
        taken = {name: taken[name][: call.samples or BATCH] for name in self.inputs if name in taken}
        before, self.hooked, seen = last_refusal(), 0, []
        stopped = call.handler == "two" and not self.known
        fails = not refused and not stopped and self.hook == "fails"

        def handler(result: Any, error: Any, seconds: float) -> None:
            assert seconds >= 0 and (seconds == 0 or Run.profiling in call.options)
            seen.append((None if result is None else (result.numpy().copy(), bytes(result.data)), error))
            if call.handler == "again" and error is None and self.hook != "fails":
                self.execute(Call(outputs="one"), seed + 7)
            elif call.handler in RAISED:
                raise RAISED[call.handler]

        labels["completionHandler"] = {"": None, "two": lambda result, error: None}.get(call.handler, handler)
        if not (refused or stopped or fails):
            expected = self.predict(taken)
            self.ran(taken)  # first, since a handler may run the graph once more
            shown = self.shown["y"].copy()
        answer, raised, refusal = self.made(call, labels)
        self.known = self.known or (call.where != "thread" and not stopped)
        error = (Own, None) if fails else (TypeError, "executionTime") if call.handler == "two" else (None, None)
        if call.handler in RAISED and not fails:
            error = type(RAISED[call.handler]), None
        if error[0] is not None:
            assert type(raised) is error[0] and answer is None, (raised, refusal)
            assert error[1] is None or error[1] in "".join([str(raised), *getattr(raised, "__notes__", [])])
        else:
            assert raised is None and answer is not refused, (raised, refusal)
        if refused and not stopped:
            middle = "".join(f"{name}:" for name in labels if name not in ("batchSize", "options", "completionHandler"))
            assert refusal is not before and any(words in str(refusal) for words in reasons), refusal
            assert f"MLCInferenceGraph.execute({middle}batchSize:options:completionHandler:)" in str(refusal)
            assert raised is None or raised.__cause__ is refusal
        else:
            assert refusal is (None if call.where == "thread" else before)
        assert len(seen) == (call.handler not in ("", "two") and not fails), "a handler is called once"
        buffers = labels.get("outputsData") or {}
        if refused or stopped or fails:
            assert seen in ([], [(None, refusal)])
            assert all((memory(buffer) == UNTOUCHED).all() for buffer in buffers.values())
            self.last = None if fails else self.last
            return
        if seen:
            (result, bytes_), none = seen[0]
            assert none is None
            near(result, shown)
            near(np.frombuffer(bytes_, np.float32), shown.ravel())
        assert self.hook != "counts" or call.handler == "again" or self.hooked == 1
        for name, buffer in buffers.items():
            near(memory(buffer)[: len(taken["x"])], expected[name])
            assert (memory(buffer)[len(taken["x"]) :] == UNTOUCHED).all()
        self.check_shown()

    def made(self, call: Call, labels: dict[str, Any]) -> tuple[bool | None, BaseException | None, Any]:
        """Make the call: its answer, or what it raised, and the last refusal behind it."""
        ends: list[tuple[bool | None, BaseException | None, Any]] = []

        def work() -> None:
            try:
                with AROUND.get(call.where, nullcontext)():
                    if call.selector:
                        name = "executeWithI" + "_".join(labels)[1:] + "_"
                        answer = getattr(self.inference, name)(*labels.values())
                    else:
                        answer = self.inference.execute(**labels)
                ends.append((answer, None, last_refusal()))
            except Exception as error:  # noqa: BLE001 - what was raised is the answer
                ends.append((None, error, last_refusal()))

        if call.where == "thread":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
        return ends[-1]

    @rule(seed=SEEDS, short=st.booleans())
    def execute_asynchronously(self, seed: int, short: bool) -> None:
        given, count = self.numbers(seed), 2 if short else BATCH
        inputs = {name: data(x) for name, x in given.items()}
        work = self.inference.executeAsync(inputsData=inputs, batchSize=count, options=[])
        if self.hook == "fails":
            self.last = None
            with pytest.raises(Own):
                asyncio.run(work)
            return
        result, seconds = asyncio.run(work)
        self.ran({name: x[:count] for name, x in given.items()})
        near(result.numpy(), self.shown["y"])
        assert seconds >= 0
        self.check_shown()

    # What happens in between

    @rule(seed=SEEDS)
    def bind(self, seed: int) -> None:
        self.bound = self.numbers(seed)
        given = {name: x.copy() for name, x in self.bound.items()}
        ready = {name: data(x) for name, x in given.items()}
        assert self.inference.bindAndWriteData(ready, forInputs=self.inputs, to=cpu(), synchronous=True)
        for x in given.values():
            x += 100  # the data has been read

    @rule(which=st.integers(0, 3), seed=SEEDS, way=st.sampled_from(["write", "bind"]))
    def change_weights(self, which: int, seed: int, way: str) -> None:
        tensor, new = self.parameters[which], values(*self.twin[which].shape, seed=seed) * 0.5
        if way == "write":
            tensor.numpy().reshape(new.shape)[:] = new
        else:
            assert tensor.bindAndWriteData(data(new.copy()), to=cpu())
        self.twin[which], self.last = torch.from_numpy(new), None

    @rule(seed=SEEDS)
    def train(self, seed: int) -> None:
        """One step of a graph over the same layers."""
        target, wanted = placeholder(BATCH, OUTPUTS), values(BATCH, OUTPUTS, seed=seed)
        training = MLCTrainingGraph(graphObjects=[self.graph], lossLayer=loss(), optimizer=sgd(self.rate))
        assert training.addInputs(self.inputs, lossLabels={"t": target}) and training.compile(device=cpu())
        given, hook = self.numbers(seed), self.hook
        self.set_hook("")
        inputs = {name: data(x) for name, x in given.items()}
        labels = {"lossLabelsData": {"t": data(wanted)}, "lossLabelWeightsData": None}
        assert training.execute(inputsData=inputs, **labels, batchSize=BATCH, options=[])
        self.ran(given)  # its results are tensors of the same program
        self.twin = [p.requires_grad_() for p in self.twin]
        w1, b1, w2, b2 = self.twin
        made = F.linear(F.relu(F.linear(torch.from_numpy(sum(given.values(), np.float32(0))), w1, b1)), w2, b2)
        slopes = torch.autograd.grad(F.mse_loss(made, torch.from_numpy(wanted)), self.twin)
        self.twin = [(p - self.rate * g).detach() for p, g in zip(self.twin, slopes, strict=True)]
        self.last = None
        self.set_hook(hook)

    @rule(hook=st.sampled_from(["", "", "counts", "doubles", "fails"]))
    def set_hook(self, hook: str) -> None:
        def look(module: Any, given: Any, made: torch.Tensor) -> torch.Tensor | None:
            self.hooked += 1
            if hook == "fails":
                raise Own
            return made * 2 if hook == "doubles" else None

        if self.remover is not None:
            self.remover.remove()
        self.last = self.last if self.hook == hook else None
        self.hook, self.remover = hook, self.layers[0].module.register_forward_hook(look) if hook else None

    @rule(others=st.booleans())
    def compile_again(self, others: bool) -> None:
        if others:
            MLCTensor(shape=[2])  # graphs look once whether it concerns them
        else:
            assert self.inference.compile(device=cpu())
            self.last = None

    @precondition(lambda self: self.hook != "fails")
    @rule(declares=st.booleans())
    def ask_late(self, declares: bool) -> None:
        """For a result that nobody had asked for, when the caller's arrays hold other numbers."""
        for x in self.standing.values():
            memory(x)[:] += 50
        known = "h" in self.shown
        (self.held,) = self.inference.resultTensors(for_=self.layers[0])
        if self.last is not None and not known:
            want = self.predict(self.last)["h"]
            if self.width < MANY or self.held.data is not None:  # much data is kept for the first runs only
                near(self.held.numpy()[: len(want)], want)
        if not known and self.held.data is not None:
            self.shown["h"] = self.held.numpy().copy()
        if declares:
            self.outputs["h"] = self.held
            assert self.inference.addOutputs({"h": self.held})

    def teardown(self) -> None:
        if hasattr(self, "twin"):
            self.set_hook("")
            for number in range(2):
                self.execute(Call(handler="reads", outputs="all"), number)


def near(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max())))


@pytest.fixture(params=["past the road", "on the road"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "on the road":
        monkeypatch.setattr(inference, "usual_inference", lambda *given: None)
    return request.param


def run(programs: int) -> None:
    every = settings(max_examples=programs, stateful_step_count=15, deadline=None, print_blob=True)
    run_state_machine_as_test(Inferences, settings=settings(every, suppress_health_check=list(HealthCheck)))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_unusual_between_usual_inferences(way: str, kind: str) -> None:
    program = Inferences()
    program.make(kind=kind, seed=1)
    for number in range(10):  # of much data, the first ones are kept, and are not yet usual
        program.execute(call=Call(), seed=number)
    for unusual in (Call(**{field: value}) for field, known in UNUSUAL.items() for value in known):
        for samples in (0, 2):
            program.execute_between_usual_ones(call=unusual, seed=5, samples=samples)
    program.teardown()


def test_sequences_of_inferences(way: str) -> None:
    run(40)


@pytest.mark.slow
def test_many_sequences_of_inferences(way: str) -> None:
    run(1000)
