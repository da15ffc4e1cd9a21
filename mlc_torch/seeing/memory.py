"""``graph.memory()``: what a graph holds on its device, by what it is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

from mlc_torch.engine.captured import Captured
from mlc_torch.nodes.node import unique_layers
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.seeing.table import Table, in_bytes
from mlc_torch.tensor.state_owners import all_kept


class Memory(Table):
    """Bytes on the graph's device. Memory that serves twice counts once, under the first purpose of the list.

    On the CPU parameters, constants and inputs may be the caller's own buffers. What autograd keeps between
    ``executeForward`` and ``executeGradient`` of a graph that runs plain is not seen.
    """

    def __init__(self, graph: GraphFacts) -> None:
        place = graph.device
        seen: set[tuple[torch.device, int]] = set()
        self.bytes = {purpose: _claim(tensors, place, seen) for purpose, tensors in _holdings(graph).items()}
        """Purpose to bytes, in the order of the table."""
        if place is not None and place.type == "cuda":
            self.bytes["captured, idle"] = sum(_idle(pool) for pool in _pools(graph))
        self.total = sum(self.bytes.values())
        rows = [(purpose, f"{count:,}", in_bytes(count)) for purpose, count in self.bytes.items()]
        rows.append(("total", f"{self.total:,}", in_bytes(self.total)))
        where = f"on {place}" if place is not None else "not compiled"
        super().__init__(f"{graph.title}, {where}", ("memory for", "bytes", ""), rows, (), ("bytes", ""))

    def __getitem__(self, purpose: str) -> int:
        return self.bytes[purpose]


def _holdings(graph: GraphFacts) -> dict[str, Iterable[Any]]:
    layers, sessions = unique_layers(graph.nodes), graph.sessions
    plans = [session.plan for session in sessions]
    trained = [item.cell for plan in plans for item in plan.trained]
    parameters = [use.cell for layer in layers for use in layer._parameter_uses]
    return {
        "parameters": [c.value for c in parameters],
        "statistics": [b for layer in layers for b in layer.module.buffers()],
        "optimizer state": [
            d._state
            for c in (*parameters, *trained)
            for held in (c.optimizer_device_data, *(kept.device_data for kept in all_kept(c)))
            for d in held
        ],
        "constants": [c.value for plan in plans for c in plan.constants],
        "inputs": [
            *(c.value for p in plans for c in p.cells[: p.fed_count]),
            *(t for s in sessions for t in s.standing),
        ],
        "gradients": [g for s in sessions for g in (*s.gradients, *s.wanted)],
        "results": [c.value for plan in plans for c in plan.cells[plan.fed_count + plan.constant_count :]],
        "workspace": _inside(sessions, set()),
    }


def _claim(tensors: Iterable[Any], place: torch.device | None, seen: set[tuple[torch.device, int]]) -> int:
    """The bytes of the storages that nobody has claimed before."""
    total = 0
    for tensor in tensors:
        if tensor is None or tensor.device.type == "meta" or place not in (None, tensor.device):
            continue
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            key, size = (tensor.device, storage.data_ptr()), storage.nbytes()
        else:  # laid out by oneDNN, which shows nobody where; at least as large as its elements
            key, size = (tensor.device, id(tensor)), tensor.numel() * tensor.element_size()
        if key not in seen:
            seen.add(key)
            total += size
    return total


def _inside(thing: Any, met: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that the engine's objects hold, and what the functions it generates are bound to."""
    if id(thing) in met:
        return
    met.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
        return
    parts: Iterable[Any] = ()
    if isinstance(thing, dict):
        parts = thing.values()
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif isinstance(thing, FunctionType):
        parts = [cell.cell_contents for cell in thing.__closure__ or ()]
    elif isinstance(thing, MethodType):
        parts = [thing.__self__]
    elif type(thing).__module__.startswith("mlc_torch.engine."):
        parts = vars(thing).values() if hasattr(thing, "__dict__") else ()
    for part in parts:
        yield from _inside(part, met)


def _pools(graph: GraphFacts) -> set[tuple[int, int]]:
    gears = [gear for session in graph.sessions for gear in (session.gear, *session.gears())]
    return {gear.pool for gear in gears if isinstance(gear, Captured)}


def _idle(pool: tuple[int, int]) -> int:
    """What a recording has reserved for its replays beyond the tensors that are in use now."""
    segments = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == pool]
    return sum(s["total_size"] - s["allocated_size"] for s in segments)
