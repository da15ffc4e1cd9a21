"""What programs do with fully connected layers: weights in every shape, one memory, numbers the real framework gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch.descriptors import MLCConvolutionDescriptor
from mlc_torch.enums import MLCDataType
from mlc_torch.layers.fully_connected import MLCFullyConnectedLayer
from mlc_torch.tensor import MLCTensor, MLCTensorData, MLCTensorDescriptor
from tests.layers.records import descriptor, tensor


def connected(inputs, outputs, weights, biases=None):
    channels = MLCConvolutionDescriptor(
        kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
    )
    return MLCFullyConnectedLayer(weights=weights, biases=biases, descriptor=channels)


@pytest.mark.parametrize(("bias", "result"), [(2, 5), (1, 4)])
def test_the_numbers_of_a_real_program(bias, result):
    layer = connected(2, 1, tensor(np.float32([1, 0.5]), (1, 2)), tensor(np.float32([bias]), (1, 1)))
    assert layer.module(torch.tensor([[2.0, 2.0]])).tolist() == [[result]]


def test_the_weights_descriptor_of_a_convolution_serves():
    shape = MLCTensorDescriptor(
        convolutionWeightsWithInputFeatureChannelCount=4, outputFeatureChannelCount=2, dataType=MLCDataType.float32
    )
    memory = np.arange(8, dtype=np.float32)
    data = MLCTensorData(bytesNoCopy=memory, length=memory.nbytes)
    layer = connected(4, 2, MLCTensor(descriptor=shape, data=data))
    assert layer.module(torch.eye(4)).T.flatten().tolist() == memory.tolist()


def test_weights_and_biases_are_the_callers_own_memory():
    memory = np.float32([1, 2, 3, 4]), np.float32([5, 6])
    weights, biases = (
        MLCTensor(shape=[1, m.size, 1, 1], data=MLCTensorData(bytesNoCopy=m, length=m.nbytes), dataType=1)
        for m in memory
    )
    layer = connected(2, 2, weights, biases)
    uses = {use.role: use for use in layer._parameter_uses}
    assert list(uses) == ["weights", "biases"]
    assert uses["weights"].parameter is layer.weightsParameter and uses["biases"].parameter is layer.biasesParameter
    with torch.no_grad():
        for parameter in layer.module.parameters():
            parameter.mul_(2)
    assert memory[0].tolist() == [2, 4, 6, 8] and memory[1].tolist() == [10, 12]
    memory[0][0] = 100
    assert layer.module.weight[0, 0] == 100


def test_one_tensor_in_two_layers_is_one_memory():
    shared = tensor(np.float32([1, 2, 3, 4]), (2, 2))
    one, two = connected(2, 2, shared), connected(4, 1, shared)
    with torch.no_grad():
        one.module.weight.zero_()
    assert two.module.weight.tolist() == [[0, 0, 0, 0]]


def test_no_biases_and_tensors_without_data():
    layer = connected(2, 3, MLCTensor(shape=[1, 6, 1, 1]))
    assert layer.biases is None and layer.biasesParameter is None and layer.module.bias is None
    assert layer.module(torch.ones(1, 2)).tolist() == [[0, 0, 0]]


def test_a_smaller_batch_is_taken():
    layer = connected(4, 2, tensor(np.arange(8, dtype=np.float32)))
    for shape in [(3, 4), (3, 5, 4), (3, 4, 1, 1)]:
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        layer._infer([descriptor((8, *shape[1:]))])
        torch.testing.assert_close(layer.module(x[:2]), layer.module(x)[:2])


def test_half_precision_parameters():
    layer = connected(2, 1, tensor(np.float16([1, 0.5])), tensor(np.float16([2])))
    assert layer._infer([descriptor((1, 2), "float16")])[0].dataType is MLCDataType.float16
    assert layer.module(torch.tensor([[2.0, 2.0]], dtype=torch.float16)).item() == 5


def test_making_the_module_draws_no_random_numbers():
    before = torch.get_rng_state()
    assert connected(2, 3, MLCTensor(shape=[1, 6, 1, 1])).module is not None
    assert torch.equal(torch.get_rng_state(), before)
