"""Swift's ``async`` forms: the same calls as coroutines that give the result and raise the refusal."""

from __future__ import annotations

import asyncio

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
    try:
        await asyncio.to_thread(travel, graph, measured, work)
    except MLCRefusal as why:
        with strict():  # it is raised, so it needs no line in the log; last_refusal() of this context shall know it
            note(why, why.member)
        raise shortened(why) from why.__cause__
    return answers[-1]


async def awaited_time(graph: Traveller, request: Request, work: Work) -> float:
    """As ``awaited``, for what gives no result."""
    return (await awaited(graph, request, work))[1]
