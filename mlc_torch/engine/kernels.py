"""Which kernels compute what, by processor and threads.

Rules are fixed and never timed at run time: the same program gives the same numbers. They ask what torch was built for
(vector code, the Arm Compute Library), the shapes, and how many threads there are when a graph is compiled. Each says how
it is known. How images are laid out for these kernels is in ``layouts.py``, what multiplies in ``product_rules.py``, what is
known of a GPU in ``cuda_rules.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from mlc_torch.engine import cuda_rules
from mlc_torch.engine.depthwise import is_depthwise
from mlc_torch.engine.gelu_rules import as_it_lies, by_slope, in_pieces
from mlc_torch.engine.layouts import is_little_for_torch
from mlc_torch.engine.lstm_steps import gate_by_gate
from mlc_torch.engine.norm_rules import NORMS_BY_ARM, Norm, Way, normalized, norms_by_x86
from mlc_torch.engine.processor import has_avx512, has_rules, has_vector_code
from mlc_torch.engine.product_rules import (
    bias_apart,
    chosen_product,
    has_many_rows,
    share_sources,
    sum_of_few_rows,
    sum_of_many_rows,
)
from mlc_torch.engine.replacements import (
    Replacement,
    convolution_backward,
    convolution_of_one_channel,
    depthwise_backward,
    depthwise_backward_contiguous,
)
from mlc_torch.engine.rules import Rule
from mlc_torch.engine.standing import joined_parameters, packed_layer
from mlc_torch.engine.trace import Recording

aten = torch.ops.aten


@dataclass(frozen=True)
class KernelRule:
    """An operation, when something else runs in its place, and how that is known."""

    operation: Any
    replace: Callable[[fx.Node], Replacement | None]
    evidence: str
    keeps: bool = False
    """Whether memory is kept between passes: not for every batch size that comes along."""


def is_plain(how: Any) -> bool:
    """Over images, not dilated, not transposed, in one group."""
    stride, _, dilation, transposed, _, groups = how
    return len(stride) == 2 and set(dilation) == {1} and not transposed and groups == 1


def _gradient_by_products(node: fx.Node) -> Replacement | None:
    _, of_x, of_weight, *_ = node.meta["shapes"]
    if node.meta["dtype"] != torch.float32 or not is_plain(node.args[4:10]):
        return None
    if is_little_for_torch(of_x, of_weight[2:]):  # which multiplies by itself there
        return None
    given: Any = node.args
    grad, x, weight, _, stride, padding, *_, mask = given
    if weight.target is aten.clone.default and weight.args[0].op == "placeholder":
        weight = weight.args[0]  # it lays weights out by itself, and what the forward pass laid out need not be kept
    return convolution_backward, (grad, x, weight, stride, padding, mask, node.meta["strides"])


def _depthwise_gradient(node: fx.Node) -> Replacement | None:
    of_grad, of_x, of_weight, *_ = node.meta["shapes"]
    if node.meta["dtype"] != torch.float32 or not is_depthwise(of_grad, of_x, of_weight, node.args[4:10]):
        return None
    grad, x, weight, _, stride, padding, dilation, *_, mask = node.args
    threads, elements = torch.get_num_threads(), math.prod(of_grad)
    # Where torch does not ask oneDNN, it takes the channels one by one.
    by_library = max(of_weight[2:]) > 1 or of_x[0] >= 16 or threads > 1
    is_much = elements >= (2**14 if threads == 1 else 5 * 2**12 * threads)
    way = depthwise_backward if is_much and by_library else depthwise_backward_contiguous
    return way, (grad, x, weight, stride, padding, dilation, mask, node.meta["strides"])


def _one_channel(node: fx.Node) -> Replacement | None:
    if node.meta["dtype"] != torch.float32 or not is_plain(node.args[3:9]) or node.meta["shapes"][0][1] != 1:
        return None
    x, weight, bias, stride, padding, *_ = node.args
    return convolution_of_one_channel, (x, weight, bias, stride, padding, node.meta["strides"])


def _normalizes(rules: Sequence[Rule[Norm, Way]]) -> tuple[KernelRule, ...]:
    """Batch normalization of odd numbers of channels, and its gradient."""
    operations = aten.native_batch_norm.default, aten.native_batch_norm_backward.default
    return tuple(KernelRule(operation, normalized(rules), "NORMS_BY_ARM, NORMS_BY_X86") for operation in operations)


_JOINED = KernelRule(
    aten.cat.default,
    joined_parameters,
    "An LSTM's gates, 4 parts each of inputs x hidden and hidden x hidden, microseconds for both, new memory and so: ARM, one "
    "thread, 16x32 8.4 and 1.8, 64x128 25 and 15, 256x256 133 and 115; x86, one thread, 4.8 and 1.0, 17 and 12, and 937 and 190 "
    "where new memory has to be asked of the system; two threads 64x128 20 and 12, 256x256 by torch's threads 79, by Python 158.",
    keeps=True,
)
_PACKED = KernelRule(
    torch.ops.mlc_torch.lstm_library_inference.default,
    packed_layer,
    "torch 2.11, AVX-512; microseconds of a layer by nn.LSTM, by the library over joined weights, over packed ones, and to find "
    "that their bytes are the same; one thread, samples x steps, inputs x hidden: 1x1 16x32 52, 43, 26 and 5; 1x5 64x128 101, "
    "91, 49 and 17; 8x12 64x128 244, 229, 188 and 17; 1x5 256x256 408, 404, 146 and 171; two threads 1x5 64x128 155, 136, 70 "
    "and 18; 1x5 256x256 367, 335, 129 and 170; 4x6 128x512 over joined weights, over packed ones and to compare: two threads "
    "988, 638 and 420, eight 459, 242 and 227. On ARM packing changes nothing (64x128, 1x5: 695 and 697).",
    keeps=True,
)
_FEW_STEPS = KernelRule(torch.ops.mlc_torch.lstm_library_inference.default, gate_by_gate, "STEPS and SEVERAL_STEPS")
_SUMMED = KernelRule(
    aten.sum.dim_IntList,
    sum_of_few_rows,
    "Microseconds by torch's sum and so. Neoverse-N1, torch 2.13, one thread: 4x4 5.9 and 4.8, 32x10 6.2 and 4.5, 32x128 6.7 "
    "and 6.0, 128x10 7.0 and 5.6, 128x128 9.7 and 9.4; two threads 6.1 and 4.7, 6.5 and 5.0, 7.4 and 5.6, 6.5 and 5.9, 10.4 and "
    "9.3. x86, AVX-512, torch 2.11, one thread: 4x4 4.2 and 2.9, 32x10 4.3 and 2.9, 32x128 4.5 and 3.2, 64x128 4.7 and 3.3; two "
    "threads 4.4 and 2.8, 4.6 and 3.0, 4.7 and 3.2, 4.9 and 3.3; eight 2.4 and 1.3, 2.3 and 1.4, 2.5 and 1.5, 2.6 and 1.7.",
)

KERNELS_WITHOUT_VECTOR_CODE = (
    _JOINED,
    *_normalizes(NORMS_BY_ARM),
    _SUMMED,
    KernelRule(
        aten.sum.dim_IntList,
        sum_of_many_rows,
        "One thread, microseconds by torch's sum and so: 1024x384 502 and 133, 1024x512 966 and 176, 4096x128 629 and 173, "
        "16384x32 232 and 170, 16384x128 2937 and 600, and 1024x128, which is left, 91 and 69; two threads 220 and 122, 340 and "
        "118, 245 and 117, 246 and 115, 1461 and 366, and 56 and 65. On x86 one product of 1024x512 takes 97, the sum 102.",
    ),
    KernelRule(aten.addmm.default, chosen_product, "PRODUCTS_BY_ACL"),
    KernelRule(aten.mm.default, chosen_product, "PRODUCTS_BY_ACL"),
    KernelRule(
        aten.convolution_backward.default,
        _gradient_by_products,
        "Gradient of 16 to 16 channels of 32x32, 64 images, 2 threads: oneDNN 75 ms contiguous and 29 with channels last, "
        "torch's own kernel, which multiplies matrices, 12. Of float16 numbers it is slower: 16x16, 8 images, one thread, 206 "
        "and 352.",
    ),
    KernelRule(
        aten.convolution_backward.default,
        _depthwise_gradient,
        "16 images of 32 channels, one thread: 32x32 66 ms with channels last, 26 contiguous, 7.8 by products; stride 2 24, 8 "
        "and 6; 16x16 17, 7 and 2.2; a kernel of 5x5 137, 63 and 20. Few elements take products longer than torch over "
        "contiguous images: 3x3 and 5x5, one thread, 9,216 elements 1.0 to 1.4 times, 13,824 .9 to 1.0, 18,432 .7 to .9; two "
        "threads 18,432 1.0 to 1.4, 36,864 .7 to 1.2, 73,728 .4 to .7; a kernel of one pixel 1.4 to 3.9 with one thread and "
        "fewer than 16 images.",
    ),
    KernelRule(
        aten.convolution.default,
        _one_channel,
        "The forward pass over a single channel: oneDNN takes two to four times as long as torch's own kernel. Not of float16 "
        "numbers: 8 images of 28x28 to 16 channels, 5x5, one thread, .75 ms and 101.",
    ),
    KernelRule(
        aten.gelu.default,
        as_it_lies,
        "oneDNN takes only what is contiguous: 524,288 elements, one thread, 1.8 ms and with channels last 6.1; .7 and 2.0 in "
        "the exact form.",
    ),
    KernelRule(
        aten.gelu_backward.default,
        by_slope("tanh", least=2**13, most=2**18),
        "Milliseconds with the forward pass, torch's and so, one thread: 8,192 elements .18 and .13, 65,536 1.1 and .65, "
        "524,288 8.3 and 3.6, 16 million 261 and 114; two threads 16,384 .30 and .18, .58 and .31, 4.2 and 2.0, 132 and 61. "
        "This processor's large third cache makes calls dearer than memory: 524,288 elements take 3.6 in two pieces, 4.6 in "
        "16. Alone, torch's forward pass, 1.9, is not to be had for less: the sigmoid takes 1.8.",
    ),
    KernelRule(
        aten.gelu_backward.default,
        by_slope("none", least=2**13, most=2**18),
        "The same for the exact form: 8,192 elements .36 and .15, 65,536 2.2 and .79, 524,288 17 and 4.9, 16 million 535 and "
        "155; two threads 16,384 .40 and .19, 1.3 and .41, 9.4 and 2.7, 294 and 80.",
    ),
)
"""ARM, torch 2.13, whose build has no vector code for a Neoverse-N1. An ARM for which it has some (SVE) gets no rules."""

KERNELS_WITH_VECTOR_CODE = _normalizes(norms_by_x86(torch.__version__))
"""x86 with AVX2, where what was measured with AVX-512 alone is not used."""

KERNELS_WITH_AVX512 = (
    _JOINED,
    _FEW_STEPS,
    _PACKED,
    *KERNELS_WITH_VECTOR_CODE,
    _SUMMED,
    KernelRule(aten.addmm.default, chosen_product, "PRODUCTS_BY_MKL"),
    KernelRule(aten.mm.default, chosen_product, "PRODUCTS_BY_MKL"),
    KernelRule(
        aten.addmm.default,
        bias_apart(has_many_rows),
        "torch fills the result with the bias, which the product then reads. Relative to it, a transformer block's step, 1024 "
        "rows of 128 and 512: torch 2.11, one thread .992 and .993, two .986 and .992, eight .989 and .990; torch 2.13, one "
        "thread .986, two .984 and .990. A perceptron's inference of 4096 rows of 784: one thread .992 and .993, two .982 and "
        ".990. Steps of 64 wide rows, which are left: .997 to 1.005.",
    ),
    KernelRule(
        aten.gelu.default,
        in_pieces("tanh", least=2**15, most=2**19),
        "torch 2.11, AVX-512; milliseconds, torch's, in one piece and in two: one thread 65,536 elements .19, .08 and .11, "
        "524,288 1.7, .91 and .82, a million 3.8, 1.8 and 1.9; two threads 65,536 .10, .05 and .08, 524,288 .95, .37 and .43, a "
        "million 2.0, .91 and .82; four 131,072 .12, .07 and .14, a million 1.2, .57 and .53; eight 131,072, left, .07, "
        ".08 and .18, 294,912 .13, .08 and .18, a million .44, .21 and .30. More pieces take longer. (Inside of torch's kernel "
        "the hyperbolic tangent is Sleef's; a sigmoid takes a fifth of its time.)",
    ),
    KernelRule(
        aten.gelu_backward.default,
        by_slope("tanh", least=2**13, most=2**16, up_to=4),
        "The same, both passes, torch's, the forward pass so and the gradient from its source in pieces, and so: one thread "
        "8,192 elements .06, .07 and .05, 65,536 .42, .34 and .23, 524,288 4.3, 3.1 and 2.5; two threads 16,384 .08, .06 and "
        ".04, 65,536 .17, .11 and .08, 524,288 2.2, 1.4 and 1.1; four threads 65,536 .17, .16 and .11, 524,288 1.3, 1.2 and "
        "1.0; eight threads 524,288 .77, 1.0 and .89: left. The exact form is torch's own everywhere (one thread, 131,072 "
        "elements .18 and .33 so).",
    ),
)
"""x86 with AVX-512."""


KERNELS_ON_A_GPU = (
    KernelRule(aten.addmm.default, bias_apart(cuda_rules.adds_bias_apart), cuda_rules.BIAS_APART),
    KernelRule(aten.mm.default, cuda_rules.with_zeros, cuda_rules.WITH_ZEROS),
    KernelRule(aten.mm.default, cuda_rules.turned, cuda_rules.TURNED),
    KernelRule(aten.convolution_backward.default, cuda_rules.bias_by_itself, cuda_rules.PIXELS),
)
"""Those of the number that an H200 has."""


def _rules_for(device: torch.device) -> tuple[KernelRule, ...]:
    if device.type != "cpu":
        return KERNELS_ON_A_GPU if cuda_rules.is_measured(device) else ()
    if not has_rules():
        return ()  # torch's own, where nobody has measured
    if not has_vector_code():
        return KERNELS_WITHOUT_VECTOR_CODE
    return KERNELS_WITH_AVX512 if has_avx512() else KERNELS_WITH_VECTOR_CODE


def choose_kernels(recording: Recording, device: torch.device, is_declared: bool = True) -> Recording:
    """Point recorded operations to what the first rule that applies names. ``is_declared``: its shapes are the graph's."""
    known = _rules_for(device)
    if not known:
        return recording
    rules: dict[Any, list[KernelRule]] = {}
    for rule in known:
        if is_declared or not rule.keeps:
            rules.setdefault(rule.operation, []).append(rule)
    for phase in (recording.backward, recording.forward):  # a gradient's rule may change the operation it belongs to
        if known is KERNELS_WITHOUT_VECTOR_CODE:
            share_sources(phase)
        for node in phase:
            for rule in rules.get(node.target, ()):
                found = rule.replace(node)
                if found is not None:
                    (node.target, node.args), node.kwargs = found, {}
                    break
    # What was put in belongs to the phase of the node that it stands before.
    calls = [n for n in recording.graph.nodes if n.op in ("call_function", "get_attr")]
    end = calls.index(recording.forward[-1]) + 1 if recording.forward else 0
    return replace(recording, forward=calls[:end], backward=calls[end:])
