"""Refuses a graph that cannot fit into memory before the system ends the process over it.

Linux hands out memory that it does not have and ends whoever touches it, so that no exception ever comes.
"""

from __future__ import annotations

import os
from pathlib import Path

from mlc_torch.engine.plan import Plan
from mlc_torch.layers.joining import Chunk, Sections
from mlc_torch.layers.shape import Permute, Reshape, Slice
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.seeing.table import in_bytes
from mlc_torch.tensor.state_owners import bound_for, held_for

_VIEWS = (Reshape, Permute, Slice, Chunk, Sections)
"""Modules whose result is a view of their source, and takes no memory."""


_SMALL = 2**24
"""In bytes. So much is assumed to be there: to ask the system takes a millisecond."""


def check_memory(plan: Plan, optimizer: MLCOptimizer | None) -> None:
    """Refuse a plan whose first run would take more memory than there is.

    Called before anything is allocated for it. On CUDA only what lies on the host is counted: the device itself says when
    it is full.
    """
    needs = first_run_needs(plan, optimizer)
    total = sum(needs.values())
    if total > _SMALL and total > (there := available_bytes()):
        parts = ", ".join(f"{in_bytes(count)} for {purpose}" for purpose, count in needs.items() if count)
        refuse(
            f"compiling and running the graph once takes {in_bytes(total)} of memory ({parts}); {in_bytes(there)} are available"
        )


def first_run_needs(plan: Plan, optimizer: MLCOptimizer | None) -> dict[str, int]:
    """Bytes of host memory by what they are for. Where a gear may do with less, the smaller number counts."""
    fed = sum(cell.nbytes for cell in plan.cells[: plan.fed_count])
    if plan.device.type == "cuda":
        return {"inputs": 2 * fed}  # as they are, and in the pinned memory that they travel through
    sizes = [0 if isinstance(step.module, _VIEWS) else _bytes(plan, step.results) for step in plan.steps]
    needs = {"inputs": fed}
    if plan.differentiates:
        kept = 0 if optimizer is None else len(optimizer._state_names())
        updated = [t.cell for t in plan.trained if t.updated and not held_for(t.cell, optimizer)]
        needs["results"] = sum(sizes)  # kept for the gradient
        needs["gradients"] = max(sizes, default=0) + sum(t.cell.nbytes for t in plan.trained)
        needs["optimizer state"] = sum(c.nbytes * max(kept - len(bound_for(c, optimizer)), 0) for c in updated)
    else:
        needs["results"] = _peak(plan, sizes)
    return needs


def _bytes(plan: Plan, slots: tuple[int, ...]) -> int:
    return sum(plan.cells[slot].nbytes for slot in slots)


def _peak(plan: Plan, sizes: list[int]) -> int:
    """The most that results take at one time, where each is let go after its last use."""
    first = plan.fed_count + plan.constant_count
    held = {slot: 0 for step in plan.steps for slot in step.results}
    now = most = 0
    for step, size, dead in zip(plan.steps, sizes, plan.last_use, strict=True):
        for slot in step.results:
            held[slot] = plan.cells[slot].nbytes if size else 0
        now += size
        most = max(most, now)
        now -= sum(held[slot] for slot in dead if slot >= first)
    return most


# What there is


def available_bytes() -> int:
    """What this process may still take: of the machine's memory, and of its control group's."""
    return min(_machine_bytes(), _group_bytes(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))


_NO_LIMIT = 2**62


def _machine_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _NO_LIMIT


def _group_bytes(membership: Path, mount: Path) -> int:
    """The least that any control group above this process leaves; without limits, or not on Linux, no limit."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return _NO_LIMIT
    left = _NO_LIMIT
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":  # version 2: one tree for everything
            left = min(left, _least(mount, path, "memory.max", "anon"))
        elif "memory" in controllers.split(","):
            left = min(left, _least(mount / "memory", path, "memory.limit_in_bytes", "total_rss"))
    return left


def _least(root: Path, path: str, limit: str, used: str) -> int:
    """Over a group and those it lies in. Inside a container the path may not be there, and only the root is."""
    place, left = root / path.strip("/"), _NO_LIMIT
    for group in (place, *place.parents):
        if group.is_relative_to(root):
            left = min(left, _left_in(group, limit, used))
    return left


def _left_in(group: Path, limit: str, used: str) -> int:
    try:
        most = int((group / limit).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(most - int(stat.get(used, 0)), 0)  # what files occupy is given back when it is needed
    except (OSError, ValueError):  # "max", or no such group
        return _NO_LIMIT
