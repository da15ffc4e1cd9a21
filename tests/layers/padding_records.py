"""Padding in every form, against numpy.pad."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.enums import MLCPaddingType as Kind
from mlc_torch.layers.padding import MLCPaddingLayer, ReflectionPad2d, SymmetricPad2d
from tests.layers.records import Record, Refusal, booleans, integers, values

L = MLCPaddingLayer
SWIFT = {
    Kind.zero: lambda p: L(zeroPadding=p),
    Kind.reflect: lambda p: L(reflectionPadding=p),
    Kind.symmetric: lambda p: L(symmetricPadding=p),
    Kind.constant: lambda p, v=9.0: L(constantPadding=p, constantValue=v),
}
OBJC = {
    Kind.zero: lambda p: L.layerWithZeroPadding_(p),
    Kind.reflect: lambda p: L.layerWithReflectionPadding_(p),
    Kind.symmetric: lambda p: L.layerWithSymmetricPadding_(p),
    Kind.constant: lambda p, v=9.0: L.layerWithConstantPadding_constantValue_(p, v),
}
MODULES = {
    Kind.zero: nn.ZeroPad2d,
    Kind.reflect: ReflectionPad2d,
    Kind.symmetric: SymmetricPad2d,
    Kind.constant: nn.ConstantPad2d,
}


def sides(padding):
    """(top, bottom), (left, right)"""
    if len(padding) == 1:
        return (padding * 2, padding * 2)
    return ((0, 0), padding) if len(padding) == 2 else (padding[:2], padding[2:])


def pad(x, kind, padding, value=9.0):
    widths = [(0, 0)] * (x.ndim - 2) + [tuple(s) for s in sides(padding)]
    if kind is Kind.constant:
        return np.pad(x, widths, "constant", constant_values=x.dtype.type(value))
    return np.pad(x, widths, {Kind.zero: "constant", Kind.reflect: "reflect", Kind.symmetric: "symmetric"}[kind])


def padded(name, x, kind, padding, result, **kw) -> Record:
    types = {} if x.dtype.kind == "f" else {"gradient": False, "result_type": x.dtype.name}
    return Record(
        f"{name}, {kind.name}",
        lambda: SWIFT[kind](padding),
        [x],
        result,
        lambda s: pad(s, kind, padding),
        objc=None if x is AWKWARD else lambda: OBJC[kind](padding),
        module=MODULES[kind],
        **types,
        **kw,
    )


AWKWARD = np.array([[0, -0.5, np.nan], [np.inf, -np.inf, 3e38]], np.float32).reshape(1, 1, 2, 3)

RECORDS = (
    [
        record
        for kind in Kind
        for record in (
            padded("one size", values(2, 2, 3, 4), kind, [2], (2, 2, 7, 8)),
            padded("left and right", values(1, 2, 3, 4), kind, [1, 3], (1, 2, 3, 8)),
            padded("top, bottom, left, right", values(1, 2, 5, 4), kind, [0, 4, 1, 2], (1, 2, 9, 7)),
            padded("nothing", values(1, 1, 2, 2), kind, [0], (1, 1, 2, 2)),
            padded("left alone", values(1, 2, 2, 3), kind, [2, 0], (1, 2, 2, 5)),
            padded("rank 3", values(2, 3, 4), kind, [1, 1, 2, 0], (2, 5, 6)),
            padded("rank 2", values(3, 4), kind, [2, 0, 1, 3], (5, 8)),
            padded("int32", integers(1, 2, 3, 3, below=50), kind, [1], (1, 2, 5, 5)),
            padded("int64", integers(2, 3, below=50, dtype="int64"), kind, [1], (4, 5)),
            padded("int8", integers(1, 1, 3, 3, below=50, dtype="int8"), kind, [2], (1, 1, 7, 7)),
            padded("uint8", integers(1, 1, 3, 3, below=50, dtype="uint8"), kind, [1], (1, 1, 5, 5)),
            padded("awkward values", AWKWARD, kind, [1, 1, 2, 1], (1, 1, 4, 6), gradient=False, half=False),
        )
    ]
    + [
        padded("Boolean", booleans(1, 2, 3, 4), kind, [2, 1, 0, 3], (1, 2, 6, 7))
        for kind in Kind
        if kind is not Kind.constant
    ]
    + [
        padded("padding larger than the image", values(1, 2, 2, 3), Kind.symmetric, [3, 7, 4, 10], (1, 2, 12, 17)),
        padded("one pixel", values(1, 1, 1, 1), Kind.symmetric, [2], (1, 1, 5, 5)),
        padded("multiples of the size", values(1, 1, 2, 2), Kind.symmetric, [2, 4, 6, 2], (1, 1, 8, 10)),
    ]
    + [
        Record(
            f"as measured, {kind.name}",
            lambda kind=kind: SWIFT[kind]([1, 1, 1, 1]),
            [np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)],
            (1, 1, 4, 4),
            lambda x, answer=answer: np.reshape(answer, (1, 1, 4, 4)),
        )
        for kind, answer in (
            (Kind.zero, [0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0]),
            (Kind.constant, [9, 9, 9, 9, 9, 1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9]),
            (Kind.reflect, [4, 3, 4, 3, 2, 1, 2, 1, 4, 3, 4, 3, 2, 1, 2, 1]),
        )
    ]
    + [
        Record(
            f"constant {value}",
            lambda value=value: L(constantPadding=[1, 0], constantValue=value),
            [values(1, 1, 2, 2)],
            (1, 1, 2, 3),
            lambda x, value=value: pad(x, Kind.constant, [1, 0], value),
            gradient=False,
            half=False,
        )
        for value in (-0.5, 1e30, float("inf"), float("nan"))
    ]
    + [
        Record(
            "constant of an integer tensor",
            lambda: L(constantPadding=[1, 0], constantValue=2.0),
            [integers(2, 2, below=9)],
            (2, 3),
            lambda x: pad(x, Kind.constant, [1, 0], 2),
            gradient=False,
            result_type="int32",
        ),
        *(
            Record(
                f"constant {value} of a Boolean tensor",
                lambda value=value: L(constantPadding=[1, 0], constantValue=value),
                [integers(2, 2, below=2).astype(bool)],
                (2, 3),
                lambda x, value=value: pad(x, Kind.constant, [1, 0], bool(value)),
                gradient=False,
                result_type="bool",
            )
            for value in (0, 1)
        ),
    ]
)

IMAGE = [((1, 1, 2, 3), "float32")]
REFUSALS = [
    Refusal("no sizes", lambda: L(zeroPadding=[]), "1 size, 2"),
    Refusal("three sizes", lambda: L(symmetricPadding=[1, 2, 3]), "[1, 2, 3]"),
    Refusal("five sizes", lambda: L(constantPadding=[1] * 5, constantValue=0), "4 (top"),
    Refusal("negative", lambda: L(reflectionPadding=[1, -1]), "negative"),
    Refusal("rank 1", lambda: L(zeroPadding=[1]), "last two dimensions", [((3,), "float32")]),
    Refusal("two sources", lambda: L(zeroPadding=[1]), "1 source", IMAGE * 2),
    Refusal("reflection as large as the height", lambda: L(reflectionPadding=[2, 0, 0, 0]), "top 2", IMAGE),
    Refusal("reflection as large as the width", lambda: L(reflectionPadding=[0, 3]), "right 3", IMAGE),
    Refusal("constant beyond the type", lambda: L(constantPadding=[1], constantValue=-1), "uint8", [((2, 2), "uint8")]),
    Refusal(
        "constant beyond half", lambda: L(constantPadding=[1], constantValue=1e6), "float16", [((2, 2), "float16")]
    ),
    Refusal("half a number", lambda: L(constantPadding=[1], constantValue=2.5), "2.5 is no int8", [((2, 2), "int8")]),
    Refusal("half a truth", lambda: L(constantPadding=[1], constantValue=0.5), "no boolean", [((2, 2), "bool")]),
    Refusal("more than true", lambda: L(constantPadding=[1], constantValue=2), "no boolean", [((2, 2), "bool")]),
    Refusal(
        "infinity in an integer tensor",
        lambda: L(constantPadding=[1], constantValue=float("inf")),
        "int32",
        [((2, 2), "int32")],
    ),
    Refusal(
        "no number in an integer tensor",
        lambda: L(constantPadding=[1], constantValue=float("nan")),
        "int32",
        [((2, 2), "int32")],
    ),
]
