"""What stands ready between passes on the CPU: memory that parameters are joined in, and LSTM weights as oneDNN wants them.

A program may write into its weights' memory at any time and tells nobody, so each pass looks at them anew. Only what is made
of them is kept: memory, which need not be found again, and what was computed of the same bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.replacements import Replacement
from mlc_torch.engine.same_bytes import Copied, as_bytes
from mlc_torch.engine.views import gets_out, lies_in_order
from mlc_torch.torch_private.lstm import library_lstm, packed_for_library_lstm

_LITTLE_BYTES = 128 << 10
"""Of a part. Less is copied by Python in less time than torch takes to begin; more is for torch's threads."""


class MadeOnce:
    """Made when a phase is bound to its parameters, and called in each pass."""


def is_made_once(node: fx.Node) -> bool:
    return isinstance(node.target, type) and issubclass(node.target, MadeOnce)


class Joined(MadeOnce):
    """Parameters of one type side by side."""

    def __init__(self, *parts: torch.Tensor) -> None:
        self.parts, self.whole = parts, torch.cat(parts)
        self.pieces = self.whole.split([len(p) for p in parts])
        self._is_little = all(p.is_contiguous() and p.nbytes <= _LITTLE_BYTES for p in parts)
        self._copies: list[tuple[memoryview, memoryview]] = []
        self._at: list[int] = []

    def __call__(self) -> torch.Tensor:
        if not self._is_little:
            return torch.cat(self.parts, out=self.whole)
        at = [p.data_ptr() for p in self.parts]
        if at != self._at:  # the first time, and after ``share_memory_``, which moves a tensor's memory away under it
            pairs = zip(self.pieces, self.parts, strict=True)
            self._copies, self._at = [(_bytes_of(piece), _bytes_of(part)) for piece, part in pairs], at
        for piece, part in self._copies:
            piece[:] = part
        return self.whole


class PackedLSTM(MadeOnce):
    """A layer's weights as oneDNN lays them out for its kernels, packed again whenever their bytes have changed."""

    def __init__(
        self, wi: Sequence[torch.Tensor], wh: Sequence[torch.Tensor], shape: Sequence[int], reverse: bool
    ) -> None:
        self._shape, self._reverse, self._gates = list(shape), reverse, (Joined(*wi), Joined(*wh))
        self._copied = Copied([pair for gates in self._gates for pair in zip(gates.pieces, gates.parts, strict=True)])
        self._packed: Sequence[torch.Tensor] | None = None

    def __call__(
        self, x: torch.Tensor, b: torch.Tensor, zeros: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        packed = self._packed
        if packed is None or self._copied.differ():
            self._packed = None  # interrupted here, nothing is kept that does not fit the bytes beside it
            inputs, hidden = self._gates
            packed = self._packed = packed_for_library_lstm(inputs(), hidden(), self._shape, self._reverse)
        wi, wh = packed
        return library_lstm(x, wi, wh, b, zeros, h0, c0, self._reverse, False)[:3]


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return as_bytes(tensor).numpy().data


# The rules of ``kernels`` that put them in


def joined_parameters(node: fx.Node) -> Replacement | None:
    """A concatenation of whole parameters, by their first dimension, that no result shows and nobody writes into."""
    parts: Any = node.args[0]
    along: Any = node.args[1] if len(node.args) > 1 else 0
    if along != 0 or node.kwargs or not all(p.meta.get("stands") for p in parts):
        return None
    if len({p.meta["lies"][2] for p in parts}) > 1:
        return None  # torch finds a type that holds all of them
    return None if gets_out(node) else made_once(node, Joined, tuple(parts), ())


def packed_layer(node: fx.Node) -> Replacement | None:
    """An LSTM layer whose weights are joined parameters."""
    given: Any = node.args
    x, wi, wh, b, none, h0, c0, reverse = given
    if not all(w.target is operator.call and w.args[0].target is Joined for w in (wi, wh)):
        return None
    gates = [list(w.args[0].args) for w in (wi, wh)]
    if not all(lies_in_order(*part.meta["lies"][:2]) for parts in gates for part in parts):
        return None  # its bytes could not be compared with those beside the others
    return made_once(node, PackedLSTM, (*gates, x.meta["lies"][0], reverse), (x, b, none, h0, c0))


def made_once(node: fx.Node, kind: type[MadeOnce], of: tuple[Any, ...], called_with: tuple[Any, ...]) -> Replacement:
    """One of a kind, made of what stands, called in the node's place."""
    with node.graph.inserting_before(node):
        made = node.graph.call_function(kind, of)
    return operator.call, (made, *called_with)
