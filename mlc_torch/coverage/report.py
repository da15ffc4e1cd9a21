"""The coverage as a table for people and as data for machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlc_torch.coverage.compare import Entry

_SPELLINGS = {"swift": "Swift", "objc": "Objective-C"}


def percent(entries: Iterable[Entry]) -> float:
    """How many of the entries are there, of a hundred."""
    there = [entry.missing is None for entry in entries]
    return 100.0 * sum(there) / len(there) if there else 100.0


def by_group(entries: list[Entry]) -> dict[str, list[Entry]]:
    return _gather(entries, lambda entry: entry.group)


def by_owner(entries: list[Entry]) -> dict[str, list[Entry]]:
    return _gather(entries, lambda entry: entry.owner)


def _gather(entries: list[Entry], key: Any) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(key(entry), []).append(entry)
    return found


def as_data(entries: list[Entry]) -> dict[str, Any]:
    """What ``coverage --json`` prints."""
    return {
        "total": _counts(entries),
        "groups": {name: _counts(members) for name, members in by_group(entries).items()},
        "classes": {name: _owner(members) for name, members in by_owner(entries).items()},
    }


def _owner(entries: list[Entry]) -> dict[str, Any]:
    missing = [{"spelling": e.spelling, "name": e.name, "why": e.missing} for e in entries if e.missing is not None]
    return {"group": entries[0].group, **_counts(entries), "missing": missing}


def _counts(entries: list[Entry]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spelling in ("swift", "objc"):
        listed = [entry for entry in entries if entry.spelling == spelling]
        found[spelling] = {"there": sum(e.missing is None for e in listed), "listed": len(listed)}
    return found | {"percent": round(percent(entries), 2)}


def as_text(entries: list[Entry], members: bool = False) -> str:
    """The table, group by group and class by class; under each class what is missing, or with ``members`` everything."""
    lines = [_row("", "Swift", "Objective-C", "")]
    for title, of_group in by_group(entries).items():
        lines += ["", _title(title, of_group)]
        for owner, of_owner in by_owner(of_group).items():
            lines.append(_title(owner, of_owner, indent="  "))
            lines += _listed(of_owner) if members else _missing(of_owner)
    return "\n".join([*lines, "", _title("everything", entries)])


def _listed(entries: list[Entry]) -> list[str]:
    return [f"      {_SPELLINGS[e.spelling]:<13}{e.name}{f': {e.missing}' if e.missing else ''}" for e in entries]


def _missing(entries: list[Entry]) -> list[str]:
    lost = [entry for entry in entries if entry.missing is not None]
    if len(lost) == len(entries) and len(lost) > 1:
        return ["      all of it is missing"]
    return [f"      {_SPELLINGS[e.spelling]}: {e.name}: {e.missing}" for e in lost]


def _title(name: str, entries: list[Entry], indent: str = "") -> str:
    counts = _counts(entries)
    return _row(indent + name, _share(counts["swift"]), _share(counts["objc"]), f"{counts['percent']:g} %")


def _share(counts: dict[str, int]) -> str:
    return f"{counts['there']}/{counts['listed']}" if counts["listed"] else ""


def _row(name: str, swift: str, objc: str, share: str) -> str:
    return f"{name:<36}{swift:>9}{objc:>13}{share:>9}".rstrip()
