"""Swift's ``async`` forms: the same calls as coroutines that give the result and raise the refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from threading import get_ident

from mlc_torch.graph.locks import is_held
from mlc_torch.refusals import MLCRefusal, note, shortened, strict
from mlc_torch.running.request import PROFILING, SYNCHRONOUS, Request
from mlc_torch.running.road import Traveller, Work, come, travel
from mlc_torch.tensor import MLCTensor

_LITTLE = 2**18
"""Multiplications, which take 30 µs on an x86 and 100 on a Neoverse-N1. To hand work to a thread and wait for it takes the event
loop longer."""


async def awaited(graph: Traveller, request: Request, work: Work) -> tuple[MLCTensor | None, float]:
    """Run on a thread, so that the event loop goes on, or at once where that keeps it for less time; always measured."""
    answers: list[tuple[MLCTensor | None, float]] = []

    def handler(result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
        answers.append((result, seconds))

    member, options, _, batch_size, data, outputs, _ = request
    measured = Request(member, options | PROFILING | SYNCHRONOUS, handler, batch_size, data, outputs, keeps_result=True)
    usual = partial(graph._runs.usual, graph, member, options, handler, batch_size, *data, outputs, True)
    try:
        seconds = _timed(usual) if _takes_less_than_a_thread(graph) else None
        if seconds is not None:
            await asyncio.sleep(0)  # everybody else has a turn, as in every other call
        else:
            seconds = await asyncio.to_thread(_run, usual, partial(travel, graph, measured, work))
    except MLCRefusal as why:
        with strict():  # it is raised, so it needs no line in the log; last_refusal() of this context shall know it
            note(why, why.member)
        raise shortened(why) from why.__cause__
    result, by_clock = answers[-1]
    return result, by_clock if seconds is None else seconds


def _takes_less_than_a_thread(graph: Traveller) -> bool:
    """Whether a call like the one before it would take little time, and nobody holds the graph."""
    session, lock = graph._runs.usual_of, graph._gate.lock
    if session is None or session.plan.work > _LITTLE or lock is None or is_held(lock):
        return False
    if get_ident() not in graph._gate.threads:
        come(graph)
    return True


def _run(usual: Callable[[], bool], whole: Callable[[], bool]) -> float | None:
    """The seconds that a usual call took; any other one is measured on its way."""
    seconds = _timed(usual)
    if seconds is None:
        whole()
    return seconds


def _timed(usual: Callable[[], bool]) -> float | None:
    """The seconds that a usual call took; ``None`` where it is not usual, and nothing has happened."""
    begun = time.perf_counter()
    return time.perf_counter() - begun if usual() else None


async def awaited_time(graph: Traveller, request: Request, work: Work) -> float:
    """As ``awaited``, for what gives no result."""
    return (await awaited(graph, request, work))[1]
