"""Enumerations, functions and refusals, as mypy and pyright understand them. Read by the type checkers, not run."""

from __future__ import annotations

from typing import assert_type

import mlc_torch as mlc

assert_type(mlc.MLCDataType(rawValue=1), mlc.MLCDataType | None)
assert_type(mlc.MLCDataType(1), mlc.MLCDataType)
assert_type(mlc.MLCDataType.float32.rawValue, int)
assert_type(mlc.MLCLossType.huber.debugDescription, str)
assert_type(mlc.MLCExecutionOptions(rawValue=3), mlc.MLCExecutionOptions)
assert_type(mlc.MLCLossTypeDebugDescription(mlc.MLCLossType.huber), str | None)
assert_type(mlc.MLCLossTypeDebugDescription(99), str | None)


def bytes_of(kind: mlc.MLCDeviceType) -> str:
    match kind:
        case mlc.MLCDeviceType.cpu | mlc.MLCDeviceType.gpu:
            return "here"
        case mlc.MLCDeviceType.any | mlc.MLCDeviceType.ane:
            return "elsewhere"


with mlc.strict():
    pass
why = mlc.last_refusal()
assert_type(why, mlc.MLCRefusal | None)
if why is not None:
    assert_type(why.reason, str)
handler: mlc.MLCGraphCompletionHandler = lambda result, error, seconds: None  # noqa: E731
