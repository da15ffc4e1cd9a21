"""``TorchLayer``: any ``nn.Module`` as a layer of an ML Compute graph, trained there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import chain

import torch
from torch import nn

from mlc_torch.going_back import undone
from mlc_torch.interop.dry_run import buffers_of, dry_run, tensors_in
from mlc_torch.layers.base import ANY_TYPE, REPLACED, MLCLayer, ParameterUse
from mlc_torch.layers.sharing import UNKNOWN, along_first, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare
from mlc_torch.tensor import DATA_TYPES, MLCTensor, MLCTensorParameter, TensorState
from mlc_torch.tensor.descriptor import MAX_DIMENSIONS
from mlc_torch.torch_private.lstm import own_weights_again
from mlc_torch.torch_private.modes import really


class TorchLayer(MLCLayer):
    """``TorchLayer(module, label=None)``: the sources are the arguments of ``module``, its tensors the results. Ours.

    The module's parameters are trained in place: they and the layer's tensors are one memory, and a module moves to the
    device that its graph is compiled for. Results may come as a tensor, or as tensors in tuples, lists and dictionaries.
    A module that draws random numbers of its own, as ``nn.Dropout`` does, draws them from torch's generator.
    """

    _supports = ANY_TYPE
    _module_is_given = True
    _adapts: bool
    _rebinds: frozenset[str]

    @declare("init(_ module: Any, label: String? = nil)", ours=True)
    def _create(cls, module, label=None):
        if not isinstance(module, nn.Module):
            raise TypeError(f"TorchLayer expects a torch.nn.Module, got {type(module).__name__}")
        for name, parameter in module.named_parameters():
            _check_parameter(name, parameter)
        for name, buffer in module.named_buffers():
            if nn.parameter.is_lazy(buffer) or buffer.numel():
                _check_memory(f"buffer {name!r}", buffer)
        _check_ties(module)
        parameters = {n: MLCTensorParameter._create(_parameter_tensor(n, p)) for n, p in module.named_parameters()}
        statistics = {n: _over(b, n) for n, b in module.named_buffers() if b.numel()}
        made = cls._layer(given=module, parameters=parameters, statistics=statistics, adapts=False, rebinds=frozenset())
        made._label = type(module).__name__ if label is None else label
        return made

    @property
    def parameters_by_name(self) -> dict[str, MLCTensorParameter]:
        """The module's parameters under its own names; each has a ``tensor``, and ``isUpdatable`` freezes it."""
        return dict(self._parameters)

    def _infer(self, sources):
        found = dry_run(self._given, sources)
        if (found.nested and not self._adapts) or not found.rebinds <= self._rebinds:
            self._adapts, self._rebinds, self._module = True, self._rebinds | found.rebinds, None
        return found.descriptors()

    def _samples(self, axes, sources, results):
        """A module is taken at its word: results whose first dimension is the batch are one for each sample."""
        if 0 in axes:
            batch = sources[axes.index(0)]._shape[0]
            rows = [0 if result._shape[0] == batch else UNKNOWN for result in results]
            if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self._given.modules()):
                mixes("its module normalizes over samples; use MLCBatchNormalizationLayer", rows)
            if any(result._shape[0] != batch for result in results):
                mixes("its module gives results without a row for each sample", rows)
            if batch > 1 and any(a is None and s._shape[0] == batch for a, s in zip(axes, sources, strict=True)):
                mixes(
                    "its module reads a tensor of as many rows as there are samples, which no input gives; declare it as an "
                    "input",
                    rows,
                )
        return along_first(axes, len(results))

    def _check_module(self):
        there, names = dict(self._given.named_parameters()), list(self._parameters)
        if list(there) != names or any(
            there[n] is not u.torch for n, u in zip(names, self._parameter_uses, strict=True)
        ):
            refuse(REPLACED)
        super()._check_module()

    def _build(self):
        prefix = "module." if self._adapts else ""
        for name, torch_parameter in self._given.named_parameters():
            held = self._parameters[name]
            _show(held._tensor._cell, torch_parameter)
            self._uses.append(ParameterUse(prefix + name, held, torch_parameter))
        for name, buffer in self._given.named_buffers():
            if name in self._statistics:
                cell = self._statistics[name]._cell
                _show(cell, buffer)
                self._buffers.append(cell)
        for path, module in self._given.named_modules():
            if isinstance(module, nn.RNNBase):
                own = {n: f"{path}.{n}" if path else n for n, _ in module.named_parameters()}
                if self._parameters.keys() >= set(own.values()):  # not those of another name that share their weights
                    _OneBlock(module, {n: self._parameters[name]._tensor._cell for n, name in own.items()})
        return Adapter(self._given, self._rebinds) if self._adapts else self._given

    def __repr__(self) -> str:
        if "_given" not in self.__dict__:
            return f"TorchLayer({self._label!r})"
        count = sum(p.numel() for p in self._given.parameters())
        return f"TorchLayer({self._label!r}, {type(self._given).__name__}, {count:,} parameters)"


class _OneBlock:
    """Keeps the weights of a recurrent module side by side in one block on CUDA: elsewhere cuDNN warns, and copies them
    into one before each run.
    """

    def __init__(self, module: nn.RNNBase, cells: dict[str, TensorState]) -> None:
        self._module, self._cells, self._joining = weakref.ref(module), cells, False
        for cell in cells.values():
            cell.watched_by(self._join)
        self._join()

    def _join(self) -> None:
        module = self._module()
        if module is None or self._joining or not all(p.is_cuda for p in module.parameters()):
            return  # some are still to come
        self._joining = True
        try:
            own_weights_again(module)
            module.flatten_parameters()
            for name, cell in self._cells.items():
                memory = module.get_parameter(name).detach()
                if cell.value is not None and cell.value.data_ptr() != memory.data_ptr():
                    cell.follow(memory)
        finally:
            self._joining = False


class Adapter(nn.Module):
    """Gives the tensors that ``module`` returns in a row, a scalar as ML Compute's ``[1]``.

    Buffers that the module replaced are written back into their memory. Those of which that is known (``rebinds``) it does not
    get itself where there will be a gradient, but a copy: autograd may have kept the old value, which must stay as it is.
    """

    def __init__(self, module: nn.Module, rebinds: frozenset[str]) -> None:
        super().__init__()
        self.module, self.rebinds = module, rebinds

    def forward(self, *sources: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        before = [entry for entry in buffers_of(self.module) if entry[3] is not None]
        lent: dict[int, torch.Tensor] = {}
        if torch.is_grad_enabled():
            lent = {id(b): b.clone() for path, _, _, b in before if path in self.rebinds}

        def run() -> tuple[torch.Tensor, ...]:
            for _, owner, name, buffer in before:
                owner._buffers[name] = lent.get(id(buffer), buffer)
            made = tuple(t if t.dim() else t.reshape(1) for t in tensors_in(self.module(*sources)))
            changed = [(b, now) for _, owner, name, b in before if (now := owner._buffers.get(name)) is not b]
            # Of a buffer with two names, one may have been replaced: that comes last.
            for buffer, now in sorted(changed, key=lambda pair: pair[1] is not lent.get(id(pair[0]))):
                if now is not None:
                    with torch.no_grad():
                        buffer.copy_(now)
            return made

        def give_back() -> None:
            for _, owner, name, buffer in before:
                if owner._buffers.get(name) is not None:
                    owner._buffers[name] = buffer

        made = undone(run, give_back)
        return made if len(made) > 1 else made[0]


# Memory

_known: dict[int, tuple[weakref.ref[nn.Parameter], MLCTensor]] = {}
"""The tensor of each parameter that some layer holds, so that two layers which share a parameter train one tensor."""


def _check_memory(who: str, tensor: torch.Tensor) -> None:
    """Refuse what has no elements in a row that a layer's tensor could look at."""
    if nn.parameter.is_lazy(tensor):
        refuse(f"{who} has no shape yet; run the lazy module once")
    if tensor.layout is not torch.strided:
        refuse(f"{who} is {tensor.layout}, a layer's tensors are dense; use to_dense()")
    if tensor.device.type == "meta":
        refuse(f"{who} has no memory: it is on the meta device")


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    _check_memory(f"parameter {name!r}", parameter)
    if parameter.dtype not in DATA_TYPES:
        refuse(f"parameter {name!r} is {parameter.dtype}, which ML Compute does not have; use module.float()")
    if parameter.numel() == 0:
        refuse(f"parameter {name!r} is empty")


def _check_ties(module: nn.Module) -> None:
    """Refuse a tensor whose elements another one has, too, but which ``_over`` has to copy: it would be untied without a word."""
    own = [(n, t) for n, t in chain(module.named_parameters(), module.named_buffers()) if t.layout is torch.strided]
    copied = [(n, t) for n, t in own if not t.is_contiguous()]
    if not copied:
        return
    others = [*own, *((t._cell.label, p) for r, t in _known.values() if (p := r()) is not None)]
    for name, tensor in copied:
        for other_name, other in others:
            if other is not tensor and _overlap(tensor, other):
                refuse(
                    f"{name!r} {list(tensor.shape)} lies in the memory of {other_name!r} {list(other.shape)}, and not row by "
                    "row; it would have to be copied, and no longer be tied to it. Let both be one nn.Parameter, which forward "
                    "uses in both places (transposed: nn.functional.linear(x, weight.t()))"
                )


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have elements in common. Columns of one matrix lie among each other, and have none."""
    memory = a.untyped_storage()
    if not memory.data_ptr() or memory.data_ptr() != b.untyped_storage().data_ptr():
        return False
    if a.dtype.itemsize != b.dtype.itemsize:
        return True
    seen = torch.zeros(memory.nbytes() // a.dtype.itemsize, dtype=torch.bool, device="cpu")
    # Of an expanded dimension the first place: torch does not write to the same element several times.
    shape = [size if stride else 1 for size, stride in zip(a.shape, a.stride(), strict=True)]
    seen.as_strided(shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(seen.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def _parameter_tensor(name: str, parameter: nn.Parameter) -> MLCTensor:
    known = _known.get(id(parameter))
    if known is not None and known[0]() is parameter and _memory(known[1]._cell) == parameter.data_ptr():
        return known[1]
    made = _over(parameter, name)
    key = id(parameter)
    _known[key] = weakref.ref(parameter, lambda _: _known.pop(key, None)), made
    return made


def _memory(cell: TensorState) -> int | None:
    value = cell.value if cell.value is not None else cell.host_view()
    return None if value is None else value.data_ptr()


@really
def _over(tensor: torch.Tensor, label: str) -> MLCTensor:
    """An ``MLCTensor`` over the memory of a parameter or buffer, in a shape and type that ML Compute has."""
    if not tensor.is_contiguous():
        tensor.data = tensor.detach().contiguous()
    value = tensor.detach()
    if value.dtype not in DATA_TYPES:
        value = value.reshape(-1).view(torch.uint8)  # kept and moved as bytes
    if value.dim() > MAX_DIMENSIONS:
        value = value.view(*value.shape[: MAX_DIMENSIONS - 1], -1)
    return MLCTensor.from_torch(value, label)


def _show(cell: TensorState, tensor: torch.Tensor) -> None:
    """Let the module's tensor follow the cell's memory."""
    cell.placed(writable=True)
    cell.show(tensor, _seen_as(tensor))


def _seen_as(tensor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    dtype, shape = tensor.dtype, tuple(tensor.shape)
    return lambda memory: (memory if memory.dtype == dtype else memory.view(dtype)).view(shape)
