"""Torch's contexts around a call: a graph says itself what it computes, so they change nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mlc_torch.refusals import refuse
from mlc_torch.torch_private.modes import is_disturbed, unreal_context


def refuse_unreal() -> None:
    """Refuse what would be done inside a context of torch's in which tensors hold no numbers."""
    around = unreal_context()
    if around is not None:
        refuse(f"a graph computes real numbers and cannot be run inside {around}")


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Inside, inference mode, autocast and a default device that the program set do not reach what a graph does.

    Modes that only look on, as ``FlopCounterMode`` does, still see every operation of the plain gear.
    """
    if not is_disturbed():
        yield
        return
    refuse_unreal()
    with torch.inference_mode(False), torch.autocast("cpu", enabled=False), torch.device(device):
        if device.type == "cpu":
            yield
        else:
            with torch.autocast(device.type, enabled=False):
                yield
