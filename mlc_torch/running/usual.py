"""The usual inference: a batch like the one before it. Nothing of it has to be chosen any more.

A small network computes for less time than the road takes, so the door asks here first. Whatever is not usual is left
alone, before anything has happened, and takes the road: nothing is refused here that would not be refused there, in the
same words. ``tests/graph/test_inference_sequences.py`` runs its programs with and without this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any, NamedTuple

from mlc_torch.engine.captured import Captured
from mlc_torch.engine.session import Repeating, Session
from mlc_torch.nodes.feeds import Feed, check_indices
from mlc_torch.refusals import MLCRefusal
from mlc_torch.running.completion import fill, on_host, wait_for
from mlc_torch.running.handlers import came_from_handler, deliver_in_turn
from mlc_torch.running.midst import INFERENCE
from mlc_torch.running.request import BY_LAYER, PROFILING, SKIPS_WRITING, SYNCHRONOUS, Request
from mlc_torch.running.results import into_full, output_targets
from mlc_torch.running.road import fail, is_soon_done, recover
from mlc_torch.running.state import Usual, never
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.addresses import LITTLE, memory_type
from mlc_torch.tensor.data import USUAL
from mlc_torch.tensor.state import changes
from mlc_torch.torch_private.modes import DISTURBED, SURROUNDINGS, records_gradients

_UNUSUAL = BY_LAYER | PROFILING | SKIPS_WRITING


class _Way(NamedTuple):
    """How a device is different, in the words of ``_TEXT``."""

    declines: str
    """What else is unusual."""
    keeps: str
    """When a handler is given a result that later runs do not change."""
    brings: str
    """What makes a value one that the program can be given."""
    waits: str
    """What is done at the end."""


_PLACES = ["targets = output_targets(outputs, graph, {full}, {batch}) if outputs else ()"]
_FILLING = ["for cell, target in targets:", "    fill(target, {brings}(cell.value))"]
_ONE_PLACE = [
    "targets, out, room = (), outputs.get(out_name) if outputs else None, None",
    "if out is not None and len(outputs) == 1 and out._length == {size} and out._element == out_element "
    "and out._shape is None and not out._bytes.readonly: room = out._bytes",
    f"elif outputs: {_PLACES[0].removesuffix(' if outputs else ()')}",
]
_FILLING_ONE = [
    "if room is not None:",
    "    value = values[{number}].contiguous()",
    "    room[:] = out_memory.from_address(value.data_ptr()).raw",
    *_FILLING,
]
"""Where the program's buffers for results are found and filled: any, and the one little buffer of a graph with one output, which
takes 2 of 25 µs for a small network otherwise."""

_ASKED = "(handler is not None or outputs)"
_WAYS = {
    "cpu": _Way("", "(keeps or graph._users.may_be_several)", "", "pass"),
    "cuda": _Way(
        f" or {_ASKED} and not (soon and (options & {SYNCHRONOUS} or handler is None) and graph._queue.is_unused)",
        "True",
        "on_host",
        f"if options & {SYNCHRONOUS} and not {_ASKED}: wait_for(device.torch_device)",
    ),
}
"""On a GPU, what somebody is to be given is still to come when the work is queued: waiting for it is left to the road, unless it
comes at once."""

_TEXT = """\
def make(session, forward, gear, kept, hooks, handle, failures, threads, lock, {bound}):
    is_held = lock._is_owned  # by this thread, which is in the middle of something then, unless it is to keep the result
    def usual(graph, member, options, handler, batch, inputs, labels, weights, outputs, keeps=False):
        if {other_batch}:
            other = graph._runs.usuals.get(batch or {full})
            if other is None:
                return False
            graph._runs.usual = other
            return other(graph, member, options, handler, batch, inputs, labels, weights, outputs, keeps)
        if options & {unusual} or failures or get_ident() not in threads or (is_held() and not keeps){declines}:
            return False
        if labels or weights or len(inputs) != {count}:
            return False
        {looks}
        try:
            with lock: done = inside(graph, {given}, outputs, handler, keeps)
        except Exception as error:
            fail(graph, error, Request(member, options, handler, batch, (inputs, labels, weights), outputs))
        if done is None:
            return False
        {waits}
        if handler is not None:
            if not options & {synchronous}:
                deliver_in_turn(handler, done, None, 0.0)
                return True
            try:
                handler(done, None, 0.0)
            except (MLCRefusal, TypeError) as raised:
                came_from_handler(raised, handler)
                raise
        return True

    def inside(graph, {given}, outputs, handler, keeps):
        runs = graph._runs
        if {stale} or runs.usual_of is not session or runs.forced_options or {disturbed}:
            return None
        if any(hooks):
            return None
        {places}
        {views}
        runs.active = session
        try:
            try:
                {copies}
                session.gear, session.kept = gear, kept
                values = forward([{taken}], ())
                session.values = values
                {publishing}
            except BaseException:
                recover(graph, (0, 0, records_gradients()))
                raise
        except BaseException:
            recover(graph, (0, 0, records_gradients()))
            raise
        {filling}
        if handler is not None and {keeps}:
            return MLCTensor._of(session.result.frozen({brings}(session.result.value)))
        return handle

    return usual
"""
"""Straight-line code, as a door is: loops over one input and one result would take half as long again. The interruptions
are the road's own: whatever strikes, the graph answers afterwards. (What runs here changes no mode of torch's, so that the one
to go back to can still be asked for then.)"""


def usual_inference(
    graph: Any, session: Session, feeds: Sequence[Feed], full: int, batch: int, handle: MLCTensor
) -> Usual | None:
    """What runs inferences like the last one: ``never`` where this session has none, ``None`` where none followed yet."""
    device, whole = graph._device, batch == full
    if device._kind not in _WAYS or graph._gate.lock is None or not feeds:
        return never
    if graph._runs.returns_inputs:
        return never  # inputs that are outputs are rare: every other graph would have to look for them here
    if any(feed.group or not (whole or feed.batch_axis in (0, None)) for feed in feeds):
        return never
    repeating = session.repeating(whole)
    if repeating is None:
        return None
    taking, making = _taking(feeds, repeating, whole, batch), _making(session)
    placing = _placing(graph, session, full, batch)
    bound = {"device": device, "soon": is_soon_done(session)} | taking.bound | making.bound | placing.bound
    count, way = len(feeds), _WAYS[device._kind]
    text = _TEXT.format(
        bound=", ".join(bound),
        full=full,
        batch=batch,
        other_batch=f"(batch != {full} and batch)" if whole else f"batch != {batch}",
        disturbed=DISTURBED,
        unusual=_UNUSUAL,
        synchronous=SYNCHRONOUS,
        stale="session.checked != changes.newest" if session.watched is None else "not session.is_current()",
        declines=way.declines,
        keeps=way.keeps,
        brings=way.brings,
        waits=way.waits,
        count=count,
        given=", ".join(f"d{n}" for n in range(count)),
        looks=_lines(taking.looks, 8),
        places=_lines(placing.places, 8),
        filling=_lines(placing.filling, 8),
        views=_lines(taking.views, 8),
        copies=_lines(taking.copies, 16),
        taken=", ".join(f"t{n}" for n in range(count)),
        publishing=_lines(making.publishing, 16),
    )
    if len(taking.memory) == count and isinstance(repeating.gear, Captured):
        repeating = repeating._replace(forward=repeating.gear.forward_from(taking.memory) or repeating.forward)
    return _maker(text)(session, *repeating, handle, *graph._gate, **bound)


class _Taking(NamedTuple):
    """How data is taken."""

    bound: dict[str, Any]
    """What the text knows by name."""
    memory: list[memoryview]
    """Where little data is copied to, for each input that has such a place."""
    looks: list[str]
    """Is the data as it was?"""
    views: list[str]
    copies: list[str]


def _taking(feeds: Sequence[Feed], repeating: Repeating, whole: bool, batch: int) -> _Taking:
    bound: dict[str, Any] = {}
    memory: list[memoryview] = []
    looks, views, copies = [], ["pass"], ["pass"]
    for n, feed in enumerate(feeds):
        cut = not whole and feed.batch_axis == 0
        length = feed.cell.descriptor._sample_bytes * batch if cut else feed.cell.nbytes
        form = (feed.cell.dtype, (batch, *feed.cell.shape[1:])) if cut else feed.form
        bound |= {f"name{n}": feed.name, f"form{n}": form, f"element{n}": USUAL.get(feed.cell.dtype)}
        misfit = (
            f"d{n}._length {'<' if cut else '!='} {length} or d{n}._element != element{n} or d{n}._shape is not None"
        )
        looks += [f"d{n} = inputs.get(name{n})", f"if d{n} is None or {misfit}: return False"]
        if feed.standing is not None and (whole or repeating.kept is not None):
            stands = feed.standing.tensor if repeating.kept is None else repeating.kept.feeds[n]
            memory.append(feed.standing.bytes[:length])
            bound |= {f"t{n}": stands, f"memory{n}": memory[-1]}
            copies.append(f"memory{n}[:] = d{n}._bytes" + (f"[:{length}]" if cut else ""))
        else:
            views += [f"t{n} = d{n}._views.get(form{n})", f"if t{n} is None: t{n} = d{n}._view(*form{n})"]
            if repeating.kept is not None:
                bound[f"kept{n}"] = repeating.kept.feeds[n]
                copies.append(f"kept{n}.copy_(t{n})")
        if feed.limit is not None:
            bound |= {f"title{n}": feed.title, f"reader{n}": feed.reader}
            views.append(f"check_indices(title{n}, t{n}, {feed.limit}, reader{n})")
    return _Taking(bound, memory, looks, views, copies)


class _Making(NamedTuple):
    """How the tensors of the program get their values."""

    bound: dict[str, Any]
    publishing: list[str]


def _making(session: Session) -> _Making:
    made = _Making({}, [])
    for n, (cell, value) in enumerate(zip(session.readable, session.values, strict=True)):
        made.bound.update({f"publish{n}": cell.publish, f"cell{n}": cell})
        full = f"values[{n}]" if value.shape == cell.shape else f"into_full(cell{n}, values[{n}], cell{n}.value)"
        made.publishing.append(f"publish{n}({full}, device)")
    return made


class _Placing(NamedTuple):
    """How the program's buffers for results are found and filled."""

    bound: dict[str, Any]
    places: list[str]
    filling: list[str]


def _placing(graph: Any, session: Session, full: int, batch: int) -> _Placing:
    kind = graph._device._kind
    number = _only_output(graph._declared.outputs, session) if batch == full and kind == "cpu" else None
    bound: dict[str, Any] = {}
    places, filling, size = _PLACES, _FILLING, 0
    if number is not None:
        ((name, cell),) = graph._declared.outputs.items()
        places, filling, size = _ONE_PLACE, _FILLING_ONE, cell.nbytes
        bound = {"out_name": name, "out_element": USUAL.get(cell.dtype), "out_memory": memory_type(size)}
    words = {"full": full, "batch": batch, "size": size, "number": number, "brings": _WAYS[kind].brings}
    return _Placing(bound, [line.format(**words) for line in places], [line.format(**words) for line in filling])


def _only_output(declared: Mapping[str, TensorState], session: Session) -> int | None:
    """Which of a session's values is the one declared output, if it is little and lies as its bytes are read."""
    if len(declared) != 1:
        return None
    (cell,) = declared.values()
    for number, (readable, value) in enumerate(zip(session.readable, session.values, strict=True)):
        if readable is cell:
            plain = value.shape == cell.shape and value.dtype == cell.dtype and not (value.is_neg() or value.is_conj())
            return number if plain and 0 < cell.nbytes <= LITTLE else None
    return None


@lru_cache(maxsize=64)
def _maker(text: str) -> Callable[..., Usual]:
    """Graphs of the same form share their code: to compile it takes as long as twenty inferences."""
    scope = dict(_KNOWN)
    exec(compile(text, INFERENCE, "exec"), scope)  # our own text, from numbers alone
    return scope["make"]


def _lines(lines: list[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines)


_KNOWN: dict[str, Any] = {
    f.__name__: f
    for f in (
        MLCRefusal,
        MLCTensor,
        Request,
        came_from_handler,
        check_indices,
        deliver_in_turn,
        fail,
        fill,
        get_ident,
        into_full,
        on_host,
        output_targets,
        recover,
        wait_for,
    )
} | {"changes": changes, "records_gradients": records_gradients, **SURROUNDINGS}
