"""The table that travels with the last bucket: a row for each rank, in which it says what it does and how that went."""

from __future__ import annotations

from enum import Enum


class Call(Enum):
    """The calls that ranks answer together."""

    EXECUTE = "execute"
    FORWARD = "executeForward"
    GRADIENT = "executeGradient"


CALLS = list(Call)
"""A call is said by its place here."""

FINE, REFUSED = 0.0, 1.0

MARK, CALL, BATCH, DATA, WEIGHTS, RULE, STEPS, CODE, FIELDS = range(9)
"""What a rank says in its row: which plan it runs, what was called, the size of the whole batch, numbers that stand for its
data, its weights and its optimizer's settings, updates so far, how it went; then its part of each loss."""

_DIFFER = {
    MARK: ("run different plans", "ask for the same outputs, gradients and optimizer on every rank"),
    CALL: ("made different calls", "make the same on every rank"),
    BATCH: ("were given batches of different sizes", "give the same whole batch to every rank"),
    RULE: ("have optimizers with different settings", "set the same learning rate and so on everywhere"),
    STEPS: ("have taken different numbers of steps", "load the last checkpoint on every rank"),
}
"""What may not differ, and what to do about it."""


def why_refused(table: list[list[float]], own: tuple[float, ...]) -> str | None:
    """Why no rank may take the step: another one refused, or they did not all do the same. ``own`` is this rank's row."""
    refused = [r for r, row in enumerate(table) if row[CODE] != FINE]
    if refused and own[CODE] == FINE:
        return f"rank {refused[0]} refused this call, so no rank took the step; its own log says why"
    if not refused:
        for field, (what, remedy) in _DIFFER.items():
            said = [row[field] for row in table]
            if len(set(said)) > 1:
                words = ", ".join(CALLS[int(n)].value if field == CALL else f"{n:g}" for n in said)
                named = "" if field in (MARK, RULE) else f": {words}, by rank"  # those say nothing to a reader
                return f"the ranks {what}{named}; no rank took the step; {remedy}"
    return None


def totals(table: list[list[float]]) -> list[float]:
    """The whole of each loss."""
    return [sum(parts) for parts in zip(*(row[FIELDS:] for row in table), strict=True)]
