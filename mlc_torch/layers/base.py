"""``MLCLayer``: what every layer family writes, and what it gets for it.

A family writes three things: its initializers, ``_infer`` (the rule for its results, in integers alone) and ``_build``
(the ``torch.nn`` module that computes it). It says nothing about graphs, devices or how it will be run.
"""

from __future__ import annotations

import copy
import inspect
import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar

from torch import nn

from mlc_torch.descriptors.base import Descriptor
from mlc_torch.descriptors.brief import brief
from mlc_torch.device import MLCDevice
from mlc_torch.enums import MLCDataType
from mlc_torch.layers.sharing import Axis, Samples, along_first
from mlc_torch.refusals import refuse
from mlc_torch.spelling import MLCObject, declare, prop
from mlc_torch.tensor import MLCTensor, MLCTensorDescriptor, MLCTensorParameter, TensorState
from mlc_torch.torch_private.modes import really

UNCOMPILED = 2147483647  # measured: deviceType before a compile (evidence.md B.3)

FLOATS = frozenset({MLCDataType.float32, MLCDataType.float16})
INDICES = frozenset({MLCDataType.int32, MLCDataType.int64})
BOOLEAN = frozenset({MLCDataType.boolean})
ANY_TYPE = frozenset(MLCDataType)

REPLACED = (
    "a parameter of the module was replaced, added or removed since the layer was made of it; write into it "
    "(parameter.copy_(values) under torch.no_grad(), load_state_dict without assign), or make another layer"
)


@dataclass(frozen=True, slots=True, eq=False)
class ParameterUse:
    """One tensor of a layer as its module sees it."""

    role: str
    """Its name in checkpoints and in ``to_module()``: ``weights``, ``biases``, ``inputWeights.0``."""
    parameter: MLCTensorParameter
    torch: nn.Parameter

    @property
    def cell(self) -> TensorState:
        return self.parameter._tensor._cell


class MLCLayer(MLCObject):
    """A layer of a graph; the base class of all layers. ``module`` is the ``torch.nn`` module that computes it."""

    label = prop("String", "A name for people; summaries, traces and error messages show it.", settable=True)
    layerID = prop("Int", "The position of the layer in its graph; 0 until it is in one.")
    isDebuggingEnabled = prop(
        "Bool", "Whether its results can be read after a run of a graph compiled with ``debugLayers``.", settable=True
    )
    deviceType = prop("MLCDeviceType", "The type of device its graph was compiled for.")

    _named: ClassVar[str] = ""
    """The label a new layer gets (evidence.md D.0)."""
    _supports: ClassVar[frozenset[MLCDataType]] = frozenset({MLCDataType.float32})
    """What ``supportsDataType`` answers, as the real framework does, even where we can do more (evidence.md B.3)."""
    _supports_gpu: ClassVar[bool] = True
    _module: nn.Module | None
    _uses: list[ParameterUse]
    _buffers: list[TensorState]
    _is_bare = False
    """Whether a plain ``init`` made it: it has nothing to compute with, and no node takes it."""
    _module_is_given: ClassVar[bool] = False
    """Whether the program gave the module, and expects to find it as it is."""
    _knows_samples: ClassVar[bool] = False
    """Whether samples lie where its ``_batch_axis`` says and nowhere else; others take them where they lie, or mix them."""
    _hidden_fields: ClassVar[frozenset[str]] = frozenset()
    """What of the descriptor means nothing to this layer, and its repr leaves out."""

    @classmethod
    def _meant_by(cls, value: object) -> str:
        """The end of an error message: how a layer is made of a torch module that was given in its place."""
        makes_one = cls is MLCLayer and isinstance(value, nn.Module)
        return " (mlc_torch.interop.TorchLayer(module) makes one of a torch module)" if makes_one else ""

    @classmethod
    def _layer(cls, **fields: Any) -> Any:
        """A new layer with these properties."""
        return cls._make(
            **fields,
            label=cls._named,
            layerID=0,
            isDebuggingEnabled=False,
            deviceType=UNCOMPILED,
            graph=None,
            module=None,
            uses=[],
            buffers=[],
        )

    @classmethod
    def _bare(cls) -> Any:
        """What ``alloc().init()`` gives: no tensors, no descriptor, no label."""
        made = cls._layer()
        for declared in cls.__properties__.values():
            if declared.getter is None:
                made.__dict__.setdefault(declared.stored, None)
        made._label = None
        made._is_bare = True
        return made

    @declare(
        "static supportsDataType(_ dataType: MLCDataType, on device: MLCDevice) -> Bool",
        "supportsDataType:onDevice:",
        nil=("device",),
    )
    def _supports_type(cls, dataType, device):
        """Whether the framework's layer takes elements of this type on this device."""
        if cls is MLCLayer or device is None:  # type: ignore[comparison-overlap]  # NO for nil, too (measured, evidence.md B.3)
            return False
        return dataType in cls._supports and (cls._supports_gpu or not device._gpus)

    # What a family writes

    def _infer(self, sources: list[MLCTensorDescriptor]) -> list[MLCTensorDescriptor]:
        """The descriptors of the results, or a refusal where the framework answers nil when the node is made."""
        raise NotImplementedError(f"{type(self).__name__} has no rule for its results")

    def _check(self, sources: list[MLCTensorDescriptor]) -> None:
        """Refuse what the framework accepts in a node and refuses at compile."""

    def _note_sources(self, sources: list[MLCTensorDescriptor]) -> None:
        """Told at compile what a node gives it, after ``_check``: a module may have to know what a whole batch is."""

    def _batch_axis(self, position: int, sources: list[MLCTensorDescriptor]) -> Axis:
        """The dimension of a source that counts samples, or ``None`` where the module takes the source whole."""
        return 0

    def _samples(
        self, axes: list[Axis], sources: list[MLCTensorDescriptor], results: list[MLCTensorDescriptor]
    ) -> Samples:
        """Which dimension of each result counts samples, given those of the sources.

        Asked where several processes share a batch, and for short batches. A layer that mixes samples refuses (``mixes``),
        since no process has them all.
        """
        return along_first(axes, len(results))

    def _shared_along(self, axes: list[Axis]) -> None:
        """Told which dimensions of the sources count samples, where several processes share the batch."""

    def _index_limit(self, position: int, sources: list[MLCTensorDescriptor]) -> int | None:
        """For a source of indices the number they must stay below."""
        return None

    def _build(self) -> nn.Module:
        """The module, its parameters shown with ``_show``."""
        raise NotImplementedError(f"{type(self).__name__} has no module")

    # What it gets

    @property
    def module(self) -> nn.Module:
        """The ``torch.nn`` module that computes this layer. Its parameters are views of the tensors' own memory."""
        self._have_built()
        assert self._module is not None
        return self._module

    @property
    def _parameter_uses(self) -> list[ParameterUse]:
        """The layer's trainable tensors, as roles and as torch parameters."""
        self._have_built()
        return self._uses

    @property
    def _buffer_cells(self) -> list[TensorState]:
        """The tensors that the module computes rather than trains."""
        self._have_built()
        return self._buffers

    def _check_module(self) -> None:
        """Refuse a module that would compute with other parameters than those that are trained."""
        there = {id(p) for p in self.module.parameters()}
        if any(id(use.torch) not in there for use in self._parameter_uses):
            refuse(REPLACED)
        for use in self._parameter_uses:
            if not use.cell.is_seen_by(use.torch):
                refuse(
                    f"parameter {use.role!r} no longer lies in the layer's memory: its module was moved or converted, or its "
                    ".data was replaced. Write into it (parameter.copy_(values) under torch.no_grad()), move or convert a "
                    "copy.deepcopy of the module, or a module before a TorchLayer is made of it; parameter.data = "
                    "tensor.torch.view(parameter.shape) lays it over the memory of the layer's tensor again"
                )

    def _have_built(self) -> None:
        """See to the module, and with it to what it shows of the layer's tensors."""
        if self._module is None:
            self._uses, self._buffers = [], []
            self._module = really(self._build)()

    def _show(
        self, module: nn.Module, name: str, shape: Sequence[int], parameter: MLCTensorParameter | None, role: str = ""
    ) -> None:
        """Give ``module`` a parameter ``name`` of ``shape`` that is the memory of ``parameter``'s tensor."""
        if parameter is None:
            module.register_parameter(name, None)
            return
        cell, view = parameter._tensor._cell, tuple(shape)
        value = cell.placed(writable=True)
        made = nn.Parameter(value.view(view), requires_grad=value.is_floating_point())
        cell.show(made, lambda memory: memory.view(view))
        module.register_parameter(name, made)
        self._uses.append(ParameterUse(role or name, parameter, made))

    def _show_buffer(self, module: nn.Module, name: str, shape: Sequence[int], tensor: MLCTensor | None) -> None:
        """The same for a tensor that is computed, not trained: running statistics."""
        if tensor is None:
            module.register_buffer(name, None)
            return
        cell, view = tensor._cell, tuple(shape)
        value = cell.placed(writable=True)
        made = value.view(view)
        cell.show(made, lambda memory: memory.view(view))
        module.register_buffer(name, made)
        self._buffers.append(cell)

    def __copy__(self) -> Any:
        """The same layer over the same tensors, in no graph and with no module yet."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.update(_layerID=0, _graph=None, _module=None, _uses=[], _buffers=[], _deviceType=UNCOMPILED)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = self.__copy__()
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(made.__dict__, memo))
        return made

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} refers to memory of this process; save a checkpoint of its graph instead"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(self._label), *self._repr_words()])})"

    def _repr_words(self) -> list[str]:
        """What makes this layer: its descriptor's words, and the properties that are not what they usually are.

        Tensors are told from the rest only where they are missing.
        """
        create = getattr(self, "_create", None)
        usual = {} if create is None else {p.name: p.default for p in inspect.signature(create).parameters.values()}
        words: list[str] = []
        for name in self._shown():
            value, known = getattr(self, name, None), usual.get(name, inspect.Parameter.empty)
            type_ = self.__properties__[name].type
            if name in MLCLayer.__properties__ or type_.startswith(("MLCTensorParameter", "[MLCTensor")):
                continue
            if known is not inspect.Parameter.empty and known == value:
                continue
            if type_.startswith("MLCTensor"):
                words += [f"no {name}"] if value is None else []
            elif isinstance(value, Descriptor):
                words += value._repr_words(self._hidden_fields)
            elif value is not None:
                words += brief({name: value})
        return words

    def _belongs_to(self) -> Any:
        return self._graph() if self._graph is not None else None

    def _compiled_for(self, device: MLCDevice) -> None:
        self._deviceType = device._type

    def _enter(self, graph: Any, position: int) -> None:
        self._graph, self._layerID = weakref.ref(graph), position


# Rules that many families share


def one_source(sources: Sequence[MLCTensorDescriptor]) -> MLCTensorDescriptor:
    return exactly(sources, 1)[0]


def exactly(sources: Sequence[MLCTensorDescriptor], count: int) -> Sequence[MLCTensorDescriptor]:
    if len(sources) != count:
        refuse(f"takes {count} source{'s' * (count != 1)}, got {len(sources)}")
    return sources


def of_type(
    source: MLCTensorDescriptor, allowed: frozenset[MLCDataType], who: str = "the source"
) -> MLCTensorDescriptor:
    if source._dataType not in allowed:
        names = ", ".join(t.name for t in MLCDataType if t in allowed)
        refuse(f"{who} must be {names}, got {source._dataType.name}")
    return source


def same_type(sources: Sequence[MLCTensorDescriptor]) -> MLCDataType:
    types = {s._dataType for s in sources}
    if len(types) != 1:
        refuse(f"sources must share one data type, got {', '.join(sorted(t.name for t in types))}")
    return types.pop()


def image(source: MLCTensorDescriptor, who: str) -> tuple[int, ...]:
    """The shape of a rank-4 [batch, channels, height, width] tensor."""
    if len(source._shape) != 4:
        refuse(f"{who} takes a tensor of shape [batch, channels, height, width], got {source.shape}")
    return source._shape


def dimension_of(source: MLCTensorDescriptor, dimension: int) -> int:
    # The real framework raises NSRangeException here.
    if not 0 <= dimension < len(source._shape):
        refuse(f"dimension {dimension} is none of the {len(source._shape)} of shape {source.shape}")
    return dimension


def described(shape: Sequence[int], type_: MLCDataType) -> MLCTensorDescriptor:
    return MLCTensorDescriptor._create(tuple(shape), type_)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that several shapes meet in: per dimension equal or 1, aligned at the end.

    (``torch.broadcast_shapes`` loads sympy and 480 modules more for this, 0.4 seconds in a program's first layer.)
    """
    met: list[int] = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            refuse(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
        met.append(wide.pop() if wide else 1)
    return tuple(reversed(met))


def element_count(descriptor: MLCTensorDescriptor) -> int:
    return math.prod(descriptor._shape)


def parameter(tensor: MLCTensor | None) -> MLCTensorParameter | None:
    return None if tensor is None else MLCTensorParameter._create(tensor)


def of_the_type_of(held: Mapping[str, MLCTensor | None], source: MLCTensorDescriptor) -> MLCTensorDescriptor:
    """The source, if every tensor that the layer holds has its type: torch would notice only while it runs."""
    for name, tensor in held.items():
        if tensor is not None and tensor._cell.descriptor._dataType is not source._dataType:
            type_ = tensor._cell.descriptor._dataType
            refuse(f"the source must have the type of {name}, {type_.name}, got {source._dataType.name}")
    return source


def like_weights(biases: MLCTensor | None, weights: MLCTensor) -> None:
    """Refuse biases of another type than the weights."""
    if biases is not None and biases._cell.dtype != weights._cell.dtype:
        names = [t._cell.descriptor._dataType.name for t in (weights, biases)]
        refuse(f"biases must have the type of the weights, {names[0]}, got {names[1]}")


def holds(tensor: MLCTensor | None, count: int, who: str) -> None:
    """Refuse a parameter tensor that does not have exactly ``count`` elements."""
    if tensor is not None and math.prod(tensor._cell.shape) != count:
        refuse(f"{who} needs {count} elements, got shape {list(tensor._cell.shape)}")
