"""``TorchOptimizer``: a ``torch.optim`` optimizer in the update phase of a training graph."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import Any

import torch

from mlc_torch.enums import MLCGradientClippingType, MLCRegularizationType
from mlc_torch.interop.torch_state import Names, saved_state, state_change
from mlc_torch.interop.torch_step import Step
from mlc_torch.interop.undo import Change
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private.lists import Tensors

_NEUTRAL = {
    "gradientRescale": 1.0,
    "appliesGradientClipping": False,
    "gradientClippingType": MLCGradientClippingType.byValue,
    "gradientClipMax": float("inf"),
    "gradientClipMin": float("-inf"),
    "maximumClippingNorm": float("inf"),
    "customGlobalNorm": 0.0,
    "regularizationType": MLCRegularizationType.none,
    "regularizationScale": 0.0,
}


class TorchOptimizer(MLCOptimizer):
    """``TorchOptimizer(torch.optim.AdamW(graph.to_module().parameters()))``: torch decides how weights change. Ours.

    The torch optimizer is built over the parameters of ``to_module()`` or of the modules in ``TorchLayer``s, in as many
    groups as wanted; parameters left out are not updated. Its settings and its learning-rate schedulers stay torch's.
    On the CPU a step that is interrupted, or fails, is undone: parameters, state and settings are copied before each.
    """

    timeStep = prop("Int")
    _replayable = False  # torch's optimizers decide on the host

    @prop("Float", settable=True)
    def learningRate(self):
        """That of the first group; setting it sets that of all groups."""
        return float(self._optimizer.param_groups[0]["lr"])

    @learningRate.writes
    def _set_learning_rate(self, learningRate):
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(learningRate)
            else:
                group["lr"] = learningRate

    def _next_step(self) -> int:
        return self._timeStep

    def _step_taken(self, following: int) -> None:
        self.__dict__["_timeStep"] = following  # past the look at the name: one is made in every step

    @declare("init(_ optimizer: Any)", ours=True)
    def _create(cls, optimizer):
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"TorchOptimizer expects a torch.optim.Optimizer, got {type(optimizer).__name__}")
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            refuse(
                f"{type(optimizer).__name__} calls the network several times in a step; a training graph runs it once"
            )
        if not all("lr" in group for group in optimizer.param_groups):
            refuse(
                f"{type(optimizer).__name__} has groups without a learning rate, which every MLCOptimizer has; give it a default "
                "for 'lr', as torch's own optimizers and schedulers do"
            )
        return cls._make(optimizer=optimizer, step=Step(optimizer), timeStep=1, **_NEUTRAL)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The torch optimizer, for schedulers and the like."""
        return self._optimizer

    def __repr__(self) -> str:
        return f"TorchOptimizer({type(self._optimizer).__name__}, learningRate={self.learningRate:g})"

    def _state_names(self):
        return []  # torch's optimizer keeps its own

    def _scalars(self, step):
        return {}

    def _configuration(self):
        """In words that say the same in another process."""
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self._optimizer.param_groups]
        return type(self._optimizer).__name__, repr(groups), self._appliesGradientClipping

    def _update(self, params: Tensors, grads: Tensors, *_: Any, **__: Any) -> None:
        """Hand each torch parameter the gradient of the memory it looks into, and let torch step."""
        known = {p.data_ptr(): p for group in self._optimizer.param_groups for p in group["params"]}
        pairs = [(known[v.data_ptr()], g) for v, g in zip(params, grads, strict=True) if v.data_ptr() in known]
        if not pairs:
            refuse(
                "the torch optimizer holds none of the graph's parameters; build it over graph.to_module().parameters()"
            )
        self._step.make(pairs)

    def _before_update(self, params: Tensors) -> Step:
        self._follow()
        self._step.begin()
        return self._step

    def _was_made(self, params: Tensors, before: Step) -> bool:
        return before.end()

    def _follow(self) -> None:
        """State stays where a parameter was; once the graph was compiled for another device it moves there too."""
        for p, state in self._optimizer.state.items():
            if any(isinstance(v, torch.Tensor) and v.dim() and v.device != p.device for v in state.values()):
                self._optimizer.load_state_dict(self._optimizer.state_dict())
                return

    # In checkpoints

    def saved_state(self, names: Names = MappingProxyType({})) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The state as tensors, and what is said about them; ``names`` are the graph's, of its parameters."""
        return saved_state(self._optimizer, names)

    def state_change(self, tensors: dict[str, torch.Tensor], said: Any, names: Names) -> Change:
        """Checks a saved state; gives what takes it up."""
        return state_change(self._optimizer, tensors, said, names)
