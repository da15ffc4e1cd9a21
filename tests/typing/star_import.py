"""The star import, which is how every page of the documentation begins. Read by the type checkers, not run."""

from __future__ import annotations

from typing import assert_type

from mlc_torch import *

tensor = MLCTensor(shape=[2, 3])
assert_type(tensor, MLCTensor)
assert_type(tensor.descriptor.dataType, MLCDataType)
graph = MLCGraph()
assert_type(graph.node(MLCActivationLayer.relu, source=tensor), MLCTensor | None)
assert_type(unwrap(graph.node(MLCActivationLayer.relu, source=tensor)), MLCTensor)
assert_type(last_refusal(), MLCRefusal | None)
with strict():
    assert_type(MLCDevice.cpu(), MLCDevice)
description: MLCGraphCompletionHandler = lambda result, error, seconds: None  # noqa: E731
MLCTensor(shap=[2, 3])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
