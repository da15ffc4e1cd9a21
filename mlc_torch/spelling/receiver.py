"""The words for a member that was called on its class: ``MLCGraph.node(layer, source=x)`` lacks the graph.

Python then takes the first argument for the object. To look at it in every call would cost every call, so it is looked at
where a call has failed.
"""

from __future__ import annotations

from typing import Any

from mlc_torch.spelling.declaration import Declaration

NOBODY = object()
"""What a member is called on where a call has no unlabelled argument that could be taken for the object."""


def expect_receiver(target: Any, owner: Any, declaration: Declaration) -> None:
    """Raise where ``target`` is no object of ``owner``, the class that has the member."""
    if declaration.binds_class or isinstance(target, owner):
        return
    makers = _public(owner)
    name = declaration.signature.called
    title = f"{makers[0].__name__}.{name}" if len(makers) == 1 else name
    made = " or ".join(f"{cls.__name__}{_shortest(cls).spelling}" for cls in makers)
    raise TypeError(f"{title} is called on an object, not on the class: make one with {made}") from None


def _public(owner: Any) -> list[Any]:
    """The classes by which programs know a member; some are declared in a base that programs do not see."""
    if owner.__name__.startswith("MLC"):
        return [owner]
    return [cls for below in owner.__subclasses__() for cls in _public(below)]


def _shortest(cls: Any) -> Declaration:
    return min(cls.__declared__["init"], key=lambda d: len(d.signature.params))
