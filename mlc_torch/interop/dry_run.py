"""What a module gives for sources of given shapes, found out on a copy without memory: no data, no random numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from mlc_torch.going_back import undone
from mlc_torch.refusals import in_one_line, pass_on_signals, refuse
from mlc_torch.tensor import DATA_TYPES, TORCH_TYPES, MLCTensorDescriptor
from mlc_torch.torch_private.hooks import call_past_hooks_on_every_module, hooks_on_every_module
from mlc_torch.torch_private.modes import ambience, really, restore_ambience

Shape = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class Found:
    """The results of a module, and what an adapter has to do for it."""

    shapes: list[Shape]
    nested: bool
    """Whether they come in anything but a tensor or a tuple of several, or without a dimension."""
    rebinds: frozenset[str]
    """The buffers that the module puts new tensors into the place of, instead of writing into them."""

    def descriptors(self) -> list[MLCTensorDescriptor]:
        for _, dtype in self.shapes:
            if dtype not in DATA_TYPES:
                refuse(f"the module gives {dtype}; ML Compute has {', '.join(t.name for t in TORCH_TYPES)}")
        return [MLCTensorDescriptor._create(shape or (1,), DATA_TYPES[dtype]) for shape, dtype in self.shapes]


@really
def dry_run(module: nn.Module, sources: Sequence[MLCTensorDescriptor]) -> Found:
    """Run a copy of ``module`` in both modes; refuses, in torch's words, where it cannot take the sources."""
    found = _anyhow(module, sources, training=False)
    if isinstance(found, str):
        refuse(f"the module cannot take the sources: {found}")
    # Some modules cannot train on these sources, as batch normalization on one sample; that is for the run to say.
    trained = _anyhow(module, sources, training=True)
    if isinstance(trained, str):
        return found
    if trained.shapes != found.shapes:
        refuse(f"the module gives {_words(found)} in inference and {_words(trained)} in training")
    return Found(found.shapes, found.nested or trained.nested, found.rebinds | trained.rebinds)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among what a module returned, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))


def buffers_of(module: nn.Module) -> list[tuple[str, nn.Module, str, Any]]:
    """Every buffer: its whole name, the module that has it, its name there, and the tensor or ``None``."""
    return [
        (f"{path}.{name}" if path else name, owner, name, buffer)
        for path, owner in module.named_modules()
        for name, buffer in owner._buffers.items()
    ]


def _words(found: Found) -> str:
    return ", ".join(f"{list(shape)} {dtype}".replace("torch.", "") for shape, dtype in found.shapes)


def _anyhow(module: nn.Module, sources: Sequence[MLCTensorDescriptor], training: bool) -> Found | str:
    """On torch's meta device; where the module mixes in tensors of its own that are elsewhere, on fake tensors.

    Gives what was found, or torch's words: an exception would keep everything that it passed through alive.
    """
    try:
        return _run(module, sources, training, _meta, torch.device("meta"))
    except Exception as error:  # noqa: BLE001 - it is the user's code, which may raise anything
        pass_on_signals(error)
        if "meta" not in str(error) and "device" not in str(error):
            return in_one_line(error)
    try:
        # Not public by its name, but described in torch's documentation; loading it takes seconds.
        from torch._subclasses.fake_tensor import FakeTensorMode

        fake = FakeTensorMode(allow_non_fake_inputs=True)
        return _run(module, sources, training, fake.from_tensor, fake)
    except Exception as error:  # noqa: BLE001
        pass_on_signals(error)
        return _said(error)


def _said(error: Exception) -> str:
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return f"it decides by the values it sees, which nobody knows beforehand ({error})"
    return in_one_line(error)


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(tensor, device="meta")
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _run(
    module: nn.Module,
    sources: Sequence[MLCTensorDescriptor],
    training: bool,
    stand_in: Callable[[torch.Tensor], torch.Tensor],
    place: Any,
) -> Found:
    memo: dict[int, Any] = {id(t): stand_in(t) for t in (*module.parameters(), *module.buffers())}
    # A result that a module remembers cannot be copied with its history.
    kept = [v for m in module.modules() for v in vars(m).values() if isinstance(v, torch.Tensor) and not v.is_leaf]
    twin = copy.deepcopy(module, memo | {id(v): v.detach() for v in kept}).train(training)
    if any(hooks_on_every_module()):
        call_past_hooks_on_every_module(twin)  # they would be shown tensors without values
    before = buffers_of(twin)
    device: AbstractContextManager[Any] = nullcontext()
    first = next(module.parameters(), None)
    if not isinstance(place, torch.device) and first is not None:
        device = torch.device(first.device)

    def call() -> Any:
        with ExitStack() as stack:
            for context in (place, device, torch.no_grad()):
                stack.enter_context(context)
            return twin(*(torch.empty(s._shape, dtype=TORCH_TYPES[s._dataType]) for s in sources))

    made = undone(call, partial(restore_ambience, ambience()))
    results = list(tensors_in(made))
    if not results:
        raise TypeError(f"it returns {type(made).__name__}, and no tensor in it")
    flat = isinstance(made, torch.Tensor) or (
        isinstance(made, (tuple, list)) and len(made) > 1 and all(isinstance(m, torch.Tensor) for m in made)
    )
    flat = flat and all(r.dim() for r in results)
    rebinds = frozenset(path for path, owner, name, b in before if owner._buffers.get(name) is not b)
    return Found([(tuple(r.shape), r.dtype) for r in results], not flat, rebinds)
