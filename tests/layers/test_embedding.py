"""Rows that stay zero, rows that are shortened in the dictionary itself, and gradients by frequency."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch.descriptors import MLCEmbeddingDescriptor
from mlc_torch.device import MLCDevice
from mlc_torch.enums import MLCDataType
from mlc_torch.layers.embedding import MLCEmbeddingLayer
from mlc_torch.tensor import MLCTensor, MLCTensorData
from tests.layers.embedding_records import shortened
from tests.layers.records import descriptor, values


def embedding(memory, shape=None, **options):
    """A layer over the caller's own dictionary."""
    count, dimension = memory.shape
    given = {"paddingIndex": None, "maximumNorm": None, "pNorm": 2.0, "scalesGradientByFrequency": False} | options
    data = MLCTensorData(bytesNoCopy=memory, length=memory.nbytes)
    return MLCEmbeddingLayer(
        descriptor=MLCEmbeddingDescriptor(embeddingCount=count, embeddingDimension=dimension, **given),
        weights=MLCTensor(shape=list(shape or memory.shape), data=data, dataType=MLCDataType.float32),
    )


def gradient(layer, indices, upstream):
    module = layer.module
    module(indices).backward(upstream)
    return module.weight.grad.numpy()


def summed(indices, upstream, shape):
    """For each row the sum of the gradients of its uses."""
    total = np.zeros(shape)
    for index, row in zip(indices.flatten().tolist(), upstream.reshape(-1, shape[1]).tolist(), strict=True):
        total[index] += row
    return total


INDICES = torch.tensor([[0, 3, 3], [1, 3, 1]], dtype=torch.int32)
UPSTREAM = torch.from_numpy(values(2, 3, 2, seed=5))


def test_the_padding_row_becomes_zero_in_the_callers_memory_and_gets_no_gradient():
    memory = values(5, 2)
    layer, before = embedding(memory, paddingIndex=3), memory.copy()
    result = layer.module(INDICES)
    assert not memory[3].any() and np.array_equal(memory[[0, 1, 2, 4]], before[[0, 1, 2, 4]])
    assert not result[INDICES == 3].any()
    want = summed(INDICES, UPSTREAM, (5, 2))
    want[3] = 0
    np.testing.assert_allclose(gradient(layer, INDICES, UPSTREAM), want, rtol=1e-6)


def test_gradients_of_one_row_add_up():
    np.testing.assert_allclose(
        gradient(embedding(values(5, 2)), INDICES, UPSTREAM), summed(INDICES, UPSTREAM, (5, 2)), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_gradients_by_frequency_are_the_mean_over_the_uses(dtype):
    layer = embedding(values(5, 2), scalesGradientByFrequency=True)
    uses = np.array([1, 2, 1, 3, 1])[:, None]  # rows 2 and 4 are not used: their gradient is 0 over anything
    want = summed(INDICES, UPSTREAM, (5, 2)) / uses
    np.testing.assert_allclose(gradient(layer, INDICES.to(dtype), UPSTREAM), want, rtol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
@pytest.mark.parametrize("shape", [None, (1, 5, 1, 2)])
def test_rows_are_shortened_in_the_callers_memory_when_they_are_used(p, shape):
    memory = values(5, 2) * 3
    memory[1] *= 0.01  # short enough already
    layer, before = embedding(memory, shape, maximumNorm=1.5, pNorm=p), memory.copy()
    assert layer.module is not None and np.array_equal(memory, before)  # not before the first pass
    result = layer.module(INDICES).detach().numpy()
    want = before.copy()
    for row in (0, 1, 3):
        want[row] = shortened(before[row].astype(float), 1.5, p)
    np.testing.assert_allclose(memory, want, rtol=1e-6)
    assert np.array_equal(memory[[1, 2, 4]], before[[1, 2, 4]])
    np.testing.assert_allclose(result, want[INDICES.numpy()], rtol=1e-6)
    np.testing.assert_allclose(layer.module(INDICES).detach().numpy(), result, rtol=1e-6)


def test_a_shortened_dictionary_still_gets_gradients_by_the_rules():
    layer = embedding(values(5, 2) * 3, maximumNorm=1.0, paddingIndex=3, scalesGradientByFrequency=True)
    want = summed(INDICES, UPSTREAM, (5, 2)) / np.array([1, 2, 1, 3, 1])[:, None]
    want[3] = 0
    np.testing.assert_allclose(gradient(layer, INDICES, UPSTREAM), want, rtol=1e-6)


def test_rows_are_shortened_in_inference_too():
    memory = values(5, 2) * 3
    layer = embedding(memory, maximumNorm=1.0)
    with torch.inference_mode():
        layer.module(INDICES)
    np.testing.assert_allclose(np.linalg.norm(memory[[0, 1, 3]], axis=1).max(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"maximumNorm": 0.1}])
@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_out_of_range_is_an_error_and_changes_nothing(index, options):
    memory = values(5, 2)
    layer, before = embedding(memory, **options), memory.copy()
    with pytest.raises(IndexError):
        layer.module(torch.tensor([0, index]))
    assert np.array_equal(memory, before)


def test_the_result_has_the_type_of_the_weights():
    half = MLCTensor(shape=[4, 3], dataType=MLCDataType.float16)
    layer = MLCEmbeddingLayer(descriptor=MLCEmbeddingDescriptor(embeddingCount=4, embeddingDimension=3), weights=half)
    assert layer._infer([descriptor((2, 3), "int64")])[0].dataType is MLCDataType.float16
    assert layer.module(torch.tensor([1])).dtype is torch.float16


def test_a_smaller_batch_is_taken():
    module = embedding(values(5, 2)).module
    assert torch.equal(module(INDICES[:1]), module(INDICES)[:1])


def test_the_framework_says_whole_numbers_on_the_cpu_alone():
    cpu, gpu = MLCDevice.cpu(), MLCDevice._on([torch.device("cuda", 0)])
    answers = {t: MLCEmbeddingLayer.supportsDataType(t, on=cpu) for t in MLCDataType}
    assert {t for t, yes in answers.items() if yes} == {MLCDataType.int32, MLCDataType.int64}
    assert not any(MLCEmbeddingLayer.supportsDataType(t, on=gpu) for t in MLCDataType)


def test_making_the_module_draws_no_random_numbers():
    before = torch.get_rng_state()
    assert embedding(values(5, 2), paddingIndex=1).module is not None
    assert torch.equal(torch.get_rng_state(), before)
