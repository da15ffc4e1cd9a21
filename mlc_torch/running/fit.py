"""``step``, ``evaluate`` and ``fit`` (ours): loops over ``execute``, for programs that need nothing special."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.refusals import MLCRefusal, strict
from mlc_torch.running.batches import Batches as Batches  # the stubs take the two from here
from mlc_torch.running.batches import Values as Values
from mlc_torch.running.batches import by_name, mean_of, once, samples_of
from mlc_torch.running.history import Epoch, History
from mlc_torch.running.progress import Unseen, bar_over, writer_for
from mlc_torch.tensor import MLCTensor

Callback = Callable[[Epoch], object]
"""Called after each epoch. Training ends where it returns true."""

_TRAIN, _INFER = Run.synchronous, Run.synchronous | Run.forwardForInference
_SHOWN_EVERY = 0.1
"""Seconds between two changes of the loss beside a progress bar: writing it costs more than a small step."""


class FittingGraph:
    """What a training graph has for training in a line."""

    _declared: Any
    _runs: Any
    _device: Any
    bindAndWriteData: Callable[..., bool]
    execute: Callable[..., bool]
    executeForward: Callable[..., bool]
    executeGradient: Callable[..., bool]
    executeOptimizerUpdate: Callable[..., bool]

    def step(self, inputs: Values, labels: Values = None, weights: Values = None) -> float:
        """Train on one batch and give its loss; a refusal is raised.

        Each of the three is an array or a torch tensor, a sequence of them in the order of ``addInputs``, or a dictionary
        by name. A batch may be smaller than the one that was declared.
        """
        return self._loss_of((inputs, labels, weights), _TRAIN)[0]

    def evaluate(self, batches: Batches) -> float:
        """The mean loss over some batches, forward only and in inference mode; nothing is trained."""
        total, samples = 0.0, 0
        for loss, count in self._losses(once(batches), _INFER, "evaluate"):
            total, samples = total + loss * count, samples + count
        if not samples:
            raise ValueError("there are no batches")
        return total / samples

    def fit(
        self,
        batches: Batches,
        *,
        epochs: int = 1,
        validation: Batches | None = None,
        callbacks: Sequence[Callback] = (),
        patience: int | None = None,
        min_delta: float = 0.0,
        accumulate: int = 1,
        progress: bool | None = None,
        tensorboard: Any = None,
    ) -> History:
        """Train for some epochs over ``batches``, a list, a ``DataLoader`` or any other iterable of (inputs, labels).

        After each epoch the loss over ``validation`` is computed, where it is given, and each callback is called with the
        ``Epoch``; one that returns true ends training. With ``patience`` training also ends when the watched loss has
        not fallen by more than ``min_delta`` for that many epochs. With ``accumulate`` the optimizer updates once for so
        many batches, by the mean of their gradients over all samples. ``progress`` shows a bar (tqdm): true, false, or
        ``None`` for one where somebody is watching. ``tensorboard`` is a folder or a ``SummaryWriter``.
        """
        for name, number in (("epochs", epochs), ("patience", patience), ("accumulate", accumulate)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        for name, given in (("batches", batches), ("validation", validation)):
            if isinstance(given, Iterator) and (epochs > 1 or name == "validation"):
                raise TypeError(f"{name} is an iterator, which is empty after one epoch; pass a list, or what makes it")
        if self._device is not None and self._device.rank:
            progress, tensorboard = False, None  # of the processes that train together, the first one shows it
        history, best, waited = History(), math.inf, 0
        with ExitStack() as stack:
            write = writer_for(tensorboard, stack)
            for number in range(1, epochs + 1):
                title, these = f"epoch {number}/{epochs}", once(batches)
                with bar_over(these, title, progress) as bar:
                    where = f"epoch {number}"
                    losses = self._accumulated(bar, accumulate, where) if accumulate > 1 else None
                    epoch = self._epoch(
                        number, losses or self._losses(bar, _TRAIN, where), validation, bar, history, write
                    )
                history.epochs.append(epoch)
                stop = [callback(epoch) for callback in callbacks]
                if any(stop):
                    history.stopped_because = f"a callback ended training after epoch {number}"
                    break
                best, waited = (epoch.watched, 0) if epoch.watched < best - min_delta else (best, waited + 1)
                if patience is not None and waited >= patience:
                    history.stopped_because = f"no better loss for {patience} epochs"
                    break
        return history

    def _epoch(
        self,
        number: int,
        trained: Iterable[tuple[float, int]],
        validation: Batches | None,
        bar: Unseen,
        history: History,
        write: Callable[[str, float, int], None],
    ) -> Epoch:
        losses, samples, shown = history.step_losses, 0, 0.0
        first, total = len(losses), 0.0
        begun = perf_counter()
        for loss, count in trained:
            losses.append(loss)
            total, samples = total + loss * count, samples + count
            if bar.shows and perf_counter() - shown > _SHOWN_EVERY:
                bar.show(total / samples)
                shown = perf_counter()
            write("loss/step", loss, len(losses))
        seconds = perf_counter() - begun
        steps = len(losses) - first
        if not steps:
            raise ValueError(f"epoch {number} has no batches")
        validated = None if validation is None else self.evaluate(validation)
        bar.show(total / samples, validated)
        write("loss/training", total / samples, number)
        if validated is not None:
            write("loss/validation", validated, number)
        return Epoch(number, total / samples, validated, steps, samples, seconds)

    def _losses(self, batches: Iterable[Any], options: Run, where: str) -> Iterator[tuple[float, int]]:
        """The loss and the number of samples of each batch; an error says which batch it was."""
        for number, batch in enumerate(batches, 1):
            try:
                found = self._loss_of(batch, options)
            except (MLCRefusal, TypeError, ValueError) as error:
                error.add_note(f"in batch {number} of {where}")
                raise
            yield found

    def _loss_of(self, batch: Any, options: Run) -> tuple[float, int]:
        """The loss of a batch, and its number of samples."""
        inputs, labels, weights, count, size = self._given(batch)
        result = _done(
            self.execute,
            inputsData=inputs,
            lossLabelsData=labels,
            lossLabelWeightsData=weights,
            batchSize=size,
            options=options,
        )
        return mean_of(result), count

    def _accumulated(self, batches: Iterable[Any], every: int, where: str) -> Iterator[tuple[float, int]]:
        """As ``_losses``, phase by phase, with an update after every so many batches and after the last."""
        totals: list[Any] = []
        samples = waiting = 0
        for number, batch in enumerate(batches, 1):
            try:
                loss, count = self._gradients_of(batch)
            except (MLCRefusal, TypeError, ValueError) as error:
                error.add_note(f"in batch {number} of {where}")
                raise
            parts = [None if g is None else g * count for g in self._runs.last.gradients]
            totals = [p if t is None else t.add_(p) for t, p in zip(totals, parts, strict=True)] if totals else parts
            samples, waiting = samples + count, waiting + 1
            if waiting == every:
                self._update_by(totals, samples)
                totals, samples, waiting = [], 0, 0
            yield loss, count
        if waiting:
            self._update_by(totals, samples)

    def _gradients_of(self, batch: Any) -> tuple[float, int]:
        """Forward and gradient of a batch, without the update."""
        *parts, count, size = self._given(batch)
        data = {name: value for part in parts for name, value in (part or {}).items()}
        kinds = (self._declared.inputs, self._declared.labels, self._declared.label_weights)
        tensors = {name: MLCTensor._of(cell) for cells in kinds for name, cell in cells.items() if name in data}
        with strict():
            self.bindAndWriteData(data, forInputs=tensors, to=self._device, batchSize=size, synchronous=True)
        result = _done(self.executeForward, batchSize=size, options=_TRAIN)
        _done(self.executeGradient, batchSize=size, options=_TRAIN)
        return mean_of(result), count

    def _update_by(self, totals: Sequence[Any], samples: int) -> None:
        for gradient, total in zip(self._runs.last.gradients, totals, strict=True):
            if gradient is not None:
                gradient.copy_(total / samples)
        _done(self.executeOptimizerUpdate, options=_TRAIN)

    def _given(self, batch: Any) -> tuple[Any, Any, Any, int, int]:
        """Inputs, labels and weights of a batch by name, its number of samples, and the ``batchSize`` that says so."""
        if not isinstance(batch, (tuple, list)) or not 1 <= len(batch) <= 3:
            raise TypeError(
                f"a batch is (inputs, labels) or (inputs, labels, weights), got {type(batch).__name__}"
                + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
            )
        declared = self._declared
        inputs, labels, weights = (*batch, None, None)[:3]
        data = by_name(inputs, declared.inputs, "input")
        count, full = samples_of(data, declared.inputs)
        return (
            data,
            by_name(labels, declared.labels, "label"),
            by_name(weights, declared.label_weights, "label weight"),
            count,
            0 if count == full else count,
        )


def _done(call: Callable[..., bool], **given: Any) -> Any:
    """What a call hands to its completion handler; a refusal is raised."""
    told: list[Any] = []
    call(**given, completionHandler=lambda *outcome: told.extend(outcome))
    result, error, _ = told
    if error is not None:
        raise error
    return result
