"""A training graph that several processes share: they compile together, and none waits in vain for another.

Loaded where torchrun started the program and its device selects several compute devices, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlc_torch.engine.exchange_table import DATA, WEIGHTS, Call
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.shared_plan import Sharing
from mlc_torch.engine.shared_session import SharedSession
from mlc_torch.layers import MLCLossLayer
from mlc_torch.nodes.feeds import LINKED, Feed
from mlc_torch.nodes.node import Node
from mlc_torch.nodes.samples import sample_axes
from mlc_torch.ranks import Ranks
from mlc_torch.refusals import MLCRefusal, RanksLost
from mlc_torch.running.declaring import DeclaringGraph
from mlc_torch.running.request import INFERS, Request
from mlc_torch.running.road import Work
from mlc_torch.running.state import Variant
from mlc_torch.running.training_warnings import warn_once
from mlc_torch.tensor import TensorState


def shared_session(
    graph: DeclaringGraph, ranks: Ranks, nodes: Sequence[Node], plan: Plan, feeds: Sequence[Feed]
) -> Callable[..., SharedSession]:
    """What makes the session of a plan whose batches ``ranks`` share; refuses a graph that mixes samples."""
    device, number = graph._device, graph._runs.shared_number
    assert device is not None and number is not None
    axes = sample_axes(nodes, {id(feed.cell): feed.batch_axis for feed in feeds})
    losses = {id(n.results[0]): n.layer for n in nodes if isinstance(n.layer, MLCLossLayer)}
    shared = Sharing(
        ranks,
        number,
        graph._declared_batch(),
        tuple(axes.get(id(c)) for c in plan.cells),
        frozenset(s for s in plan.losses if _is_mean(losses.get(id(plan.cells[s])))),
        tuple(_whole_everywhere(graph, nodes, plan)),
        tuple(feed.kind != LINKED for feed in feeds),
        device.feeds_own_share,
        not device.synchronizes_batch_norm,
    )

    def make(plan: Plan, result: TensorState, **how: Any) -> SharedSession:
        made = SharedSession(plan, result, shared=shared, **how)
        if graph._runs.shared is not None:
            graph._runs.shared = made
        return made

    return make


def _is_mean(layer: MLCLossLayer | None) -> bool:
    return layer is not None and layer.descriptor.reductionType.name == "mean"


def _whole_everywhere(graph: DeclaringGraph, nodes: Sequence[Node], plan: Plan) -> list[int]:
    """The results that every process is given whole: declared outputs, losses, and what the handler gets."""
    losses = [plan.cells[slot] for slot in plan.losses]
    cells = {id(c) for c in (*graph._declared.outputs.values(), *losses, graph._result_cell(list(nodes)))}
    return [slot for slot in plan.readable if id(plan.cells[slot]) in cells]


# Compiling


@contextmanager
def meeting(graph: DeclaringGraph, ranks: Ranks, compiles: bool = True) -> Iterator[None]:
    """Around a compile: whatever it comes to, all ranks hear of it. They have the same plan, or all refuse.

    After a compile that one refused the graph is compiled for none: a call must not wait where another rank's refuses.
    """
    runs = graph._runs
    runs.shared = None
    if runs.shared_number is None:
        runs.shared_number, ranks.graphs = ranks.graphs, ranks.graphs + 1
    if ranks.rank:
        runs.warned = _Everything()  # rank 0 warns
    ranks.doing = what = f"compile of graph {runs.shared_number + 1}"
    with ranks.awaited():
        error: Exception | None = None
        lines: list[str] | None = None
        try:
            yield
            session = runs.sessions.get(Variant.whole)
            if isinstance(session, SharedSession):
                lines = session.lines()
            else:
                lines = [f"not ready: {graph._missing() or 'nothing to differentiate'}"]
        except RanksLost:
            raise
        except Exception as caught:  # noqa: BLE001 - raised again
            error = caught
        with ranks.lock:
            ranks.doing = what
            try:
                of_first = ranks.agree(lines)
                if error is not None:
                    _as_common(error, of_first)
                    raise error
            except RanksLost:
                raise
            except Exception:
                if compiles:
                    graph._forget_compile()
                else:
                    graph._forget_runs()
                raise
            if isinstance(session, SharedSession):
                ranks.connect(runs.shared_number)
                session.start_alike()
                runs.shared = session


class _Everything(set[str]):
    """The causes that were warned of, where somebody else does it."""

    def __contains__(self, cause: object) -> bool:
        return True


def _as_common(error: Exception, of_first: bool) -> None:
    """One log line is enough where rank 0 failed too."""
    if isinstance(error, MLCRefusal):
        error.is_common = of_first


# Running


def together(work: Work) -> Work:
    """``work``, such that a rank that cannot do its part stands in for itself: the others are told, and do not wait."""
    call = _CALLS.get(work.__name__.removesuffix("_async"))
    if call is None:
        return work

    def take_part(graph: Any, request: Request) -> Any:
        ranks = graph._ranks(Variant.whole)
        if ranks is None or request.options & INFERS or graph._compiled is None:
            return work(graph, request)
        with ranks.lock:
            if graph._runs.shared is None:
                with meeting(graph, ranks, compiles=False):  # something was missing when the graph was compiled
                    graph._session(Variant.whole)
            ranks.owed = call
            try:
                _warn_of_what_differs(graph)
                return work(graph, request)
            except RanksLost:
                raise
            except Exception as error:
                if ranks.owed is not None and graph._runs.shared is not None:
                    with ranks.awaited():
                        first_too = graph._runs.shared.stand_in(call)
                    _as_common(error, first_too)
                raise
            except BaseException as interruption:
                if ranks.owed is not None:
                    ranks.break_off(interruption)
                raise
            finally:
                ranks.owed = None

    return take_part


_UNLIKE = {
    DATA: "the ranks were given different data, and each trains on its rows of it; give every rank the same whole batch "
    "(shuffled with the same seed), or each its own samples with device.feeds_own_share",
    WEIGHTS: "the ranks hold different weights or constants; load a checkpoint, and write weights, on every rank alike, and give "
    "constants the same numbers everywhere",
}


def _warn_of_what_differs(graph: Any) -> None:
    """Behind the call that showed it: then nobody waits for a program that makes errors of warnings."""
    shared = graph._runs.shared
    if shared is not None and shared.exchange.unlike:
        for what in sorted(shared.exchange.unlike):
            warn_once(graph._runs.warned, f"ranks differ: {what}", _UNLIKE[what])


_CALLS = {"_run": Call.EXECUTE, "_forward": Call.FORWARD, "_gradient": Call.GRADIENT}
"""The members of a training graph that all ranks call together, by what they are called inside."""
