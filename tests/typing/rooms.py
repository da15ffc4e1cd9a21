"""Graphs beside PyTorch and pytest, as mypy and pyright understand it. Read by the type checkers, not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import torch

import mlc_torch as mlc
from mlc_torch.interop import (
    TorchLayer,
    TorchOptimizer,
    describe_checkpoint,
    export_onnx,
    export_program,
    load_checkpoint,
    save_checkpoint,
)
from mlc_torch.testing import assert_close, device_named, seeded

graph = mlc.MLCGraph()
layer = TorchLayer(torch.nn.Linear(3, 2), label="dense")
assert_type(layer.parameters_by_name, dict[str, mlc.MLCTensorParameter])
source = mlc.unwrap(mlc.MLCTensor(shape=[4, 3]))
result = graph.node(with_=layer, source=source)
optimizer = TorchOptimizer(torch.optim.SGD(graph.to_module().parameters()))
assert_type(optimizer.learningRate, float)
training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=optimizer)
training.compile(options=[], device=device_named("cpu"))
for each in (graph, training, mlc.MLCInferenceGraph(graphObjects=[graph])):
    save_checkpoint(each, "a.safetensors")
    load_checkpoint(each, Path("a.safetensors"), resume=False)
    assert_type(export_onnx(each, "a.onnx", dynamic_batch=False), Path)
    assert_type(export_program(each), torch.export.ExportedProgram)
assert_type(describe_checkpoint("a.safetensors"), dict[str, Any])
with seeded(3):
    assert_close(source, [1.0])
save_checkpoint(layer, "a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
device_named(0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
