"""Stands in for CUDA's recordings where there is no GPU: what was recorded runs again, into the same memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch

from mlc_torch.engine import geared, recording, staging
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.gear import Gear
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.updater import Updater


class Stream:
    """Everything is done when it is given to it."""

    def wait_stream(self, other: object) -> None:
        pass


class Event:
    def record(self, stream: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Recording:
    """Work, and the memory that its results came in."""

    def __init__(self, work: Callable[[], Any], made: Any, plan: Plan) -> None:
        self._work, self._made = work, made
        self._listeners = [(noise, noise._listener) for step in plan.steps for noise in step.noises]

    def replay(self) -> None:
        with ExitStack() as stack:
            for noise, listener in self._listeners:
                stack.enter_context(noise.intercepted(listener))
            found = self._work()
        for memory, new in zip(_tensors(self._made), _tensors(found), strict=True):
            memory.copy_(new)


def _tensors(made: Any) -> Iterator[torch.Tensor]:
    if isinstance(made, torch.Tensor):
        yield made
    for part in made if isinstance(made, (list, tuple)) else ():
        yield from _tensors(part)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let graphs on the CPU run in the captured gear."""

    def fast_gear(
        plan: Plan, feeds: Any, constants: Any, mode: Any, updater: Updater | None, inductor: bool, written: Any
    ) -> Gear:
        asked = [plan.cells[slot] for slot in plan.injected]
        injected = [torch.zeros(c.shape, dtype=c.dtype) for c in asked]
        recorded = updater if updater is not None and updater.optimizer._replayable else None
        made_gears: list[Captured] = []

        def record(work: Callable[[], Any], pool: object, stream: object) -> tuple[Recording, Any]:
            updater = made_gears[0].updater if made_gears else recorded
            written = [*plan.parameters, *plan.buffers, *(updater.touched() if updater is not None else ())]
            before = [t.detach().clone() for t in written]
            made = work()
            made = [m.clone() if isinstance(m, torch.Tensor) else m for m in made] if isinstance(made, list) else made
            # What is recorded is not done, and autograd does not hear of it.
            with torch.no_grad():
                for tensor, old in zip(written, before, strict=True):
                    with torch.autograd._unsafe_preserve_version_counter(tensor):
                        tensor.copy_(old)
            return Recording(work, made, plan), made

        monkeypatch.setattr(recording, "recorded", record)
        made_gears.append(Captured(plan, feeds, constants, injected, Plain(plan, mode), recorded))
        return made_gears[0]

    monkeypatch.setattr(geared, "fast_gear", fast_gear)
    monkeypatch.setattr(recording, "stream_for", lambda owner, device: Stream())
    monkeypatch.setattr(recording, "release", lambda device: None)
    monkeypatch.setattr(staging, "_pinned", lambda size: torch.empty(size, dtype=torch.uint8))
    monkeypatch.setattr(staging, "_seen_by", lambda device, memory: memory.clone().view(torch.int32))
    for name, found in (
        ("graph_pool_handle", lambda: (0, 1)),
        ("current_stream", lambda device=None: Stream()),
        ("stream", lambda stream: nullcontext()),
        ("Event", Event),
    ):
        monkeypatch.setattr(torch.cuda, name, found)
