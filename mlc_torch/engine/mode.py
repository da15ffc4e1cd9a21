"""How a plan is run, and how far a session has come with it."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """What the modules do in a forward pass, and whether a gradient follows it."""

    infer = "infer"
    """Dropout passes everything on, batch normalization uses its running statistics, nothing is kept."""
    train = "train"
    """As in training, and what the gradient phase needs is kept."""
    train_without_gradient = "train without gradient"
    """As in training, in a graph that has nothing to differentiate."""
    infer_with_gradient = "infer with gradient"
    """No graph asks for this, and every gear can do it, which is how layers are tested in inference."""

    __hash__ = object.__hash__  # Enum's own is written in Python, and a mode is looked up in every call

    @property
    def trains(self) -> bool:
        return self is Mode.train or self is Mode.train_without_gradient

    @property
    def differentiates(self) -> bool:
        return self is Mode.train or self is Mode.infer_with_gradient


class Phase(Enum):
    """What the last call of a session did."""

    idle = "idle"
    """Nothing that a gradient could follow."""
    forward = "forward"
    """A forward pass, whose gradient has not been computed yet."""
    outdated = "outdated"
    """The same, and another session's update has changed weights that it read: it has no gradient any more."""
    gradient = "gradient"
    """The gradients are there."""
    updated = "updated"
    """They have been applied."""

    def __init__(self, name: str) -> None:
        self.has_gradients = name in ("gradient", "updated")
