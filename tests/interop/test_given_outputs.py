"""Outputs that no layer computes: inputs, labels, parameters, constants. The module gives what ``execute`` fills."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer, export_onnx, export_program
from mlc_torch.refusals import MLCRefusal
from tests.interop.programs import data, dense, device, empty, holding, normalization, numbers, settings, squared_error

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # torch's own tracer

ADD = mlc.MLCArithmeticOperation.add
GIVEN = numbers(4, 3, seed=1)


def labelled(tensor: mlc.MLCTensor, label: str) -> mlc.MLCTensor:
    tensor.label = label
    return tensor


class Standing:
    """tanh(batchnorm(dense(x + shift))) and every tensor that is there without being computed, with its value by hand."""

    def __init__(self) -> None:
        self.x, self.graph = empty(4, 3), mlc.MLCGraph()
        self.shift, self.aside = (labelled(holding(numbers(1, 3, seed=s)), n) for s, n in ((2, "shift"), (3, "aside")))
        self.net = torch.nn.Linear(2, 2)
        self.dense, self.norm, given = dense(3, 2, "dense", 5), normalization(2), TorchLayer(self.net, label="net")
        y = self.graph.node(mlc.MLCArithmeticLayer(operation=ADD), sources=[self.x, self.shift])
        y = self.graph.node(self.norm, source=self.graph.node(self.dense, source=y))
        self.y = self.graph.node(given, source=y)
        self.tensors = {
            "x": self.x,
            "weights": self.dense.weights,
            "biases": self.dense.biases,
            "mean": self.norm.mean,
            "gamma": self.norm.gamma,
            "constant": self.shift,
            "unread": self.aside,
            "theirs": given.parameters_by_name["weight"].tensor,
            "y": self.y,
        }
        self.values = {
            "x": GIVEN,
            "weights": numbers(1, 6, 1, 1, seed=5),
            "biases": numbers(1, 2, 1, 1, seed=6),
            "mean": np.zeros((1, 2, 1, 1), np.float32),
            "gamma": np.ones((1, 2, 1, 1), np.float32),
            "constant": numbers(1, 3, seed=2),
            "unread": numbers(1, 3, seed=3),
            "theirs": self.net.weight.detach().numpy().copy(),
        }
        hidden = (GIVEN + self.values["constant"]) @ self.values["weights"].reshape(2, 3).T
        hidden = (hidden + self.values["biases"].reshape(2)) / np.sqrt(1 + 1e-5)
        self.values["y"] = (hidden @ self.values["theirs"].T + self.net.bias.detach().numpy()).astype(np.float32)

    def inference(self, *names: str) -> mlc.MLCInferenceGraph:
        made = mlc.MLCInferenceGraph(graphObjects=[self.graph])
        assert made.addInputs({"x": self.x}) and made.addOutputs({n: self.tensors[n] for n in names})
        return made


def check(found, expected) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert tuple(found[name].shape) == value.shape, name
        np.testing.assert_allclose(found[name].detach().numpy(), value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.filterwarnings("ignore:no node of the graph produces")
@pytest.mark.parametrize("compiled", [False, True], ids=["", "compiled"])
def test_the_module_gives_every_output_that_execute_fills(compiled):
    program = Standing()
    inference = program.inference(*program.tensors)
    if compiled:
        assert inference.compile(options=[], device=device())
        known = {
            n: v for n, v in program.values.items() if n != "unread"
        }  # which a graph that runs has nothing to do with
        filled = {n: np.zeros_like(v) for n, v in known.items()}
        assert inference.execute(
            inputsData={"x": data(GIVEN)},
            outputsData={n: data(v) for n, v in filled.items()},
            batchSize=4,
            options=[mlc.MLCExecutionOptions.synchronous],
        )
        check({n: torch.from_numpy(v) for n, v in filled.items()}, known)
    module = inference.to_module()
    assert module.outputs == list(program.values)
    given = torch.from_numpy(GIVEN)
    check(module(given), program.values)
    module(given)["x"].zero_()
    module(given)["constant"].zero_()
    check(module(given), program.values)  # what it gives is the caller's
    check(copy.deepcopy(module)(given), program.values)
    check(export_program(inference).module()(given), program.values)
    with torch.no_grad():
        program.dense.weights.torch.mul_(2)
        program.shift.torch.mul_(3)
    check(
        {n: module(given)[n] for n in ("weights", "constant")},
        {"weights": program.values["weights"] * 2, "constant": program.values["constant"] * 3},
    )


@pytest.mark.parametrize("name", ["x", "weights", "mean", "constant", "unread"])
def test_the_only_output_is_the_one_that_was_declared(name):
    program = Standing()
    module = program.inference(name).to_module()
    assert module.outputs == [name]
    np.testing.assert_array_equal(module(torch.from_numpy(GIVEN)).detach().numpy(), program.values[name])


def test_onnx_has_them_under_their_names(tmp_path):
    program = Standing()
    inference = program.inference()
    assert inference.addOutputs({f"{n}_out": t for n, t in program.tensors.items()})
    session = onnxruntime.InferenceSession(export_onnx(inference, tmp_path / "given.onnx"))
    names = [o.name for o in session.get_outputs()]
    found = dict(zip(names, map(torch.from_numpy, session.run(None, {"x": GIVEN})), strict=True))
    check(found, {f"{n}_out": v for n, v in program.values.items()})


def test_onnx_of_an_input_alone(tmp_path):
    session = onnxruntime.InferenceSession(export_onnx(Standing().inference("x"), tmp_path / "x.onnx"))
    assert [i.name for i in session.get_inputs()] == ["x"]
    np.testing.assert_array_equal(session.run(None, {"x": GIVEN[:2]})[0], GIVEN[:2])


def trained() -> tuple[mlc.MLCTrainingGraph, mlc.MLCTensor, mlc.MLCTensor, mlc.MLCTensor]:
    """(x + offset) under a squared error, the offset trained."""
    x, t, offset, graph = empty(4, 3), empty(4, 3), labelled(holding(numbers(1, 3, seed=8)), "offset"), mlc.MLCGraph()
    y = graph.node(mlc.MLCArithmeticLayer(operation=ADD), sources=[x, offset])
    rule = mlc.MLCSGDOptimizer(descriptor=settings())
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.setTrainingTensorParameters([mlc.MLCTensorParameter(tensor=offset)])
    return training, t, offset, y


def test_labels_and_trained_tensors_with_the_loss_and_without():
    training, t, offset, y = trained()
    assert training.addOutputs({"labels": t, "moved": offset, "y": y})
    labels, start = numbers(4, 3, seed=9), numbers(1, 3, seed=8)
    found = training.to_module(loss=True)(torch.from_numpy(GIVEN), torch.from_numpy(labels))
    (loss,) = found.keys() - {"labels", "moved", "y"}
    want = {"labels": labels, "moved": start, "y": GIVEN + start, loss: [((GIVEN + start - labels) ** 2).mean()]}
    check(found, {n: np.asarray(v, np.float32) for n, v in want.items()})
    without = training.to_module()
    assert without.outputs == ["moved", "y"]
    check(without(torch.from_numpy(GIVEN)), {"moved": start, "y": GIVEN + start})


def test_labels_that_were_bound_are_no_constants_of_a_module_without_the_loss():
    training, t, _, y = trained()
    assert training.addOutputs({"labels": t, "y": y}) and training.compile(options=[], device=device())
    assert t.bindAndWriteData(data(numbers(4, 3)), to=device())
    assert training.to_module().outputs == ["y"]


def test_a_trained_tensor_among_the_outputs_has_its_gradient():
    training, _, offset, _ = trained()
    assert training.addOutputs({"moved": offset})
    module = training.to_module()
    (module(torch.from_numpy(GIVEN)) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert module.offset.grad.tolist() == [[1.0, 2.0, 3.0]]


def test_what_a_module_cannot_give_is_refused():
    training, _, _, y = trained()
    nothing = labelled(empty(2, 2), "nothing")
    assert training.addOutputs({"empty": nothing, "y": y})
    with pytest.raises(MLCRefusal, match=r"output 'empty' \(nothing\) is no result of this graph's layers"):
        training.to_module()
    with pytest.raises(MLCRefusal, match="output 'empty'"):
        export_program(training)
    training, _, _, _ = trained()
    assert training.addOutputs({"slope": training.resultGradientTensors(for_=training.layers[0])[0]})
    with pytest.raises(MLCRefusal, match="'slope'.* is a gradient, and forward computes none"):
        training.to_module()


# Saving the module itself


@pytest.mark.filterwarnings("ignore:no node of the graph produces")
def test_a_saved_module_has_its_inputs_and_outputs_and_memory_of_its_own():
    program = Standing()
    module = program.inference(*program.tensors).to_module()
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    found = torch.load(file, weights_only=False)
    assert type(found).__name__ == type(module).__name__ == "MLCInferenceGraph"
    assert found.inputs == module.inputs and list(found.inputs) == ["x"] and found.outputs == list(program.values)
    assert module.shares_memory and not found.shares_memory and not found.training
    assert sorted(found.state_dict()) == sorted(module.state_dict())
    check(found(torch.from_numpy(GIVEN)), program.values)
    with torch.no_grad():
        for tensor in found.state_dict().values():
            tensor.add_(1)
    doubled = found.double()(torch.from_numpy(GIVEN).double())
    for name in ("weights", "mean", "constant", "unread"):  # read where they lie, not as they were when saved
        np.testing.assert_allclose(doubled[name].detach().numpy(), program.values[name] + 1, rtol=1e-6)
    check(module(torch.from_numpy(GIVEN)), program.values)
    check(
        copy.deepcopy(found).float()(torch.from_numpy(GIVEN)),
        {n: v.float().detach().numpy() for n, v in doubled.items()},
    )


def test_a_layer_and_an_input_that_are_called_self():
    graph, x = mlc.MLCGraph(), labelled(empty(4, 3), "self")
    first, second = dense(3, 3, "self", 0), dense(3, 2, "second", 4)
    graph.node(second, source=graph.node(first, source=x))
    found = pickle.loads(pickle.dumps(graph.to_module()))
    hidden = GIVEN @ numbers(1, 9, 1, 1).reshape(3, 3).T + numbers(1, 3, 1, 1, seed=1).reshape(3)
    want = hidden @ numbers(1, 6, 1, 1, seed=4).reshape(2, 3).T + numbers(1, 2, 1, 1, seed=5).reshape(2)
    np.testing.assert_allclose(found(torch.from_numpy(GIVEN)).detach().numpy(), want, rtol=1e-5, atol=1e-6)


def test_another_process_loads_it(tmp_path):
    program = Standing()
    torch.save(program.inference("y", "weights").to_module(), tmp_path / "module.pt")
    np.save(tmp_path / "x.npy", GIVEN)
    code = (
        "import sys, numpy, torch\n"
        "module = torch.load(sys.argv[1] + '/module.pt', weights_only=False)\n"
        "assert list(module.inputs) == ['x'] and module.outputs == ['y', 'weights'] and not module.shares_memory\n"
        "found = module(torch.from_numpy(numpy.load(sys.argv[1] + '/x.npy')))\n"
        "numpy.save(sys.argv[1] + '/y.npy', found['y'].detach().numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=300)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), program.values["y"], rtol=1e-5, atol=1e-6)
