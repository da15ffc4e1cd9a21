"""Saving a graph's training and taking it up again: bit for bit as if it had never stopped."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.device import checked_seed, randomness
from mlc_torch.graph import MLCGraph
from mlc_torch.interop.checkpoint_file import read_file, write_file
from mlc_torch.interop.checkpoint_parts import (
    GENERATOR,
    OPTIMIZER,
    description,
    devices,
    memory_of,
    names_by_address,
    optimizer_states,
    standing_cells,
    state_name,
    streams,
)
from mlc_torch.interop.graphs import expect_graph
from mlc_torch.interop.torch_optimizer import TorchOptimizer
from mlc_torch.interop.undo import Change, Undo, all_or_nothing, overwrite
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.running.midst import refuse_in_the_midst
from mlc_torch.spelling.own import as_path, as_switch
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.lack_of_memory import refusing_lack_of_memory
from mlc_torch.tensor.optimizer_state import adopt_state, refuse_too_few, shared_count
from mlc_torch.tensor.state_owners import bound_for, held_for, way_back
from mlc_torch.torch_private.modes import really

if TYPE_CHECKING:
    from mlc_torch.ranks import Ranks

Tensors = dict[str, torch.Tensor]


@really
def save_checkpoint(graph: MLCGraph, path: str | os.PathLike[str]) -> None:
    """Write everything that training changed, and a description of the graph, to ``path`` as safetensors.

    These are weights under ``label.role`` names, running statistics, trained inputs, the optimizer's state, time step,
    learning rate and clipping switch, and the random streams of dropout. The file appears whole or not at all.
    Where several processes share the graph, rank 0 writes it, and a call on another rank does nothing; a rank that loads
    the same path afterwards waits until it is written.
    """
    expect_graph(graph, "save_checkpoint")
    target = as_path("save_checkpoint", path)
    ranks = _ranks(graph)
    with nullcontext() if ranks is None else ranks.writing(target):
        refuse_in_the_midst(graph, over_its_layers=True)
        if ranks is None or not ranks.rank:
            write_file(target, *graph._lock.holding(_gathered, graph))


def _ranks(graph: MLCGraph) -> Ranks | None:
    return None if graph._device is None else graph._device._ranks


def _gathered(graph: MLCGraph) -> tuple[Tensors, dict[str, Any]]:
    """Copies of all tensors, and what is said about them."""
    parameters, statistics = standing_cells(graph)
    tensors = {name: memory_of(cell) for name, cell in (parameters | statistics).items()}
    about: dict[str, Any] = {"graph": description(graph), "seed": randomness.seed}
    optimizer = graph._update_rule()
    about["optimizer"] = None if optimizer is None else _settings(optimizer)
    if isinstance(optimizer, TorchOptimizer):
        states, about["optimizer"]["torch"] = optimizer.saved_state(names_by_address(parameters))
        tensors |= {OPTIMIZER + name: state for name, state in states.items()}
    elif optimizer is not None:
        for name, states_of in optimizer_states(parameters, optimizer).items():
            for state, value in zip(optimizer._state_names(), states_of, strict=True):
                tensors[state_name(name, state)] = value
    for name, stream in streams(graph, devices(graph)[0]).items():
        tensors[name] = stream.get_state()
    return {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()}, about


@really
def load_checkpoint(graph: MLCGraph, path: str | os.PathLike[str], *, resume: bool = True) -> None:
    """Bring ``graph`` to where it was when ``path`` was written; raises ``MLCRefusal``, and changes nothing, if it cannot.

    Names, shapes and types have to agree, and the refusal lists every one that does not. What interrupts it, an exception
    or Ctrl-C, leaves the graph as it was. ``resume`` also takes up the optimizer and the random streams, if the graph is
    one for training; without it only weights, statistics and trained inputs are read. A checkpoint may come from another
    device, whose random streams cannot be taken up.
    """
    expect_graph(graph, "load_checkpoint")
    source = as_path("load_checkpoint", path)
    resume = as_switch("load_checkpoint", "resume", resume)
    refuse_in_the_midst(graph, over_its_layers=True)
    ranks = _ranks(graph)
    if ranks is not None:
        ranks.await_written(source)
    graph._lock.holding(_take_up, graph, source, *read_file(source), resume)


def _take_up(graph: MLCGraph, path: Path, tensors: Tensors, about: dict[str, Any], resume: bool) -> None:
    try:
        changes = _planned_changes(graph, tensors, about, resume and graph._facts().trains)
    except MLCRefusal as why:
        refuse(f"the checkpoint {str(path)!r} does not fit the graph: {why.reason}")
    with refusing_lack_of_memory():
        all_or_nothing(changes)


def describe_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says about itself: the graph it is of, and the optimizer's settings."""
    return read_file(as_path("describe_checkpoint", path))[1]


def _settings(optimizer: MLCOptimizer) -> dict[str, Any]:
    return {
        "class": type(optimizer).__name__,
        "learningRate": float(optimizer.learningRate),
        "appliesGradientClipping": optimizer.appliesGradientClipping,
        "timeStep": optimizer.timeStep if _counts(optimizer) else None,
    }


def _counts(optimizer: MLCOptimizer) -> bool:
    """Whether it has a time step."""
    return "timeStep" in type(optimizer).__properties__


# Loading: everything is checked before anything is written


def _planned_changes(graph: MLCGraph, tensors: Tensors, about: dict[str, Any], resume: bool) -> list[Change]:
    parameters, statistics = standing_cells(graph)
    cells = parameters | statistics
    given = {n: t for n, t in tensors.items() if not n.startswith((OPTIMIZER, GENERATOR))}
    _compare({name: memory_of(cell) for name, cell in cells.items()}, given)
    changes: list[Change] = [partial(_write, cell, given[name]) for name, cell in cells.items()]
    if resume:
        changes += _optimizer_changes(graph, parameters, tensors, about)
        changes += _stream_changes(graph, tensors, about)
        changes.append(lambda undo: graph._forget_runs())
    return changes


def _compare(expected: Tensors, given: Tensors, optional: Iterable[str] = ()) -> None:
    """Refuse, with every name that is missing, not expected, or of another shape or type."""
    troubles = []
    missing = [n for n in expected if n not in given and n not in set(optional)]
    unexpected = [n for n in given if n not in expected]
    if missing:
        troubles.append(f"missing: {', '.join(missing)}")
    if unexpected:
        troubles.append(f"unexpected: {', '.join(unexpected)}")
    for name, tensor in given.items():
        if name in expected and _form(tensor) != _form(expected[name]):
            troubles.append(f"{name} is {_form(tensor)} in the file and {_form(expected[name])} in the graph")
    if troubles:
        refuse("; ".join(troubles))


def _form(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype}".replace("torch.", "")


def _write(cell: TensorState, value: torch.Tensor, undo: Undo) -> None:
    undo(cell.download)  # behind what follows, which is undone first
    overwrite(memory_of(cell), value, undo)
    cell.download()


def _optimizer_changes(
    graph: MLCGraph, parameters: dict[str, TensorState], tensors: Tensors, about: dict[str, Any]
) -> list[Change]:
    optimizer, said = graph._update_rule(), about.get("optimizer")
    states = {n: t for n, t in tensors.items() if n.startswith(OPTIMIZER)}
    if optimizer is None:
        _compare({}, states)
        return []
    if not isinstance(said, dict):
        refuse("it holds no optimizer, and the graph has one; resume=False reads only the weights")
    if said.get("class") != type(optimizer).__name__:
        refuse(f"it was written with {said.get('class')}, the graph has {type(optimizer).__name__}")
    rate, clips, step = said.get("learningRate"), said.get("appliesGradientClipping"), said.get("timeStep")
    if type(rate) is not float or not math.isfinite(rate) or type(clips) is not bool:
        refuse(
            f"its optimizer has the learning rate {rate!r} and the clipping switch {clips!r}; resume=False reads only "
            "the weights"
        )
    counts = _counts(optimizer)
    if counts and (type(step) is not int or not 0 <= step < 2**63):
        refuse(f"its optimizer has the time step {step!r}")

    has_rate = not isinstance(optimizer, TorchOptimizer)  # which has one for each group of parameters

    def settle(rate: float, clips: bool, step: Any) -> None:
        optimizer.appliesGradientClipping = clips
        if has_rate:
            optimizer.learningRate = rate
        if counts:
            optimizer._step_taken(step)
        # One that does not count begins anew on every rank: they compare how far they are.
        shared_count([*parameters.values()], optimizer, 1).next = step if counts else 1

    def take_up(undo: Undo) -> None:
        now = _settings(optimizer)
        undo(partial(settle, now["learningRate"], now["appliesGradientClipping"], now["timeStep"]))
        settle(rate, clips, step)

    if isinstance(optimizer, TorchOptimizer):
        own = {n.removeprefix(OPTIMIZER): t for n, t in states.items()}
        return [optimizer.state_change(own, said.get("torch"), names_by_address(parameters)), take_up]
    return [*_state_changes(optimizer, parameters, states), take_up]


def _state_changes(optimizer: MLCOptimizer, parameters: dict[str, TensorState], states: Tensors) -> list[Change]:
    """A parameter without state in the file starts from zeros, as it would have then."""
    names = optimizer._state_names()
    every = {state_name(p, s): memory_of(cell) for p, cell in parameters.items() for s in names}
    with_state = {p for p in parameters if any(state_name(p, s) in states for s in names)}
    _compare(every, states, [n for p in parameters if p not in with_state for n in (state_name(p, s) for s in names)])

    def write(cell: TensorState, values: list[torch.Tensor | None], undo: Undo) -> None:
        undo(way_back(cell))
        for memory, value in zip(adopt_state(cell, len(names), optimizer), values, strict=True):
            overwrite(memory, torch.zeros((), device="cpu") if value is None else value, undo)

    changes: list[Change] = []
    for p, cell in parameters.items():
        bound = bound_for(cell, optimizer)
        if p in with_state or held_for(cell, optimizer) or bound:
            refuse_too_few(p, len(bound), len(names))
            values = [states.get(state_name(p, s)) for s in names]
            changes.append(partial(write, cell, values))
    return changes


def _stream_changes(graph: MLCGraph, tensors: Tensors, about: dict[str, Any]) -> list[Change]:
    seed = about.get("seed")
    try:
        seed = None if seed is None else checked_seed(seed)
    except (TypeError, MLCRefusal):
        refuse(f"its seed is {seed!r}")
    given = {n: t for n, t in tensors.items() if n.startswith(GENERATOR)}
    places = devices(graph)
    here = {name: stream for place in places for name, stream in streams(graph, place).items()}
    blank = torch.empty(0, device="cpu")
    # Streams of another kind of device are known by name and cannot be taken up here.
    _compare(dict.fromkeys(map(_anywhere, here), blank), dict.fromkeys(map(_anywhere, given), blank))
    for name in here.keys() & given.keys():
        try:
            torch.Generator(here[name].device).set_state(given[name])
        except (RuntimeError, TypeError) as error:
            refuse(f"{name} is no state of a generator ({str(error).splitlines()[0]})")

    def settle(seed: int | None, states: Tensors) -> None:
        if randomness.seed != seed:
            randomness.reseed(seed)
        for name, state in states.items():
            here[name].set_state(state)

    def take_up(undo: Undo) -> None:
        undo(partial(settle, randomness.seed, {name: stream.get_state() for name, stream in here.items()}))
        settle(seed, {name: given[name] for name in here.keys() & given.keys()})

    return [take_up]


def _anywhere(stream: str) -> str:
    """The name of a stream without its kind of device."""
    name, _, kind = stream.rpartition("/")
    return name if kind in ("cpu", "cuda", "mps") else stream
