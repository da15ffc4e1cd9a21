"""One small case for each layer class, run on a device and held against the CPU. ``doctor --check`` reads the table."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import mlc_torch as mlc
from mlc_torch.refusals import in_one_line
from mlc_torch.spelling import CLASSES

_FLOAT, _INDEX, _TRUTH = "float32", "int32", "bool"
_MEAN = mlc.MLCReductionType.mean


@dataclass(frozen=True)
class Case:
    """How a layer is made and what it is given: shapes, with the element type where it is not float32."""

    make: Callable[[], Any]
    sources: Sequence[tuple[tuple[int, ...], str]]


def _tensor(*shape: int, seed: int = 0, low: float = -1.0) -> Any:
    values = np.random.default_rng([seed, *shape]).uniform(low, 1, shape).astype(np.float32)
    data = mlc.MLCTensorData(bytesNoCopy=values, length=values.nbytes)
    return mlc.MLCTensor(shape=shape, data=data, dataType=mlc.MLCDataType.float32)


def _floats(*shapes: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
    return [(shape, _FLOAT) for shape in shapes]


def _channels(inputs: int, outputs: int, kernel: int) -> Any:
    return mlc.MLCConvolutionDescriptor(
        kernelSizes=(kernel, kernel), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
    )


def _affine(channels: int) -> dict[str, Any]:
    shape = (1, channels, 1, 1)
    return {"beta": _tensor(*shape, seed=1), "gamma": _tensor(*shape, seed=2), "varianceEpsilon": 1e-3}


def _statistics(channels: int) -> dict[str, Any]:
    return {"mean": _tensor(1, channels, 1, 1, seed=3), "variance": _tensor(1, channels, 1, 1, seed=4, low=0.5)}


def _lstm() -> Any:
    gates = range(4)
    return mlc.MLCLSTMLayer(
        descriptor=mlc.MLCLSTMDescriptor(inputSize=3, hiddenSize=2, layerCount=1),
        inputWeights=[_tensor(2, 3, seed=g) for g in gates],
        hiddenWeights=[_tensor(2, 2, seed=10 + g) for g in gates],
        biases=[_tensor(2, seed=20 + g) for g in gates],
    )


def _attention() -> Any:
    return mlc.MLCMultiheadAttentionLayer(
        descriptor=mlc.MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=2),
        weights=[_tensor(1, 16, 1, 1, seed=i) for i in range(4)],
        biases=[_tensor(1, 4, 1, 1, seed=10 + i) for i in range(4)],
        attentionBiases=None,
    )


def _yolo() -> Any:
    anchors = struct.pack("<4f", 1.0, 2.0, 2.0, 1.0)
    return mlc.MLCYOLOLossLayer(descriptor=mlc.MLCYOLOLossDescriptor(anchorBoxes=anchors, anchorBoxCount=2))


_IMAGE, _MATRIX = (2, 4, 5, 6), (3, 4)

CASES: dict[str, Case] = {
    "MLCActivationLayer": Case(lambda: mlc.MLCActivationLayer.gelu, _floats(_IMAGE)),
    "MLCArithmeticLayer": Case(
        lambda: mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.multiply), _floats(_MATRIX, _MATRIX)
    ),
    "MLCBatchNormalizationLayer": Case(
        lambda: mlc.MLCBatchNormalizationLayer(featureChannelCount=4, **_statistics(4), **_affine(4)), _floats(_IMAGE)
    ),
    "MLCComparisonLayer": Case(
        lambda: mlc.MLCComparisonLayer(operation=mlc.MLCComparisonOperation.less), _floats(_MATRIX, _MATRIX)
    ),
    "MLCConcatenationLayer": Case(lambda: mlc.MLCConcatenationLayer(dimension=1), _floats(_MATRIX, _MATRIX)),
    "MLCConvolutionLayer": Case(
        lambda: mlc.MLCConvolutionLayer(
            weights=_tensor(1, 12, 3, 3), biases=_tensor(1, 3, 1, 1), descriptor=_channels(4, 3, 3)
        ),
        _floats(_IMAGE),
    ),
    "MLCDropoutLayer": Case(lambda: mlc.MLCDropoutLayer(rate=0.5, seed=1), _floats(_MATRIX)),
    "MLCEmbeddingLayer": Case(
        lambda: mlc.MLCEmbeddingLayer(
            descriptor=mlc.unwrap(mlc.MLCEmbeddingDescriptor(embeddingCount=3, embeddingDimension=2)),
            weights=_tensor(3, 2),
        ),
        [((2, 4), _INDEX)],
    ),
    "MLCFullyConnectedLayer": Case(
        lambda: mlc.MLCFullyConnectedLayer(
            weights=_tensor(1, 12, 1, 1), biases=_tensor(1, 3, 1, 1), descriptor=_channels(4, 3, 1)
        ),
        _floats(_MATRIX),
    ),
    "MLCGatherLayer": Case(lambda: mlc.MLCGatherLayer(dimension=1), [(_MATRIX, _FLOAT), ((3, 2), _INDEX)]),
    "MLCGramMatrixLayer": Case(lambda: mlc.MLCGramMatrixLayer(scale=0.5), _floats(_IMAGE)),
    "MLCGroupNormalizationLayer": Case(
        lambda: mlc.MLCGroupNormalizationLayer(featureChannelCount=4, groupCount=2, **_affine(4)), _floats(_IMAGE)
    ),
    "MLCInstanceNormalizationLayer": Case(
        lambda: mlc.MLCInstanceNormalizationLayer(featureChannelCount=4, **_affine(4)), _floats(_IMAGE)
    ),
    "MLCLSTMLayer": Case(_lstm, _floats((2, 4, 3))),
    "MLCLayerNormalizationLayer": Case(
        lambda: mlc.MLCLayerNormalizationLayer(
            normalizedShape=[4], beta=_tensor(4), gamma=_tensor(4, seed=1), varianceEpsilon=1e-3
        ),
        _floats(_MATRIX),
    ),
    "MLCLossLayer": Case(
        lambda: mlc.MLCLossLayer.meanSquaredError(reductionType=_MEAN, weight=1), _floats(_MATRIX, _MATRIX)
    ),
    "MLCMatMulLayer": Case(
        lambda: mlc.MLCMatMulLayer(descriptor=mlc.MLCMatMulDescriptor()), _floats((2, 3, 4), (2, 4, 5))
    ),
    "MLCMultiheadAttentionLayer": Case(_attention, _floats((2, 3, 4), (2, 5, 4), (2, 5, 4))),
    "MLCPaddingLayer": Case(lambda: mlc.MLCPaddingLayer(reflectionPadding=[1, 2]), _floats(_IMAGE)),
    "MLCPoolingLayer": Case(
        lambda: mlc.MLCPoolingLayer(
            descriptor=mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(2, 2), strides=(2, 2))
        ),
        _floats(_IMAGE),
    ),
    "MLCReductionLayer": Case(lambda: mlc.MLCReductionLayer(reductionType=_MEAN, dimension=1), _floats(_MATRIX)),
    "MLCReshapeLayer": Case(lambda: mlc.MLCReshapeLayer(shape=[2, 6]), _floats(_MATRIX)),
    "MLCScatterLayer": Case(
        lambda: mlc.MLCScatterLayer(dimension=1, reductionType=mlc.MLCReductionType.sum),
        [((3, 2), _FLOAT), ((3, 2), _INDEX), (_MATRIX, _FLOAT)],
    ),
    "MLCSelectionLayer": Case(
        lambda: mlc.MLCSelectionLayer(), [(_MATRIX, _TRUTH), (_MATRIX, _FLOAT), (_MATRIX, _FLOAT)]
    ),
    "MLCSliceLayer": Case(lambda: mlc.MLCSliceLayer(start=[0, 1], end=[2, 4], stride=[1, 2]), _floats(_MATRIX)),
    "MLCSoftmaxLayer": Case(
        lambda: mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation.logSoftmax), _floats(_MATRIX)
    ),
    "MLCSplitLayer": Case(lambda: mlc.MLCSplitLayer(splitCount=2, dimension=1), _floats(_MATRIX)),
    "MLCTransposeLayer": Case(lambda: mlc.MLCTransposeLayer(dimensions=[1, 0]), _floats(_MATRIX)),
    "MLCUpsampleLayer": Case(
        lambda: mlc.MLCUpsampleLayer(shape=[10, 9], sampleMode=mlc.MLCSampleMode.linear, alignsCorners=True),
        _floats(_IMAGE),
    ),
    "MLCYOLOLossLayer": Case(_yolo, _floats((2, 14, 3, 3), (2, 14, 3, 3))),
}


def layers() -> list[str]:
    """Every layer class there is, whether the table has a case for it or not."""
    named = [n for n in CLASSES if n.startswith("MLC") and n.endswith("Layer") and n != "MLCLayer"]
    return sorted(set(named) | set(CASES))


def check(name: str, device: torch.device) -> str | None:
    """Run the layer's case forward and backward on ``device``; what went wrong, or ``None``."""
    case = CASES.get(name)
    if case is None:
        return "the table of checks has no case for it"
    try:
        with mlc.strict():
            here, there = (_run(case, place) for place in (torch.device("cpu"), device))
    except Exception as error:  # noqa: BLE001 - whatever a device cannot do is what the report is about
        return in_one_line(error)
    for what, value in here.items():
        if not torch.allclose(value, there[what], rtol=1e-2, atol=1e-3, equal_nan=True):
            return f"{what} differs from the CPU's by up to {(value - there[what]).abs().max():g}"
    return None


def _run(case: Case, device: torch.device) -> dict[str, torch.Tensor]:
    """The results, and the gradients of their sum, by name, as float64 on the CPU."""
    module = copy.deepcopy(case.make().module).eval().to(device)
    sources = [_source(shape, kind, index, device) for index, (shape, kind) in enumerate(case.sources)]
    results = module(*sources)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    found = {f"result {i}": result for i, result in enumerate(results)}
    wanted = {f"the gradient of source {i}": source for i, source in enumerate(sources) if source.requires_grad}
    wanted |= {f"the gradient of {name}": p for name, p in module.named_parameters() if p.requires_grad}
    roots = [result.float().sum() for result in results if result.requires_grad]
    if roots:
        gradients = torch.autograd.grad(roots, list(wanted.values()), allow_unused=True)
        found |= {name: g for name, g in zip(wanted, gradients, strict=True) if g is not None}
    return {name: value.detach().cpu().double() for name, value in found.items()}


def _source(shape: tuple[int, ...], kind: str, seed: int, device: torch.device) -> torch.Tensor:
    numbers = np.random.default_rng([seed, *shape])
    if kind == _INDEX:
        return torch.from_numpy(numbers.integers(0, 2, shape).astype(np.int32)).to(device)
    if kind == _TRUTH:
        return torch.from_numpy(numbers.random(shape) < 0.5).to(device)
    return torch.from_numpy(numbers.uniform(-1, 1, shape).astype(np.float32)).to(device).requires_grad_()
