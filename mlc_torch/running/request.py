"""One call of ``execute`` or of a phase: its arguments, as the door hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.running.completion import Handler
from mlc_torch.tensor import MLCTensorData

Data = Mapping[str, MLCTensorData]

SKIPS_WRITING = Run.skipWritingInputDataToDevice.value
SYNCHRONOUS = Run.synchronous.value
PROFILING = Run.profiling.value
INFERS = Run.forwardForInference.value
BY_LAYER = Run.perLayerProfiling.value

NO_DATA: tuple[Data | None, ...] = (None, None, None)


class Request(NamedTuple):
    """Frozen. A named tuple, since one is made for every call and a dataclass takes four times as long."""

    member: str
    """The spelling that was called: ``execute(inputsData:batchSize:options:completionHandler:)``."""
    options: int
    handler: Handler | None
    batch_size: int = 0
    data: tuple[Data | None, ...] = NO_DATA
    """For inputs, labels and label weights."""
    outputs: Data | None = None
    keeps_result: bool = False
    """Whether the handler's result is read after the call, and must not change with the next run."""
