"""Copies within the host's memory: everything arrives, and of torch's threads nobody is asked for as much as one can do."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch.graph.binding import _copied
from mlc_torch.tensor import host_copy as copies
from mlc_torch.tensor.host_copy import host_copy
from tests.gears.plans import mlc_device


class Asked(TorchDispatchMode):
    """Whether torch copies."""

    by_torch = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.by_torch |= func is torch.ops.aten.copy_.default
        return func(*args, **(kwargs or {}))


def _given(dtype: torch.dtype, lies: str) -> torch.Tensor:
    whole = torch.arange(2 * copies._MANY).view(256, -1).remainder(2 if dtype is torch.bool else 100).to(dtype)
    return {
        "in order": lambda: whole,
        "turned": lambda: whole.t().contiguous().t(),
        "of another type": lambda: whole.to(torch.int16 if dtype is not torch.int16 else torch.int32),
        "a part": lambda: torch.stack([whole, whole + whole], 2)[:, :, 0],
    }[lies]()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.bool])
@pytest.mark.parametrize("lies", ["in order", "turned", "of another type", "a part"])
def test_what_is_given_arrives(dtype, lies):
    source = _given(dtype, lies)
    target = torch.empty(source.shape, dtype=dtype)
    with Asked() as asked:
        host_copy(target, source)
    assert torch.equal(target, _given(dtype, "in order"))
    assert asked.by_torch is (lies != "in order")


def test_into_what_lies_otherwise():
    source, target = _given(torch.float32, "in order"), _given(torch.float32, "turned").zero_()
    host_copy(target, source)
    assert torch.equal(target, source)


def test_a_number_still_to_be_negated():
    source = torch.complex(torch.zeros(2**16), torch.arange(2.0**16)).conj().imag
    assert source.is_neg()
    for given in (source, torch._neg_view(torch.arange(2.0**16))):
        target = torch.empty(2**16)
        host_copy(target, given)
        assert torch.equal(target, -torch.arange(2.0**16))


@pytest.mark.parametrize(
    ("elements", "most", "by_torch"),
    [
        (2**15 - 1, copies.BEHIND_THE_GPU, True),
        (2**15, copies.BEHIND_THE_GPU, False),
        (2**18 - 1, copies.BEHIND_THE_GPU, False),
        (2**18, copies.BEHIND_THE_GPU, True),
        (2**16 - 1, copies.ALONE, False),
        (2**16, copies.ALONE, True),
    ],
)
def test_little_and_much_are_left_to_torch(elements, most, by_torch):
    source, target = torch.randn(elements), torch.empty(elements)
    with Asked() as asked:
        host_copy(target, source, most)
    assert torch.equal(target, source) and asked.by_torch is by_torch


def test_zeros_without_memory():
    target = torch.ones(2**16)
    host_copy(target, torch._efficientzerotensor(2**16))
    assert not bool(target.any())


def test_one_value_for_all_is_written_out():
    target = torch.empty(2**16)
    host_copy(target, torch.full((1,), 3.0).expand(2**16))
    assert bool((target == 3).all())


@pytest.mark.parametrize("elements", [3, 2**15 - 1, 2**15, 2**19])
def test_bound_data_is_copied_whatever_it_is_bound_for(torch_device, elements):
    source = torch.randn(elements)
    copy = _copied(source, mlc_device(torch_device))
    assert torch.equal(copy.cpu(), source) and copy.data_ptr() != source.data_ptr()
    assert copy.is_pinned() == (torch_device.type == "cuda" and source.nbytes >= 128 << 10)
