"""What crosses the bridge by value: data, options, numbers and names; and how long memory is held."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from mlc_torch import MLCDataType, MLCPlatform, MLCTensor, MLCTensorData, last_refusal
from mlc_torch.testing import seeded
from tests.swift.toolbox import HERE, complaints, run, written


@pytest.mark.swift
@pytest.mark.parametrize("how", [[], ["-O"]], ids=["Onone", "O"])
def test_data_is_a_value(how):
    done = run(HERE / "behaviour" / "data.swift", *how)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


RELU = """import MLCompute
func floats(_ data: Data?) -> [Float] { data!.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) } }
let x = MLCTensor(shape: [4]), graph = MLCGraph(), y = graph.node(with: MLCActivationLayer.relu, source: x)!
let inference = MLCInferenceGraph(graphObjects: [graph])
let numbers = UnsafeMutablePointer<Float>.allocate(capacity: 4)
numbers.update(from: [-1, 2, -3, 4], count: 4)
let data = MLCTensorData(bytesNoCopy: numbers, length: 16)
"""


@pytest.mark.swift
def test_unknown_options_mean_nothing(tmp_path):
    written(
        tmp_path,
        a=RELU
        + """inference.addInputs(["x": x])
print(inference.compile(options: MLCGraphCompilationOptions(rawValue: ~0x4), device: .cpu()))
print(inference.execute(inputsData: ["x": data], batchSize: 0, options: MLCExecutionOptions(rawValue: .max & ~1)))
print(inference.execute(inputsData: ["x": data], batchSize: 0, options: [.synchronous, .init(rawValue: 1 << 40)]), floats(y.data))
""",
    )
    done = run(tmp_path / "a.swift")
    assert (done.returncode, done.stdout) == (0, "true\ntrue\ntrue [0.0, 2.0, 0.0, 4.0]\n"), done.stderr


@pytest.mark.swift
def test_names_that_swift_takes_for_the_same(tmp_path):
    """An é is one character or two, in short names and in long ones."""
    written(
        tmp_path,
        a=RELU
        + r"""for more in ["", " and some more letters"] {
    let inference = MLCInferenceGraph(graphObjects: [graph])
    print(inference.addInputs(["caf\u{e9}" + more: x]), inference.compile(device: .cpu()))
    print(inference.execute(inputsData: ["cafe\u{301}" + more: data], batchSize: 0), floats(y.data))
}
""",
    )
    done = run(tmp_path / "a.swift")
    assert done.stdout == 2 * "true true\ntrue [0.0, 2.0, 0.0, 4.0]\n", done.stderr


@pytest.mark.swift
def test_large_numbers_without_a_sign(tmp_path):
    written(
        tmp_path,
        a=RELU
        + """for number: NSNumber in [.init(value: UInt64.max), .init(value: UInt64(1) << 63), .init(value: UInt32.max), 7] {
    print(floats(MLCTensor(shape: [1], fillWithData: number, dataType: .float32).data))
}
""",
    )
    done = run(tmp_path / "a.swift")
    assert done.stdout == "[1.8446744e+19]\n[9.223372e+18]\n[4.2949673e+09]\n[7.0]\n", done.stderr
    assert complaints(done) == []


@pytest.mark.swift
def test_a_seed_without_a_sign(tmp_path):
    written(
        tmp_path,
        a="""import MLCompute
for seed in [UInt64.max, UInt64(1) << 63, 7] {
    MLCPlatform.setRNGSeedTo(NSNumber(value: seed))
    print(MLCPlatform.getRNGseed()!)
}
MLCPlatform.setRNGSeedTo(-5)
print(MLCPlatform.getRNGseed()!)
_ = MLCTensor(shape: [1], fillWithData: NSNumber(value: UInt64.max), dataType: .int32)
""",
    )
    done = run(tmp_path / "a.swift")
    assert done.stdout == "18446744073709551615\n9223372036854775808\n7\n-5\n", done.stderr
    assert "18446744073709551615 does not fit into int32" in done.stderr


@pytest.mark.swift
def test_nothing_is_copied_into_no_memory(tmp_path):
    written(
        tmp_path,
        a=RELU
        + """let tensor = MLCTensor(shape: [4], data: data, dataType: .float32)
var nothing: [Float] = []
print(tensor.copyDataFromDeviceMemory(toBytes: &nothing, length: 0, synchronizeWithDevice: false))
""",
    )
    done = run(tmp_path / "a.swift")
    assert done.stdout == "true\n" and complaints(done) == []


# The same in Python, without a compiler


@pytest.mark.parametrize("seed", [2**64 - 1, 2**63, -(2**63)])
def test_a_number_has_64_bits_with_or_without_a_sign(seed):
    with seeded(1):  # what follows leaves the platform as it was
        MLCPlatform.setRNGSeedTo(seed)
        assert MLCPlatform.getRNGseed() == seed
    tensor = MLCTensor(shape=[1], fillWithData=seed, dataType=MLCDataType.float32)
    assert np.frombuffer(tensor.data, np.float32) == np.float32(seed)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_no_number_has_more_bits(number):
    with pytest.raises(TypeError, match=rf"expects NSNumber \(a whole number of 64 bits, .*got {number}"):
        MLCPlatform.setRNGSeedTo(number)
    with pytest.raises(TypeError, match=rf"expects NSNumber \(a whole number of 64 bits, .*got {number}"):
        MLCTensor(shape=[1], fillWithData=number, dataType=MLCDataType.float32)


def test_an_empty_buffer_takes_nothing_and_is_too_small_for_more():
    tensor = MLCTensor(shape=[2], fillWithData=1.0, dataType=MLCDataType.float32)
    into = tensor.copyDataFromDeviceMemory
    assert into(toBytes=np.zeros(0, np.float32), length=0, synchronizeWithDevice=False)
    assert into(toBytes=bytes(8), length=0, synchronizeWithDevice=False)
    assert not into(toBytes=np.zeros(0, np.float32), length=8, synchronizeWithDevice=False)
    assert last_refusal().reason == "length is 8 bytes, the buffer holds 0"
    assert not into(toBytes=bytes(8), length=8, synchronizeWithDevice=False)
    assert last_refusal().reason == "the buffer is read-only"


MEMORY = {
    "array": lambda: np.ones(4, np.float32),
    "read-only": lambda: np.ones(4, np.float32).tobytes(),
    "bytearray": lambda: bytearray(np.ones(4, np.float32).tobytes()),
    "torch": lambda: torch.ones(4),
}


@pytest.mark.usefixtures("only_what_is_new")
@pytest.mark.parametrize("make", MEMORY.values(), ids=MEMORY)
def test_a_deallocator_waits_for_whoever_looks(make):
    calls, buffer = [], make()
    data = MLCTensorData(bytesNoCopy=buffer, length=16, deallocator=lambda b, n: calls.append((b, n)))
    assert data.bytes.readonly == isinstance(buffer, bytes)
    tensor = MLCTensor(shape=[4], data=data, dataType=MLCDataType.float32)
    looking = [tensor.data, np.asarray(tensor._cell.current()), data.bytes[4:8]]
    del data, tensor
    while looking:
        gc.collect()
        assert calls == [] and np.frombuffer(looking.pop(), np.float32)[0] == 1
    gc.collect()
    assert len(calls) == 1 and calls[0][0] is buffer and calls[0][1] == 16


def test_a_deallocator_of_no_memory_runs_too():
    calls = []
    MLCTensorData(bytesNoCopy=bytearray(4), length=0, deallocator=lambda b, n: calls.append(n))
    assert calls == [0]
