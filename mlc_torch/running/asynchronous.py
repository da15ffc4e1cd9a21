"""Swift's ``async`` forms: the same calls as coroutines that give the result and raise the refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from mlc_torch.refusals import MLCRefusal, note, shortened, strict
from mlc_torch.running.request import PROFILING, SYNCHRONOUS, Request
from mlc_torch.running.road import Traveller, Work, travel
from mlc_torch.tensor import MLCTensor


async def awaited(graph: Traveller, request: Request, work: Work) -> tuple[MLCTensor | None, float]:
    """Run on a thread, so that the event loop goes on; always measured."""
    answers: list[tuple[MLCTensor | None, float]] = []

    def handler(result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
        answers.append((result, seconds))

    member, options, _, batch_size, data, outputs, _ = request
    measured = Request(member, options | PROFILING | SYNCHRONOUS, handler, batch_size, data, outputs, keeps_result=True)
    usual = partial(graph._runs.usual, graph, member, options, handler, batch_size, *data, outputs, True)
    try:
        seconds = await asyncio.to_thread(_run, usual, partial(travel, graph, measured, work))
    except MLCRefusal as why:
        with strict():  # it is raised, so it needs no line in the log; last_refusal() of this context shall know it
            note(why, why.member)
        raise shortened(why) from why.__cause__
    result, by_clock = answers[-1]
    return result, by_clock if seconds is None else seconds


def _run(usual: Callable[[], bool], whole: Callable[[], bool]) -> float | None:
    """The seconds that a usual call took; any other one is measured on its way."""
    begun = time.perf_counter()
    if usual():
        return time.perf_counter() - begun
    whole()
    return None


async def awaited_time(graph: Traveller, request: Request, work: Work) -> float:
    """As ``awaited``, for what gives no result."""
    return (await awaited(graph, request, work))[1]
