"""One spelling of one method or initializer, and the function that stands behind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mlc_torch.spelling.arguments import CLASSES
from mlc_torch.spelling.signature import Signature


@dataclass(frozen=True, slots=True)
class Declaration:
    """What ``@declare`` makes of a Swift signature, a selector and the function below them."""

    signature: Signature
    selector: str | None
    function: Callable[..., Any] = field(repr=False)
    ours: bool = False
    fixed: dict[str, Any] = field(default_factory=dict, repr=False)
    nil: tuple[str, ...] = ()
    """Arguments that may be nil in the selector's spelling, though Swift has no nil there."""
    about: str = field(default="", repr=False)

    @property
    def words(self) -> str:
        """What the member does: said at the declaration, or by the function behind it."""
        return self.about or inspect.cleandoc(self.function.__doc__ or "")

    @property
    def binds_class(self) -> bool:
        return self.signature.is_init or self.signature.static

    @property
    def on_refusal(self) -> Any:
        """What Swift's member would give where it gives nothing."""
        returns = self.signature.returns
        if returns == "Bool":
            return False
        return [] if returns.startswith("[") and not returns.endswith("?") else None

    @property
    def spelling(self) -> str:
        """The call as Python writes it: ``(with_, source=)``, optional labels in brackets."""
        parts = []
        for i, p in enumerate(self.signature.params):
            text = (p.name if p.label == "_" else p.keyword) if i == 0 and p.may_be_positional else f"{p.keyword}="
            parts.append(text if p.default is None else f"[{text}]")
        return f"({', '.join(parts)})"

    def answers(self, target: Any) -> type | None:
        """The class of the object that this member gives, where it gives one."""
        name = self.signature.returns.rstrip("?")
        if name == "Self":
            return target if isinstance(target, type) else type(target)
        return CLASSES.get(name)

    def taking_nil(self) -> Declaration:
        """The declaration as its selector is called."""
        if not self.nil:
            return self
        params = tuple(replace(p, type=f"{p.type}?") if p.name in self.nil else p for p in self.signature.params)
        return replace(self, signature=replace(self.signature, params=params))
