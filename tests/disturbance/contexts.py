"""Torch's own contexts, which a program may have around a call without a thought of what is inside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import mlc_torch as mlc


class LooksOn(TorchFunctionMode):
    """Sees every function of torch that is called, and changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class LooksOnOperations(TorchDispatchMode):
    """The same for operations."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)  # which torch 2.6 cannot be asked for


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def quiet_anomalies() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow
        with torch.autograd.detect_anomaly():
            yield


@contextmanager
def both(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    first, second = contexts
    with first, second:
        yield


HARMLESS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "autocast to bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to float16": lambda: torch.autocast("cpu", torch.float16),
    "inference_mode and autocast": lambda: both(torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)),
    "default dtype float64": lambda: default_dtype(torch.float64),
    "default dtype bfloat16": lambda: default_dtype(torch.bfloat16),
    "default device meta": lambda: default_device("meta"),
    "device context meta": lambda: torch.device("meta"),
    "deterministic algorithms": deterministic,
    "saved tensors elsewhere": torch.autograd.graph.save_on_cpu,
    "checks of shapes off": lambda: torch.autograd.set_multithreading_enabled(False),
    "a function mode": LooksOn,
    "a dispatch mode": LooksOnOperations,
    "FlopCounterMode": lambda: FlopCounterMode(display=False),
    "strict": mlc.strict,
}
"""None of them changes what a graph computes."""


def inside_vmap(call: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        found.append(call())
        return x

    torch.vmap(work)(torch.zeros(2))
    return found[0]


def inside_grad(call: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        found.append(call())
        return x.sum()

    torch.func.grad(work)(torch.zeros(2))
    return found[0]


def inside_fake(call: Callable[[], Any]) -> Any:
    with FakeTensorMode():
        return call()


UNREAL: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "vmap": inside_vmap,
    "grad of torch.func": inside_grad,
    "FakeTensorMode": inside_fake,
}
"""Nothing real can be computed inside: refused."""
