"""What ``fit`` shows while it runs: a bar over the batches, and numbers for TensorBoard."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from mlc_torch.extras import install
from mlc_torch.shown_by_default import standard_error
from mlc_torch.spelling.own import as_path


class Unseen:
    """Batches without a bar."""

    shows = False

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, loss: float, validation: float | None = None) -> None:
        pass


class Bar(Unseen):
    """Batches behind tqdm's bar, which stays open for the validation that follows them."""

    def __init__(self, batches: Iterable[Any], bar: Any) -> None:
        super().__init__(batches)
        self.bar, self.shows = bar, not bar.disable

    def __iter__(self) -> Iterator[Any]:
        if not self.shows:
            yield from self.batches
            return
        for batch in self.batches:
            yield batch
            self.bar.update()

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def show(self, loss: float, validation: float | None = None) -> None:
        told = {"loss": f"{loss:.4g}"} | ({} if validation is None else {"validation": f"{validation:.4g}"})
        self.bar.set_postfix(told)


def number_of(batches: Iterable[Any]) -> int | None:
    """How many batches there are, where they know it.

    Having ``__len__`` says little: every ``DataLoader`` has it, and raises ``TypeError`` where its dataset is a stream. Some
    samplers raise ``NotImplementedError``. What else goes wrong in a program's ``__len__`` is for the program to know.
    """
    try:
        number = operator.length_hint(batches, -1)
    except NotImplementedError:
        return None
    return number if number >= 0 else None


def bar_over(batches: Iterable[Any], title: str, progress: bool | None) -> Unseen:
    """The batches behind a bar: where ``progress`` is true, or ``None`` and somebody is watching; never where nobody can."""
    if progress is False:
        return Unseen(batches)
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError as missing:
        if progress:
            raise ModuleNotFoundError(f"a progress bar needs tqdm: {install('fit')}", name=missing.name) from missing
        return Unseen(batches)
    if standard_error() is None:  # tqdm would fail
        return Unseen(batches)
    return Bar(
        batches, tqdm(total=number_of(batches), desc=title, unit="batch", disable=None if progress is None else False)
    )


Writer = Callable[[str, float, int], None]


def writer_for(tensorboard: Any, stack: ExitStack) -> Writer | None:
    """What writes a number for TensorBoard; ``None`` where nobody asks for that."""
    if tensorboard is None:
        return None
    if hasattr(tensorboard, "add_scalar"):
        return tensorboard.add_scalar
    folder = as_path("MLCTrainingGraph.fit", tensorboard, "tensorboard")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(f"TensorBoard needs its package: {install('fit')}", name=missing.name) from missing
    writer = SummaryWriter(str(folder))
    stack.callback(writer.close)
    return writer.add_scalar
