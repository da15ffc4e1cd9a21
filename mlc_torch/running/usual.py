"""The usual inference: a whole batch of little data, like the one before it. Nothing of it has to be chosen any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlc_torch.device import MLCDevice
from mlc_torch.engine.session import Session
from mlc_torch.nodes.feeds import Feed
from mlc_torch.running.completion import Targets
from mlc_torch.running.request import BY_LAYER, SKIPS_WRITING, Request
from mlc_torch.running.results import output_targets
from mlc_torch.running.state import Runs
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.state import changes

Outcome = tuple[TensorState | None, Targets]
"""The handler's result, and what goes into the caller's buffers."""

_UNUSUAL = SKIPS_WRITING | BY_LAYER


def usual_inference(
    runs: Runs, session: Session, feeds: Sequence[Feed], outputs: Mapping[str, TensorState], full: int, device: MLCDevice
) -> Callable[[Request], Outcome | None] | None:
    """What does the work of such a call, and leaves every other one alone: it refuses nothing of its own and gives ``None``.

    Written as straight-line code, as a door is: the loops over one input and one result took a third of its time.
    """
    repeat = session.repeating()
    if device._kind != "cpu" or repeat is None or any(feed.group for feed in feeds):
        return None
    known: dict[str, Any] = {
        "runs": runs, "session": session, "changes": changes, "repeat": repeat, "result": session.result,
        "output_targets": output_targets, "declared": outputs, "device": device,
    }  # fmt: skip
    looks, copies, publishing = [], [], []
    for n, feed in enumerate(feeds):
        assert feed.standing is not None  # the session repeats only then
        known |= {f"element{n}": feed.standing.element, f"memory{n}": feed.standing.bytes}
        misfit = f"d{n}._length != {feed.cell.nbytes} or d{n}._element != element{n} or d{n}._shape is not None"
        looks += [f"d{n} = inputs.get({feed.name!r})", f"if d{n} is None or {misfit}: return None"]
        copies.append(f"memory{n}[:] = d{n}._bytes")
    for n, cell in enumerate(session.readable):
        known[f"publish{n}"] = cell.publish
        publishing.append(f"publish{n}(values[{n}], device)")
    lines = [
        "_, options, _, batch, (inputs, labels, weights), outputs, _ = request",
        f"if batch != {full} or labels or weights or len(inputs) != {len(feeds)}: return None",
        f"if session.checked != changes.newest or (options | runs.forced_options) & {_UNUSUAL}: return None",
        *looks,
        f"targets = output_targets(outputs, declared, {full}, {full}) if outputs else ()",
        *copies,
        "values = repeat()",
        "if values is None: return None",
        *publishing,
        "return result, targets",
    ]
    text = "def work(request):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, "<mlc_torch inference>", "exec"), known)  # our own text, from what was declared
    return known["work"]
