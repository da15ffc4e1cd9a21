"""The devices that tests can run on, by the names people type: ``cpu``, ``cuda``, ``cuda:1``, ``mps``, ``gpu``."""

from __future__ import annotations

from mlc_torch.device import MLCDevice, offered


def devices() -> list[str]:
    """Every device present, the CPU first. ``MLC_TORCH_DEVICE`` narrows the choice."""
    return ["cpu", *accelerators()]


def accelerators() -> list[str]:
    """The kinds of GPU that are there: ``cuda`` or ``mps``. The CPU that ``MLC_TORCH_GPU=cpu`` lets stand in is none."""
    return list(dict.fromkeys(gpu.type for gpu in offered() if gpu.type != "cpu"))


def cpu_stands_in() -> bool:
    """Whether ``MLC_TORCH_GPU=cpu`` makes ``gpu`` a device that computes on the CPU."""
    return any(gpu.type == "cpu" for gpu in offered())


def device_named(name: str) -> MLCDevice:
    """The ``MLCDevice`` of a name; a ``ValueError`` says what is there if it is not."""
    if name == "cpu":
        return MLCDevice._cpu()
    there = offered()
    for gpu in there:
        if name in ("gpu", gpu.type, str(gpu)):
            return MLCDevice._on([gpu])
    raise ValueError(
        f"there is no device {name!r} here; there is {', '.join(dict.fromkeys(['cpu', *map(str, there)]))}"
    )
