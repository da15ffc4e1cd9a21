"""Reading gradients out of a training graph, and putting gradients in."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch

from mlc_torch.device import queueing
from mlc_torch.engine.session import Session
from mlc_torch.engine.standing_results import lasting
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.graph.locks import locked
from mlc_torch.layers.base import MLCLayer
from mlc_torch.layers.sharing import UNKNOWN, Axis
from mlc_torch.nodes.feeding import refuse_unknown
from mlc_torch.nodes.node import Node, producers
from mlc_torch.refusals import refuse
from mlc_torch.running.declaring import DeclaringGraph
from mlc_torch.running.executable import ExecutableGraph
from mlc_torch.running.fit_arguments import shows_usage
from mlc_torch.running.gradient_hooks import GradientHook, checked_hook
from mlc_torch.running.linked_gradients import linked_gradients
from mlc_torch.running.results import into_full
from mlc_torch.running.signatures import TENSORS
from mlc_torch.running.state import GradientState
from mlc_torch.spelling import declare
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.state import host_bytes


class GradientGraph(ExecutableGraph):
    """The members of a training graph that deal with gradients."""

    _steering: GradientState
    _linked: Sequence[GradientGraph]

    # Asking

    @declare(
        "gradientData(forParameter parameter: MLCTensor, layer: MLCLayer) -> Data?", "gradientDataForParameter:layer:"
    )
    @locked
    def _gradient_data(self, parameter, layer):
        """The parameter's gradient as bytes in its own layout, after separate forward and gradient calls."""
        session = self._separate_session()
        if all(node.layer is not layer for node in self._all_nodes()):
            refuse(f"layer {layer.label!r} is not in this graph")
        if all(use.cell is not parameter._cell for use in layer._parameter_uses):
            refuse(f"tensor {parameter.label!r} is no parameter of layer {layer.label!r}")
        for trained, gradient in zip(session.plan.trained, session.gradients, strict=True):
            if trained.cell is parameter._cell:
                if gradient is None:
                    refuse(f"no loss depends on {parameter.label!r}, or its gradient is stopped")
                return host_bytes(gradient)
        if any(cell is parameter._cell for cell in self._steering.stopped):
            refuse(f"stopGradient was called for {parameter.label!r}, so it has no gradient")
        if all(not node.updates for node in self._all_nodes() if node.layer is layer):
            refuse(f"layer {layer.label!r} was added with disableUpdate, so {parameter.label!r} has no gradient")
        if any(use.cell is parameter._cell and not use.torch.requires_grad for use in layer._parameter_uses):
            refuse(
                f"requires_grad is False for {parameter.label!r} in the module of layer {layer.label!r}, so it has no gradient"
            )
        refuse(
            f"{parameter.label!r} was not trained when the graph was compiled (requires_grad was False, or layer {layer.label!r} "
            "was added later); compile again"
        )

    def _separate_session(self) -> Session:
        session = self._runs.last
        if session is None or not session.phase.has_gradients:
            refuse("no gradient yet; call executeForward and executeGradient first")
        if not session.separate:
            refuse("execute keeps no gradients; call executeForward and executeGradient separately to read them")
        return session

    @declare("gradientTensor(forInput input: MLCTensor) -> MLCTensor?", "gradientTensorForInput:")
    @locked
    def _gradient_of_input(self, input):
        """The gradient of an input, which needs the compile option ``computeAllGradients``, or of a tensor that
        ``setTrainingTensorParameters`` named."""
        with self._in_peace():
            return self._gradient_at(input)

    def _gradient_at(self, input: MLCTensor) -> MLCTensor:
        if id(input._cell) in self._steering.trained_cells:
            return self._gradient_tensor(input._cell, self._separate_session())
        if all(cell is not input._cell for cell in self._declared.inputs.values()):
            refuse(f"tensor {input.label!r} is no input of this graph, nor one that is trained")
        if self._compiled is None or not self._compiled.options & Compile.computeAllGradients:
            refuse("input gradients need the compile option computeAllGradients")
        if self._runs.last is None or not self._runs.last.phase.has_gradients:
            refuse("no gradient yet; call executeForward and executeGradient first")
        return self._gradient_tensor(input._cell, self._runs.last)

    @declare("sourceGradientTensors(for layer: MLCLayer) -> [MLCTensor]", "sourceGradientTensorsForLayer:")
    def _source_gradients(self, layer):
        """The gradients of a layer's sources, which ``executeGradient`` fills."""
        return self._gradients_at(layer, lambda node: node.sources)

    @declare("resultGradientTensors(for layer: MLCLayer) -> [MLCTensor]", "resultGradientTensorsForLayer:")
    def _result_gradients(self, layer):
        """The gradients of a layer's results, which ``executeGradient`` fills."""
        return self._gradients_at(layer, lambda node: node.results)

    @locked
    def _gradients_at(self, layer: MLCLayer, cells_of: Callable[[Node], Sequence[TensorState]]) -> list[MLCTensor]:
        """A fresh tensor for each; from the first time it is asked for, each gradient phase keeps it.

        A tensor that is asked for before there is a gradient gets that of the next gradient phase.
        """
        with self._in_peace():
            return self._handed_out([c for node in self._nodes_of(layer) for c in cells_of(node)])

    def _handed_out(self, cells: list[TensorState]) -> list[MLCTensor]:
        unknown = [c for c in cells if id(c) not in self._steering.watched]
        if unknown:
            self._steering.watched |= {id(c): c for c in unknown}
            self._changed()
        if self._runs.last is not None:
            self._add_late(self._runs.last, cells)
        made = [self._gradient_tensor(c, self._runs.last) for c in cells]
        self._steering.pending = [entry for entry in self._steering.pending if entry[1]() is not None]
        self._steering.pending += [
            (c, weakref.ref(t)) for c, t in zip(cells, made, strict=True) if t._cell.value is None
        ]
        return made

    @declare(f"addOutputs(_ outputs: {TENSORS}) -> Bool", "addOutputs:")
    @locked
    def _add_outputs(self, outputs):
        """Name tensors that are to be readable after a run; gradient tensors among them are filled by every gradient phase."""
        for tensor in outputs.values():
            if tensor._cell.gradient_of is not None:
                self._steering.pending.append((tensor._cell.gradient_of, partial(_kept, tensor)))
        return super()._add_outputs(outputs)

    def _fill_gradient_tensors(self, session: Session) -> None:
        """Tensors that were handed out before there was a gradient, and those that are outputs."""
        outputs = {id(cell) for cell in self._declared.outputs.values()}
        pending = [(*entry, tensor) for entry in self._steering.pending if (tensor := entry[1]()) is not None]
        waiting = [(cell, tensor) for cell, _, tensor in pending]
        self._steering.pending = [(cell, kept) for cell, kept, tensor in pending if id(tensor._cell) in outputs]
        self._add_late(session, [cell for cell, _ in waiting])
        for cell, tensor in waiting:
            value = self._gradient_value(cell, session)
            if value is not None:
                tensor._cell.publish(value, self._device)

    def _show_gradients(self, session: Session) -> None:
        """``weight.grad`` of modules that the program made itself, as after ``backward``; not added to what is there.

        Each in memory of its own: a program may clip them in place, one after the other. (On a GPU they are copies, anyway.)
        """
        gradients = session.gradients = list(session.gradients)
        places = Counter(gradient.data_ptr() for gradient in gradients if gradient is not None)
        for place, parameter in self._steering.given:
            gradient = gradients[place]
            if gradient is None:
                parameter.grad = None
                continue
            if not gradient.is_cuda and (places[gradient.data_ptr()] > 1 or 0 in gradient.stride()):
                gradients[place] = gradient = gradient.clone(memory_format=torch.contiguous_format)
            seen = gradient.detach().view(parameter.shape)
            parameter.grad = lasting(seen) if gradient.is_cuda else seen  # on the CPU none of a given module's stands

    def _add_late(self, session: Session, cells: Sequence[TensorState]) -> None:
        """Gradients that were asked for when the forward pass was under way or over."""
        slots, wanted = session.plan.slots, session.plan.wanted
        known = [c for c in cells if id(c) in slots and c.dtype.is_floating_point]
        late = [slots[id(c)] for c in known if slots[id(c)] not in wanted]
        if late and session.phase.has_gradients:
            session.gradients_again(late)

    def _gradient_tensor(self, cell: TensorState, session: Session | None) -> MLCTensor:
        """A new tensor that holds the gradient of ``cell``: zeros where nothing depends on it, no data before any."""
        made = TensorState(cell.descriptor)
        made.label, made.gradient_of = f"gradient of {cell.label}", cell
        value = self._gradient_value(cell, session) if session is not None else None
        if value is not None:
            made.publish(value, self._device)
        return MLCTensor._of(made)

    def _gradient_value(self, cell: TensorState, session: Session) -> torch.Tensor | None:
        """The gradient of ``cell`` for a program to keep."""
        if session.phase.has_gradients:
            for trained, gradient in zip(session.plan.trained, session.gradients, strict=False):
                if trained.cell is cell:
                    zeros = torch.zeros(cell.shape, dtype=cell.dtype, device=session.plan.device)
                    return zeros if gradient is None else lasting(gradient.reshape(cell.shape))
        slot = session.plan.slots.get(id(cell))
        if not session.phase.has_gradients or slot is None or slot not in session.plan.wanted:
            return None
        value = session.gradient_of(slot)
        if value is None:
            return torch.zeros(cell.shape, dtype=cell.dtype, device=session.plan.device)
        return lasting(value) if tuple(value.shape) == cell.shape else into_full(cell, value)

    # Steering

    @declare("allocateUserGradient(for tensor: MLCTensor) -> MLCTensor?", "allocateUserGradientForTensor:")
    @locked
    def _allocate_user_gradient(self, tensor):
        """A tensor to bind a gradient to that is added to the graph's own gradient of a result."""
        cell = tensor._cell
        if id(cell) not in producers(self._all_nodes()):
            refuse(f"tensor {tensor.label!r} is not the result of a node of this graph")
        known = self._steering.from_user.get(id(cell))
        if known is None:
            made = TensorState(cell.descriptor)
            made.label = f"user gradient of {cell.label}"
            known = self._steering.from_user[id(cell)] = (cell, made)
            self._changed()
        return MLCTensor._of(known[1])

    def _sample_axes(self, asking: tuple[DeclaringGraph, ...] = ()) -> dict[int, Axis]:
        """As for every graph; a gradient from outside is cut as the result that it belongs to."""
        axes = super()._sample_axes(asking)
        for result, given in self._steering.from_user.values():
            axes[id(given)] = axes.get(id(result))
        return axes

    def _injected(self, session: Session, full: int, batch: int, number: int) -> list[torch.Tensor]:
        """The gradients from outside: what users bound, and what linked graphs computed."""
        gradients, device = [], session.plan.device
        for slot in session.given:
            cell = session.plan.cells[slot]
            axis = self._sample_axes().get(id(cell)) if batch != full else None
            if axis == UNKNOWN:
                refuse_unknown(f"gradient of the result {cell.label!r}", cell, batch)
            parts = []
            user = self._steering.from_user.get(id(cell))
            if user is not None:
                value = user[1].current()
                if value is None:
                    refuse(f"the user gradient of {cell.label!r} holds no data; bind some with bindAndWriteData")
                parts.append(value)
            if all(cell is not c for c in self._steering.stopped):
                parts += linked_gradients(self, cell, number, bool(session.plan.losses))
            with queueing(device):
                parts = parts or [torch.zeros(cell.shape, dtype=cell.dtype, device=device)]
                total = reduce(torch.add, (_cut(cell, part.to(device), axis, batch) for part in parts))
                if session.separate and len(parts) == 1 and parts[0].device == total.device:
                    total = total.clone()  # it is the program's, who may write into it before the update reads it
            gradients.append(total)
        return gradients

    @declare("stopGradient(for tensors: [MLCTensor]) -> Bool", "stopGradientForTensors:")
    @locked
    def _stop_gradient(self, tensors):
        """No gradient flows back through these tensors, from the next compile on."""
        self._steering.to_stop += [t._cell for t in tensors]
        return True

    def _stopped_cells(self) -> set[int]:
        return {id(c) for c in self._steering.to_stop}

    @shows_usage("graph.register_gradient_hook(h, hook), with a tensor h that a node computes")
    @locked
    def register_gradient_hook(self, tensor: MLCTensor, hook: Callable[[torch.Tensor], torch.Tensor | None]) -> Any:
        """Call ``hook`` with the tensor's gradient in each gradient phase; what it returns, if anything, replaces it.

        Gives an object whose ``remove()`` takes the hook away. Ours.
        """
        called = checked_hook(tensor, hook)
        if id(tensor._cell) not in producers(self._all_nodes()):
            raise ValueError(f"{tensor!r} is not the result of a node of this graph")
        entry = (tensor._cell, called)
        self._steering.hooks.append(entry)
        self._changed()
        return GradientHook(tensor.label, partial(self._remove_hook, entry))

    @locked
    def _remove_hook(self, entry: Any) -> None:
        if entry in self._steering.hooks:
            self._steering.hooks.remove(entry)
            self._changed()


def _cut(cell: TensorState, gradient: torch.Tensor, axis: Axis, batch: int) -> torch.Tensor:
    """That of the samples that ran; 0 for those that a linked graph left out, since its losses do not depend on them."""
    if gradient.shape[axis] < batch if axis is not None else tuple(gradient.shape) != cell.shape:
        gradient = into_full(cell, gradient)
    return gradient if axis is None else gradient.narrow(axis, 0, batch)


def _kept(tensor: MLCTensor) -> MLCTensor:
    """Stands for a weak reference where the tensor is to stay."""
    return tensor
