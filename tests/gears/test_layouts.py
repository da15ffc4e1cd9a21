"""How convolutions are laid out: the rules, and that a gradient lies as the image it belongs to."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch import (
    MLCActivationLayer,
    MLCBatchNormalizationLayer,
    MLCConcatenationLayer,
    MLCConvolutionLayer,
    MLCGraph,
    MLCGroupNormalizationLayer,
    MLCInferenceGraph,
    MLCPaddingLayer,
    MLCPoolingDescriptor,
    MLCPoolingLayer,
    MLCPoolingType,
    MLCReductionLayer,
    MLCReductionType,
)
from mlc_torch.engine import following, layouts
from mlc_torch.engine.following import Next
from mlc_torch.engine.image_layout import has_channels_last
from mlc_torch.engine.images import call_over_images
from mlc_torch.engine.layouts import Layout
from mlc_torch.engine.views import drop_unread, share_copies
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from tests.gears.test_kernels import pretend
from tests.graph.programs import conv, cpu, placeholder, values
from tests.layers.records import tensor


class Watching(TorchDispatchMode):
    """Writes down for each convolution whether it has a stride, and whether its image or its weights have channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bool, bool]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            last = any(t.stride(1) == 1 and t.stride(3) == t.shape[1] > 1 for t in args[:2])
            self.seen.append((max(args[3]) > 1, last))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("vector_code", [True, False])
def test_no_strided_pointwise_convolution_meets_channels_last(monkeypatch, vector_code):
    """The kernel that corrupts memory is not reached."""
    pretend(monkeypatch, vector_code)
    images = [torch.randn(n, 8, 9, 9).contiguous(memory_format=torch.channels_last) for n in (1, 2)]
    for image, stride, groups, padding in itertools.product(images, (2, 3, (1, 2)), (1, 2, 8), (0, 1)):
        module = nn.Conv2d(8, 16, 1, stride, padding, groups=groups)
        with torch.no_grad(), Watching() as watching:
            got = layouts.convolve(module, dict(module.named_parameters()), [image])
        assert len(watching.seen) == 1 and not all(watching.seen[0])
        want = F.conv2d(image.double(), module.weight.double(), module.bias.double(), stride, padding, 1, groups)
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [True, False])
def test_the_gradient_of_every_second_pixel_lies_as_the_image_does(last):
    """And is added to another one without going through both element by element."""
    leaf = torch.randn(2, 8, 9, 9, requires_grad=True)
    image = leaf.contiguous(memory_format=torch.channels_last) if last else leaf * 1
    came: list[torch.Tensor] = []
    image.register_hook(came.append)
    module = nn.Conv2d(8, 16, 1, 2)
    given = torch.randn(2, 16, 5, 5)
    made = layouts.convolve(module, dict(module.named_parameters()), [image])
    assert has_channels_last(made)
    made.backward(given)
    assert came[0].stride() == image.stride()
    want = torch.zeros(2, 8, 9, 9, dtype=torch.float64)
    want[:, :, ::2, ::2] = torch.einsum("noyx,oi->niyx", given.double(), module.weight.detach().double()[:, :, 0, 0])
    torch.testing.assert_close(came[0].double(), want, rtol=1e-5, atol=1e-5)


def test_whatever_else_holds_convolutions_gets_contiguous_images():
    image, given = torch.randn(2, 8, 9, 9).contiguous(memory_format=torch.channels_last), []

    class Looking(nn.Conv2d):
        def forward(self, x):
            given.append(x.is_contiguous())
            return super().forward(x)

    for module in (Looking(8, 4, 1, 2), nn.Sequential(Looking(8, 4, 3))):
        assert following.holds_convolutions(module)
        layouts.convolve(module, dict(module.named_parameters()), [image])
    assert given == [True, True]
    assert not following.holds_convolutions(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))


@pytest.mark.parametrize(
    ("module", "x86", "arm"),
    [
        (nn.Conv2d(8, 16, 3), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 16, 3, 2, 1), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 16, 1), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 16, 1, 2), Layout.SLICED, Layout.SLICED),
        (nn.Conv2d(8, 16, 1, 2, 1), Layout.CONTIGUOUS, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 16, 1, 2, groups=2), Layout.CONTIGUOUS, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 32, 3, groups=2), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 16, 3, groups=2), Layout.CHANNELS_LAST, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 16, 3, groups=8), Layout.CHANNELS_LAST, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 8, 3, groups=8), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 16, 3, dilation=2), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 16, 5), Layout.CHANNELS_LAST, Layout.CHANNELS_LAST),
    ],
    ids=lambda given: repr(given) if isinstance(given, nn.Module) else "",
)
def test_layouts(monkeypatch, module, x86, arm):
    for vector_code, want in ((True, x86), (False, arm)):
        pretend(monkeypatch, vector_code)
        assert layouts.layout_of(module, torch.empty(8, module.in_channels, 9, 9)) is want


@pytest.mark.parametrize(
    ("module", "image", "threads", "want"),
    [
        (nn.Conv2d(8, 8, 1, groups=8), (8, 8, 9, 9), 1, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 8, 1, groups=8), (8, 8, 9, 9), 2, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 8, 1, groups=8), (16, 8, 9, 9), 1, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 8, 1), (8, 8, 9, 9), 1, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 8, 3), (1, 8, 48, 48), 1, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 8, 3), (1, 8, 48, 48), 4, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 16, 3), (1, 8, 48, 48), 1, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 8, 3), (1, 8, 64, 64), 1, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 8, 3), (2, 8, 24, 24), 1, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 8, 5), (1, 8, 24, 24), 1, Layout.CHANNELS_LAST),
        (nn.Conv2d(8, 64, 1, 2), (1, 8, 24, 24), 1, Layout.CONTIGUOUS),
        (nn.Conv2d(8, 64, 1, 2), (2, 8, 24, 24), 1, Layout.SLICED),
    ],
)
def test_layouts_where_torch_multiplies_by_itself(monkeypatch, module, image, threads, want):
    monkeypatch.setattr(layouts.torch, "get_num_threads", lambda: threads)
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        assert layouts.layout_of(module, torch.empty(image)) is want


def test_a_small_image_that_has_channels_last_keeps_them(monkeypatch):
    image = torch.empty(1, 8, 48, 48).to(memory_format=torch.channels_last)
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        for module, want in (
            (nn.Conv2d(8, 16, 3), Layout.CHANNELS_LAST),
            (nn.Conv2d(8, 8, 3), Layout.CONTIGUOUS),
            (nn.Conv2d(8, 16, 1, 2), Layout.CONTIGUOUS),
        ):
            assert layouts.layout_of(module, image) is want


@pytest.mark.parametrize(
    ("outputs", "image", "last", "x86"),
    [
        (32, (8, 3, 9, 9), False, Layout.CONTIGUOUS),
        (32, (8, 16, 9, 9), False, Layout.CONTIGUOUS),
        (32, (8, 16, 9, 9), True, Layout.CONTIGUOUS),
        (8, (8, 16, 9, 9), True, Layout.CHANNELS_LAST),
    ],
)
def test_a_result_that_is_flattened(monkeypatch, outputs, image, last, x86):
    """With vector code it is contiguous: in inference unless laying out the image takes longer, trained over few channels."""
    module = nn.Conv2d(image[1], outputs, 3, padding=1)
    given = torch.empty(image).to(memory_format=torch.channels_last if last else torch.contiguous_format)
    trained = Layout.CONTIGUOUS if image[1] == 3 else Layout.CHANNELS_LAST
    for vector_code, inferred, want in ((True, x86, trained), (False, Layout.CHANNELS_LAST, Layout.CHANNELS_LAST)):
        pretend(monkeypatch, vector_code)
        assert layouts.layout_of(module, given, Next.FLAT) is want
        with torch.no_grad():
            assert layouts.layout_of(module, given, Next.FLAT) is inferred
        assert layouts.layout_of(module, given) is Layout.CHANNELS_LAST


@pytest.mark.parametrize(
    ("samples", "threads", "last", "x86"),
    [
        (16, 1, False, Layout.CONTIGUOUS),
        (2, 1, False, Layout.SLICED),
        (2, 2, False, Layout.CONTIGUOUS),
        (2, 2, True, Layout.SLICED),
    ],
)
def test_every_second_pixel_of_an_inference(monkeypatch, samples, threads, last, x86):
    """Without gradients, vector code takes the stride as it is, unless torch multiplies by itself or channels are last."""
    monkeypatch.setattr(layouts.torch, "get_num_threads", lambda: threads)
    module = nn.Conv2d(8, 64, 1, 2)
    given = torch.empty(samples, 8, 24, 24).to(memory_format=torch.channels_last if last else torch.contiguous_format)
    for vector_code, want in ((True, x86), (False, Layout.SLICED)):
        pretend(monkeypatch, vector_code)
        with torch.no_grad():
            assert layouts.layout_of(module, given) is want
        assert layouts.layout_of(module, given) is Layout.SLICED


@pytest.mark.parametrize("trains", [True, False])
def test_an_image_is_laid_out_once_for_both_passes(trains):
    """torch would do it in each; where the weights want no gradient, only the first reads the image."""
    module = nn.Conv2d(3, 16, 3)
    module.weight.requires_grad_(trains)
    image = torch.randn(8, 3, 9, 9)
    with Copies() as copies:
        made = layouts.convolve(module, dict(module.named_parameters()), [image])
        torch.autograd.grad(made.square().sum(), module.weight if trains else module.bias)
    assert copies.shapes.count(image.shape) == trains
    want = F.conv2d(image.double(), module.weight.double(), module.bias.double())
    torch.testing.assert_close(made.double(), want, rtol=1e-4, atol=1e-4)


class Copies(TorchDispatchMode):
    """Writes down the shapes of what is copied by the graph, not inside of a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[torch.Size] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.clone.default:
            self.shapes.append(args[0].shape)
        return func(*args, **(kwargs or {}))


def test_few_channels_are_never_last(monkeypatch):
    image = torch.randn(32, 4, 9, 9)
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        for outputs, want in ((3, False), (4, True)):
            module = nn.Conv2d(4, outputs, 3)
            for becomes in Next.OTHER, Next.POOLED:
                made = call_over_images(module, dict(module.named_parameters()), [image], becomes)
                assert (
                    made.is_contiguous() is not want and made.is_contiguous(memory_format=torch.channels_last) is want
                )


def follows(*results, differentiates: bool = False, outputs: int = 16) -> Next | None:
    """What becomes of a convolution whose result each of these nodes is given, one behind the other where they are a list."""
    graph, x = MLCGraph(), placeholder(2, 3, 4, 4)
    weights = tensor(values(outputs, 3, 3, 3), [1, 3 * outputs, 3, 3])
    layer = MLCConvolutionLayer(weights=weights, biases=None, descriptor=conv(3, outputs))
    made = graph.node(layer, source=x)
    for chain in results:
        end = made
        for add in chain:
            end = add(graph, end)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    plan = inference._session(Variant.whole).plan
    (step,) = (
        s for s in plan.steps if following.holds_convolutions(s.module) and s.results == (plan.slots[id(made._cell)],)
    )
    return following.what_follows(plan, differentiates).get(step)


def act(graph, x):
    return graph.node(MLCActivationLayer.elu, source=x)


def flat(graph, x):
    return graph.reshape(shape=[2, -1], source=x)


def pool(graph, x):
    descriptor = MLCPoolingDescriptor(type=MLCPoolingType.max, kernelSizes=(2, 2))
    return graph.node(MLCPoolingLayer(descriptor=descriptor), source=x)


def odd(graph, x):
    return graph.node(_norm(8), source=x)  # groups of two channels


def even(graph, x):
    return graph.node(_norm(2), source=x)


def _norm(groups):
    layer = MLCGroupNormalizationLayer(
        featureChannelCount=16, groupCount=groups, beta=None, gamma=None, varianceEpsilon=1e-5
    )
    assert layer is not None
    return layer


def join(graph, x):
    return graph.node(MLCConcatenationLayer(dimension=1), sources=[x, x])


def norm(graph, x):
    return graph.node(_batch_norm(x.descriptor.shape[1]), source=x)


def _batch_norm(channels):
    mean, variance = (tensor(values(1, channels, 1, 1) ** 2, [1, channels, 1, 1]) for _ in range(2))
    layer = MLCBatchNormalizationLayer(
        featureChannelCount=channels, mean=mean, variance=variance, beta=None, gamma=None, varianceEpsilon=1e-5
    )
    assert layer is not None
    return layer


def again(graph, x):
    channels = x.descriptor.shape[1]
    weights = tensor(values(16, channels, 3, 3, seed=2), [1, 16 * channels, 3, 3])
    return graph.node(MLCConvolutionLayer(weights=weights, biases=None, descriptor=conv(channels, 16)), source=x)


def pad(graph, x):
    return graph.node(MLCPaddingLayer(zeroPadding=[1, 1, 1, 1]), source=x)


@pytest.mark.parametrize("chain", [[pad], [act, pad], [pad, act, pad], [pad, again]], ids=len)
def test_what_is_padded_in_an_inference_lies_as_its_reader_wants_it(chain):
    assert follows(chain) is Next.FLAT
    assert follows(chain, differentiates=True) is None
    assert follows([*chain, pool]) is not Next.FLAT


def mean(graph, x):
    return graph.node(MLCReductionLayer(reductionType=MLCReductionType.mean, dimensions=[2, 3]), source=x)


def narrow(graph, x):
    channels = x.descriptor.shape[1]
    weights = tensor(values(8, channels, 3, 3, seed=3), [1, 8 * channels, 3, 3])
    return graph.node(MLCConvolutionLayer(weights=weights, biases=None, descriptor=conv(channels, 8)), source=x)


@pytest.mark.parametrize(
    ("chain", "want"),
    [
        ([mean], Next.REDUCED),
        ([act, mean], Next.REDUCED),
        ([narrow, act, mean], Next.REDUCED),
        ([act, again, mean], None),
        ([mean, act, flat], Next.REDUCED),
    ],
)
def test_what_is_added_up_in_an_inference(chain, want):
    """Of several convolutions the last alone, and narrow ones with what is before them."""
    assert follows(chain) is want
    assert follows(chain, differentiates=True) is None
    assert follows(chain, [flat]) is want
    assert follows(chain, [act, pool]) is Next.POOLED


@pytest.mark.parametrize(
    ("results", "want", "wide"),
    [
        ([[norm, pool]], Next.FEW, Next.POOLED),
        ([[act, norm, act, pool]], Next.FEW, Next.POOLED),
        ([[norm, again, pool]], Next.FEW, None),
        ([[norm, pool], [pool]], Next.POOLED, Next.POOLED),
        ([[norm, act, flat]], Next.FLAT, Next.FLAT),
        ([[norm, again]], Next.FLAT, Next.FLAT),
        ([[norm, mean]], Next.REDUCED, Next.REDUCED),
    ],
)
def test_what_is_normalized_in_an_inference(monkeypatch, results, want, wide):
    """In fewer channels than x86 takes at a time."""
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        assert follows(*results, outputs=6) is (want if vector_code else wide)
        assert follows(*results, outputs=8) is wide
        assert follows(*results, outputs=6, differentiates=True) is not Next.FEW


def batch_norm_of_torch(graph, x):
    return graph.node(TorchLayer(nn.BatchNorm2d(x.descriptor.shape[1])), source=x)


@pytest.mark.parametrize(
    ("results", "outputs", "want"),
    [
        ([[pool]], 4, Next.FEW),
        ([[act, pool], [flat]], 4, Next.FEW),
        ([[pool]], 5, Next.POOLED),
        ([[batch_norm_of_torch, pool]], 6, Next.FEW),
        ([[batch_norm_of_torch, pool]], 8, Next.POOLED),
    ],
)
def test_what_is_pooled_or_normalized_in_few_channels(monkeypatch, results, outputs, want):
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        assert follows(*results, outputs=outputs) is (want if vector_code else Next.POOLED)
        assert follows(*results, outputs=outputs, differentiates=True) is Next.POOLED


@pytest.mark.parametrize("outputs", [4, 6])
@pytest.mark.parametrize("last", [False, True])
def test_few_channels_are_contiguous_in_an_inference(monkeypatch, outputs, last):
    """On x86, unless those of the image come last."""
    module = nn.Conv2d(8, outputs, 3, padding=1)
    given = torch.randn(32, 8, 28, 28).to(memory_format=torch.channels_last if last else torch.contiguous_format)
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        for becomes in (Next.FEW, Next.POOLED):
            with torch.no_grad():
                made = call_over_images(module, dict(module.named_parameters()), [given], becomes)
            assert has_channels_last(made) is (becomes is Next.POOLED or last or not vector_code)
            torch.testing.assert_close(made, module(given.contiguous()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("outputs", "channels", "last", "x86"),
    [
        (32, 3, False, Layout.CONTIGUOUS),
        (32, 3, True, Layout.CHANNELS_LAST),
        (8, 16, False, Layout.CONTIGUOUS),
        (8, 16, True, Layout.CHANNELS_LAST),
        (16, 16, False, Layout.CHANNELS_LAST),
    ],
)
def test_a_result_that_is_added_up(monkeypatch, outputs, channels, last, x86):
    """With vector code it is contiguous in an inference where there are few channels, unless they are last in the image."""
    module = nn.Conv2d(channels, outputs, 3, padding=1)
    given = torch.empty(8, channels, 9, 9).to(memory_format=torch.channels_last if last else torch.contiguous_format)
    for vector_code, inferred in ((True, x86), (False, Layout.CHANNELS_LAST)):
        pretend(monkeypatch, vector_code)
        assert layouts.layout_of(module, given, Next.REDUCED) is Layout.CHANNELS_LAST
        with torch.no_grad():
            assert layouts.layout_of(module, given, Next.REDUCED) is inferred


aten, LAST = torch.ops.aten, {"memory_format": torch.channels_last}


@pytest.mark.parametrize(
    ("between", "want"),
    [
        (lambda graph, x, copy: None, 1),
        (lambda graph, x, copy: graph.call_function(aten.relu.default, (copy,)), 1),
        (lambda graph, x, copy: graph.call_function(aten.relu_.default, (x,)), 2),
        (lambda graph, x, copy: graph.call_function(aten.relu_.default, (copy,)), 2),
        (lambda graph, x, copy: graph.call_function(aten.relu_.default, (_flat(graph, x),)), 2),
        (lambda graph, x, copy: graph.call_function(aten._foreach_zero_.default, ([x],)), 2),
    ],
    ids=["nothing", "reads", "writes", "writes into the copy", "writes into a view", "writes into several"],
)
def test_copies_of_one_image_in_one_layout_are_one(between, want):
    graph = fx.Graph()
    x = graph.placeholder("x")
    copies = [graph.call_function(aten.clone.default, (x,), LAST)]
    between(graph, x, copies[0])
    copies.append(graph.call_function(aten.clone.default, (x,), LAST))
    other = graph.call_function(aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
    made = [graph.call_function(aten.neg.default, (copy,)) for copy in (*copies, other)]
    given = graph.call_function(aten.clone.default, (x,), LAST)  # a program's own
    graph.output([made, given])
    share_copies(graph, list(graph.nodes))
    drop_unread(graph)
    left = [node for node in graph.nodes if node.target is aten.clone.default]
    assert len(left) == want + 2 and given in left and other in left


def _flat(graph: fx.Graph, x: fx.Node) -> fx.Node:
    return graph.call_function(aten.view.default, (x, [-1]))


@pytest.mark.parametrize(
    ("results", "want"),
    [
        ([[flat]], Next.FLAT),
        ([[act, flat]], Next.FLAT),
        ([[act, pool, flat]], Next.POOLED),
        ([[act, again, flat]], Next.FLAT),
        ([[act, again, pool, flat]], None),
        ([[act, join, flat]], None),
        ([[act]], Next.FLAT),
        ([[act, flat], [act, pool]], Next.POOLED),
        ([[act, flat], [again]], Next.FLAT),
        ([[act, flat], [again, pool]], None),
        ([[even, act, pool, flat]], Next.POOLED),
        ([[odd, act, pool, flat]], Next.FLAT),
        ([[odd, again, pool, flat]], Next.FLAT),
    ],
)
def test_what_follows(results, want):
    assert follows(*results) is want
    # Of what is trained, the last convolution alone: the gradient of those before it comes from another.
    is_last = not any(again in chain and odd not in chain for chain in results)
    assert follows(*results, differentiates=True) is (want if want is Next.POOLED or is_last else None)


@pytest.mark.parametrize(("threads", "size"), [(1, 26), (2, 26), (4, 48), (8, 94)])
def test_few_elements_are_not_laid_out_for_pooling(monkeypatch, threads, size):
    monkeypatch.setattr(layouts.torch, "get_num_threads", lambda: threads)
    module = nn.Conv2d(1, 8, 3)
    for pixels, want in ((size - 2, False), (size, True)):
        image = torch.randn(1, 1, pixels, pixels)
        made = call_over_images(module, dict(module.named_parameters()), [image], Next.POOLED)
        assert made.is_contiguous(memory_format=torch.channels_last) is want


def test_a_norm_that_makes_images_contiguous_lays_them_out_for_pooling(monkeypatch):
    """And the convolution before it does not. The numbers against plain torch's of 64 bits."""
    monkeypatch.setattr(layouts.torch, "get_num_threads", lambda: 2)  # more would leave so few as they are
    x, norm = torch.randn(4, 16, 24, 24).to(memory_format=torch.channels_last), nn.GroupNorm(8, 16)
    for following_it, want in ((Next.POOLED, True), (Next.OTHER, False)):
        made = call_over_images(norm, dict(norm.named_parameters()), [x], following_it)
        assert made.is_contiguous(memory_format=torch.channels_last) is want
        torch.testing.assert_close(made.double(), F.group_norm(x.double(), 8), rtol=1e-4, atol=1e-5)
