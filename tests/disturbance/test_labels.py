"""Every awkward label passes through module, export, ONNX, checkpoint, drawing, tables and log."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch.interop import export_onnx, export_program, load_checkpoint, save_checkpoint
from tests.disturbance.labels import AWKWARD, EVERY_WORD, LINE_BREAKERS, MARKS_OF_DIRECTION
from tests.interop.programs import data, dense, device, empty, holding, numbers

pydot = pytest.importorskip("pydot", reason="pydot reads drawings, and is not installed")

BATCH, WIDTH = 4, 3


class Labelled:
    """For each label a dense layer and a sum; it names input, layers, constant and output of them."""

    def __init__(self, labels: list[str], seed: int = 0) -> None:
        self.labels, self.graph = labels, mlc.MLCGraph()
        self.inputs, self.layers, self.outputs = {}, [], {}
        for number, label in enumerate(labels):
            x, constant, layer = (
                empty(BATCH, WIDTH),
                holding(numbers(1, WIDTH, seed=number)),
                dense(WIDTH, WIDTH, label, seed),
            )
            sum_ = mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add)
            x.label = constant.label = sum_.label = label
            made = self.graph.node(sum_, sources=[self.graph.node(layer, source=x), constant])
            made.label = label
            self.inputs[label], self.outputs[label] = x, made
            self.layers.append(layer)
        self.inference = mlc.MLCInferenceGraph(graphObjects=[self.graph])
        assert self.inference.addInputs(self.inputs) and self.inference.addOutputs(self.outputs)
        assert self.inference.compile(options=[], device=device()), mlc.last_refusal()
        self.given = [numbers(BATCH, WIDTH, seed=number) for number in range(len(labels))]

    def execute(self, options: Any = ()) -> list[np.ndarray]:
        results: list[np.ndarray] = []
        assert self.inference.execute(
            inputsData={label: data(x) for label, x in zip(self.labels, self.given, strict=True)},
            batchSize=BATCH,
            options=list(options),
            completionHandler=lambda *_: results.extend(t.numpy().copy() for t in self.outputs.values()),
        ), mlc.last_refusal()
        return results

    def expected(self) -> list[np.ndarray]:
        """The same network in NumPy."""
        found = []
        for number, (x, layer) in enumerate(zip(self.given, self.layers, strict=True)):
            weights = layer.weights.numpy().reshape(WIDTH, WIDTH)
            found.append(x @ weights.T + layer.biases.numpy().reshape(WIDTH) + numbers(1, WIDTH, seed=number))
        return found

    def torch_inputs(self) -> list[torch.Tensor]:
        return [torch.from_numpy(x) for x in self.given]

    def agree(self, found: Any) -> None:
        values = [found[n] for n in self.labels] if isinstance(found, dict) else [found]
        for value, want in zip(values, self.expected(), strict=True):
            np.testing.assert_allclose(torch.as_tensor(value).detach(), want, rtol=1e-4, atol=1e-4)


WORST = [
    AWKWARD[name]
    for name in (
        *("keyword", "self", "module", "operation", "weights", "empty", "quotes", "markup", "line break", "null"),
        *("half a character", "emoji", "bidi", "long"),
    )
]
each = pytest.mark.parametrize("label", AWKWARD.values(), ids=AWKWARD.keys())


@each
def test_module(label):
    program = Labelled([label])
    program.agree(program.execute()[0])
    for graph in (program.graph, program.inference):
        module = graph.to_module()
        program.agree(module(*program.torch_inputs()))
        program.agree(module(**dict(zip(module.inputs, program.torch_inputs(), strict=True))))
        own = copy.deepcopy(module)
        own.load_state_dict(module.state_dict())
        program.agree(own(*program.torch_inputs()))


def test_one_module_of_all_labels():
    labels = list(dict.fromkeys([*AWKWARD.values(), *EVERY_WORD]))
    program = Labelled(labels)
    program.agree(dict(zip(labels, program.execute(), strict=True)))
    module = program.inference.to_module()
    assert len(module.inputs) == len(labels) and all(name.isidentifier() for name in module.inputs)
    program.agree(module(*program.torch_inputs()))


@each
def test_checkpoint(label, tmp_path):
    source, target = Labelled([label, "b"]), Labelled([label, "b"], seed=9)
    save_checkpoint(source.inference, tmp_path / "a")
    load_checkpoint(target.inference, tmp_path / "a")
    for a, b in zip(source.layers, target.layers, strict=True):
        assert np.array_equal(a.weights.numpy(), b.weights.numpy())


def check_table(table: Any, lines: int) -> None:
    text = str(table)
    assert len(text.splitlines()) == lines and max(map(len, text.splitlines())) < 500
    assert not any(c in text for c in MARKS_OF_DIRECTION + LINE_BREAKERS.replace("\n", ""))
    text.encode(), table._repr_html_().encode()


def test_profile():
    """A row for each layer, in the graph's order, under a label that a trace of torch's profiler can hold."""
    labels = list(AWKWARD.values())
    program = Labelled(labels)
    report = program.inference.profile(lambda: program.execute())
    assert len(report.layers) == 2 * len(labels) and all(row.calls == 1 for row in report.layers)
    check_table(report, 2 * len(labels) + 6)


@each
def test_drawings_and_tables(label, tmp_path):
    program = Labelled([label, "b"])
    graph = program.inference
    for suffix in ("dot", "svg"):
        text = graph.draw(tmp_path / f"a.{suffix}").read_bytes().decode()
        assert not any(mark in text for mark in MARKS_OF_DIRECTION + "\0\x1b\x85\u2028")
    assert len(pydot.graph_from_dot_data((tmp_path / "a.dot").read_text())) == 1
    drawn = pydot.graph_from_dot_data(graph.summarizedDOTDescription)
    assert len(drawn) == 1 and len(drawn[0].get_edges()) == 6
    plain = Labelled(["a", "b"]).inference.summary()
    check_table(graph.summary(), len(str(plain).splitlines()))
    for thing in (graph, program.layers[0], *program.inputs.values()):
        repr(thing).encode()


@pytest.mark.parametrize(
    "labels", [WORST, pytest.param(list(AWKWARD.values()), marks=pytest.mark.slow)], ids=["worst", "all"]
)
def test_png(labels, tmp_path):
    picture = Labelled(labels).inference.draw(tmp_path / "a.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def refusals_of(label: str) -> list[str]:
    """What the library says where a label is in the way, from as many places as name labels."""
    program, said = Labelled([label, "b"]), []

    def refused(answer: Any) -> None:
        assert not answer
        said.append(str(mlc.last_refusal()))

    other = mlc.MLCGraph()
    refused(other.node(program.layers[0], source=program.inputs[label]))
    refused(program.graph.node(dense(7, 7, label, 0), source=program.inputs[label]))
    refused(program.inference.execute(inputsData={}, batchSize=BATCH))
    short = data(np.zeros(1, np.uint8))
    refused(program.inference.execute(inputsData={label: short, "b": short}, batchSize=BATCH))
    given = {name: data(x) for name, x in zip(program.labels, program.given, strict=True)}
    for outputs in ({label: short}, {label + "x": short}):
        refused(program.inference.execute(inputsData=given, outputsData=outputs, batchSize=BATCH))
    bare, x = mlc.MLCGraph(), empty(BATCH, WIDTH)
    x.label = label
    bare.node(mlc.MLCActivationLayer.relu, source=x)
    undeclared = mlc.MLCInferenceGraph(graphObjects=[bare])
    assert undeclared.compile(options=[], device=device())
    refused(undeclared.execute(inputsData={}, batchSize=BATCH))
    return said


@each
def test_log(label, caplog, tmp_path):
    """A refusal is one line of the log, whatever it quotes, and every stream can take it."""
    path = tmp_path / "log"
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("mlc_torch")
    log.addHandler(handler)
    try:
        said = refusals_of(label)
    finally:
        log.removeHandler(handler)
        handler.close()
    text = path.read_text(encoding="utf-8")
    assert len(said) == 7 == len(text.splitlines()) == text.count("WARNING mlc_torch: refused: MLC")
    assert len([r for r in caplog.records if r.name == "mlc_torch"]) == 7
    assert not any(mark in text for mark in MARKS_OF_DIRECTION + "\x1b\0")


def _exports(labels: list[str], path: Path) -> None:
    import onnx
    import onnxruntime

    program = Labelled(labels)
    program.agree(export_program(program.inference).module()(*program.torch_inputs()))
    export_onnx(program.inference, path)
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    found = session.run(None, dict(zip(names, program.given, strict=True)))
    program.agree(dict(zip(labels, found, strict=True)))


@pytest.mark.filterwarnings("ignore")  # torch's own, about its own
def test_export_of_the_worst_labels_at_once(tmp_path):
    """Torch takes seconds to translate the smallest network, hence all of them in one."""
    _exports(WORST, tmp_path / "a.onnx")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@each
def test_export(label, tmp_path):
    _exports([label], tmp_path / "a.onnx")
