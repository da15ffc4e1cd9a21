"""``fit`` on several processes: the losses of an epoch are those of all samples, and all of them end it in the same epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlc_torch.running.state import Runs
from mlc_torch.running.tally import Summed

if TYPE_CHECKING:
    from mlc_torch.ranks import Ranks


def over_all(runs: Runs, number: int, trained: Summed, validated: Summed | None) -> tuple[Summed, Summed | None]:
    """The losses of epoch ``number`` over the samples of all ranks, where each is given its own; else as they came.

    A rank may leave the validation to others. A batch's training loss is that of all ranks already, and counts for each of
    them by its own samples; what was validated is of one rank alone.
    """
    session = runs.shared
    if session is None or not session.shared.is_own:
        return trained, validated
    said = _told(session.shared.ranks, number, (trained, validated))
    trainings = [Summed(*each) for each, _ in said]
    validations = [Summed(*each) for _, each in said if each is not None]
    joined = _added(trainings)
    joined = joined._replace(added=joined.added / len(said))  # every rank has the sum of all
    return joined, _added(validations) if validations else None


def one_decision(ranks: Ranks | None, number: int, why: str) -> str:
    """Why training ends after epoch ``number``, on this rank or on another, the first of them; empty where it goes on."""
    return why if ranks is None else next(filter(None, _told(ranks, number, why)), "")


def _told(ranks: Ranks, number: int, what: Any) -> list[Any]:
    with ranks.lock:
        ranks.doing = f"fit, behind epoch {number}"
        return ranks.told(what)


def _added(each: list[Summed]) -> Summed:
    return Summed(sum(s.weighed for s in each), sum(s.added for s in each), sum(s.samples for s in each))
