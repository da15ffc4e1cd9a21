"""One record per way of using a layer. Every test of ``test_every_layer.py`` reads all of them.

A record says how the layer is made in both spellings, what it is given, which shape must come out, and what the values
must be according to a NumPy reference that knows nothing of torch or of this library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlc_torch.tensor import MLCTensor, MLCTensorData, MLCTensorDescriptor

Array = np.ndarray


@dataclass(frozen=True)
class Record:
    """A layer, its sources and its expected results."""

    name: str
    make: Callable[[], Any]
    """Makes the layer in Swift's spelling."""
    sources: Sequence[Array]
    result: Any
    """The expected shape, or a list of shapes where the layer has several results."""
    reference: Callable[..., Any]
    """Takes the sources as float64 (integers and Booleans as they are), gives the result or a tuple of results."""
    objc: Callable[[], Any] | None = None
    """Makes an equal layer through selectors. Needed once for every selector of the layer's class."""
    training: bool = False
    rtol: float = 1e-5
    atol: float = 1e-6
    gradient: bool = True
    """Whether finite differences make sense: False for steps, index results and integer layers."""
    result_type: str = "float32"
    half: bool = True
    """Whether the layer also takes float16."""
    module: type | None = None
    """The class of ``layer.module``; the tests say for each whether it is torch.nn's own."""


@dataclass(frozen=True)
class Refusal:
    """A construction or a node that the framework refuses, and words that the reason must contain."""

    name: str
    make: Callable[[], Any]
    says: str
    sources: Sequence[tuple[tuple[int, ...], str]] = field(default=())
    """(shape, data type) of each source; without sources the construction itself must be refused."""
    at_compile: bool = False
    """Refused when a graph is compiled, not when the node is made."""


def values(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Float32 numbers without ties or zeros, the same at every run."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, below: int, seed: int = 0, dtype: str = "int32") -> Array:
    return np.random.default_rng([seed, *shape]).integers(0, below, shape).astype(dtype)


def booleans(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).random(shape) < 0.5


_TYPES = {"float32": 1, "float16": 3, "bool": 4, "int64": 5, "int32": 7, "int8": 8, "uint8": 9}


def tensor(array: Array, shape: Sequence[int] | None = None) -> MLCTensor:
    """An ``MLCTensor`` that holds a copy of ``array``, so that records do not train each other's weights."""
    array = np.array(array, order="C")
    data = MLCTensorData(bytesNoCopy=array, length=array.nbytes)
    made = MLCTensor(shape=list(shape or array.shape), data=data, dataType=_TYPES[array.dtype.name])
    assert made is not None
    return made


def descriptor(shape: Sequence[int], dtype: str = "float32") -> MLCTensorDescriptor:
    made = MLCTensorDescriptor(shape=list(shape), dataType=_TYPES[dtype])
    assert made is not None
    return made
