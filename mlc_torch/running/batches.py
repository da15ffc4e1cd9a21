"""Batches as programs have them: arrays and torch tensors, alone, in a row or by name; and what ``execute`` takes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mlc_torch.nodes.feeds import counted_axis
from mlc_torch.refusals import MLCRefusal
from mlc_torch.running.tally import LossTally
from mlc_torch.spelling.arguments import describe
from mlc_torch.tensor import MLCTensor, MLCTensorData, TensorState
from mlc_torch.tensor.data import DATA_TYPES
from mlc_torch.tensor.plain_values import why_not_plain

Values = Any
"""One array or torch tensor, several in the order of ``addInputs``, or a dictionary by name."""
Batches = Iterable[Any] | Callable[[], Iterable[Any]]
"""Pairs (inputs, labels), or triples with label weights; or a function that gives them anew for each epoch."""
Given = tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | None, int, int]
"""Inputs, labels and label weights by name, the number of samples, and the ``batchSize`` that says so."""

EXAMPLE = "for example [(x1, y1), (x2, y2)], or [(x, y)] for one batch"

_NUMPY_TYPES = {type_: torch.empty(0, dtype=type_, device="cpu").numpy().dtype for type_ in DATA_TYPES}

_NO_NUMBERS = "cSUmMV"
"""Kinds of NumPy's types that would become other numbers, or none: complex numbers, text, times, records."""

_DECLARED_IN = {"input": "inputs", "label": "lossLabels", "label weight": "lossLabelWeights"}

_BYTES, _BYTE_BY_BYTE = (bytes, bytearray, memoryview), "Bbc"
_FROM_BYTES = "np.frombuffer(data, np.float32).reshape(shape)"


class Kind:
    """The tensors that one part of a batch is for: inputs, labels or label weights."""

    def __init__(self, word: str, cells: Mapping[str, TensorState]) -> None:
        self.word, self.cells = word, cells
        self.name, self.cell, self.type, self.shape = "", None, None, None
        if len(cells) == 1:  # as in most programs
            ((self.name, self.cell),) = cells.items()
            self.type, self.shape = _NUMPY_TYPES[self.cell.dtype], self.cell.shape

    def by_name(self, values: Values) -> dict[str, Any] | None:
        """Values of this kind by their declared names, ready for ``execute``."""
        if values is None:
            return {} if self.word == "input" else None
        if isinstance(values, Mapping):
            return {name: self.ready(name, value) for name, value in values.items()}
        several = list(values) if isinstance(values, (tuple, list)) else [values]
        if len(several) != len(self.cells):
            one = len(several) == 1
            undeclared = f"name {'it' if one else 'them'} in its {_DECLARED_IN[self.word]}"
            raise TypeError(
                f"{len(several)} {self.word}{' was' if one else 's were'} given, addInputs declared {len(self.cells)}: "
                f"{', '.join(self.cells) or undeclared}"
                + ("; a row of numbers is an array: np.array(numbers, np.float32)" if _is_row(several) else "")
            )
        return {name: self.ready(name, value) for name, value in zip(self.cells, several, strict=True)}

    def ready(self, name: str, value: Any) -> Any:
        try:
            return _ready(value, self.cells.get(name))
        except (TypeError, ValueError) as error:
            self.says_name(error, name)
            raise

    def says_name(self, error: Exception, name: str) -> None:
        """Put the name of the value that cannot be taken before the words of its error."""
        if type(error) in (TypeError, ValueError):  # others, of a program's class, have fields of their own
            error.args = (f"the {self.word} {name!r}: {error}",)


def _is_row(values: list[Any]) -> bool:
    """Whether a list that should hold arrays holds numbers, or lists of them."""
    return bool(values) and all(isinstance(value, (int, float, list, tuple)) for value in values)


def _ready(value: Any, cell: TensorState | None) -> Any:
    """An array or tensor that ``execute`` takes as it is: of the declared type, contiguous, in the host's memory."""
    if isinstance(value, MLCTensorData) or cell is None:
        return value
    if isinstance(value, MLCTensor):
        value = value.torch
    elif not isinstance(value, torch.Tensor):
        return _converted(value, _NUMPY_TYPES[cell.dtype])
    why = why_not_plain(value)
    if why:
        raise ValueError(f"a tensor {why}")
    if value.dtype.is_complex:
        raise TypeError(f"expected a tensor of real numbers, got {describe(value)}")
    if value.dtype is cell.dtype and value.is_cpu and value.is_contiguous():
        return value
    made = value.detach().to("cpu", cell.dtype).contiguous()
    if not cell.dtype.is_floating_point and value.dtype is not cell.dtype:
        _look(value.detach().cpu(), made)
    return made


def _converted(value: Any, kind: Any) -> np.ndarray:
    """An array of this type: the array itself where it fits."""
    why = "" if type(value) is np.ndarray else why_not_plain(value)
    if why:
        raise ValueError(f"an array {why}")
    # NumPy would count each byte as a number.
    if isinstance(value, _BYTES) and getattr(value, "format", "B") in _BYTE_BY_BYTE:
        raise TypeError(f"expected an array of numbers, got bytes; say what they hold: {_FROM_BYTES}")
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"expected an array of numbers, got {describe(value)}, whose rows differ in length") from None
    if array.dtype.hasobject:
        raise TypeError("expected an array of numbers, got one of Python objects")
    if array.dtype.kind in _NO_NUMBERS:
        raise TypeError(f"expected an array of numbers, got {describe(value)}")
    with np.errstate(invalid="ignore"):  # what cannot be converted is told below
        made = np.ascontiguousarray(array, kind)
    if kind.kind != "f" and array.dtype != kind:
        _look(array, made)
    return made


def _look(given: Any, made: Any) -> None:
    """Whole numbers must be the same in another type: an index that is cut off is another index."""
    given, made = given.reshape(-1), made.reshape(-1)
    other = given != made
    if other.any():
        place = int(other.nonzero()[0][0])
        was, now = given[place].item(), made[place].item()
        raise ValueError(f"an array of {given.dtype} holds {was}, which is {now} as {made.dtype}, the declared type")


class BatchReader:
    """Turns a batch into what ``execute`` takes. Made once for many batches, so that each takes little time."""

    def __init__(
        self,
        declared: Sequence[tuple[str, Mapping[str, TensorState]]],
        full: int,
        axes: Mapping[int, int | None],
        tally: LossTally,
        labels: Sequence[str],
    ) -> None:
        self.inputs, self.labels, self.weights = (Kind(word, cells) for word, cells in declared)
        self.full, self.axes, self.pair = full, axes, (self.inputs, self.labels)
        self.is_pair = None not in (self.inputs.shape, self.labels.shape)
        self.tally = tally
        """What the losses of a batch come to."""
        self.needed = labels
        """The labels that the losses read."""

    def refuse_missing_labels(self) -> None:
        """Where a loss is asked for, of a batch that has no labels."""
        if self.needed:
            raise MLCRefusal(
                f"no data for the label {self.needed[0]!r}; a loss is of (inputs, labels)", "MLCTrainingGraph.evaluate"
            )

    def __call__(self, batch: Any) -> Given:
        if type(batch) in (tuple, list) and len(batch) == 2:
            # One input and one label of the declared shapes, as in most programs: they fit, and nothing else is checked.
            first, second = batch
            if type(first) is type(second) is MLCTensorData and self.is_pair:
                return {self.inputs.name: first}, {self.labels.name: second}, None, self.full or 1, self.full
            named = []
            for kind, value in zip(self.pair, batch, strict=True):
                what = type(value)
                try:
                    if what is np.ndarray and value.shape == kind.shape:
                        value = MLCTensorData._over(_converted(value, kind.type))
                    elif what is torch.Tensor and not value.is_nested and value.shape == kind.shape:
                        value = MLCTensorData._over(_ready(value, kind.cell))
                    else:
                        break
                except (TypeError, ValueError) as error:
                    kind.says_name(error, kind.name)
                    raise
                named.append({kind.name: value})
            else:
                return named[0], named[1], None, self.full or 1, self.full
        elif not isinstance(batch, (tuple, list)) or not 1 <= len(batch) <= 3:
            raise TypeError(
                f"a batch is (inputs, labels) or (inputs, labels, weights), got {_spoken(batch)}; batches are {EXAMPLE}"
            )
        inputs, labels, weights = (*batch, None, None)[:3]
        given = self.inputs.by_name(inputs) or {}, self.labels.by_name(labels), self.weights.by_name(weights)
        count = self._count(given)
        return (*given, count or 1, count)

    def _count(self, given: tuple[Mapping[str, Any] | None, ...]) -> int:
        """How many samples a batch has, which its arrays must agree in."""
        found: dict[str, int] = {}
        for kind, data in zip((self.inputs, self.labels, self.weights), given, strict=True):
            for name, value in (data or {}).items():
                cell = kind.cells.get(name)
                if cell is None or counted_axis(cell, self.axes, self.full) != 0:
                    continue
                count = _samples(value, cell.shape)
                if count is not None:
                    found[f"{kind.word} {name!r}"] = count
        counts = set(found.values())
        if len(counts) > 1:
            said = ", ".join(f"{count} in the {who}" for who, count in found.items())
            raise ValueError(f"the arrays of a batch differ in their number of samples: {said}")
        if counts == {0}:
            raise ValueError(f"a batch has no samples: the {next(iter(found))} is an array without rows")
        return counts.pop() if counts else self.full


def _samples(value: Any, declared: tuple[int, ...]) -> int | None:
    """How many samples an array holds; ``None`` where that cannot be told."""
    shape = getattr(value, "shape", None)
    if shape is None or not len(shape):
        return None
    each = math.prod(declared[1:])
    if each == 1 or math.prod(shape[1:]) == each:
        return int(shape[0])
    return declared[0] if math.prod(shape) == math.prod(declared) else None


def _spoken(batch: Any) -> str:
    if isinstance(batch, (tuple, list)):
        return f"{type(batch).__name__} of {len(batch)}"
    if isinstance(batch, (np.ndarray, torch.Tensor)):
        return f"{type(batch).__name__} of shape {list(batch.shape)}"
    return type(batch).__name__


def check_batches(name: str, given: Any, made: bool = False) -> None:
    """Raise early, and in words of ours, for what cannot be batches: arrays, a single pair, nothing to loop over.

    A function may give batches; what it has ``made`` is no function any more.
    """
    arrays = (np.ndarray, torch.Tensor, MLCTensor, MLCTensorData)
    is_loop = isinstance(given, Iterable) or (callable(given) and not made)
    if isinstance(given, (str, bytes, Mapping, *arrays)) or not is_loop:
        came = describe(given)
    elif isinstance(given, (tuple, list)) and given and isinstance(given[0], arrays):
        came = f"a {type(given).__name__} of {len(given)} arrays"
    else:
        return
    raise TypeError(f"{name} must be an iterable of (inputs, labels), {EXAMPLE}; got {came}")


def once(batches: Batches) -> Iterable[Any]:
    """The batches of one epoch."""
    if not callable(batches) or isinstance(batches, Iterable):
        return batches
    made = batches()
    check_batches("what a function gives for batches", made, made=True)
    return made
