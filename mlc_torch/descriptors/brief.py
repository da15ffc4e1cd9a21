"""The words of a one-line repr: ``3x3``, ``16 -> 32``, ``stride 2``, ``2 layers``, ``relu``, ``dropout=0.5``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from mlc_torch.enums import MLCPaddingPolicy, MLCPoolingType

_PAIRS = {"inputFeatureChannelCount": "outputFeatureChannelCount", "inputSize": "hiddenSize"}
"""What comes in, and what goes out."""


def _size(value: tuple[int, int]) -> str:
    return "x".join(map(str, value))


def _evenly(one: str, many: str) -> Callable[[tuple[int, int]], str]:
    return lambda value: f"{one} {value[0]}" if value[0] == value[1] else f"{many} {_size(value)}"


def _counted(one: str) -> Callable[[int], str]:
    return lambda value: f"{value} {one}{'s' * (value != 1)}"


_WORDS: dict[str, Callable[[Any], str]] = {
    "featureChannelCount": _counted("channel"),
    "headCount": _counted("head"),
    "layerCount": _counted("layer"),
    "kernelSizes": _size,
    "strides": _evenly("stride", "strides"),
    "dilationRates": _evenly("dilation", "dilations"),
    "shape": lambda value: str(list(value)),
    "anchorBoxes": lambda value: f"anchorBoxes of {len(value)} bytes",
}


def brief(fields: Mapping[str, Any]) -> list[str]:
    """One word or two for each field."""
    paired = {out for into, out in _PAIRS.items() if into in fields and out in fields}
    words = []
    for name, value in fields.items():
        if name in paired:
            continue
        if _PAIRS.get(name) in paired:
            words.append(f"{value} -> {fields[_PAIRS[name]]}")
        else:
            words.append(_WORDS[name](value) if name in _WORDS and value is not None else _word(name, value))
    return words


def _word(name: str, value: Any) -> str:
    if value is True:
        return name
    if isinstance(value, MLCPaddingPolicy):
        return f"padding {_size(value.sizes)}" if value.name == "sized" else value.name
    if isinstance(value, MLCPoolingType):
        return f"{value.name} with its padding" if value.countIncludesPadding else value.name
    if isinstance(value, enum.Enum):
        return f"{name}=none" if value.name == "none" else value.name or str(value)
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
