"""A plan and its gears: which one runs a pass, and why it is not the fast one."""

from __future__ import annotations

from typing import Any

import torch
from torch import is_anomaly_enabled

from mlc_torch.engine.choice import fast_gear
from mlc_torch.engine.gear import Gear, Tensors
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan, module_hooks
from mlc_torch.engine.planned import Planned, Written
from mlc_torch.engine.updater import Updater
from mlc_torch.torch_private.hooks import hooks_on_every_module

MANY_SHAPES = 64
"""So many gears are kept for shapes that were not declared, batches of other sizes most of all."""


class Geared:
    """Makes a plan's gears when they are needed, each once."""

    def __init__(self, plan: Plan, updater: Updater | None, always_plain: str | None, use_inductor: bool) -> None:
        self.plan, self.updater = plan, updater
        self._always_plain, self._use_inductor = always_plain, use_inductor
        self.gear: Gear | None = None
        """The gear that ran last."""
        self.prepared: Gear | None = None
        """The gear for the declared shapes."""
        self._fast: dict[tuple[Mode, Any], Gear] = {}
        self._whole: dict[Mode, Gear] = {}
        """Those of ``_fast`` for the declared shapes."""
        self._slow: dict[tuple[Mode, bool], Plain] = {}
        self._seen: set[Any] = set()
        self._never_fast = always_plain is not None or bool(plan.hooks)
        self._written: dict[tuple[Mode, Any], Written] = {}
        """What an earlier plan of the graph ran, and this one may run again."""
        self._parameters = plan.parameters if plan.differentiates else ()
        self._hooks = module_hooks(plan)

    def constants(self) -> list[torch.Tensor]:
        return self.plan.constant_values()

    def prepare(self, mode: Mode) -> None:
        """Make the gear for the declared shapes ahead of the first run."""
        cells = self.plan.cells[: self.plan.fed_count]
        if any(c.value is None for c in self.plan.constants):
            return  # linked graphs have not run yet
        feeds = [torch.zeros(c.shape, dtype=c.dtype, device="cpu") for c in cells]
        self.gear = self.prepared = self._gear(feeds, mode, whole=True, by_layer=False)

    def why_plain(self) -> str | None:
        """The reason for running module by module, or ``None``."""
        if self._always_plain is not None:
            return self._always_plain
        if not self.is_hooked():
            return None
        if is_anomaly_enabled() and self.plan.differentiates:
            return "torch.autograd.detect_anomaly looks into each module's gradient"
        if self.plan.hooks:
            return "gradient hooks are registered"
        where = "a layer's module" if any(self._hooks) else "a parameter"
        return f"hooks are registered on {'every module' if any(hooks_on_every_module()) else where}"

    def is_hooked(self) -> bool:
        """Whether a program wants to be called in the middle of a phase."""
        if self.plan.hooks or any(self._hooks) or (is_anomaly_enabled() and self.plan.differentiates):
            return True
        for p in self._parameters:  # noqa: SIM110 - any() over a generator would be a call for each of them
            if p._backward_hooks or p._post_accumulate_grad_hooks:
                return True
        return False

    def _gear(self, feeds: Tensors, mode: Mode, whole: bool, by_layer: bool) -> Gear:
        """The fast gear for these shapes; shapes that were not declared get one when they come a second time."""
        if by_layer:
            return self._plain(mode, "profiling layer by layer", profile=True)
        key = (mode, None if whole else tuple([f.shape for f in feeds]))
        if self._always_plain is not None or self.is_hooked():
            self._seen.add(key)  # it has come once, and gets its gear the next time, if the hooks are gone
            return self._plain(mode, self.why_plain() or "")
        gear = self._known(key, whole)
        if gear is not None:
            return gear
        updater = self.updater if mode is Mode.train else None
        self._make_room()
        gear = self._fast[key] = fast_gear(
            self.plan, feeds, self.constants(), mode, updater, self._use_inductor, written=self._written.pop(key, None)
        )
        if whole:
            self._whole[mode] = gear
            if self.prepared is not None and self.prepared is self._slow.get((mode, False)):
                self.prepared = gear  # hooks were there when the graph was compiled, and are gone
        return gear

    def _make_room(self) -> None:
        """Let go of the oldest gear for shapes that were not declared, where there are many; they have not been seen then."""
        used = (self.gear, self.prepared)
        others = [key for key, gear in self._fast.items() if key[1] is not None and gear not in used]
        for key in others[: max(0, len(others) - MANY_SHAPES + 1)]:
            del self._fast[key]
            self._seen.discard(key)

    def take_over(self, earlier: Geared) -> None:
        """A tensor's memory has moved, or another one is to be updated: what the earlier plan has recorded may still do.

        (A perceptron of seven layers on a Neoverse-N1, ms: a step .76; behind a weight that was bound anew 2.8, recorded again
        30; behind a change of isUpdatable 2.7, and 30.)
        """
        self._written = {key: gear.written for key, gear in earlier._fast.items() if type(gear) is Planned}

    def _known(self, key: tuple[Mode, Any], whole: bool) -> Gear | None:
        """The gear for ``key``, or the plain one where that comes for the first time; ``None``: a fast one is to be made."""
        gear = self._fast.get(key)
        if gear is None and not whole and key not in self._seen:
            self._seen.add(key)
            return Plain(self.plan, key[0], "a batch size seen for the first time")
        return gear

    def _plain(self, mode: Mode, why: str, profile: bool = False) -> Plain:
        gear = self._slow.get((mode, profile))
        if gear is None:
            gear = self._slow[mode, profile] = Plain(self.plan, mode, profile=profile)
        gear.why = why
        return gear

    def gears(self) -> list[Gear]:
        """Every gear that has been made."""
        return [*self._fast.values(), *self._slow.values()]
