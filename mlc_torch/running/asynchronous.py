"""Swift's ``async`` forms: the same calls as coroutines that give the result and raise the refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from mlc_torch.graph.locks import unless_held
from mlc_torch.refusals import MLCRefusal, note, raising, shortened
from mlc_torch.running.midst import refuse_in_the_midst
from mlc_torch.running.request import PROFILING, SYNCHRONOUS, Request
from mlc_torch.running.road import Traveller, Work, travel
from mlc_torch.tensor import MLCTensor

_SOON = 2e-4
"""Seconds. To hand work to a thread and to wait for it keeps the event loop as long."""


async def awaited(graph: Traveller, request: Request, work: Work) -> tuple[MLCTensor | None, float]:
    """Run on a thread, so that the event loop goes on, or at once where that keeps it for less time; always measured."""
    answers: list[tuple[MLCTensor | None, float]] = []

    def handler(result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
        answers.append((result, seconds))

    member, options, _, batch_size, data, outputs, _ = request
    options |= SYNCHRONOUS
    measured = Request(member, options | PROFILING, handler, batch_size, data, outputs, keeps_result=True)
    usual = partial(graph._runs.usual, graph, member, options, handler, batch_size, *data, outputs, True)
    try:
        seconds = _at_once(graph, usual)
        if seconds is not None:
            await asyncio.sleep(0)  # everybody else has a turn, as in every other call
        else:
            seconds = await asyncio.to_thread(_run, graph, usual, partial(travel, graph, measured, work))
    except MLCRefusal as why:
        raising(note, why, why.member)  # needs no line in the log; last_refusal() of this context shall know it
        raise shortened(why) from why.__cause__
    result, by_clock = answers[-1]
    return result, by_clock if seconds is None else seconds


def _at_once(graph: Traveller, usual: Callable[[], bool]) -> float | None:
    """The seconds that a usual call took here; ``None`` where the last one took long, or another thread holds the graph."""
    session, lock = graph._runs.usual_of, graph._gate.lock
    if session is None or lock is None or session.seconds > _SOON:
        return None
    graph._users.add()
    refuse_in_the_midst(graph)
    return unless_held(lock, partial(_timed, graph, usual))


def _run(graph: Traveller, usual: Callable[[], bool], whole: Callable[[], bool]) -> float | None:
    """The seconds that a usual call took; any other one is measured on its way."""
    seconds = _timed(graph, usual)
    if seconds is None:
        whole()
    return seconds


def _timed(graph: Traveller, usual: Callable[[], bool]) -> float | None:
    """The seconds that a usual call took; ``None`` where it is not usual, and nothing has happened."""
    session, begun = graph._runs.usual_of, time.perf_counter()
    if not usual():
        return None
    seconds = time.perf_counter() - begun
    if session is not None:
        session.seconds = seconds
    return seconds


async def awaited_time(graph: Traveller, request: Request, work: Work) -> float:
    """As ``awaited``, for what gives no result."""
    return (await awaited(graph, request, work))[1]
