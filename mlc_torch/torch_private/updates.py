"""The fused kernels of torch's optimizers, and the same steps written out."""

from __future__ import annotations

import functools
from functools import partial

import torch

from mlc_torch.torch_private import available
from mlc_torch.torch_private.lists import Call, Tensors, at_once, copy_all, foreach
from mlc_torch.torch_private.modes import is_written_out

# The fused kernels write without saying so in the tensors' version counters, by which an interrupted update is told from
# one that was not begun. Both calls are made from C, one behind the other, so that no Ctrl-C comes between them.
_note_write = getattr(torch._C, "_increment_version", torch.autograd.graph.increment_version)


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


def _fusable(params: Tensors) -> bool:
    # MPS has fused optimizers only in some releases. (All parameters of a step lie on one device, and have 32 bits here.)
    return (params[0].is_cpu or params[0].is_cuda) and not is_written_out()
