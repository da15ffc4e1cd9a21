"""Selector spelling, as mypy and pyright understand it. Read by the type checkers, not run."""

from __future__ import annotations

from typing import assert_type

import mlc_torch as mlc
import mlc_torch.objc as MLCompute

tensor = mlc.MLCTensor.tensorWithShape_dataType_([2, 3], 1)
assert_type(tensor, mlc.MLCTensor)
descriptor = mlc.MLCTensorDescriptor.descriptorWithShape_dataType_([2, 3], mlc.MLCDataType.float32)
assert_type(descriptor, mlc.MLCTensorDescriptor | None)
pooling = mlc.MLCPoolingDescriptor.maxPoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_(
    [2, 2], None, 1, None
)
assert_type(pooling, mlc.MLCPoolingDescriptor)
assert_type(pooling.kernelHeight, int)
assert_type(mlc.MLCActivationLayer.reluLayer(), mlc.MLCActivationLayer)
assert_type(
    mlc.MLCGraph.graph().nodeWithLayer_source_(mlc.MLCActivationLayer.reluLayer(), tensor), mlc.MLCTensor | None
)

# The PyObjC view is untyped, as PyObjC is.
MLCompute.MLCTensor.tensorWithShape_([2, 3]).descriptor().shape()
MLCompute.install()
