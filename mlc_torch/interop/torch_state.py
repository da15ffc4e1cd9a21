"""The state of a torch optimizer in checkpoints: what is written, and what has to agree before any of it is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import torch

from mlc_torch.interop.undo import Change, Undo
from mlc_torch.refusals import refuse
from mlc_torch.spelling.arguments import describe

Tensors = dict[str, torch.Tensor]
Names = Mapping[int, str]
"""What the graph calls the parameter at an address."""

_HOW_IT_COMPUTES = {"foreach", "fused", "capturable", "differentiable"}
"""Settings that change neither the state nor what becomes of it: another machine may have others."""

_NOT_ENTRIES = {"params", "lr", *_HOW_IT_COMPUTES}
"""What a group has beside its entries; learning rates are written by themselves."""


def saved_state(optimizer: torch.optim.Optimizer, names: Names) -> tuple[Tensors, dict[str, Any]]:
    """The state as tensors, by the place of their parameter, and everything in it that is no tensor."""
    tensors: Tensors = {}
    numbers: dict[str, dict[str, Any]] = {}
    for place, state in optimizer.state_dict()["state"].items():
        if not isinstance(place, int) or not isinstance(state, dict):
            _cannot_hold(optimizer, f"the state of {describe(place)}, which is no parameter")
        for key, value in state.items():
            if not isinstance(key, str):
                _cannot_hold(optimizer, f"state under {describe(key)}, which is no text")
            if isinstance(value, torch.Tensor):
                tensors[f"torch/{place}/{key}"] = value
            elif _comes_back(value):
                numbers.setdefault(str(place), {})[key] = value
            else:
                _cannot_hold(optimizer, f"{key!r}, {describe(value)}")
    about = {
        "class": type(optimizer).__name__,
        "rates": [float(group["lr"]) for group in optimizer.param_groups],
        "groups": _groups(optimizer, names),
        "numbers": numbers,
    }
    return tensors, about


def _comes_back(value: Any) -> bool:
    """Whether JSON gives back what it was given."""
    if isinstance(value, list):
        return all(map(_comes_back, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _comes_back(inner) for key, inner in value.items())
    return value is None or isinstance(value, (bool, int, float, str))


def _cannot_hold(optimizer: torch.optim.Optimizer, what: str) -> NoReturn:
    refuse(
        f"{type(optimizer).__name__} keeps {what}; of an optimizer's state a checkpoint holds tensors, numbers, text, None, "
        "and lists and dictionaries of numbers and text, by names"
    )


def _groups(optimizer: torch.optim.Optimizer, names: Names) -> list[dict[str, Any]]:
    """Which parameters each group has, in order, the settings that decide which state they have, and all its numbers."""
    return [
        {
            "parameters": [names.get(p.data_ptr()) for p in group["params"]],
            "settings": dict(_deciding(group)),
            "entries": dict(_entries(group)),
        }
        for group in optimizer.param_groups
    ]


def _entries(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What comes back with a checkpoint beside the learning rate: a scheduler may move any of it, as OneCycleLR does betas.

    Anything else, such as a function or the names of parameters, is the program's and stays as it is.
    """
    for key, value in group.items():
        if key not in _NOT_ENTRIES and isinstance(key, str):
            if isinstance(value, str) or _is_number(value):
                yield key, _plain(value)
            elif isinstance(value, (tuple, list)) and all(map(_is_number, value)):
                yield key, [*map(_plain, value)]


def _is_number(value: Any) -> bool:
    """A number, a switch, nothing, or a number that is a tensor, as learning rates and betas may be."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, float)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _deciding(group: Mapping[str, Any]) -> Iterator[tuple[str, bool | str]]:
    """Switches. Of the numbers of torch's own optimizers only whether there is momentum decides on state."""
    for key, value in group.items():
        if key == "momentum" and isinstance(value, (int, float)):
            yield key, value != 0
        elif isinstance(value, (bool, str)) and key not in _HOW_IT_COMPUTES:
            yield key, value


def state_change(optimizer: torch.optim.Optimizer, tensors: Tensors, said: Any, names: Names) -> Change:
    """Checks a saved state; gives what takes it up."""
    said = said if isinstance(said, dict) else {}
    if said.get("class") != type(optimizer).__name__:
        refuse(f"it was written with {said.get('class')}, the graph has {type(optimizer).__name__}")
    rates = _checked_rates(optimizer, said.get("rates"))
    if said.get("groups") is not None:  # files of the first versions do not say
        _compare_groups(_groups(optimizer, names), said["groups"])
    loaded = _checked_state(optimizer, tensors, said.get("numbers"))
    now = optimizer.state_dict()["param_groups"]
    groups = [
        group | _checked_entries(number, group, entries) | {"lr": _like(group["lr"], rate)}
        for number, (group, entries, rate) in enumerate(zip(now, _said_entries(said, len(now)), rates, strict=True), 1)
    ]

    def take_up(undo: Undo) -> None:
        undo(partial(optimizer.load_state_dict, optimizer.state_dict()))
        optimizer.load_state_dict({"state": loaded, "param_groups": groups})

    return take_up


def _checked_rates(optimizer: torch.optim.Optimizer, rates: Any) -> list[float]:
    count = len(optimizer.param_groups)
    if not isinstance(rates, list) or [type(r) for r in rates] != [float] * count or not all(map(math.isfinite, rates)):
        refuse(f"it has the learning rates {rates!r}, the optimizer {count} groups")
    return rates


def _like(old: Any, number: Any) -> Any:
    """A learning rate or another number that is a tensor stays one."""
    return torch.full_like(old, number) if isinstance(old, torch.Tensor) else number


def _said_entries(said: dict[str, Any], count: int) -> list[Any]:
    """Of each group; files of earlier versions say nothing of them, and the optimizer's stay."""
    groups = said.get("groups")
    return [{}] * count if groups is None else [group.get("entries", {}) for group in groups]


def _checked_entries(number: int, group: Mapping[str, Any], entries: Any) -> dict[str, Any]:
    """The entries of a file in the form that they have here.

    As by torch's own ``load_state_dict`` one that the optimizer has not comes to it: a scheduler's, which is made later. One
    that only the optimizer has stays, since a scheduler that was made before would look for it.
    """
    if not isinstance(entries, dict):
        refuse(f"it says of group {number} of its optimizer {describe(entries)}, expected its entries by their names")
    made = {}
    for key, value in entries.items():
        plain = all(map(_is_number, value)) if isinstance(value, list) else isinstance(value, str) or _is_number(value)
        if key in _NOT_ENTRIES or not plain:
            refuse(
                f"group {number} of its optimizer has {key} = {value!r}, expected a number, text, or several numbers"
            )
        old = group.get(key)
        if key in group and not _fits(old, value):
            refuse(f"group {number} of its optimizer has {key} = {value!r}, here it is {old!r}")
        if isinstance(value, list):
            olds = old if isinstance(old, (tuple, list)) else [None] * len(value)
            row = [_like(o, v) for o, v in zip(olds, value, strict=True)]
            made[key] = row if isinstance(old, list) else tuple(row)  # torch's own are tuples
        else:
            made[key] = _like(old, value)
    return made


def _fits(old: Any, new: Any) -> bool:
    """Whether the optimizer can take ``new`` where it has ``old``: several numbers for as many, a number for a number."""
    if isinstance(old, (tuple, list)):
        return isinstance(new, list) and len(old) == len(new) and all(map(_fits, old, new))
    if isinstance(old, torch.Tensor):
        return old.numel() == 1 and isinstance(new, (int, float) if old.is_floating_point() else int)
    if old is None or new is None:
        return True
    return isinstance(new, str) if isinstance(old, str) else _is_number(new) and _is_number(old)


def _compare_groups(here: list[dict[str, Any]], said: Any) -> None:
    """Refuse, with every difference, groups of other parameters or with other switches."""
    troubles: list[str] = []
    try:
        for number, (ours, theirs) in enumerate(zip(here, said, strict=True), 1):
            troubles += [f"group {number} of its optimizer {what}" for what in _differences(ours, theirs)]
    except (TypeError, ValueError, KeyError, AttributeError):
        refuse(f"it says of its optimizer's groups {describe(said)}, the optimizer has {len(here)}")
    if troubles:
        refuse("; ".join(troubles))


def _differences(here: dict[str, Any], there: dict[str, Any]) -> Iterator[str]:
    ours, theirs = here["parameters"], list(there["parameters"])
    if len(ours) != len(theirs):
        yield f"has {len(theirs)} parameters, here it has {len(ours)}"
    for place, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a != b and None not in (a, b):
            yield f"has {b} in place {place}, here it has {a}"
    settings = there["settings"]
    for key, value in here["settings"].items():
        if settings.get(key, value) != value:  # one version of torch may have switches that another has not
            yield f"has {key} = {settings[key]!r}, here it is {value!r}"


def _checked_state(optimizer: torch.optim.Optimizer, tensors: Tensors, numbers: Any) -> dict[int, dict[str, Any]]:
    now = optimizer.state_dict()["state"]
    every = [p for group in optimizer.param_groups for p in group["params"]]
    places = {str(place): place for place in range(len(every))}
    loaded: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        place, _, key = rest.partition("/")
        if kind != "torch" or place not in places or not key:
            refuse(f"unexpected: {name}")
        _check_form(optimizer, name, tensor, now.get(places[place], {}).get(key), every[places[place]])
        loaded.setdefault(places[place], {})[key] = tensor.clone()
    for place, others in (numbers if isinstance(numbers, dict) else {}).items():
        if place not in places or not isinstance(others, dict):
            refuse(f"unexpected: torch/{place}")
        loaded.setdefault(places[place], {}).update(others)
    return loaded


def _check_form(
    optimizer: torch.optim.Optimizer, name: str, tensor: torch.Tensor, old: Any, parameter: torch.Tensor
) -> None:
    """A tensor is as the one in its place. Where there is none yet: a number, or one for each element or line of the parameter.

    That is so for torch's own optimizers; what a program's own keeps, only that one knows.
    """
    if isinstance(old, torch.Tensor):
        if (old.shape, old.dtype) != (tensor.shape, tensor.dtype):
            refuse(f"{name} is {list(tensor.shape)} in the file and {list(old.shape)} in the optimizer")
    elif type(optimizer).__module__.startswith("torch.optim") and tensor.dim():
        sizes = zip(tensor.shape, parameter.shape, strict=False)
        if tensor.dim() != parameter.dim() or any(size not in (1, whole) for size, whole in sizes):
            refuse(
                f"{name} is {list(tensor.shape)} in the file, its parameter is {list(parameter.shape)} in the optimizer"
            )
