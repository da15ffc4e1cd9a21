"""How a plain LSTM layer is computed on the CPU, by a fixed rule (never by timing: same program, same numbers).

Two ways give the same numbers to rounding:

- *library*: oneDNN computes a layer in one call, as it does for ``nn.LSTM``.
- *own*: BLAS multiplies step by step, in a loop that takes 30 to 50 µs a step on a slow core, however little there is to do.

| processor | way | evidence |
| --- | --- | --- |
| x86 | library | oneDNN writes its kernels at run time for each of them |
| others | library for few multiplications a step, else own | oneDNN has plain loops, a tenth as fast as BLAS |

Few: below 2^16 with one thread. Measured on a Neoverse-N1 with torch 2.13, milliseconds forward and backward, library / own, by
batch, steps, inputs, hidden: 8,12,16,32 (2^15.2) 1.2 / 1.4; 16,12,16,32 (2^16.2) 2.1 / 1.8; 1,30,64,128 (2^16.2) 6.9 / 3.4;
32,12,16,32 (2^17.2) 3.3 / 2.3. With more threads, below 5·2^14 for each: oneDNN divides even small layers among them, the loop
does not. Two threads for the library, one for the loop: 16,12,16,32 1.4 / 1.8; 32,12,16,32 2.1 / 2.3; 2,30,64,128 (2^17.2)
7.0 / 4.8; 16,30,32,64 (2^18.2) 6.4 / 5.5. Forward alone, where no gradient is to follow, below 2^17 for each of two threads and
more: 32,12,32,32 (2^17.3) 1.2 / 1.4; 48,12,32,32 (2^17.9) 1.6 / 1.8; 2,30,64,128 2.5 / 2.5; 64,12,32,32 (2^18.3) 2.1 / 2.1;
4,30,64,128 (2^18.2) 4.7 / 3.1; with one thread as before: 8,12,32,32 (2^15.3) .74 / .87, 16,12,16,32 1.3 / 1.0. More than two
threads were not there to measure. Where the library is taken, we take what ``nn.LSTM`` takes.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

import torch

from mlc_torch.torch_private.lstm import has_library_lstm


class Way(Enum):
    library = "library"
    own = "own"


WAYS = tuple(Way)

_forced: ContextVar[Way | None] = ContextVar("_forced", default=None)


@contextmanager
def forced(way: Way) -> Iterator[None]:
    """Inside, every plain layer that can goes this way: for tests and measurements."""
    token = _forced.set(way)
    try:
        yield
    finally:
        _forced.reset(token)


def is_differentiated(*tensors: torch.Tensor | None) -> bool:
    """Whether a gradient may follow what is computed of them."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


_X86 = platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")


def way_for(x: torch.Tensor, hidden: int, infers: bool) -> Way:
    """How to run over ``x`` [time, batch, inputs] on the CPU; ``infers`` where no gradient is to follow."""
    if x.dtype != torch.float32 or not has_library_lstm():
        return Way.own
    if not x.shape[1]:
        return Way.own  # of no sequences, oneDNN ends the process (division by zero, torch 2.11 and 2.13)
    if (way := _forced.get()) is not None:
        return way
    if _X86:
        return Way.library
    _, batch, inputs = x.shape
    few = _few(torch.get_num_threads(), infers)
    return Way.library if _multiplications(batch, inputs, hidden) < few else Way.own


def _multiplications(batch: int, inputs: int, hidden: int) -> int:
    """In a step. The inputs of all steps are multiplied at once, which costs a quarter."""
    return batch * 4 * hidden * (hidden + inputs // 4)


def _few(threads: int, infers: bool) -> int:
    if threads == 1:
        return 2**16
    return (2**17 if infers else 5 * 2**14) * threads


_MANY_STEPS = 8
"""So many steps make up for transposing the weights beforehand."""


def recurrent_factor(wh: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """What each h is multiplied with: the transposed weights, over many steps laid out anew.

    (Products of a single row do not gain. Of more than eight, torch would hand transposed factors to the Arm Compute
    Library where it has that, which takes 100 to 1000 µs longer each.)
    """
    time, batch, _ = shape
    if batch == 1 or (batch <= 8 and time < _MANY_STEPS):
        return wh.t()
    return wh.t().contiguous()
