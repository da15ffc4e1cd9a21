"""Data is bound into the same memory again, unless somebody looks into it: nobody ever sees it change."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from mlc_torch import (
    MLCActivationLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCReshapeLayer,
    MLCTensorData,
    MLCTrainingGraph,
)
from mlc_torch.torch_private import available
from tests.graph.programs import (
    Program,
    array,
    close,
    cpu,
    data,
    dense,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    slopes,
    values,
)

SHAPES = {"x": (4, 6), "t": (4, 3)}
WIDTHS = (6, 5, 3)


def other(program: Program, seed: int) -> None:
    """Bind other numbers."""
    shapes = {name: array.shape for name, array in program.given.items()}
    program.given = {name: values(*shape, seed=seed + n) for n, (name, shape) in enumerate(shapes.items())}
    assert program.bind()


def dense_alone(device: torch.device) -> Program:
    return regression(widths=WIDTHS, device=on(device))


def much(device: torch.device) -> Program:
    """Of so much data that torch copies it with all of its threads."""
    return regression(batch=6000, widths=WIDTHS, device=on(device))


def flattening(device: torch.device) -> Program:
    """The same layers behind a reshape: the pass keeps another look at its input, not the input itself."""
    graph = MLCGraph()
    x, t = placeholder(4, 2, 3), placeholder(4, 3)
    layers = [dense(6, 5), dense(5, 3, seed=10)]
    y = graph.node(MLCReshapeLayer(shape=[4, 6]), source=x)
    y = graph.node(MLCActivationLayer.relu, source=graph.node(layers[0], source=y))
    y = graph.node(layers[1], source=y)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 6, seed=5), "t": values(4, 3, seed=6)}
    return Program(training, graph, {"x": x}, {"t": t}, given, layers, y, on(device))


def bound_at(program: Program) -> int:
    value = program.inputs["x"]._cell.value
    assert value is not None
    return value.data_ptr()


@pytest.mark.skipif(not available["use_counts"], reason="this torch does not count who looks")
def test_steps_take_turns_with_two_places(torch_device):
    if torch_device.type == "mps":
        pytest.skip("data is bound to this device's own memory")
    assert places_of_steps(dense_alone(torch_device)) == 2


@pytest.mark.skipif(not available["use_counts"], reason="this torch does not count who looks")
def test_steps_with_much_data_do_on_the_cpu():
    """For a GPU it lies in memory that torch hands out again."""
    assert places_of_steps(much(torch.device("cpu"))) == 2


def places_of_steps(program: Program) -> int:
    """In how many places the inputs of several steps lay."""
    assert program.compile() and program.bind()
    places = set()
    for seed in range(40, 60, 2):
        other(program, seed)
        places.add(bound_at(program))
        want = slopes(program)["w1"]
        assert program.forward() and program.gradient()
        close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), want)
        assert program.update()
        program.training.synchronizeUpdates()
    return len(places)


@pytest.mark.parametrize("make", [dense_alone, flattening, much], ids=["dense", "reshaped", "much"])
@pytest.mark.parametrize("options", [(), MLCGraphCompilationOptions.debugLayers], ids=["planned", "plain"])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_gradient_is_of_the_data_that_its_forward_pass_read(make, options, steps, torch_device):
    program = make(torch_device)
    assert program.compile(options=options) and program.bind()
    for seed in range(40, 40 + 2 * steps, 2):
        other(program, seed)
        assert program.forward() and program.gradient() and program.update()
    program.training.synchronizeUpdates()
    other(program, 80)
    want = slopes(program)["w1"]
    assert program.forward()
    other(program, 90)
    other(program, 92)
    assert program.gradient()
    close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), want)
    assert program.update()
    program.training.synchronizeUpdates()
    want = slopes(program)["w1"]
    assert program.forward() and program.gradient()
    close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), want)


LOOKS = {
    "the tensor": lambda t: t.torch,
    "a view of it": lambda t: t.torch.view(-1),
    "a part of it": lambda t: t.torch[1:],
    "without its history": lambda t: t.torch.detach(),
    "NumPy": lambda t: t.torch.cpu().numpy(),
    "DLPack": lambda t: torch.from_dlpack(t.torch),
    "its storage": lambda t: t.torch.new_empty(0).set_(t.torch.untyped_storage(), 0, (t.torch.numel(),)),
    "its bytes": lambda t: t.data,
    "autograd": lambda t: (t.torch * torch.ones_like(t.torch, requires_grad=True)).grad_fn,
    "a list that Python does not see into": lambda t: torch._C.ScriptList([t._cell.value]),
}


def numbers(seen: np.ndarray | torch.Tensor) -> np.ndarray:
    return np.asarray(seen if isinstance(seen, np.ndarray) else seen.detach().cpu()).ravel()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("make", [dense_alone, much], ids=["little", "much"])
def test_what_a_program_looks_at_does_not_change(make, look, steps, torch_device):
    program = make(torch_device)
    assert program.compile() and program.bind()
    for seed in range(40, 40 + 2 * steps, 2):
        other(program, seed)
        assert program.forward() and program.gradient() and program.update()
    tensor, first = program.inputs["x"], program.given["x"].copy()
    seen = look(tensor)
    other(program, 70)
    np.testing.assert_array_equal(array(tensor), program.given["x"])
    if isinstance(seen, memoryview):
        seen = np.frombuffer(seen, np.float32)
    elif isinstance(seen, torch._C.ScriptList):
        seen = seen[0]
    elif not isinstance(seen, (np.ndarray, torch.Tensor)):
        seen = seen._saved_self if seen._saved_self is not None else seen._saved_other
    want = first.ravel()[-numbers(seen).size :]
    np.testing.assert_array_equal(numbers(seen), want)
    other(program, 72)
    np.testing.assert_array_equal(numbers(seen), want)


@pytest.mark.parametrize("samples", [64, 640])
def test_bytes_that_are_no_copy_do_not_change_either(samples):
    """Of more than 16 KiB, ``tensor.data`` looks into the tensor's memory."""
    program = regression(batch=samples, widths=(100, 3))
    assert program.compile() and program.bind()
    first = program.given["x"].copy()
    seen = program.inputs["x"].data
    for seed in (50, 51):
        program.given["x"] = values(samples, 100, seed=seed)
        assert program.bind() and program.forward() and program.gradient() and program.update()
        np.testing.assert_array_equal(array(program.inputs["x"]), program.given["x"])
    np.testing.assert_array_equal(np.frombuffer(seen, np.float32).reshape(samples, 100), first)


def test_a_mode_of_the_program_s_sees_nothing_of_it():
    class Watching(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            raise AssertionError(f"{function} is no business of a program's mode")

    program = regression(widths=WIDTHS)
    assert program.compile() and program.bind() and program.bind()
    for seed in (40, 42, 44):
        program.given = {name: values(*shape, seed=seed) for name, shape in SHAPES.items()}
        with Watching():
            assert program.bind()
        np.testing.assert_array_equal(array(program.inputs["x"]), program.given["x"])


@pytest.mark.parametrize(
    "around", [nullcontext, torch.inference_mode, lambda: torch.device("meta")], ids=["none", "inference", "meta"]
)
def test_much_data_is_bound_in_every_context_of_torch_s(around):
    program = regression(batch=6000, widths=WIDTHS)
    assert program.compile() and program.bind()
    for seed in (40, 42, 44):
        program.given = {"x": values(6000, 6, seed=seed), "t": values(6000, 3, seed=seed + 1)}
        with around():
            assert program.bind()
        np.testing.assert_array_equal(array(program.inputs["x"]), program.given["x"])
        want = slopes(program)["w1"]
        assert program.forward() and program.gradient()
        close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), want)
        assert program.update()


@pytest.mark.parametrize("samples", [4, 6000])
def test_data_of_every_make_is_bound_behind_one_another(samples):
    program = regression(batch=samples, widths=WIDTHS)
    assert program.compile()
    first = values(samples, 6, seed=1)
    made = {
        "an array": (first, first),
        "longer": (np.concatenate([first.ravel() + 1, np.full(9, 77, np.float32)]), first + 1),
        "a torch tensor": (torch.from_numpy(first + 2), first + 2),
        "bytes": ((first + 3).tobytes(), first + 3),
        "read-only": (first + 4, first + 4),
    }
    made["read-only"][0].flags.writeable = False
    for memory, want in [*made.values(), *made.values()]:
        given = MLCTensorData(bytesNoCopy=memory, length=getattr(memory, "nbytes", None) or len(memory))
        assert program.training.bindAndWriteData(
            {"x": given}, forInputs=program.inputs, to=cpu(), batchSize=samples, synchronous=True
        )
        np.testing.assert_array_equal(array(program.inputs["x"]), want)


def test_without_torch_s_counts_each_binding_has_memory_of_its_own(monkeypatch):
    monkeypatch.setitem(available, "use_counts", False)
    program = regression(widths=WIDTHS)
    assert program.compile() and program.bind()
    seen = program.inputs["x"].torch
    kept = seen.clone()
    other(program, 50)
    want = slopes(program)["w1"]
    assert program.forward() and program.gradient()
    close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), want)
    assert torch.equal(seen, kept) and program.inputs["x"].torch.data_ptr() != seen.data_ptr()


@pytest.mark.parametrize(("samples", "width"), [(4, 6), (2000, 500)])
def test_another_thread_sees_the_data_of_one_binding(samples, width):
    """Neither half of it, nor what comes later; and binding at the same time through another graph keeps them apart, too."""
    program, size = regression(batch=samples, widths=(width, 3)), 40_000 // (samples * width) + 60
    other_graph = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    assert other_graph.addInputs(program.inputs, lossLabels=program.labels)
    assert program.compile() and program.bind()
    tensor, shape = program.inputs["x"], program.given["x"].shape
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    go, ends = threading.Barrier(3), threading.Event()

    def bind(graph, number):
        given = data(np.full(shape, number, np.float32))
        assert graph.bindAndWriteData({"x": given}, forInputs={"x": tensor}, to=cpu(), synchronous=True)

    def binds(graph, first):
        go.wait()
        for number in range(first, first + size):
            bind(graph, number)

    def look():
        view = tensor.numpy()
        seen.append((view, view.copy()))

    def looks():
        go.wait()
        while not ends.is_set():
            look()

    bind(program.training, 0)
    threads = [threading.Thread(target=binds, args=(g, n)) for g, n in ((program.training, 1), (other_graph, 1000))]
    watching = threading.Thread(target=looks)
    for thread in (watching, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    ends.set()
    watching.join()
    look()
    for view, copy in seen:
        assert np.ptp(copy) == 0
        np.testing.assert_array_equal(view, copy)
