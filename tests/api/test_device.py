"""Devices, and the platform's seed."""

from __future__ import annotations

import copy
import logging
import threading

import numpy as np
import pytest
import torch

import mlc_torch as mlc
import mlc_torch.device
from mlc_torch import MLCDevice, MLCDeviceType, MLCPlatform, MLCTensor, last_refusal
from mlc_torch.device import Randomness, randomness
from mlc_torch.testing import seeded, seeding

GPUS = [torch.device("cuda", 0), torch.device("cuda", 1)]


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.delenv("MLC_TORCH_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def mps(monkeypatch):
    monkeypatch.delenv("MLC_TORCH_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.delenv("MLC_TORCH_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def types(device):
    return device.type, device.actualDeviceType, device.gpuDevices


CPU = (MLCDeviceType.cpu, MLCDeviceType.cpu, [])


def test_the_cpu():
    for device in (MLCDevice(), MLCDevice.cpu(), MLCDevice.cpuDevice(), MLCDevice(type=MLCDeviceType.cpu)):
        assert types(device) == CPU
        assert device.torch_device == torch.device("cpu")
    assert types(copy.copy(MLCDevice())) == CPU
    assert repr(MLCDevice()) == "MLCDevice(type=MLCDeviceType.cpu)"


def test_without_a_gpu(no_gpu):
    for make in (MLCDevice.gpu, MLCDevice.gpuDevice, lambda: MLCDevice(type=MLCDeviceType.gpu)):
        assert make() is None
        assert str(last_refusal()).endswith("no GPU here: torch sees neither CUDA nor MPS")
    assert types(MLCDevice(type=MLCDeviceType.any)) == CPU
    assert types(MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True)) == CPU
    assert MLCDevice(gpuDevices=[0]) is None and "there are 0" in str(last_refusal())
    assert MLCDevice(gpuDevices=["cuda:0"]) is None and "no GPU" in str(last_refusal())


def test_the_neural_engine_is_out_of_reach():
    for make in (MLCDevice.ane, MLCDevice.aneDevice, lambda: MLCDevice(type=MLCDeviceType.ane)):
        assert make() is None
        assert "cannot be reached" in str(last_refusal())


def test_an_unknown_type_is_refused():
    assert MLCDevice(type=7) is None
    assert "7 is no MLCDeviceType" in str(last_refusal())


def test_with_two_gpus(two_gpus, caplog):
    one = (MLCDeviceType.gpu, MLCDeviceType.gpu, GPUS[:1])
    assert types(MLCDevice.gpu()) == types(MLCDevice(type=MLCDeviceType.any)) == one
    assert MLCDevice.gpu().torch_device == GPUS[0]
    with caplog.at_level(logging.INFO, "mlc_torch"):
        both = MLCDevice(type=MLCDeviceType.gpu, selectsMultipleComputeDevices=True)
    assert both.gpuDevices == GPUS and both.torch_device == GPUS[0]
    (told,) = [r.getMessage() for r in caplog.records]
    assert told == "of 2 GPUs the first, cuda:0, is used; torchrun --nproc-per-node=2 starts a process for each"
    assert (both.rank, both.rank_count) == (0, 1)
    both.gpuDevices.clear()
    assert both.gpuDevices == GPUS
    assert "cuda" in repr(both)


def test_gpus_by_name(two_gpus):
    for name in (GPUS[1], "cuda:1", 1, np.int64(1), np.uint8(1)):
        assert MLCDevice(gpuDevices=[name]).gpuDevices == GPUS[1:]
    assert MLCDevice(gpuDevices=["cuda"]).gpuDevices == GPUS[:1]
    assert MLCDevice.deviceWithGPUDevices_([1, 0]).gpuDevices == GPUS[::-1]
    for wrong, says in (
        ([], "is empty"),
        ([2], "there are 2"),
        (["tpu"], "does not know"),
        (["mps"], "there is cuda:0"),
        ([np.int64(-1)], "names GPU -1; there are 2"),
        # torch itself takes these for cuda:44, cuda:1 and cuda
        (["cuda:300"], "names 'cuda:300'; there is cuda:0, cuda:1"),
        (["cuda:257"], "names 'cuda:257'; there is cuda:0, cuda:1"),
        (["cuda:255"], "names 'cuda:255'; there is cuda:0, cuda:1"),
    ):
        assert MLCDevice(gpuDevices=wrong) is None
        assert says in str(last_refusal())
    for wrong in (1, "cuda", [1.5], [True], [None], [np.float32(1)], [np.bool_(True)]):
        with pytest.raises(TypeError):
            MLCDevice(gpuDevices=wrong)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ("cuda:1", GPUS[1:]),
        ("cuda", GPUS),
        ("cpu", []),
        ("mps", []),
        ("", GPUS),
        (" cuda:0 ", GPUS[:1]),
        ("cuda:256", []),
        ("cuda:255", []),
    ],
)
def test_the_environment_restricts_what_is_offered(two_gpus, monkeypatch, allowed, expected):
    monkeypatch.setenv("MLC_TORCH_DEVICE", allowed)
    assert mlc_torch.device.offered() == expected
    if not expected:
        assert MLCDevice.gpu() is None
        assert f"torch sees cuda:0, cuda:1, which MLC_TORCH_DEVICE={allowed} leaves out" in str(last_refusal())


def test_a_wrong_name_in_the_environment_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "quantum")
    assert MLCDevice.gpu() is None
    assert "MLC_TORCH_DEVICE='quantum' names no device" in str(last_refusal())
    assert types(MLCDevice()) == CPU


def test_mps_is_a_gpu(mps):
    assert MLCDevice.gpu().torch_device == torch.device("mps", 0)
    assert MLCDevice(gpuDevices=["mps"]).type is MLCDeviceType.gpu


# The seed


@pytest.fixture
def unseeded():
    yield
    randomness.reseed(None)


def drawn(**more):
    return MLCTensor(shape=[64], randomInitializerType=1, **more).numpy().copy()


@pytest.mark.parametrize("seed", [0, -7, 2**40])
def test_a_seed_makes_every_initializer_restart(unseeded, seed):
    assert MLCPlatform.getRNGseed() is None
    MLCPlatform.setRNGSeedTo(seed)
    assert MLCPlatform.getRNGseed() == seed
    first = drawn()
    assert (drawn() == first).all()
    MLCPlatform.setRNGSeedTo_(seed + 1)
    assert (drawn() != first).any()
    MLCPlatform.setRNGSeedTo(np.int64(seed))
    assert (drawn() == first).all()


def test_without_a_seed_values_are_fresh():
    assert MLCPlatform.getRNGseed() is None
    assert (drawn() != drawn()).any()


def test_a_seed_is_a_whole_number(unseeded):
    with mlc.strict(), pytest.raises(mlc.MLCRefusal, match="whole number"):
        MLCPlatform.setRNGSeedTo(1.5)
    with pytest.raises(TypeError):
        MLCPlatform.setRNGSeedTo("1")
    assert MLCPlatform.getRNGseed() is None


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        ("a", TypeError),
        (1.5, TypeError),
        (True, TypeError),
        (b"1", TypeError),
        (2**64, mlc.MLCRefusal),
        (-(2**63) - 1, mlc.MLCRefusal),
    ],
)
def test_what_is_no_seed_changes_nothing(unseeded, seed, error):
    cpu = torch.device("cpu")
    randomness.reseed(3)
    before = randomness.stream(cpu).get_state()
    with pytest.raises(error, match=r"the seed must .*, got"):
        randomness.reseed(seed)
    with pytest.raises(error, match=r"the seed must .*, got"), seeded(seed):
        pass
    assert randomness.seed == 3 and torch.equal(randomness.stream(cpu).get_state(), before)


@pytest.mark.parametrize("seed", [np.int64(5), 2**64 - 1, -(2**63)])
def test_seeds_at_the_limits_and_of_numpy(unseeded, seed):
    with seeded(seed):
        first = drawn()
        assert type(randomness.seed) is int
    with seeded(int(seed)):
        assert (drawn() == first).all()


HOST = torch.device("cpu")


def of_stream(count: int) -> list[float]:
    return torch.rand(count, generator=randomness.stream(HOST)).tolist()


@pytest.mark.parametrize("seed", [5, None])
def test_after_a_seeded_block_the_numbers_go_on(unseeded, seed):
    """Beside them runs a generator of torch's that knows of no block."""
    randomness.reseed(seed)
    of_stream(3)
    beside = torch.Generator()
    beside.set_state(randomness.stream(HOST).get_state())

    def go_on() -> None:
        assert randomness.seed == seed
        assert of_stream(4) == torch.rand(4, generator=beside).tolist()

    for inner in (1, 5):
        with seeded(inner) as given:
            assert given == randomness.seed == inner
            assert of_stream(6) == torch.rand(6, generator=torch.Generator().manual_seed(inner)).tolist()
            with seeded(9):
                of_stream(2)
        go_on()
    with pytest.raises(ZeroDivisionError), seeded(1):
        MLCPlatform.setRNGSeedTo(of_stream(7)[0] // 0)
    go_on()

    @seeded(3)
    def calls_itself(times: int) -> list[float]:
        return calls_itself(times - 1) if times else of_stream(2)

    assert calls_itself(2) == torch.rand(2, generator=torch.Generator().manual_seed(3)).tolist()
    go_on()


def test_a_stream_that_begins_in_a_seeded_block_begins_again_after_it(monkeypatch):
    source = Randomness()
    monkeypatch.setattr(seeding, "randomness", source)
    source.reseed(5)
    with seeded(1):
        made = source.stream(HOST)
        assert torch.equal(torch.rand(3, generator=made), torch.rand(3, generator=torch.Generator().manual_seed(1)))
    assert source.stream(HOST) is made, "a recording may hold it"
    assert torch.equal(torch.rand(3, generator=made), torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_dropout_goes_on_after_a_seeded_block(unseeded):
    graph, x = mlc.MLCGraph(), MLCTensor(shape=[1, 12])
    graph.node(mlc.MLCDropoutLayer(rate=0.5, seed=0), source=x)
    drop = graph.to_module().train()
    MLCPlatform.setRNGSeedTo(5)
    beside = torch.Generator().manual_seed(5)
    for seed in (1, 2, 3):
        want = torch.empty(1, 12).bernoulli_(0.5, generator=beside) * 2
        assert torch.equal(drop(torch.ones(1, 12)), want)
        with seeded(seed):
            drop(torch.ones(1, 12))


def test_streams_run_on_and_restart_with_the_seed():
    source, cpu = Randomness(), torch.device("cpu")
    source.reseed(3)
    first, second = (torch.rand(4, generator=source.stream(cpu)) for _ in range(2))
    assert not torch.equal(first, second)
    source.reseed(3)
    assert torch.equal(torch.rand(4, generator=source.stream(cpu)), first)


def test_one_stream_serves_many_threads():
    source, found = Randomness(), []
    threads = [threading.Thread(target=lambda: found.append(source.stream(torch.device("cpu")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({id(stream) for stream in found}) == 1


# MLC_TORCH_GPU


@pytest.fixture
def stand_in(monkeypatch) -> None:
    monkeypatch.setenv("MLC_TORCH_GPU", "cpu")
    monkeypatch.delenv("MLC_TORCH_DEVICE", raising=False)
    mlc_torch.device._tell_of_the_stand_in.cache_clear()


def test_the_cpu_stands_in_for_a_gpu(stand_in, caplog):
    gpu = MLCDevice.gpu()
    assert gpu.type == gpu.actualDeviceType == MLCDeviceType.gpu
    assert gpu.torch_device == torch.device("cpu") and gpu.gpuDevices == [torch.device("cpu")]
    assert MLCDevice(type=MLCDeviceType.gpu).type == MLCDevice(type=MLCDeviceType.any).type == MLCDeviceType.gpu
    assert MLCDevice(gpuDevices=gpu.gpuDevices).type == MLCDeviceType.gpu
    assert MLCDevice.cpu().type == MLCDeviceType.cpu
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["MLC_TORCH_GPU=cpu: what asks for a GPU is computed on the CPU"]


def test_the_stand_in_computes(stand_in):
    x, graph = MLCTensor(shape=[3]), mlc.MLCGraph()
    y = graph.node(mlc.MLCActivationLayer.relu, source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": x})
    assert inference.compile(options=[], device=MLCDevice.gpu())
    values = np.array([-1, 2, -3], np.float32)
    assert inference.execute(inputsData={"x": mlc.MLCTensorData(bytesNoCopy=values, length=12)}, batchSize=0)
    assert y.synchronizeData() and y.numpy().tolist() == [0, 2, 0] and y.device.type == MLCDeviceType.gpu


def test_another_stand_in_is_not_known(monkeypatch):
    monkeypatch.setenv("MLC_TORCH_GPU", "abacus")
    assert MLCDevice.gpu() is None
    assert last_refusal().reason == "MLC_TORCH_GPU='abacus' is not known; cpu is, for a GPU that computes on the CPU"


def test_hardware_has_a_name_and_memory():
    name, memory = mlc_torch.device.hardware(torch.device("cpu"))
    assert name.endswith("CPU") and memory > 2**28
