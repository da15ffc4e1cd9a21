"""Which gear runs a plan fast: recorded CUDA graphs on CUDA, generated code elsewhere, TorchInductor's where it is asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from mlc_torch.device import queueing
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.chance import watching_chance
from mlc_torch.engine.gear import Gear, Tensors
from mlc_torch.engine.lanes import Laned
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.planned import Planned, Written
from mlc_torch.engine.recorder import NotRecordable
from mlc_torch.engine.updater import Updater
from mlc_torch.refusals import in_one_line, log, pass_on_signals

if TYPE_CHECKING:
    from mlc_torch.engine.compiled import Compiled
    from mlc_torch.engine.exchange import Exchange


def fast_gear(
    plan: Plan,
    feeds: Tensors,
    constants: Tensors,
    mode: Mode,
    updater: Updater | None,
    use_inductor: bool,
    injected: Tensors | None = None,
    exchange: Exchange | None = None,
    written: Written | None = None,
) -> Gear:
    """The fastest gear that this plan can run in; the plain one, with the reason, where it cannot be recorded.

    ``injected`` have the shapes of gradients from outside, where those are not the declared ones. ``exchange`` is where
    gradients go that are added up over several processes. ``written`` was recorded of an earlier plan, and may still do.
    """
    with queueing(plan.device):
        if injected is None:
            asked = [plan.cells[slot] for slot in plan.injected]
            injected = [torch.zeros(c.shape, dtype=c.dtype, device=plan.device) for c in asked]
        on_device = [f.to(plan.device) for f in feeds]
    record = partial(
        _recorded, plan, feeds, on_device, constants, injected, mode, updater, use_inductor, exchange, written
    )
    made, asked_chance = watching_chance(plan, record)
    if not asked_chance or isinstance(made, Plain):
        return made
    why = "a module asks Python or NumPy for random numbers, which no recording shows"
    log.info(_BY_MODULE, why)
    return Plain(plan, mode, why)


_BY_MODULE = "the graph runs module by module: %s"


def _recorded(
    plan: Plan,
    feeds: Tensors,
    on_device: Tensors,
    constants: Tensors,
    injected: Tensors,
    mode: Mode,
    updater: Updater | None,
    use_inductor: bool,
    exchange: Exchange | None,
    written: Written | None,
) -> Gear:
    """The fastest gear, where everything that the modules do is seen when they are recorded."""
    plain = Plain(plan, mode)
    inner: Plain | Compiled | Laned = plain
    why = ""
    if use_inductor:
        inner, why = _compiled(plan, on_device, constants, injected, mode, plain)
    if plan.device.type == "cuda" and inner is plain:
        with queueing(plan.device):
            inner = laned(plan, on_device, constants, injected, mode) or plain
    try:
        if plan.device.type == "cuda" and exchange is not None and not exchange.ranks.is_recordable:
            return Plain(plan, mode, f"what goes over {exchange.ranks.backend} cannot be recorded")
        if plan.device.type == "cuda":
            recorded = updater if updater is not None and updater.optimizer._replayable else None
            with queueing(plan.device):  # other threads wait until the recording is done
                made: Gear = Captured(plan, feeds, constants, injected, inner, recorded, exchange)
        elif isinstance(inner, Plain):
            made = Planned(plan, on_device, constants, injected, mode, exchange, written)
        else:
            made = inner
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever keeps a plan from being recorded, it still runs
        pass_on_signals(error)
        why = str(error) if isinstance(error, NotRecordable) else in_one_line(error)
        log.info(_BY_MODULE, why)
        return Plain(plan, mode, why)
    made.why = why or made.why
    return made


def laned(plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode) -> Laned | None:
    """The phases as straight code; ``None`` where that cannot be written down, which only the modules themselves can do."""
    if any(isinstance(m, torch.nn.RNNBase) for root in plan.modules for m in root.modules()):
        return None  # cuDNN reads the weights of such a module where they lie side by side, and not in copies
    try:
        return Laned(plan, feeds, constants, injected, mode)
    except Exception as error:  # noqa: BLE001 - too little memory for a recording of everything, too
        pass_on_signals(error)
        log.debug("the modules themselves are recorded: %s", in_one_line(error))
        return None


def _compiled(
    plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode, plain: Plain
) -> tuple[Plain | Compiled, str]:
    """TorchInductor's code, or the plain gear and why."""
    from mlc_torch.engine.compiled import Compiled, has_something_to_fuse  # who asks for it pays for loading it

    try:
        if mode.differentiates or has_something_to_fuse(plan, feeds, constants):
            return Compiled(plan, feeds, constants, injected, mode), ""
        why = "TorchInductor would have nothing to fuse"
        log.info("%s; the graph runs without", why)
    except Exception as error:  # noqa: BLE001 - no compiler, or a layer it cannot take: the graph runs without
        pass_on_signals(error)
        why = f"TorchInductor could not compile it: {in_one_line(error)}"
        log.warning("%s; the graph runs without", why)
    return plain, why
