"""Captures a plan ahead of time: forward and backward as two straight lists of ATen operations.

The modules run once under autograd on copies of their tensors, and everything torch does is written down. What was done
before the gradient began is the forward pass, the rest the backward pass. At run time autograd is not involved.
(torch's own tracer would do, but loading it takes seconds, and a small graph should compile in a fraction of one.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch.engine.as_written import uncompiled
from mlc_torch.engine.following import Next, what_follows
from mlc_torch.engine.gear import Tensors
from mlc_torch.engine.images import call_over_images
from mlc_torch.engine.layouts import called
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import lent_values, run_forward, run_gradient, set_training
from mlc_torch.engine.plan import Plan, Step
from mlc_torch.engine.undo import way_back
from mlc_torch.engine.views import PLAINER, UNSAFE, drop_unread, share_copies
from mlc_torch.layers.noise import Noise
from mlc_torch.torch_private.modes import pop_mode, push_mode


class NotRecordable(Exception):
    """The plan does something whose course depends on values; it has to be run module by module."""


@dataclass(frozen=True)
class Draw:
    """A dropout mask that the forward pass needs; it is drawn beforehand and comes in from outside."""

    noise: Noise
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def mask(self) -> torch.Tensor:
        return self.noise.mask(self.shape, self.dtype, self.device)


@dataclass(frozen=True)
class Recording:
    """What was written down: one graph, and which of its nodes belong to which phase."""

    graph: fx.Graph
    constants: dict[str, torch.Tensor]
    placeholders: dict[str, list[fx.Node]]
    forward: list[fx.Node]
    backward: list[fx.Node]
    readable: list[fx.Node]
    lent: list[int]
    """Which of the readable values are what was fed, and must be copied to be kept."""
    gradients: list[fx.Node | None]
    wanted: list[fx.Node | None]
    draws: list[Draw]
    written: Sequence[int] = ()
    """Which of the feeds and constants a module of the program writes into: a copy of them, then."""


def record(plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode) -> Recording:
    """Run the plan once and write down what torch does."""
    training = set_training(plan, mode.trains)
    go_back = way_back(plan, training)
    try:
        return _recorded(plan, feeds, constants, injected, mode, training)
    except BaseException:
        go_back()
        raise


def _recorded(
    plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode, training: set_training
) -> Recording:
    recorder = _Recorder()
    with torch.no_grad():
        given = {
            "parameters": [p.detach().clone() for p in plan.parameters],
            "buffers": [b.detach().clone() for b in plan.buffers],
            "feeds": [f.detach().clone() for f in feeds],
            "constants": [c.detach().clone() for c in constants],
            "injected": [g.detach().clone() for g in injected],
        }
    placeholders = {kind: [recorder.placeholder(t) for t in tensors] for kind, tensors in given.items()}
    for node in placeholders["parameters"]:
        node.meta["stands"] = True  # the same tensor in every pass, though its memory may move
    placeholders["masks"] = []
    draws: list[Draw] = []

    def intercept(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        with recorder.paused():
            mask = torch.ones(shape, dtype=dtype, device=device)
        placeholders["masks"].append(recorder.placeholder(mask))
        draws.append(Draw(noise, shape, dtype, device))
        return mask

    trained = {id(leaf) for leaf in plan.leaves}
    stand_in: dict[int, torch.Tensor] = {}
    for original, copy in zip(plan.parameters, given["parameters"], strict=True):
        stand_in[id(original)] = copy.requires_grad_(mode.differentiates and id(original) in trained)
    stand_in |= dict(zip(map(id, plan.buffers), given["buffers"], strict=True))
    noises = {id(n): n for step in plan.steps for n in step.noises}.values()
    with ExitStack() as stack:
        stack.enter_context(training)
        for noise in noises:
            stack.enter_context(noise.intercepted(intercept))
        stack.enter_context(torch.set_grad_enabled(mode.differentiates))
        stack.enter_context(uncompiled(plan))
        stack.enter_context(recorder)
        call = functional(stand_in, plan.device, what_follows(plan, mode.differentiates))
        env = run_forward(plan, given["feeds"], given["constants"], call=call)
        readable = [recorder.node_of(env[slot]) for slot in plan.readable]
        forward = list(recorder.graph.nodes)
        values: list[Any] = [env[slot] for slot in plan.readable]
        lent = lent_values(values, [t for part in ("feeds", "constants", "parameters", "buffers") for t in given[part]])
        gradients: list[Any] = []
        wanted: list[Any] = []
        if mode.differentiates:
            leaves = [stand_in[id(leaf)] for leaf in plan.leaves]
            gradients, wanted = run_gradient(plan, env, given["injected"], leaves)
    outputs: list[list[Any]] = [readable, *([recorder.node_of(g) for g in part] for part in (gradients, wanted))]
    recorder.graph.output(outputs)
    share_copies(recorder.graph, forward)
    drop_unread(recorder.graph)
    ahead, calls = set(forward), [n for n in recorder.graph.nodes if n.op in ("call_function", "get_attr")]
    return Recording(
        graph=recorder.graph,
        constants=recorder.constants,
        placeholders=placeholders,
        forward=[n for n in calls if n in ahead],
        backward=[n for n in calls if n not in ahead],
        readable=outputs[0],
        lent=lent,
        written=[n for n, copy in enumerate([*given["feeds"], *given["constants"]]) if copy._version],
        gradients=outputs[1],
        wanted=outputs[2],
        draws=draws,
    )


def functional(
    stand_in: dict[int, torch.Tensor], device: torch.device, following: Mapping[Step, Next]
) -> Callable[[Step, list[torch.Tensor]], Any]:
    """Calls a module with other tensors in place of its own. ``following``: what becomes of convolutions' results."""

    def call(step: Step, sources: list[torch.Tensor]) -> Any:
        own = {
            f"{path}.{name}" if path else name: stand_in[id(tensor)]
            for path, module in step.module.named_modules()
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
            if tensor is not None
        }
        if arranged:
            return call_over_images(step.module, own, sources, following.get(step, Next.OTHER))
        return called(step.module, own, sources)

    arranged = device.type == "cpu"
    return call


_UNFIT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded}
_KERNEL_MATTERS = {
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.mm.default,
}
"""Operations whose kernel is chosen afterwards, by their shapes."""
MAKERS = {
    torch.ops.aten.new_ones.default,
    torch.ops.aten.new_zeros.default,
    torch.ops.aten.new_full.default,
    torch.ops.aten.ones_like.default,
    torch.ops.aten.zeros_like.default,
    torch.ops.aten.full_like.default,
    torch.ops.aten.ones.default,
    torch.ops.aten.full.default,
    torch.ops.aten.arange.default,
    torch.ops.aten.arange.start,
}
"""Operations that give the same at every run, whatever tensor they are asked of."""
_FEW = 2**16
"""A constant of at most this many elements is kept, rather than made again at every run."""
_SAME = {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}


class _Recorder(TorchDispatchMode):
    """Writes every operation into an fx graph.

    A tensor is known by where it lies and how: autograd hands saved tensors back as new objects over the same memory.
    Nothing is let go while recording, so that no address is used twice.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch loads its compiler, for seconds, to keep it away from a mode that compiled code never meets."""
        return False

    def __enter__(self) -> _Recorder:
        push_mode(self)
        return self

    def __exit__(self, *_: object) -> None:
        pop_mode()

    def __init__(self) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self._nodes: dict[Any, fx.Node] = {}
        self._held: list[Any] = []
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def placeholder(self, tensor: torch.Tensor) -> fx.Node:
        node = self.graph.placeholder(f"in{len(self._held)}")
        self._know(tensor, node)
        return node

    def node_of(self, tensor: torch.Tensor | None) -> fx.Node | None:
        if tensor is None:
            return None
        node = self._nodes.get(_where(tensor))
        if node is None:
            # A tensor that no recorded operation made: a module's own constant.
            name = f"constant{len(self.constants)}"
            self.constants[name] = tensor.detach()
            node = self.graph.create_node("get_attr", name)
            self._know(tensor, node)
        return node

    def _know(self, tensor: torch.Tensor, node: fx.Node) -> None:
        if tensor.is_sparse:
            raise NotRecordable("a module computes with sparse tensors (nn.Embedding(sparse=True) does)")
        self._nodes[_where(tensor)] = node
        node.meta.setdefault("lies", (tuple(tensor.shape), tensor.stride(), tensor.dtype))
        self._held.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        if _UNFIT & set(func.tags) and not _draws_nothing(func, args, kwargs):
            raise NotRecordable(f"{func} gives what only its values, or chance, decide")
        nodes = [fx.node.map_aggregate(a, self._argument) for a in args]
        named = {k: fx.node.map_aggregate(v, self._argument) for k, v in kwargs.items()}
        made = func(*args, **kwargs)
        if func in _SAME or _looks_the_same(func, args, made):
            self._know(made, nodes[0])
            return made
        node = self.graph.call_function(PLAINER.get(func, func), tuple(nodes), named)
        if func in MAKERS and made.numel() <= _FEW:
            node.meta["made"] = made
        if func in _KERNEL_MATTERS:
            node.meta["strides"] = _strides(made)
            node.meta["shapes"] = [tuple(a.shape) if isinstance(a, torch.Tensor) else None for a in args]
            node.meta["dtype"] = args[1].dtype
        if isinstance(made, torch.Tensor):
            self._know(made, node)
        elif isinstance(made, (tuple, list)):
            self._know_parts(made, node)
        elif made is not None and any(isinstance(a, fx.Node) for a in node.all_input_nodes):
            raise NotRecordable(f"{func} gives a {type(made).__name__}")
        return made

    def _know_parts(self, made: Any, node: fx.Node) -> None:
        """Those of several results; cuDNN's LSTM has a list among them."""
        for number, part in enumerate(made):
            if isinstance(part, torch.Tensor):
                self._know(part, self.graph.call_function(operator.getitem, (node, number)))
            elif isinstance(part, (tuple, list)) and part:
                self._know_parts(part, self.graph.call_function(operator.getitem, (node, number)))

    def _argument(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, torch.Tensor) else value


def _draws_nothing(func: Any, args: Any, kwargs: Any) -> bool:
    """Attention kernels count as random because of their dropout, which is never theirs here."""
    names = [a.name for a in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    rates = [name for name in ("dropout_p", "dropout") if name in names]
    return bool(rates) and not any(given.get(name, 0.0) for name in rates)


def _looks_the_same(func: Any, args: Any, made: Any) -> bool:
    """Whether a view shows what it was given, unchanged: torch makes several for a product of matrices."""
    if not (func.is_view or func in UNSAFE) or not isinstance(made, torch.Tensor):
        return False
    return _where(made) == _where(args[0])


def _strides(made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return tuple(_strides(part) for part in made)
    return made.stride() if isinstance(made, torch.Tensor) else None


def _where(tensor: torch.Tensor) -> Any:
    if tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device
