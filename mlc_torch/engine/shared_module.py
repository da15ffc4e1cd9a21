"""What ``to_module`` gives: a module over a graph's memory, which refuses what would part it from the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import fx, nn
from torch.fx.graph_module import reduce_graph_module

_MOVED = (
    "the module's tensors are the graph's own memory and cannot be moved or converted here; compile the graph for the "
    "other device, or take copy.deepcopy(module), which has memory of its own"
)


def _refuse_other_parameters(name: str, what: str, there: str = "") -> NoReturn:
    raise RuntimeError(
        f"parameter {name!r} cannot be {what} here: the module's parameters and hooks are those of a graph's "
        f"layer; write into a parameter that is there, or take copy.deepcopy(module), which has its own{there}"
    )


_USUAL_NAMES = ("weight", "bias")


class _Unparametrized(nn.ModuleDict):
    """In place of the parametrizations that a shared module cannot have. ``torch.nn.utils.parametrize`` asks whether a tensor has
    one before it does anything, and afterwards may give the tensor other memory before it takes it out of the module.

    Its functions look for a ``weight`` where they are told no name, and layers of ours have ``weights``."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    def __contains__(self, key: str) -> bool:
        if key in self._names:
            _refuse_other_parameters(key, "parametrized")
        if key in _USUAL_NAMES and self._names:
            _refuse_other_parameters(key, "parametrized", f" (under the names {', '.join(self._names)})")
        return False


class _Shared(nn.Module):
    """A module that refuses what would give its tensors other memory, as long as they are a graph's."""

    shares_memory = False
    """Whether the tensors are a graph's; a deep copy has its own."""

    @property
    def parametrizations(self) -> nn.ModuleDict:
        """None, and none can be added; a copy has them where torch puts them, among its modules."""
        if not self.shares_memory:
            raise AttributeError("parametrizations")  # nn.Module goes on looking
        return _Unparametrized((*self._parameters, *self._buffers))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        if not self.shares_memory:
            return super()._apply(fn, recurse)
        for tensor in chain(self.parameters(), self.buffers()):
            made = fn(tensor.detach())
            if (made.data_ptr(), made.dtype, made.device) != (tensor.data_ptr(), tensor.dtype, tensor.device):
                raise RuntimeError(_MOVED)
        return self

    def share_memory(self) -> Any:
        if self.shares_memory:
            raise RuntimeError(_MOVED)
        return super().share_memory()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        if assign and self.shares_memory:
            raise RuntimeError(f"assign=True would replace tensors instead of writing into them: {_MOVED}")
        return super().load_state_dict(state_dict, strict, assign)


class SharedPart(_Shared):
    """A layer's module inside of one. It shares its hooks with the layer, too: one that expects a parameter of another name, as
    those of ``torch.nn.utils.prune`` do, would find it here and break the graph, whose module does not have it."""

    shares_memory = True

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if self._parameters.get(name) is not param:
            _refuse_other_parameters(name, "added or replaced")
        super().register_parameter(name, param)

    def __copy__(self) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made


class FixedParameters(dict[str, nn.Parameter | None]):
    """The parameters of a part, none of which can be taken out: ``torch.nn.utils.weight_norm`` begins with that."""

    def __delitem__(self, name: str) -> None:
        _refuse_other_parameters(name, "removed")


class SharedGraphModule(_Shared, fx.GraphModule):
    """A ``torch.fx.GraphModule`` whose parameters and buffers are the memory of a graph's tensors.

    What PyTorch writes the graph reads at once, and the other way round. ``copy.deepcopy`` gives an independent module, and so
    does ``torch.load`` of one that was saved.
    """

    @property
    def inputs(self) -> dict[str, Input]:
        """What ``forward`` takes, in its order."""
        return self.meta["inputs"]

    @property
    def outputs(self) -> list[str]:
        """The names of what ``forward`` gives: one, the tensor itself; several, the keys of a dictionary."""
        return self.meta["outputs"]

    def __copy__(self) -> Any:
        made = SharedGraphModule(self, self.graph, class_name=self.__class__.__name__)
        made.shares_memory, made.meta = self.shares_memory, self.meta
        return made

    def __reduce__(self) -> Any:
        _, (body, imports) = super().__reduce__()
        return _unpickled, (body, imports, self.__class__.__name__)


def _unpickled(body: dict[str, Any], imports: str, name: str) -> SharedGraphModule:
    """The module again, over memory of its own; torch restores a plain ``GraphModule``, without what ``meta`` holds."""
    plain: Any = reduce_graph_module(body, imports)
    made = SharedGraphModule(plain, plain.graph, class_name=name)
    made.__dict__.update(plain.__dict__, meta=body["meta"], shares_memory=False)
    return made


@dataclass(frozen=True)
class Input:
    """One argument of ``forward`` as the graph declares it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    batch_axis: int | None
    """The dimension that counts samples, which may be fewer or more; ``None`` where all sizes are fixed."""
