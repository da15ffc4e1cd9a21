"""How a program may write an inference: what it gives as data, what is wrong with that, and where the call stands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch import MLCExecutionOptions, MLCRefusal
from mlc_torch.tensor.addresses import LITTLE
from tests.graph.programs import data

BATCH, OUTPUTS = 4, 3
MANY = LITTLE // 4 // BATCH + 6  # numbers of a sample, of which a batch is no longer little
Run = MLCExecutionOptions


class Own(Exception):
    """An error of the program's."""


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


RAISED: dict[str, Exception] = {
    "own": Own(),
    "type": TypeError("the program's"),
    "refusal": MLCRefusal("the program's"),
}
"""What a handler may raise."""
AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu"),
    "functions": Functions,
    "operations": Operations,
    "another device": lambda: torch.device("meta"),
}


def lengthened(x: np.ndarray) -> Any:
    return data(np.append(x.ravel(), np.float32([9, 9])))


def of_bytes(x: np.ndarray) -> Any:
    return data(x.tobytes(), x.nbytes)


GOOD: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda x: x,
    "tensor": torch.from_numpy,
    "longer": lengthened,
    "bytes": of_bytes,
    "of a tensor": lambda x: data(torch.from_numpy(x)),
    "flat": lambda x: data(x.ravel()),
}
BAD: dict[str, Callable[[np.ndarray], Any]] = {
    "too short": lambda x: data(x[0, 1:].copy()),
    "doubles": lambda x: data(x.astype(np.float64)),
    "integers": lambda x: data(x.astype(np.int32)),
    "turned": lambda x: np.ascontiguousarray(x.T),
}
WORDS = {
    "too short": "bytes",
    "doubles": "float64",
    "integers": "int32",
    "turned": "shape",
    "more names": "'q'",
    "another name": "'q'",
    "labels": "loss labels",
    "too many": "batchSize is 5",
    "negative": "negative",
    "unknown output": "'q'",
    "locked output": "read-only",
    "short output": "bytes",
}
"""What may be wrong with a call, and a word of its refusal."""
OF_DATA = {*BAD, "more names", "another name", "labels"}
"""Those that a call does not look at that is told to skip its data."""
UNTOUCHED = 7
"""What output buffers hold before a call."""


@dataclass
class Call:
    """How a program happens to write a call."""

    form: str = ""
    """What the data is: made now, made beforehand and overwritten, or one of ``GOOD``."""
    spoilt: str = ""
    missing: bool = False
    samples: int = BATCH
    handler: str = ""
    options: tuple[Run, ...] = ()
    outputs: str = ""
    selector: bool = False
    where: str = ""


UNUSUAL: dict[str, list[Any]] = {
    "form": ["beforehand", *GOOD],
    "spoilt": [*WORDS],
    "missing": [True],
    "samples": [0, 1, 3],
    "handler": ["reads", "again", "two", *RAISED],
    "options": [
        (bit,) for bit in (Run.synchronous, Run.profiling, Run.skipWritingInputDataToDevice, Run.perLayerProfiling)
    ],
    "outputs": ["one", "all", "tensor"],
    "selector": [True],
    "where": ["thread", *AROUND],
}
CALLS = st.lists(
    st.sampled_from([(field, value) for field, known in UNUSUAL.items() for value in known]), max_size=3
).map(lambda chosen: Call(**dict(chosen)))
"""Calls that are unusual in up to three ways."""


def memory(buffer: Any) -> np.ndarray:
    """The array below data, or in place of it."""
    return np.asarray(getattr(buffer, "_owner", buffer))


def arguments(
    call: Call, given: dict[str, np.ndarray], standing: dict[str, Any], outputs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call but for its handler. ``standing`` is data that was made beforehand."""
    spoilt = call.spoilt
    if call.form == "beforehand":
        for name, x in given.items():
            memory(standing[name])[:] = x
    make = GOOD.get(call.form, data)
    inputs = dict(standing) if call.form == "beforehand" else {name: make(x) for name, x in given.items()}
    if spoilt in BAD:
        inputs["x"] = BAD[spoilt](given["x"])
    elif spoilt in ("more names", "another name"):
        inputs["q"] = data(given["x"]) if spoilt == "more names" else inputs.pop("x")
    if call.missing and spoilt not in BAD:
        inputs.pop("x", None)
    labels: dict[str, Any] = {"inputsData": inputs}
    if spoilt == "labels" or call.outputs == "all":
        names = {"t": data(given["x"])} if spoilt == "labels" else None
        labels |= {"lossLabelsData": names, "lossLabelWeightsData": None}
    blank = {
        n: np.full(t.shape, UNTOUCHED, np.float32) for n, t in outputs.items() if call.outputs == "all" or n == "y"
    }
    buffers = {n: torch.from_numpy(b) if call.outputs == "tensor" else data(b) for n, b in blank.items()}
    if "output" in spoilt:
        buffers |= {
            "unknown output": {"q": data(blank["y"].copy())},
            "locked output": {"y": data(np.frombuffer(blank["y"].tobytes(), np.float32))},
            "short output": {"y": data(np.full(2, UNTOUCHED, np.float32))},
        }[spoilt]
    if call.outputs or "output" in spoilt:
        labels["outputsData"] = buffers
    count = {"too many": BATCH + 1, "negative": -1}.get(spoilt, call.samples)
    return labels | {"batchSize": count, "options": list(call.options)}
