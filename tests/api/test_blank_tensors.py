"""A tensor made by ``new()`` has no descriptor: every member that takes tensors answers, refuses or says what is wrong."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import mlc_torch as m
from mlc_torch import MLCTensor, MLCTensorData
from mlc_torch.objc.nsobject import bare
from mlc_torch.spelling import CLASSES, MLCObject

BLANK = bare(MLCTensor)
DATA = MLCTensorData(bytesNoCopy=bytearray(64), length=64)
GIVEN: dict[str, Any] = {
    "Bool": True,
    "Float": 0.5,
    "Int": 1,
    "MLCConvolutionDescriptor": m.MLCConvolutionDescriptor(
        kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1
    ),
    "MLCDevice": m.MLCDevice.cpu(),
    "MLCEmbeddingDescriptor": m.MLCEmbeddingDescriptor(embeddingCount=2, embeddingDimension=2),
    "MLCLSTMDescriptor": m.MLCLSTMDescriptor(inputSize=2, hiddenSize=2, layerCount=1),
    "MLCLossDescriptor": m.MLCLossDescriptor(type=m.MLCLossType.huber, reductionType=m.MLCReductionType.mean),
    "MLCMultiheadAttentionDescriptor": m.MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=2),
    "MLCTensor": BLANK,
    "MLCTensorData": DATA,
    "UnsafeMutableRawPointer": bytearray(64),
    "[Int]": [1, 1],
    "[MLCActivationDescriptor]": [m.MLCActivationDescriptor(type=m.MLCActivationType.tanh)] * 4,
    "[MLCTensorData]": [DATA],
    "[MLCTensorParameter]": [m.MLCTensorParameter(tensor=BLANK)],
    "[MLCTensor]": [BLANK] * 4,
    "[String : MLCTensorData]": {"x": DATA},
    "[String : MLCTensor]": {"x": BLANK},
}


def _value(type_: str) -> Any:
    name = type_.removesuffix("?")
    if name in GIVEN:
        return GIVEN[name]
    if type_.endswith("?"):
        return None
    if name == "MLCLayer":
        return m.MLCActivationLayer.relu
    cls: Any = CLASSES[name]
    return bare(cls) if issubclass(cls, MLCObject) else next(iter(cls))


def _target(cls: Any) -> Any:
    if cls is MLCTensor:
        return BLANK
    graph = m.MLCGraph()
    graph.node(m.MLCActivationLayer.relu, source=MLCTensor(shape=[2, 2]))
    if cls is m.MLCInferenceGraph:
        return m.MLCInferenceGraph(graphObjects=[graph])
    if cls is m.MLCTrainingGraph:
        return m.MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    return graph if cls is m.MLCGraph else bare(cls)


MEMBERS = [
    (name, d)
    for name, cls in CLASSES.items()
    if name.startswith("MLC") and issubclass(cls, MLCObject)
    for declared in cls.__declared__.values()
    for d in declared
    if any(p.type.strip("[]?").removeprefix("String : ") == "MLCTensor" for p in d.signature.params)
    or (cls is MLCTensor and not d.binds_class)
]


def test_there_are_such_members():
    assert len(MEMBERS) > 90


@pytest.mark.parametrize(
    ("name", "member"), MEMBERS, ids=[f"{n}.{d.selector or d.signature.labels}" for n, d in MEMBERS]
)
def test_a_blank_tensor_crashes_nothing(name, member):
    cls = CLASSES[name]
    target = cls if member.binds_class else _target(cls)
    given = {p.keyword: _value(p.type) for p in member.signature.params}
    if not member.signature.swift:
        answer = getattr(target, member.selector.replace(":", "_"))(*given.values())
    else:
        call = (
            target
            if member.signature.is_init
            else getattr(target, member.signature.name + "Async" * member.signature.is_async)
        )
        labelled = {key: value for key, value in given.items() if key != "_"}
        answer = call(*(value for key, value in given.items() if key == "_"), **labelled)
    if inspect.iscoroutine(answer):
        answer.close()
    repr(answer)
    if isinstance(target, (m.MLCInferenceGraph, m.MLCTrainingGraph)):
        target.compile(options=[], device=m.MLCDevice.cpu())
        assert target.summary() is not None and target.summarizedDOTDescription and repr(target)
