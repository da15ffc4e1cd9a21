"""The compiled gear: TorchInductor's code in place of the planned functions, still as separate phases. Opt-in.

Building it takes seconds to minutes, of which torch's own cache remembers the result; it pays most where a graph has
many small layers.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.as_written import uncompiled
from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.own_kernels import decompositions, keep_own_kernels
from mlc_torch.engine.plain import lent_values, run_forward, run_gradient, set_training
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.split_joint import split_joint
from mlc_torch.engine.trace import Draw, functional, record
from mlc_torch.engine.undo import way_back
from mlc_torch.engine.updater import Update, Updater
from mlc_torch.engine.views import is_view
from mlc_torch.refusals import in_one_line, log, pass_on_signals
from mlc_torch.torch_private.compiling import compile_alone, compile_graph
from mlc_torch.torch_private.modes import written_out

_PRODUCTS = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default, torch.ops.aten.convolution.default}


def has_something_to_fuse(plan: Plan, feeds: Tensors, constants: Tensors) -> bool:
    """Whether two operations of an inference stand side by side that one kernel could do.

    Where all of them stand between products, Inductor's code is torch's kernels with more around them.
    """
    try:
        recording = record(plan, feeds, constants, [], Mode.infer)
    except Exception as error:  # noqa: BLE001 - whatever the recorder cannot take, Inductor may
        pass_on_signals(error)
        return True
    fusible = {
        n for n in recording.forward if n.op == "call_function" and n.target not in _PRODUCTS and _made_by(n) is n
    }
    return any(_made_by(source) in fusible for node in fusible for source in node.all_input_nodes)


def _made_by(node: fx.Node) -> fx.Node:
    """The operation that computed what a node looks at, or takes out of several results."""
    looks = is_view(node) or node.target is operator.getitem
    return _made_by(node.all_input_nodes[0]) if looks else node


class Compiled:
    """Runs the phases of one plan for one set of shapes and in one mode."""

    name = "compiled"

    def __init__(self, plan: Plan, feeds: Tensors, constants: Tensors, injected: Tensors, mode: Mode) -> None:
        self.plan, self.why, self.mode = plan, "", mode
        log.info("TorchInductor compiles %d layers; the first time takes a while", len(plan.steps))
        self._draws = _draws(plan, feeds, constants, mode)
        self._standing = [*(p.detach() for p in plan.parameters), *(b.detach() for b in plan.buffers)]
        self._readable = len(plan.readable)
        masks = [torch.ones(d.shape, dtype=d.dtype, device=d.device) for d in self._draws]
        given = [*self._standing, *feeds, *constants, *masks, *injected]
        forward = compile_alone(partial(self._compile, given, len(feeds), len(constants), len(injected)))
        made = self._forward(given[: len(given) - len(injected)])
        _check_layout(forward, made)
        self._lent = lent_values(made[: self._readable], [*self._standing, *feeds, *constants])
        self._saved: list[torch.Tensor] | None = None
        log.info("TorchInductor is done")

    def _compile(self, given: Tensors, fed_count: int, constant_count: int, injected_count: int) -> fx.GraphModule:
        """Make the functions of both phases; gives the graph of the first."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch tells its own developers
            joint = _functional_graph(self.plan, given, fed_count, constant_count, self._draws, self.mode)
            keep_own_kernels(joint.graph, self.plan.device)
            written = _only_changed(joint, len(self._standing), self._readable)
            self._written = [self._standing[i] for i in written]
            self._kept = self._readable + len(written)
            forward, backward, self._needed = split_joint(joint, self._kept, injected_count, written)
            self._forward = compile_graph(forward)
            self._backward = compile_graph(backward) if self.mode.differentiates else None
        return forward

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        self._saved = None  # the last pass's memory is free for this one
        given = [*self._standing, *feeds, *constants, *(d.mask() for d in self._draws)]
        saved = [given[i] for i in self._needed]
        made = self._forward(given)
        values = list(made[: self._readable])
        if self._backward is not None:
            saved += made[self._kept :]
            self._saved = saved
        for memory, new in zip(self._written, made[self._readable : self._kept], strict=True):
            memory.copy_(new)
        for number in self._lent:
            values[number] = values[number].clone()
        return values

    def release(self) -> None:
        """Let go of what the last forward pass kept."""
        self._saved = None

    def gradient(self, injected: Tensors) -> Gradients:
        assert self._saved is not None and self._backward is not None
        saved, self._saved = self._saved, None
        saved += injected
        made = list(self._backward(saved))
        count = len(self.plan.trained)
        return made[:count], made[count:]

    def update_of(self, updater: Updater, gradients: Sequence[torch.Tensor | None]) -> Update | None:
        """The update by gradients like these, compiled too; ``None`` where that does not succeed."""
        try:
            return compiled_update(updater, gradients)
        except Exception as error:  # noqa: BLE001 - whatever Inductor cannot take, the optimizer's own kernels can
            pass_on_signals(error)
            log.warning("TorchInductor could not compile the update: %s; it runs without", in_one_line(error))
            return None


def compiled_update(updater: Updater, gradients: Sequence[torch.Tensor | None]) -> Update:
    """An update of the same tensors as ``updater.apply(gradients)``, as one compiled function of gradients like these.

    For CUDA: on the CPU torch's fused kernels are faster than what Inductor makes of the formula.
    """
    params, grads, states, numbers = updater.chosen_for(gradients)
    written = [*params, *(t for state in states for t in state)]
    given = [*written, *grads, *numbers.values()]

    def functional_update(*flat: torch.Tensor) -> list[torch.Tensor]:
        moving, rest = [t.clone() for t in flat[: len(written)]], list(flat[len(written) :])
        count = len(params)
        own = [moving[start : start + count] for start in range(0, len(moving), count)]
        with written_out():
            named = dict(zip(numbers, rest[count:], strict=True))
            updater.optimizer._update(own[0], rest[:count], own[1:], named)
        return moving

    def made() -> Callable[[list[torch.Tensor]], Sequence[Any]]:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # what torch tells its own developers
            graph = _traced(torch.func.functionalize(functional_update, remove="mutations"), given, updater.device)
            return compile_graph(_in_place(graph, len(written)))

    compiled = compile_alone(made)

    def update(found: Sequence[torch.Tensor | None]) -> None:
        _, grads, _, _ = updater.chosen_for(found)
        compiled([*written, *grads, *numbers.values()])

    return update


def _in_place(graph: fx.GraphModule, count: int) -> fx.GraphModule:
    """The graph with its results written into its first ``count`` inputs, the way Inductor expects writes: at the end."""
    nodes = list(graph.graph.nodes)
    (output,), inputs = [n for n in nodes if n.op == "output"], [n for n in nodes if n.op == "placeholder"]
    with graph.graph.inserting_before(output):
        for place, made in zip(inputs[:count], output.args[0], strict=True):
            copy = graph.graph.call_function(torch.ops.aten.copy_.default, (place, made))
            copy.meta["val"] = place.meta["val"]
    output.args = ([],)
    graph.recompile()
    return graph


def _check_layout(graph: fx.GraphModule, made: Sequence[Any]) -> None:
    """The other phase was compiled for these strides, and reads memory as they say without looking."""
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    for node, value in zip(output.args[0], made, strict=True):
        if isinstance(node, fx.Node) and _steps(value) != _steps(node.meta["val"]):
            raise RuntimeError(f"a result of {list(value.shape)} came with other strides than were traced")


def _steps(tensor: torch.Tensor) -> list[int]:
    """The strides that count: a dimension of one element has none."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


_COPIES = (torch.ops.aten.clone.default, torch.ops.aten.alias.default, torch.ops.aten.detach.default)


def _only_changed(joint: fx.GraphModule, standing: int, readable: int) -> list[int]:
    """Of the results that are the new values of parameters and buffers, the first ``standing`` inputs, drop those that are the
    old ones. Gives the inputs that change.

    What torch writes into inputs at the end goes, too: results say it, and what a pass was fed stays the caller's.
    """
    nodes = list(joint.graph.nodes)
    placeholders, output = [n for n in nodes if n.op == "placeholder"], nodes[-1]
    for node in nodes:
        if node.target is torch.ops.aten.copy_.default and node.args[0] in placeholders and not node.users:
            joint.graph.erase_node(node)
    given: Any = output.args[0]
    moving = dict(zip(range(standing), given[readable:], strict=False))
    for number, node in moving.items():
        while isinstance(node, fx.Node) and node.target in _COPIES:
            node = node.args[0]
        moving[number] = None if node is placeholders[number] else moving[number]
    changed = [number for number, node in moving.items() if node is not None]
    output.args = ([*given[:readable], *(moving[n] for n in changed), *given[readable + len(moving) :]],)
    joint.graph.eliminate_dead_code()
    return changed


def _draws(plan: Plan, feeds: Tensors, constants: Tensors, mode: Mode) -> list[Draw]:
    """The dropout masks of a pass, found by recording its forward half."""
    if not mode.trains or not any(step.noises for step in plan.steps):
        return []
    return record(plan, feeds, constants, [], Mode.train_without_gradient).draws


def _functional_graph(
    plan: Plan,
    given: Tensors,
    fed_count: int,
    constant_count: int,
    draws: Sequence[Draw],
    mode: Mode,
) -> fx.GraphModule:
    """Forward and gradient as one graph in which nothing is written in place: new statistics are results, and so are
    parameters that a layer writes into, as an embedding does that shortens its rows."""
    trained = {id(leaf) for leaf in plan.leaves}

    def joint(*flat: torch.Tensor) -> list[Any]:
        rest = list(flat)
        params, buffers, fed, constant, masks = (
            [rest.pop(0) for _ in range(n)]
            for n in (len(plan.parameters), len(plan.buffers), fed_count, constant_count, len(draws))
        )
        local = [
            p.detach().requires_grad_(mode.differentiates and id(own) in trained)
            for p, own in zip(params, plan.parameters, strict=True)
        ]
        moving = [b.clone() for b in buffers]
        stand_in = dict(zip(map(id, plan.parameters), local, strict=True))
        stand_in |= dict(zip(map(id, plan.buffers), moving, strict=True))
        with ExitStack() as stack:
            stack.enter_context(uncompiled(plan))
            stack.enter_context(torch.set_grad_enabled(mode.differentiates))
            for noise in {id(d.noise): d.noise for d in draws}.values():
                own_masks = [m for d, m in zip(draws, masks, strict=True) if d.noise is noise]
                stack.enter_context(noise.fed(own_masks))
            env = run_forward(plan, fed, constant, call=functional(stand_in, plan.device, {}))
        made = [*(env[slot] for slot in plan.readable), *(p.detach() for p in local), *moving]
        if not mode.differentiates:
            return made
        gradients, wanted = run_gradient(plan, env, rest, [stand_in[id(leaf)] for leaf in plan.leaves])
        return [*made, *gradients, *wanted]

    training = set_training(plan, mode.trains)
    go_back = way_back(plan, training)
    try:
        with training, written_out():
            # Autograd cannot be traced through functionalize, so what is written in place is turned round afterwards.
            traced = _traced(joint, given, plan.device)
            return _traced(torch.func.functionalize(traced, remove="mutations"), given, plan.device)
    except BaseException as error:
        go_back()
        # The gradient of cuDNN's LSTM has no shapes without data, and torch asks cuDNN for them in vain.
        if any("_cudnn_rnn" in str(why) for why in (error, error.__cause__, error.__context__)):
            raise RuntimeError("it cannot trace cuDNN's LSTM") from error
        raise


def _traced(function: Callable[..., Any], given: Tensors, device: torch.device) -> fx.GraphModule:
    from torch._inductor import lowering  # noqa: F401 - decompositions refer to it without importing it
    from torch._inductor.decomposition import select_decomp_table

    from mlc_torch.torch_private.tracer import traced  # with it comes torch's tracer, which takes seconds to load

    return traced(function, given, decompositions(select_decomp_table(), device))
