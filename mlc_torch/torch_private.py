"""Kernels and entry points that torch's documentation does not promise, each with a public way to the same numbers.

``available`` says what is used; setting an entry to False takes the public way, which is how the tests reach it.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from operator import call
from typing import Any, ParamSpec, TypeVar

import torch
from torch import fx
from torch.nn import grad as grad_of

Tensors = list[torch.Tensor]

available: dict[str, bool] = {
    "fused_adam": hasattr(torch, "_fused_adam_") and hasattr(torch, "_fused_adamw_"),
    "fused_sgd": hasattr(torch, "_fused_sgd_"),
    "foreach": hasattr(torch, "_foreach_mul"),
    "engine": hasattr(torch.autograd.Variable, "_execution_engine"),
    "inductor": True,
    "quiet_tracer": True,
    "own_conv": hasattr(torch.ops.aten, "_slow_conv2d_backward"),
    "library_lstm": hasattr(torch, "mkldnn_rnn_layer") and hasattr(torch.ops.aten, "mkldnn_rnn_layer_backward"),
    "cudnn_lstm": hasattr(torch, "_cudnn_rnn") and hasattr(torch.ops.aten, "_cudnn_rnn_backward"),
    "activated_product": hasattr(torch.ops.aten, "_addmm_activation"),
    "packed_lstm": hasattr(torch.ops.mkldnn, "_reorder_mkldnn_rnn_layer_weight"),
    "script": hasattr(torch.jit, "CompilationUnit"),
    "below_autograd": hasattr(torch._C, "_AutoDispatchBelowAutograd"),
    "use_counts": hasattr(torch._C, "_storage_Use_Count") and hasattr(torch.Tensor, "_use_count"),
}


GRAIN = 2**15
"""Elements from which on torch shares element-wise work, such as a copy, out between threads."""


_writes_out: ContextVar[bool] = ContextVar("_writes_out", default=False)
is_written_out = _writes_out.get
"""Whether a compiler looks on, that wants to see into everything."""


@contextmanager
def written_out() -> Iterator[None]:
    """Inside, fused kernels are written out operation by operation, for a compiler to see into."""
    token = _writes_out.set(True)
    try:
        yield
    finally:
        _writes_out.reset(token)


# The fused kernels write without saying so in the tensors' version counters, by which an interrupted update is told from
# one that was not begun. Both calls are made from C, one behind the other, so that no Ctrl-C comes between them.
_note_write = getattr(torch._C, "_increment_version", torch.autograd.graph.increment_version)


Call = Callable[[], Any]


def at_once(calls: Sequence[Call]) -> None:
    """Make these calls one behind the other from C: where all of them are written in C, no Ctrl-C comes between them."""
    deque(map(call, calls), 0)


def _made(calls: list[Call], into: list[Call] | None) -> None:
    if into is None:
        at_once(calls)
    else:
        into += calls


def fused_adam_(
    params: Tensors,
    grads: Tensors,
    averages: Tensors,
    squares: Tensors,
    maxima: Tensors,
    *,
    lr: float | torch.Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decay: float | torch.Tensor | None = None,
    into: list[Call] | None = None,
) -> None:
    """One Adam step without bias correction, in place: the fused kernel, told that infinitely many steps were made.

    m = β1·m + (1-β1)·g;  v = β2·v + (1-β2)·g²;  w -= lr·m/(√v + ε), with √max v where ``maxima`` are given; before that
    ``decay`` multiplies w (and then there is no ``weight_decay``). Given ``into``, it is left there as what is to be called.
    """
    fusable = available["fused_adam"] and _fusable(params)
    step = torch._fused_adam_ if fusable else None
    if fusable and isinstance(decay, float) and isinstance(lr, float) and lr:
        step, weight_decay = torch._fused_adamw_, (1 - decay) / lr  # w -= lr·weight_decay·w
    elif decay is not None and step is not None:
        foreach("mul_", params, decay)  # only where numbers are on the device, whose queue nothing interrupts
    if step is not None:
        kernel = partial(
            step,
            params,
            grads,
            averages,
            squares,
            maxima,
            [_settled(params[0].device)] * len(params),
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=bool(maxima),
            maximize=False,
        )
        _made([kernel, partial(_note_write, params[:1])], into)
        return
    if weight_decay:
        grads = foreach("add", grads, params, alpha=weight_decay)
    # New values first, then all of them into place by one operation: whatever stops this, nothing is half updated.
    average = foreach("lerp", averages, grads, 1 - beta1)
    square = foreach("add", foreach("mul", squares, beta2), foreach("mul", grads, grads), alpha=1 - beta2)
    largest = foreach("maximum", maxima, square) if maxima else []
    roots = foreach("add", foreach("sqrt", largest or square), eps)
    shrunk = params if decay is None else foreach("mul", params, decay)
    moved = foreach("sub", shrunk, foreach("div", foreach("mul", average, lr), roots))
    _made([partial(copy_all, [*averages, *squares, *maxima, *params], [*average, *square, *largest, *moved])], into)


# So many steps that the kernel corrects no bias: ML Compute puts the correction into the rate, ε outside of it.
_SETTLED = 1e12


@functools.cache
def _settled(device: torch.device) -> torch.Tensor:
    return torch.tensor(_SETTLED, dtype=torch.float32, device=device)


def fused_sgd_(
    params: Tensors,
    grads: Tensors,
    momenta: Tensors,
    *,
    lr: float | torch.Tensor,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    into: list[Call] | None = None,
) -> None:
    """One step of gradient descent in place: m = μ·m + (1-d)·g; w -= lr·m, or lr·(g + μ·m) with Nesterov.

    Given ``into``, it is left there as what is to be called.
    """
    if available["fused_sgd"] and _fusable(params):
        kernel = partial(
            torch._fused_sgd_,
            params,
            grads,
            momenta,
            weight_decay=weight_decay,
            momentum=momentum,
            lr=lr,
            dampening=dampening,
            nesterov=nesterov,
            maximize=False,
            is_first_step=False,
        )
        _made([kernel, partial(_note_write, params[:1])], into)
        return
    if weight_decay:
        grads = foreach("add", grads, params, alpha=weight_decay)
    momentums: Tensors = []
    if momenta:
        momentums = foreach("add", foreach("mul", momenta, momentum), grads, alpha=1 - dampening)
        grads = foreach("add", grads, momentums, alpha=momentum) if nesterov else momentums
    # All into place by one operation: whatever stops this, nothing is half updated.
    moved = foreach("sub", params, foreach("mul", grads, lr))
    _made([partial(copy_all, [*momenta, *params], [*momentums, *moved])], into)


def copy_all(targets: Tensors, sources: Tensors) -> None:
    """Copy each source into its target, in one call where torch has one. None at all is well, too; torch refuses that."""
    if not targets:
        return
    with torch.no_grad():
        if available["foreach"] and not is_written_out():  # functionalization loses what this one wrote
            torch._foreach_copy_(targets, sources)
        else:  # one behind the other from C, so that no Ctrl-C comes between them
            deque(map(torch.Tensor.copy_, targets, sources), 0)


def lacks_memory(error: BaseException) -> bool:
    """Whether an allocation failed. The CPU's allocator has no exception of its own: it is known by its words."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def past_autograd() -> type[AbstractContextManager[Any]] | None:
    """What leads operations past autograd's part of torch's dispatcher, which even without a gradient asks each tensor for one.

    It holds for the thread that enters it. Left by a Ctrl-C between the block and its ``__exit__``, it ends as it is freed.
    """
    return torch._C._AutoDispatchBelowAutograd if available["below_autograd"] else None


# What surrounds a call, as functions of torch's core: each is asked in every call of a graph.
inference_mode = torch.is_inference_mode_enabled
any_autocast = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
)
function_modes = torch._C._len_torch_function_stack
records_gradients = torch.is_grad_enabled
dispatch_modes = torch._C._len_torch_dispatch_stack
push_mode = torch._C._push_on_torch_dispatch_stack
"""Enters a mode of ours for this thread. torch's own way also sets flags of the whole process, and takes them back to what they
were before, which goes wrong among threads: in torch 2.6 ``torch.compile`` compiles nothing from then on, and does not say so."""
transformations: Callable[[], bool] = getattr(  # in a third of the time that it takes to be told which one it is
    torch._C, "_are_functorch_transforms_active", lambda: torch._C._functorch.peek_interpreter_stack() is not None
)


is_traced: Callable[[], Any] = torch._C._get_tracing_state
"""Whether ``torch.jit.trace`` writes down what is done."""
SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "inference_mode": inference_mode,
    "any_autocast": any_autocast,
    "function_modes": function_modes,
    "dispatch_modes": dispatch_modes,
    "transformations": transformations,
    "is_traced": is_traced,
}
"""What tells of a context of torch's around the caller that would change what a graph computes."""
DISTURBED = " or ".join(f"{name}()" for name in SURROUNDINGS)
"""Whether there is one, for generated code: six calls from where they are needed, and none around them."""
is_disturbed: Callable[[], Any] = eval(f"lambda: {DISTURBED}", SURROUNDINGS)


def counts_writes(tensor: torch.Tensor) -> bool:
    """Whether torch counts what is written into a tensor, as it must to train it. Of one that was made in inference mode it never
    does, whatever memory it was given since; ``is_inference`` then says that it is none."""
    try:
        return tensor._version >= 0
    except RuntimeError:
        return False


def hooks_on_every_module() -> tuple[dict[Any, Any], ...]:
    """Where torch keeps the hooks that it calls for every module, in the order of a module's own: of the forward pass, before it,
    and the same of the backward pass. (``register_module_forward_hook`` and its relatives fill them.)"""
    home = torch.nn.modules.module
    names = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    return tuple(getattr(home, f"_global_{name}", {}) for name in names)


def call_past_hooks_on_every_module(module: torch.nn.Module) -> None:
    """From now on a call of this module, or of one inside it, calls no such hook. Those with hooks of their own stay as they
    are."""
    for m in module.modules():
        own = m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        if not own and not isinstance(m, torch.jit.ScriptModule):
            vars(m).update(_compiled_call_impl=m.forward)  # what ``Module.compile`` sets, and a call looks at first


tensor_uses: Callable[[torch.Tensor], int] = getattr(torch.Tensor, "_use_count", lambda tensor: 0)
"""How often torch refers to a tensor."""
storage_uses: Callable[[int], int] = getattr(torch._C, "_storage_Use_Count", lambda storage: 0)
"""How often tensors, and Python, refer to the memory that they lie in."""


Ambience = tuple[int, int, bool]
"""How many modes surround the caller, and whether autograd records."""


def pop_mode() -> None:
    """Leaves the mode that was entered last."""
    torch._C._pop_torch_dispatch_stack(None)


def ambience() -> Ambience:
    return dispatch_modes(), function_modes(), torch.is_grad_enabled()


def restore_ambience(before: Ambience) -> None:
    """Take away what a Ctrl-C left behind that struck between a ``with`` block and the ``__exit__`` that ends it.

    Only modes of ours and of torch's: one that the program has entered meanwhile is the program's to end.
    """
    dispatch, function, grad = before
    while dispatch_modes() > dispatch and _is_internal(torch._C._get_dispatch_stack_at(dispatch_modes() - 1)):
        pop_mode()
    while function_modes() > function and _is_internal(torch._C._get_function_stack_at(function_modes() - 1)):
        torch._C._pop_torch_function_stack()
    torch._C._set_grad_enabled(grad)
    _writes_out.set(False)


def _is_internal(mode: object) -> bool:
    return type(mode).__module__.partition(".")[0] in ("mlc_torch", "torch")


def transformation() -> str | None:
    """The name of a context around the caller in which nothing real is computed, if there is one.

    Tracing computes, but writes everything down, what has no place in its graph too, and ends the process where one of torch's
    errors is caught and the trace goes on.
    """
    if is_traced():
        return "torch.jit.trace"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transformation of torch.func (vmap, grad and the like)"
    if torch._C._len_torch_dispatch_stack():
        from torch._subclasses.fake_tensor import FakeTensorMode  # loaded already by whoever uses it

        modes = [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]
        if any(isinstance(mode, FakeTensorMode) for mode in modes):
            return "FakeTensorMode"
        if any(type(mode).__name__ == "ProxyTorchDispatchMode" for mode in modes):
            return "make_fx"
    return None


P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def _outside() -> Iterator[None]:
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack  # loaded by whoever uses one
    from torch.utils._python_dispatch import _disable_current_modes

    with torch.inference_mode(False), temporarily_clear_interpreter_stack(), _disable_current_modes():
        yield


def really(work: Callable[P, T]) -> Callable[P, T]:
    """``work``, done as if no inference mode, no dispatch mode and no transformation of torch's were around the caller.

    For what makes or reads the memory of tensors: a tensor that FakeTensorMode made in its place would be no memory, for good.
    """

    @functools.wraps(work)
    def call(*given: P.args, **named: P.kwargs) -> T:
        if dispatch_modes() or transformations() or inference_mode():
            with _outside():
                return work(*given, **named)
        return work(*given, **named)

    return call


def _fusable(params: Tensors) -> bool:
    # MPS has fused optimizers only in some releases, and half precision on the CPU in none that we know.
    for p in params:
        if p.dtype != torch.float32 or not (p.is_cpu or p.is_cuda):
            return False
    return not is_written_out()


_ON_ONE: dict[str, Callable[..., torch.Tensor]] = {
    "norm": torch.linalg.vector_norm,
}
"""Where a tensor's own method has another name, or there is none."""


def foreach(name: str, *args: Any, **kw: Any) -> Tensors:
    """``torch._foreach_<name>``: one call over a list of tensors, or the same call on each."""
    if available["foreach"]:
        return getattr(torch, f"_foreach_{name}")(*args, **kw)
    tensors = args[0]
    lists = [a if isinstance(a, (list, tuple)) else [a] * len(tensors) for a in args]
    method = _ON_ONE.get(name) or getattr(torch.Tensor, name)
    return [method(*each, **kw) for each in zip(*lists, strict=True)]


def backward(
    roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of ``inputs``, ``None`` where a root does not depend on one. Calling the engine saves half the time."""
    if available["engine"]:
        return torch.autograd.Variable._execution_engine.run_backward(
            tuple(roots), tuple(gradients), False, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
        )
    return torch.autograd.grad(roots, inputs, gradients, allow_unused=True)


@functools.cache
def wake_autograd(device: torch.device) -> None:
    """Let autograd's thread for a GPU use it once: torch warns where the first thing it does there is a product."""
    with torch.enable_grad():
        x = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(x * 2, x)


_own_compilations = threading.RLock()


def _compilations() -> AbstractContextManager[Any]:
    """The lock under which ``torch.compile`` compiles, in every thread; where this torch has none, one of ours.

    One of ours would keep our compilations apart, but not from those of ``torch.compile`` in other threads: Inductor's
    settings, the tracer that is at work and the warnings that are ignored are the process's.
    """
    from torch._dynamo import convert_frame

    return getattr(convert_frame, "compile_lock", _own_compilations)


def compile_alone(work: Callable[[], T]) -> T:
    """What ``work`` gives, while nobody else in the process compiles.

    A thread may hold graphs' locks and that of CUDA's queue when it comes here, and takes none of those inside, so that no
    two wait for each other. The lock's own ``with``, and on one line: for Ctrl-C, as in ``graph.locks``.
    """
    with _compilations(): return work()  # noqa: E701  # fmt: skip


def compile_graph(graph: fx.GraphModule) -> Callable[[list[torch.Tensor]], Sequence[Any]]:
    """TorchInductor's code for a functional graph, called with a list of tensors.

    Called directly it spares the guards and wrappers of ``torch.compile``, which cost more than a small network.
    """
    if not available["inductor"]:
        compiled = torch.compile(graph, fullgraph=True, dynamic=False)
        return lambda given: compiled(*given)
    from torch import _guards
    from torch._dynamo.utils import get_metrics_context
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V

    examples = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    if not examples:
        return lambda given: graph()  # there is nothing to compute with
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    # Otherwise Inductor may give a result another layout than was traced, and the other phase would read it wrongly.
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
    fake = next(e.fake_mode for e in examples if hasattr(e, "fake_mode"))
    # Inductor itself calls fx's tracer for moments, whose flag, the process's, keeps functions of torch.compile from running in
    # all threads, unless torch is told that somebody compiles. torch.compile of 2.13 tells it so, that of 2.11 does not.
    session = getattr(torch.compiler, "_compile_session_context", nullcontext)
    with (
        session(),
        V.set_fake_mode(fake),
        _guards.tracing(_guards.TracingContext(fake)),
        torch.no_grad(),
        config.patch(layout_optimization=False, size_asserts=False),
        get_metrics_context(),  # torch 2.6 counts inside of it and nowhere else
    ):
        compiled = compile_fx_inner(graph, examples)
    return getattr(compiled, "current_callable", None) or compiled


def own_conv_forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any
) -> torch.Tensor:
    """A plain convolution by torch's own kernel, whatever library it would choose."""
    if not available["own_conv"]:
        return torch.conv2d(x, weight, bias, stride, padding)
    return torch.ops.aten._slow_conv2d_forward(x, weight, weight.shape[2:], bias, stride, padding)


def own_conv_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, by_x: bool, by_weight: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of a plain convolution by torch's own kernel."""
    if not available["own_conv"]:
        found = [
            grad_of.conv2d_input(x.shape, weight, grad, stride, padding) if by_x else None,
            grad_of.conv2d_weight(x, weight.shape, grad, stride, padding) if by_weight else None,
        ]
        return found[0], found[1]
    own, size = torch.ops.aten._slow_conv2d_backward, weight.shape[2:]
    columns = 4 * len(x) * weight.shape[1:].numel() * grad.shape[2:].numel()
    if not (by_x and by_weight and len(x) > 1 and _MANY < columns < _TOO_MANY):
        return own.output_mask(grad, x, weight, size, stride, padding, [by_x, by_weight, False])[:2]
    by_source, by_weights = torch.empty_like(x), [torch.empty_like(weight) for _ in range(2)]
    for images, part in zip((slice(0, len(x) // 2), slice(len(x) // 2, None)), by_weights, strict=True):
        into = {"grad_input": by_source[images], "grad_weight": part, "grad_bias": grad.new_empty(0)}
        own.grad_input(grad[images], x[images], weight, size, stride, padding, **into)
    return by_source, by_weights[0].add_(by_weights[1])


_MANY, _TOO_MANY = 1 << 20, 19 << 20
"""Bytes of the matrix that has every window of every image as a column. In between it is made for half of the images at a
time: that takes 4 % longer, and the gradient of a network's last layers, which comes while everything of its forward pass
is still there, needs less. A ResNet-20's step takes 1.04 of the memory that it does by hand, and not 1.09.
"""


def scripted(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The function under TorchScript's interpreter, which takes less than half of Python's time for small operations.

    From its text, without ``torch.jit.script``, which warns that it is deprecated. Where that does not work, the
    function itself.
    """

    @functools.cache
    def compiled() -> Callable[..., Any]:
        try:
            text = inspect.getsource(loop)
            # The parser knows these types by their older names, and no decorators.
            text = text[text.index("def ") :].replace("tuple[", "Tuple[").replace("list[", "List[")
            return getattr(torch.jit.CompilationUnit(text), loop.__name__)
        except (OSError, RuntimeError):  # no text in this installation, or a parser that does not take it
            return loop

    @functools.wraps(loop)
    def call(*given: Any) -> Any:
        function = compiled() if available["script"] else loop
        if function is loop:
            return loop(*given)
        # In this thread and call only. Optimizing takes a tenth of a second at first, and gains nothing.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return function(*given)

    call.compiled = compiled  # type: ignore[attr-defined]
    return call
