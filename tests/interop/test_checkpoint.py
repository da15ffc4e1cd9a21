"""Checkpoints: what is in them, and training that goes on as if it had never stopped."""

from __future__ import annotations

import copy
import json
import os
import stat
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mlc_torch as mlc
from mlc_torch.device import randomness
from mlc_torch.interop import TorchLayer, describe_checkpoint, load_checkpoint, save_checkpoint
from tests.interop.programs import (
    DEVICES,
    HIDDEN,
    INPUTS,
    OPTIMIZERS,
    Classifier,
    by_torch,
    data,
    device,
    empty,
    holding,
    normalization,
    numbers,
    same,
    settings,
    squared_error,
)


@pytest.fixture
def exact():
    """On CUDA equal bits need deterministic algorithms."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(torch.cuda.is_available(), warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.usefixtures("exact")
@pytest.mark.filterwarnings("ignore:.*[Dd]eterministic:UserWarning")
@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_as_if_it_had_never_stopped(optimizer, where, tmp_path):
    """Momentum, time step, learning rate, statistics, and both kinds of dropout: the same bits."""
    straight = Classifier(optimizer, where=where).compiled()
    losses = straight.train(0, 3)
    straight.rule.learningRate *= 0.5
    losses += straight.train(3, 7)

    randomness.reseed(5)
    stopped = Classifier(optimizer, where=where).compiled()
    first = stopped.train(0, 3)
    stopped.rule.learningRate *= 0.5
    save_checkpoint(stopped.training, tmp_path / "stop.safetensors")

    randomness.reseed(99)
    resumed = Classifier(optimizer, seed=40, where=where).compiled()
    resumed.train(20, 22)
    load_checkpoint(resumed.training, tmp_path / "stop.safetensors")
    assert first + resumed.train(3, 7) == losses
    assert same(resumed.state(), straight.state())
    assert mlc.MLCPlatform.getRNGseed() == 5


TORCH = {name: getattr(torch.optim, name, None) for name in torch.optim.__all__}
BY_TORCH = {
    **{
        name: by_torch(kind)
        for name, kind in TORCH.items()
        if name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon") and isinstance(kind, type)
    },
    "AMSGrad": by_torch(torch.optim.Adam, amsgrad=True, lr=torch.tensor(0.01)),
    "centered": by_torch(torch.optim.RMSprop, momentum=0.9, centered=True),
    "Nesterov": by_torch(torch.optim.SGD, momentum=0.9, nesterov=True),
    "fused": by_torch(torch.optim.AdamW, fused=True),
    "factors": by_torch(torch.optim.Adagrad, lambda p: [{"params": p[:1], "lr": torch.tensor(0.1)}, {"params": p[1:]}]),
}
if TORCH.get("Muon") is not None:
    BY_TORCH["Muon"] = by_torch(TORCH["Muon"], lambda parameters: [p for p in parameters if p.dim() == 2])


@pytest.mark.parametrize("make", BY_TORCH.values(), ids=BY_TORCH)
def test_every_optimizer_of_torch_goes_on_in_a_new_one(make, tmp_path):
    """The same bits as without a stop; a learning rate that is a tensor is one afterwards."""
    stopped = Classifier(make).compiled()
    stopped.train(0, 3)
    stopped.rule.learningRate = 0.003
    save_checkpoint(stopped.training, tmp_path / "a")
    losses = stopped.train(3, 6)
    resumed = Classifier(make, seed=40).compiled()
    kinds = [type(group["lr"]) for group in resumed.rule.optimizer.param_groups]
    load_checkpoint(resumed.training, tmp_path / "a")
    groups = resumed.rule.optimizer.param_groups
    assert [type(group["lr"]) for group in groups] == kinds
    assert [float(group["lr"]) for group in groups] == pytest.approx([0.003] * len(groups))
    assert resumed.train(3, 6) == losses
    assert same(resumed.state(), stopped.state())


def one_cycle(optimizer):
    """Moves the learning rate and, beside it, the first beta or the momentum."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=20)


def cyclic(optimizer):
    return torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3, cycle_momentum=True)


SCHEDULED = {
    "Adam": (by_torch(torch.optim.Adam), one_cycle),
    "tensor": (by_torch(torch.optim.Adam, lr=torch.tensor(0.01)), one_cycle),
    "SGD": (by_torch(torch.optim.SGD, momentum=0.9), one_cycle),
    "groups": (
        by_torch(torch.optim.AdamW, lambda p: [{"params": p[:2], "betas": (0.5, 0.9)}, {"params": p[2:]}]),
        one_cycle,
    ),
    "cyclic": (by_torch(torch.optim.SGD, momentum=0.9), cyclic),
}


def scheduled_steps(program, schedule, first, last):
    losses = []
    for step in range(first, last):
        losses += program.train(step, step + 1)
        schedule.step()
    return losses


@pytest.mark.parametrize(("make", "schedule"), SCHEDULED.values(), ids=SCHEDULED)
def test_what_a_scheduler_moved_comes_back(make, schedule, tmp_path):
    """All of it, as by torch's own state dictionaries: the numbers of a group beside the learning rate, too."""
    stopped = Classifier(make).compiled()
    theirs = schedule(stopped.rule.optimizer)
    scheduled_steps(stopped, theirs, 0, 4)
    save_checkpoint(stopped.training, tmp_path / "a")
    kept, saved = copy.deepcopy(theirs.state_dict()), copy.deepcopy(stopped.rule.optimizer.state_dict()["param_groups"])
    losses = scheduled_steps(stopped, theirs, 4, 9)

    resumed = Classifier(make, seed=40).compiled()
    ours = schedule(resumed.rule.optimizer)
    load_checkpoint(resumed.training, tmp_path / "a")
    assert resumed.rule.optimizer.state_dict()["param_groups"] == saved
    assert [*map(types, resumed.rule.optimizer.param_groups)] == [*map(types, stopped.rule.optimizer.param_groups)]
    ours.load_state_dict(kept)
    assert scheduled_steps(resumed, ours, 4, 9) == losses
    assert same(resumed.state(), stopped.state())


def types(group):
    return {key: type(value) for key, value in group.items()}


def test_a_scheduler_on_one_side_only(tmp_path):
    """What it adds to a group comes along, as with torch; what another one added here is still there for it."""
    with_one, without = (Classifier(by_torch(torch.optim.Adam), seed=n).compiled() for n in (0, 3))
    schedule = one_cycle(with_one.rule.optimizer)
    scheduled_steps(with_one, schedule, 0, 2)
    save_checkpoint(with_one.training, tmp_path / "with")
    save_checkpoint(without.training, tmp_path / "without")
    (group,) = copy.deepcopy(with_one.rule.optimizer.state_dict()["param_groups"])
    load_checkpoint(without.training, tmp_path / "with")
    assert without.rule.optimizer.state_dict()["param_groups"] == [group]
    load_checkpoint(with_one.training, tmp_path / "without")
    (now,) = with_one.rule.optimizer.param_groups
    assert now["betas"] == (0.9, 0.999) and now["max_lr"] == 0.2
    scheduled_steps(with_one, schedule, 2, 4)


@pytest.mark.parametrize("where", DEVICES)
def test_loading_before_compiling(where, tmp_path):
    straight = Classifier(where=where).compiled()
    straight.train(0, 3)
    save_checkpoint(straight.training, tmp_path / "a")
    resumed = Classifier(seed=9, where=where)
    load_checkpoint(resumed.training, tmp_path / "a")
    resumed.compiled()
    want = straight.train(3, 5)
    load_checkpoint(resumed.training, tmp_path / "a")
    assert resumed.train(3, 5) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("reads", DEVICES)
@pytest.mark.parametrize("writes", DEVICES)
@pytest.mark.parametrize("optimizer", ["Adam", "torch AdamW"])
def test_from_one_device_to_another(optimizer, writes, reads, tmp_path):
    """Weights, statistics and optimizer state go along; the same data then give the same predictions and time step."""
    source = Classifier(optimizer, where=writes).compiled()
    source.train(0, 3)
    save_checkpoint(source.training, tmp_path / "a")
    target = Classifier(optimizer, seed=3, where=reads).compiled()
    load_checkpoint(target.training, tmp_path / "a")
    assert same(target.state(), source.state())
    assert target.rule.timeStep == source.rule.timeStep == 4
    image = numbers(8, INPUTS)
    np.testing.assert_allclose(target.predict(image), source.predict(image), rtol=1e-4, atol=1e-5)
    save_checkpoint(target.training, tmp_path / "b")
    a, b = load_file(tmp_path / "a"), load_file(tmp_path / "b")
    shared = [n for n in a if not n.startswith("generator/")]
    assert all(torch.equal(a[n], b[n]) for n in shared)


def test_what_is_in_the_file(tmp_path):
    program = Classifier("Adam").compiled()
    program.train(0, 2)
    save_checkpoint(program.training, tmp_path / "a.safetensors")
    tensors = load_file(tmp_path / "a.safetensors")
    learned = [
        "dense1.weights",
        "dense1.biases",
        "BatchNorm.gamma",
        "BatchNorm.beta",
        "dense2.weights",
        "dense2.biases",
    ]
    assert set(tensors) == {
        *learned,
        "BatchNorm.running_mean",
        "BatchNorm.running_var",
        *(f"optimizer/{name}/{state}" for name in learned for state in ("momentum", "velocity")),
        "generator/platform/cpu",
        "generator/Dropout_1.noise/cpu",
    }
    assert np.array_equal(tensors["dense1.weights"].numpy(), program.dense1.weights.numpy())
    state = program.dense1.weights.optimizerDeviceData[0]._state
    assert torch.equal(tensors["optimizer/dense1.weights/momentum"], state)
    said = describe_checkpoint(tmp_path / "a.safetensors")
    assert said["optimizer"] == {
        "class": "MLCAdamOptimizer",
        "learningRate": 0.01,
        "appliesGradientClipping": False,
        "timeStep": 3,
    }
    nodes = said["graph"]["nodes"]
    assert [n["layer"] for n in nodes][:2] == ["MLCFullyConnectedLayer", "MLCBatchNormalizationLayer"]
    assert nodes[0]["sources"] == ["image"] and nodes[1]["sources"] == ["dense1"]
    assert nodes[0]["parameters"]["weights"] == {"shape": [1, INPUTS * HIDDEN, 1, 1], "type": "float32"}
    json.dumps(said)


def test_the_clipping_switch(tmp_path):
    program = Classifier("Adam").compiled()
    program.rule.appliesGradientClipping = True
    save_checkpoint(program.training, tmp_path / "a")
    program.rule.appliesGradientClipping = False
    load_checkpoint(program.training, tmp_path / "a")
    assert program.rule.appliesGradientClipping is True


def test_weights_alone(tmp_path):
    """An inference graph takes weights and statistics from a checkpoint of training; random streams stay."""
    trained = Classifier().compiled()
    trained.train(0, 3)
    save_checkpoint(trained.training, tmp_path / "a")
    randomness.reseed(1)
    fresh = Classifier(seed=4)
    inference = mlc.MLCInferenceGraph(graphObjects=[fresh.graph])
    for graph in (inference, fresh.graph):
        load_checkpoint(graph, tmp_path / "a")
    assert same(fresh.state(), trained.state())
    assert randomness.seed == 1
    other = Classifier("SGD", seed=4)
    load_checkpoint(other.training, tmp_path / "a", resume=False)
    assert same(other.state(), trained.state()) and other.rule.learningRate == pytest.approx(0.1)


def test_trained_inputs(tmp_path):
    def program(start: float):
        x, y, offset = empty(2, 3), empty(2, 3), holding(np.full((1, 3), start, np.float32))
        graph = mlc.MLCGraph()
        graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), sources=[x, offset])
        rule = mlc.MLCSGDOptimizer(descriptor=settings(), momentumScale=0.9, usesNesterovMomentum=False)
        training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
        training.addInputs({"x": x}, lossLabels={"y": y})
        training.setTrainingTensorParameters([mlc.MLCTensorParameter(tensor=offset)])
        assert training.compile(options=[], device=device())

        def step(seed: int) -> np.ndarray:
            given = {"x": data(numbers(2, 3, seed=seed))}, {"y": data(numbers(2, 3, seed=seed + 50))}
            assert training.execute(
                inputsData=given[0], lossLabelsData=given[1], lossLabelWeightsData=None, batchSize=2
            )
            return offset.numpy().copy()

        return training, step

    straight, step = program(0.0)
    step(0)
    save_checkpoint(straight, tmp_path / "a")
    want = step(1)
    other, again = program(5.0)
    load_checkpoint(other, tmp_path / "a")
    assert np.array_equal(again(1), want)
    names = set(load_file(tmp_path / "a"))
    assert names == {"trained/0", "optimizer/trained/0/momentum", "generator/platform/cpu"}


def test_torch_layers(tmp_path):
    def program(seed: int):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        with torch.no_grad():
            for n, p in enumerate(net.parameters()):
                p.copy_(torch.from_numpy(numbers(*p.shape, seed=seed + n)))
        x = empty(4, 3)
        graph = mlc.MLCGraph()
        graph.node(TorchLayer(net, label="net"), source=x)
        return net, graph

    net, graph = program(0)
    net(torch.ones(4, 3))
    save_checkpoint(graph, tmp_path / "a")
    other, target = program(100)
    load_checkpoint(target, tmp_path / "a")
    for name, value in net.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)
    assert "net.1.num_batches_tracked" in load_file(tmp_path / "a")


def normalized(given: bool) -> tuple[mlc.MLCLayer, mlc.MLCGraph]:
    """A layer with running statistics, ours or the program's own."""
    layer = TorchLayer(torch.nn.BatchNorm2d(3), label="norm") if given else normalization(3)
    graph = mlc.MLCGraph()
    assert graph.node(layer, source=empty(2, 3, 4, 4)) is not None
    return layer, graph


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda m: m.register_buffer("note", torch.ones(2)),
            "buffer 'note' of its module is not in the layer's memory",
        ),
        (
            lambda m: setattr(m, "running_mean", torch.ones(3)),
            "buffer 'running_mean' of its module is not in the layer's",
        ),
        (lambda m: delattr(m, "running_mean"), "buffer that its module had is no longer there"),
    ],
)
def test_buffers_that_are_not_the_layer_s_are_refused(given, change, says, tmp_path):
    """``state_dict`` has them, and a file without them would go unnoticed."""
    layer, graph = normalized(given)
    save_checkpoint(graph, tmp_path / "good")
    change(layer.module)
    with pytest.raises(mlc.MLCRefusal, match=says):
        save_checkpoint(graph, tmp_path / "bad")
    with pytest.raises(mlc.MLCRefusal, match=says):
        load_checkpoint(graph, tmp_path / "good")
    assert [p.name for p in tmp_path.iterdir()] == ["good"]


@pytest.mark.parametrize("given", [True, False])
def test_a_buffer_that_state_dict_leaves_out_is_left_out(given, tmp_path):
    layer, graph = normalized(given)
    layer.module.register_buffer("note", torch.ones(2), persistent=False)
    layer.module.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    save_checkpoint(graph, tmp_path / "a")
    found = [value for name, value in load_file(tmp_path / "a").items() if name.endswith("running_mean")]
    assert [value.flatten().tolist() for value in found] == [[1, 2, 3]]
    assert not [name for name in load_file(tmp_path / "a") if name.endswith("note")]
    other, target = normalized(given)
    load_checkpoint(target, tmp_path / "a")
    assert other.module.running_mean.flatten().tolist() == [1, 2, 3]


def test_a_tensor_in_two_layers_is_saved_once(tmp_path):
    weights, graph, x = holding(numbers(1, 9, 1, 1)), mlc.MLCGraph(), empty(2, 3)
    shape = mlc.MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=3, outputFeatureChannelCount=3)
    for _ in range(2):
        x = graph.node(mlc.MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=shape), source=x)
    save_checkpoint(graph, tmp_path / "a")
    assert "FullyConnected_1.weights" not in load_file(tmp_path / "a")
    before = weights.numpy().copy()
    weights.torch.zero_()
    load_checkpoint(graph, tmp_path / "a")
    assert np.array_equal(weights.numpy(), before)


def test_memory_stays_where_it_is(tmp_path):
    """Loading writes into the tensors, so that compiled graphs, modules and the caller's buffers see it."""
    program = Classifier().compiled()
    module = program.training.to_module()
    save_checkpoint(program.training, tmp_path / "a")
    before, address = program.state(), module.dense1.weights.data_ptr()
    program.train(0, 2)
    load_checkpoint(program.training, tmp_path / "a")
    assert module.dense1.weights.data_ptr() == address == program.dense1.weights.torch.data_ptr()
    assert same(program.state(), before)


def test_gradients_of_the_past_are_forgotten(tmp_path):
    program = Classifier().compiled()
    save_checkpoint(program.training, tmp_path / "a")
    program.train(0, 1)
    load_checkpoint(program.training, tmp_path / "a")
    assert not program.training.executeOptimizerUpdate()
    assert "no gradient" in str(mlc.last_refusal())


# The file


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    program, path = Classifier(), tmp_path / "a.safetensors"
    save_checkpoint(program.training, path)
    old = path.read_bytes()
    program.dense1.weights.torch.zero_()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(program.training, path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_the_disk_has_it_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    real = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (done.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"), real[0](fd))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), real[1](a, b)))
    save_checkpoint(Classifier().training, tmp_path / "a")
    assert done == ["file", "replace", "folder"]


def test_it_may_be_read_by_whoever_may_read_other_files(tmp_path):
    (tmp_path / "other").touch()
    save_checkpoint(Classifier().training, tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "other"]


def test_missing_files_and_folders(tmp_path):
    program = Classifier()
    with pytest.raises(FileNotFoundError):
        load_checkpoint(program.training, tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        load_checkpoint(program.training, tmp_path)
    with pytest.raises(FileNotFoundError):
        save_checkpoint(program.training, tmp_path / "no folder" / "a")
    with pytest.raises(IsADirectoryError):
        save_checkpoint(program.training, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_plain_file_is_left_alone(tmp_path):
    """Reading from a pipe would wait for ever, and a device would be replaced by a file."""
    os.mkfifo(tmp_path / "pipe")
    for call in (save_checkpoint, load_checkpoint):
        with pytest.raises(OSError, match="plain file"):
            call(Classifier().training, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 1


def test_what_is_no_graph_is_a_type_error(tmp_path):
    for call in (save_checkpoint, load_checkpoint):
        with pytest.raises(TypeError, match="expects an MLCGraph"):
            call(torch.nn.Linear(2, 2), tmp_path / "a")


def test_a_module_of_the_graph_is_not_taken_for_the_graph(tmp_path):
    """Its class bears the name of the graph's."""
    module = Classifier().training.to_module()
    for call in (save_checkpoint, load_checkpoint):
        with pytest.raises(TypeError, match=r"got a torch module: give the graph that it was made of by to_module"):
            call(module, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_without_safetensors_it_says_what_to_install(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "safetensors"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ModuleNotFoundError, match="python -m pip install safetensors"):
        save_checkpoint(Classifier().training, tmp_path / "a")


def test_of_more_buffers_than_the_optimizer_keeps_the_first_are_filled(tmp_path):
    """As ``compile`` takes them; fewer are refused, and nothing is written."""
    path = tmp_path / "state.safetensors"
    trained = Classifier("Adam").compiled()
    trained.train(0, 2)
    save_checkpoint(trained.training, path)
    saved = load_file(path)
    want = [t.numpy() for name, t in sorted(saved.items()) if "dense1.weights/" in name]  # momentum, velocity
    assert len(want) == 2

    resumed = Classifier("Adam", seed=40)
    weights = resumed.dense1.weights
    buffers = [np.full(weights.shape, n, np.float32) for n in (5, 6, 7)]
    assert weights.bindOptimizerData([data(b) for b in buffers], deviceData=None)
    with pytest.warns(mlc.MLCTrainingWarning, match="keeps 2 tensors .* 3 are bound"):
        resumed.compiled()
    load_checkpoint(resumed.training, path)
    for got, expected in zip(buffers, [*want, np.full(weights.shape, 7, np.float32)], strict=True):
        np.testing.assert_array_equal(got.ravel(), expected.ravel())

    short = Classifier("Adam", seed=40)
    weights, buffer = short.dense1.weights, np.full(short.dense1.weights.shape, 5, np.float32)
    assert weights.bindOptimizerData([data(buffer)], deviceData=None)
    before = weights.numpy().copy()
    with pytest.raises(mlc.MLCRefusal, match=r"keeps 2 tensors for 'dense1.weights', 1 are bound"):
        load_checkpoint(short.training, path)
    assert (buffer == 5).all() and np.array_equal(weights.numpy(), before)


def test_a_program_s_default_device_has_no_say_in_what_is_read(tmp_path):
    save_checkpoint(Classifier("Adam").training, tmp_path / "new.safetensors")  # which holds no optimizer state yet
    trained = Classifier("Adam", seed=40).compiled()
    trained.train(0, 2)
    torch.set_default_device("meta")
    try:
        load_checkpoint(trained.training, tmp_path / "new.safetensors")
    finally:
        torch.set_default_device(None)
    save_checkpoint(trained.training, tmp_path / "after.safetensors")
    states = [t for name, t in load_file(tmp_path / "after.safetensors").items() if name.startswith("optimizer/")]
    assert states and not any(t.any() for t in states)
