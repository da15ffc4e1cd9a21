"""``step``, ``evaluate`` and ``fit`` (ours): loops over ``execute``, for programs that need nothing special."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import torch

from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.layers.sharing import Axis
from mlc_torch.nodes.feeding import SMALLER_BATCH
from mlc_torch.nodes.feeds import counted_axis
from mlc_torch.refusals import MLCRefusal, strictness
from mlc_torch.running.accumulating import Accumulation
from mlc_torch.running.batches import Batches as Batches  # the stubs take the three from here
from mlc_torch.running.batches import BatchReader, check_batches, once
from mlc_torch.running.batches import Values as Values
from mlc_torch.running.early_stopping import EarlyStopping
from mlc_torch.running.fit_arguments import Callback as Callback
from mlc_torch.running.fit_arguments import as_callbacks, check_numbers, check_sources, is_true, shows_usage
from mlc_torch.running.fit_together import one_decision, over_all
from mlc_torch.running.history import Epoch, History
from mlc_torch.running.progress import Unseen, Writer, bar_over, writer_for
from mlc_torch.running.tally import Amounts, LossTally, Summed
from mlc_torch.running.training_warnings import warn_once
from mlc_torch.spelling.own import as_switch
from mlc_torch.tensor import MLCTensor

Batch = tuple[float, float, int]
"""What counts of a batch's losses by its samples, what is added up, and how many samples it has."""
_TRAIN, _INFER = Run.synchronous, Run.synchronous | Run.forwardForInference
_SHOWN_EVERY = 0.1
"""Seconds between two changes of the loss beside a progress bar: writing it costs more than a small step."""


class FittingGraph:
    """What a training graph has for training in a line."""

    _declared: Any
    _runs: Any
    _lock: Any
    _device: Any
    _compiled: Any
    _optimizer: Any
    _declared_batch: Callable[[], int]
    _sample_axes: Callable[..., dict[int, Axis]]
    _planned_nodes: Callable[..., Any]
    _is_loss: Callable[..., bool]
    _look_at_result: Callable[..., None]
    execute: Callable[..., bool]

    def step(self, inputs: Values, labels: Values = None, weights: Values = None) -> float:
        """Train on one batch and give its loss, of several losses their sum; a refusal is raised.

        Each of the three is an array or a torch tensor, a sequence of them in the order of ``addInputs``, or a dictionary
        by name. A batch may be smaller than the one that was declared.
        """
        if self._optimizer is None:
            self._warn_of_no_optimizer()
        batch = (inputs, labels) if weights is None else (inputs, labels, weights)
        ((weighed, added, _),) = self._losses((batch,), _TRAIN)
        return weighed + added

    def evaluate(self, batches: Batches) -> float:
        """The loss over some batches, forward only and in inference mode; nothing is trained.

        It is that of one call over all their samples, however they are cut into batches: a mean counts by the samples of each
        batch, a sum is added up, and several losses are added. A pass whose gradient or update is still to come is lost.
        """
        check_batches("batches", batches)
        return self._summed_over(batches, "evaluate").loss

    def _summed_over(self, batches: Batches, where: str) -> Summed:
        total, sums, samples = 0.0, 0.0, 0
        for weighed, added, count in self._losses(once(batches), _INFER, where):
            total, sums, samples = total + weighed * count, sums + added, samples + count
        if not samples:
            raise ValueError(f"{where} has no batches")
        return Summed(total, sums, samples)

    @shows_usage("training.fit([(x1, y1), (x2, y2)], epochs=10)")
    def fit(
        self,
        batches: Batches,
        *,
        epochs: int = 1,
        validation: Batches | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        patience: int | None = None,
        min_delta: float = 0.0,
        accumulate: int = 1,
        progress: bool | None = None,
        tensorboard: Any = None,
    ) -> History:
        """Train for some epochs over ``batches``, a list, a ``DataLoader`` or any other iterable of (inputs, labels).

        The loss of an epoch is joined from its batches as ``evaluate`` does it. After each epoch the loss over
        ``validation`` is computed, where it is given, and each callback is called with the ``Epoch``; one that returns
        ``True`` ends training. With ``patience`` training also ends when the watched loss has
        not fallen by more than ``min_delta`` for that many epochs. With ``accumulate`` the optimizer updates once for so
        many batches, by the mean of their gradients over all samples. ``progress`` shows a bar (tqdm): true, false, or
        ``None`` for one where somebody is watching. ``tensorboard`` is a folder or a ``SummaryWriter``.
        """
        check_numbers(epochs, patience, accumulate, min_delta)
        check_sources(batches, validation, epochs)
        if progress is not None:
            progress = as_switch("MLCTrainingGraph.fit", "progress", progress)
        called = as_callbacks(callbacks)
        if self._optimizer is None:
            self._warn_of_no_optimizer()
        if self._device is not None and self._device.rank:
            progress, tensorboard = False, None  # of the processes that train together, the first one shows it
        history, early = History(), EarlyStopping(patience, min_delta)
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
                stop, why = [callback(epoch) for callback in called], early.why_after(epoch)
                why = f"a callback ended training after epoch {number}" if any(map(is_true, stop)) else why
                if number < epochs and self._device is not None:
                    why = one_decision(self._device._ranks, number, why)
                history.stopped_because = why
                if why:
                    break
        return history

    def _epoch(
        self,
        number: int,
        trained: Iterable[Batch],
        validation: Batches | None,
        bar: Unseen,
        history: History,
        write: Writer | None,
    ) -> Epoch:
        losses, samples, shown = history.step_losses, 0, 0.0
        first, total, sums, shows = len(losses), 0.0, 0.0, bar.shows
        begun = perf_counter()
        for weighed, added, count in trained:
            losses.append(weighed + added)
            total, sums, samples = total + weighed * count, sums + added, samples + count
            if shows and perf_counter() - shown > _SHOWN_EVERY:
                bar.show(total / samples + sums)
                shown = perf_counter()
            if write is not None:
                write("loss/step", losses[-1], len(losses))
        seconds = perf_counter() - begun
        steps = len(losses) - first
        if not steps:
            raise ValueError(f"epoch {number} has no batches")
        own = None if validation is None else self._summed_over(validation, "the validation")
        summed, of_validation = over_all(self._runs, number, Summed(total, sums, samples), own)
        loss, validated = summed.loss, None if of_validation is None else of_validation.loss
        bar.show(loss, validated)
        if write is not None:
            write("loss/training", loss, number)
            if validated is not None:
                write("loss/validation", validated, number)
        return Epoch(number, loss, validated, steps, summed.samples, seconds)

    def _losses(self, batches: Iterable[Any], options: Run, where: str = "") -> Iterator[Batch]:
        """The losses and the number of samples of each batch; an error says which batch it was.

        All of it is written in one loop: beside a run of a small network, even a few function calls take noticeable time.
        """
        runs, execute, loss = self._runs, self.execute, math.nan

        def keep_loss(result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
            nonlocal loss
            if result is not None:
                value: Any = result._cell.value
                loss = value.item()

        for number, batch in enumerate(batches, 1):
            try:
                reader = runs.batch_reader or self._new_batch_reader()
                inputs, labels, weights, count, size = reader(batch)
                if not labels and options is _INFER:
                    reader.refuse_missing_labels()  # an inference without labels would stop before the loss
                adds = reader.tally.adds if labels else None  # they may be bound, or constants
                before = strictness.get()
                try:
                    strictness.set(True)  # a refusal is raised, and needs no line in the log; as ``raising`` does it
                    if adds is None:
                        weighed, added = self._lock.holding(
                            self._run_and_tally, reader.tally, inputs, labels, weights, size, options
                        )
                    else:
                        execute(
                            inputsData=inputs,
                            lossLabelsData=labels,
                            lossLabelWeightsData=weights,
                            batchSize=size,
                            options=options,
                            completionHandler=keep_loss,
                        )
                        weighed, added = (0.0, loss) if adds else (loss, 0.0)
                finally:
                    strictness.set(before)
            except (MLCRefusal, TypeError, ValueError) as error:
                _advise(error)
                if where:
                    error.add_note(f"in batch {number} of {where}")
                raise
            yield weighed, added, count

    def _run_and_tally(
        self, tally: LossTally, inputs: Any, labels: Any, weights: Any, size: int, options: Run
    ) -> Amounts:
        """``execute``, and all losses, which no handler is given. Under the lock: another thread's run would take their place."""
        self.execute(
            inputsData=inputs, lossLabelsData=labels, lossLabelWeightsData=weights, batchSize=size, options=options
        )
        return self._tallied(tally)

    def _tallied(self, tally: LossTally) -> Amounts:
        """What the losses of the last pass come to."""
        weighed, added = tally.of(self._runs.last)
        if math.isnan(weighed + added):  # the handler's result alone may be a number
            self._look_at_result(torch.tensor(math.nan, device="cpu"))
        return weighed, added

    def _new_batch_reader(self) -> BatchReader:
        """Make the reader of batches; it is kept until something is declared or added."""
        if self._compiled is None:
            raise MLCRefusal("the graph is not compiled; call compile(options:device:) first", type(self).__name__)
        fed, full, nodes = self._declared.fed(), self._declared_batch(), self._planned_nodes()
        axes = self._sample_axes()
        counting = [
            c for _, cells in fed for c in cells.values() if not full or counted_axis(c, axes, full) is not None
        ]
        tally = LossTally(nodes, self._is_loss, counting, full)
        read = {id(cell) for node in nodes for cell in node.reads}
        needed = [name for name, cell in self._declared.labels.items() if id(cell) in read]
        batch_reader = self._runs.batch_reader = BatchReader(fed, full, axes, tally, needed)
        return batch_reader

    def _warn_of_no_optimizer(self) -> None:
        warn_once(
            self._runs.warned,
            "no optimizer",
            "the graph has no optimizer, so that step and fit change no parameter; give it one when it is made, or with "
            "compileOptimizer",
        )

    def _accumulated(self, batches: Iterable[Any], every: int, where: str) -> Iterator[Batch]:
        """As ``_losses``, with an update after every so many batches and after the last."""
        accumulation = Accumulation(self, every)
        for number, batch in enumerate(batches, 1):
            try:
                losses = accumulation.losses_of(batch)
            except (MLCRefusal, TypeError, ValueError) as error:
                _advise(error)
                error.add_note(f"in batch {number} of {where}")
                raise
            yield losses
        accumulation.finish()


def _advise(error: Exception) -> None:
    """Of a refusal by ``execute``: what to do about it in a batch, where there is no ``batchSize`` to give."""
    if isinstance(error, MLCRefusal) and SMALLER_BATCH in error.reason:
        said = error.reason.partition(SMALLER_BATCH)[0]
        error.reason = f"{said}; for each sample of a batch give a row of that shape"
        error.args = (error.reason,)


for _member in (FittingGraph.step, FittingGraph.evaluate, FittingGraph.fit):
    _member.__qualname__ = f"MLCTrainingGraph.{_member.__name__}"  # the class that programs know, for Python's errors
