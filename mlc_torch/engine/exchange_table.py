"""The table that travels with the last bucket: a row for each rank, in which it says what it does and how that went."""

from __future__ import annotations

FINE, REFUSED = 0.0, 1.0

MARK, BATCH, STEPS, CODE, FIELDS = range(5)
"""What a rank says in its row: which plan it runs, the size of the whole batch, updates so far, how it went; then its
part of each loss."""

_DIFFER = {
    MARK: "run different plans",
    BATCH: "were given batches of different sizes",
    STEPS: "have taken different numbers of steps",
}


def why_refused(table: list[list[float]], own: tuple[float, ...]) -> str | None:
    """Why no rank may take the step: another one refused, or they did not all do the same. ``own`` is this rank's row."""
    refused = [r for r, row in enumerate(table) if row[CODE] != FINE]
    if refused and own[CODE] == FINE:
        return f"rank {refused[0]} refused this call, so no rank took the step; its own log says why"
    if not refused:
        for field, what in _DIFFER.items():
            said = [row[field] for row in table]
            if len(set(said)) > 1:
                return f"the ranks {what}: {', '.join(f'{n:g}' for n in said)}, by rank; no rank took the step"
    return None


def totals(table: list[list[float]]) -> list[float]:
    """The whole of each loss."""
    return [sum(parts) for parts in zip(*(row[FIELDS:] for row in table), strict=True)]
