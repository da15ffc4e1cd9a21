"""What layers share that take their parameters as lists of tensors: LSTM and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlc_torch.layers.base import FLOATS, MLCLayer, of_the_type_of, of_type
from mlc_torch.refusals import refuse
from mlc_torch.spelling import prop
from mlc_torch.tensor import MLCTensor, MLCTensorDescriptor, MLCTensorParameter


def list_prop(type_: str, about: str) -> Any:
    """A property that hands out a fresh list of what is stored under its name, or ``None``."""
    made = prop(type_, about)

    def read(self: Any) -> list[Any] | None:
        stored = self.__dict__.get(made.stored)
        return None if stored is None else list(stored)

    return made(read)


def counted(who: str, tensors: Sequence[MLCTensor] | None, count: int) -> list[MLCTensor]:
    """The tensors, if there are so many; refused otherwise."""
    given = list(tensors or [])
    if len(given) != count:
        refuse(f"{who} must hold {count} tensors, got {len(given) if tensors is not None else 'none'}")
    return given


def fitting(who: str, tensors: Sequence[MLCTensor] | None, sizes: Sequence[int]) -> list[MLCTensor]:
    """The tensors, each with as many elements as ``sizes`` asks for in whatever shape; refused otherwise."""
    given = counted(who, tensors, len(sizes))
    for index, (tensor, size) in enumerate(zip(given, sizes, strict=True)):
        of_type(tensor._cell.descriptor, FLOATS, f"{who}[{index}]")
        if math.prod(tensor._cell.shape) != size:
            refuse(f"{who}[{index}] needs {size} elements, got shape {list(tensor._cell.shape)}")
    return given


def fitting_if(
    wanted: bool, flag: str, who: str, tensors: Sequence[MLCTensor] | None, sizes: Sequence[int]
) -> list[MLCTensor] | None:
    """The same for a list that the descriptor's ``flag`` asks for or rules out."""
    if wanted:
        return fitting(who, tensors, sizes)
    if tensors:
        refuse(f"{who} must be None, since the descriptor's {flag} is False; got {len(tensors)} tensors")
    return None


def parameters(tensors: Sequence[MLCTensor] | None) -> list[MLCTensorParameter] | None:
    """One parameter per entry; a tensor that stands in the list twice has two that share its memory."""
    return None if tensors is None else [MLCTensorParameter._create(tensor) for tensor in tensors]


def same_type_as_source(layer: MLCLayer, source: MLCTensorDescriptor) -> None:
    """Refuse a source of another type than one of the lists' tensors."""
    of_the_type_of({use.role: use.parameter._tensor for use in layer._parameter_uses}, source)
