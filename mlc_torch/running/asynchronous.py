"""Swift's ``async`` forms: the same calls as coroutines that give the result and raise the refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.refusals import MLCRefusal, note, strict
from mlc_torch.tensor import MLCTensor


async def awaited(run: Callable[..., bool], options: Run = Run(0), **arguments: Any) -> tuple[MLCTensor | None, float]:
    """Run on a thread, so that the event loop goes on; always measured."""
    answers: list[tuple[MLCTensor | None, Exception | None, float]] = []

    def handler(result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
        answers.append((result, error, seconds))

    handler.keeps_result = True  # type: ignore[attr-defined]

    def call() -> None:
        run(**arguments, options=options | Run.profiling | Run.synchronous, completionHandler=handler)

    try:
        await asyncio.to_thread(call)
    except MLCRefusal as why:
        with strict():  # it is raised, so it needs no line in the log; last_refusal() of this context shall know it
            note(why, why.member)
        raise
    result, _, seconds = answers[-1]
    return result, seconds


async def awaited_time(run: Callable[..., bool], **arguments: Any) -> float:
    return (await awaited(run, **arguments))[1]
