"""One call of ``execute`` or of a phase: its arguments, as the door hands them over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.running.handlers import Handler
from mlc_torch.spelling import PACKING, Packing
from mlc_torch.tensor import MLCTensorData

Data = Mapping[str, MLCTensorData]

SKIPS_WRITING = Run.skipWritingInputDataToDevice.value
SYNCHRONOUS = Run.synchronous.value
PROFILING = Run.profiling.value
INFERS = Run.forwardForInference.value
BY_LAYER = Run.perLayerProfiling.value

NO_DATA: tuple[Data | None, ...] = (None, None, None)


class Request(NamedTuple):
    """Frozen. A named tuple, since one is made for every call and a dataclass takes four times as long.

    Who reads several fields takes it apart in one line: Python asks for each name of a tuple anew.
    """

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


def packs_request(
    envelope: Callable[..., Any], usual: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks what a call does with its request: the door makes the request and hands both to ``envelope``.

    So a call's arguments are bound once for each set of labels, and there is no second place that takes them. ``usual``:
    the door asks first whether the call is like the one before it (``usual.py``).
    """

    def mark(work: Callable[..., Any]) -> Callable[..., Any]:
        work.__dict__[PACKING] = Packing(
            _NAMES, partial(_packed, usual), {"envelope": envelope, "new": tuple.__new__, "Request": Request}
        )
        return work

    return mark


_DATA = ("inputsData", "lossLabelsData", "lossLabelWeightsData")
_NAMES = frozenset({*_DATA, "outputsData", "batchSize", "options", "completionHandler"})


def _packed(usual: bool, member: str, given: dict[str, str], function: str) -> str:
    inputs, labels, weights, outputs = (given.get(name, "None") for name in (*_DATA, "outputsData"))
    first = ", ".join(
        [repr(member), given.get("options", "0"), given.get("completionHandler", "None"), given.get("batchSize", "0")]
    )
    data = f"{inputs}, {labels}, {weights}"
    call = f"envelope(target, new(Request, ({first}, ({data}), {outputs}, False)), {function})"
    return f"target._runs.usual(target, {first}, {data}, {outputs}) or {call}" if usual else call
