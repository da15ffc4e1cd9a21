"""What a training by ``fit`` went through: its losses, step by step and epoch by epoch, as numbers, a table and a picture."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, overload

from mlc_torch.extras import install
from mlc_torch.spelling.own import as_path


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the training batches."""

    number: int
    """Counted from 1."""
    loss: float
    """Its steps' losses, joined as ``evaluate`` joins those of batches; each is of the weights before its update."""
    validation_loss: float | None
    """What ``evaluate`` gives for the validation batches, of all ranks where each feeds its own; ``None`` without validation."""
    steps: int
    """How many batches it had."""
    samples: int
    """How many samples those batches had together, of all ranks where each feeds its own."""
    seconds: float
    """Training alone, without validation."""

    @property
    def watched(self) -> float:
        """What early stopping looks at: the validation loss, or the training loss where there is none."""
        return self.loss if self.validation_loss is None else self.validation_loss


@dataclass(slots=True, repr=False)
class History:
    """What ``fit`` gives: a list of epochs, and more. In a notebook it shows itself; ``print`` shows a table."""

    epochs: list[Epoch] = field(default_factory=list)
    """What each epoch came to; ``history[0]`` is the first, and a loop over the history goes through them."""
    step_losses: list[float] = field(default_factory=list)
    """The loss of every batch, over all epochs; of several losses their sum."""
    stopped_because: str = ""
    """Why training ended before the last epoch; empty where it did not."""

    @property
    def losses(self) -> list[float]:
        """The training loss of each epoch."""
        return [epoch.loss for epoch in self.epochs]

    @property
    def validation_losses(self) -> list[float | None]:
        """The validation loss of each epoch; ``None`` where there was no validation."""
        return [epoch.validation_loss for epoch in self.epochs]

    @property
    def best(self) -> Epoch | None:
        """The epoch with the smallest validation loss, or training loss without validation; NaN is larger than any."""
        return min(self.epochs, key=lambda epoch: (math.isnan(epoch.watched), epoch.watched), default=None)

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    @overload
    def __getitem__(self, index: int) -> Epoch: ...

    @overload
    def __getitem__(self, index: slice) -> list[Epoch]: ...

    def __getitem__(self, index: int | slice) -> Epoch | list[Epoch]:
        if isinstance(index, str):
            known = [name for name in dir(self) if name[0] != "_"]
            raise TypeError(
                f"history[{index!r}] does not exist, history[0] is the first epoch; by name: {', '.join(known)}"
            )
        return self.epochs[index]

    def __str__(self) -> str:
        lines = ["epoch  loss        validation  seconds"]
        for e in self.epochs:
            validation = "" if e.validation_loss is None else f"{e.validation_loss:.6g}"
            lines.append(f"{e.number:>5}  {e.loss:<10.6g}  {validation:<10}  {e.seconds:.2f}")
        return "\n".join([*lines, *([f"stopped: {self.stopped_because}"] if self.stopped_because else [])])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The losses as a matplotlib figure, written to ``path`` where one is given."""
        target = None if path is None else as_path("History.plot", path)
        try:
            from matplotlib.figure import Figure
            from matplotlib.ticker import MaxNLocator
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(f"a plot needs matplotlib: {install('fit')}", name=missing.name) from missing
        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.add_subplot(xlabel="epoch", ylabel="loss")
        numbers = [e.number for e in self.epochs]
        mark = "o" if len(numbers) < 2 else ""
        axes.plot(numbers, self.losses, marker=mark, label="training")
        measured = [e for e in self.epochs if e.validation_loss is not None]
        if measured:
            axes.plot([e.number for e in measured], [e.watched for e in measured], marker=mark, label="validation")
            axes.legend()
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if target is not None:
            figure.savefig(target)
        return figure

    __repr__ = __str__

    def _repr_png_(self) -> bytes | None:
        """For a notebook: the picture, or ``None`` where matplotlib is missing, and the notebook shows the table."""
        if not self.epochs:
            return None
        try:
            figure = self.plot()
        except ModuleNotFoundError:
            return None
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
        return drawn.getvalue()
