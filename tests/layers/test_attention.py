"""Attention: against torch.nn.MultiheadAttention, dropout, masks over everything, tracing."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from mlc_torch.descriptors import MLCMultiheadAttentionDescriptor
from mlc_torch.layers.attention import MLCMultiheadAttentionLayer
from tests.layers.attention_records import arrays, documented
from tests.layers.records import booleans, tensor, values


def make(model=6, heads=2, biased=True, attention_biases=False, zero=False, dropout=0.0):
    d = MLCMultiheadAttentionDescriptor(
        modelDimension=model,
        keyDimension=model,
        valueDimension=model,
        headCount=heads,
        dropout=dropout,
        hasBiases=biased,
        hasAttentionBiases=attention_biases,
        addsZeroAttention=zero,
    )
    weights, biases, rows = arrays(model, model, model)
    return MLCMultiheadAttentionLayer(
        descriptor=d,
        weights=[tensor(w, s) for w, s in zip(weights, documented(model, model, model, heads), strict=True)],
        biases=[*map(tensor, biases)] if biased else None,
        attentionBiases=[*map(tensor, rows)] if attention_biases else None,
    )


def sources(batch=3, queries=4, keys=5, model=6):
    return [torch.from_numpy(values(batch, n, model, seed=s)) for s, n in enumerate((queries, keys, keys))]


def torch_attention(biased=True, attention_biases=False, zero=False):
    """torch's own attention with the weights of ``make``."""
    weights, biases, rows = (list(map(torch.from_numpy, part)) for part in arrays(6, 6, 6))
    made = nn.MultiheadAttention(6, 2, bias=biased, add_bias_kv=attention_biases, add_zero_attn=zero, batch_first=True)
    with torch.no_grad():
        made.in_proj_weight.copy_(torch.cat(weights[:3]))
        made.out_proj.weight.copy_(weights[3])
        if biased:
            made.in_proj_bias.copy_(torch.cat(biases[:3]))
            made.out_proj.bias.copy_(biases[3])
        if attention_biases:
            made.bias_k.copy_(rows[0].view(1, 1, 6))
            made.bias_v.copy_(rows[1].view(1, 1, 6))
    return made


_KEYS = booleans(3, 5, seed=2)
_KEYS[:, 0] = False
_EACH = booleans(6, 4, 5, seed=3)
_EACH[:, :, 0] = False


@pytest.mark.parametrize(
    ("biased", "attention_biases", "zero"), [(True, False, False), (False, True, False), (True, True, True)]
)
@pytest.mark.parametrize(
    ("key_mask", "mask"),
    [
        (None, None),
        (_KEYS, None),
        (None, _EACH),
        (None, values(6, 4, 5, seed=4)),
        (_KEYS, _EACH),
        (None, values(1, 4, 5, seed=5)),
    ],
)
def test_torch_attention_gives_the_same(biased, attention_biases, zero, key_mask, mask, torch_device):
    options = {"biased": biased, "attention_biases": attention_biases, "zero": zero}
    ours = copy.deepcopy(make(**options).module).to(torch_device)
    theirs = torch_attention(**options).to(torch_device)
    given = [s.to(torch_device) for s in sources()]
    key_mask, mask = (None if m is None else torch.from_numpy(m).to(torch_device) for m in (key_mask, mask))
    flat = mask if mask is None or mask.shape[0] > 1 else mask[0]
    want = theirs(*given, key_padding_mask=key_mask, attn_mask=flat, need_weights=False)[0]
    got = ours(*given, *(m for m in (key_mask, mask) if m is not None))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_query_that_may_see_nothing_gets_the_output_bias_and_finite_gradients(dropout, torch_device):
    layer = make(dropout=dropout)
    module = copy.deepcopy(layer.module).to(torch_device).train()
    given = [s.to(torch_device).requires_grad_() for s in sources()]
    mask = torch.zeros(3, 5, dtype=torch.bool, device=torch_device)
    mask[1] = True
    result = module(*given, mask)
    torch.testing.assert_close(result[1], module.output_bias.expand(4, 6))
    grads = torch.autograd.grad(result.square().sum(), [*given, *module.parameters()])
    assert all(torch.isfinite(g).all() for g in grads)
    assert not any(g[1].any() for g in grads[:3])


def test_the_same_as_an_added_mask():
    module = make().module
    mask = torch.from_numpy(_EACH)
    added = torch.zeros(mask.shape).masked_fill(mask, -math.inf)
    torch.testing.assert_close(module(*sources(), mask), module(*sources(), added))


def test_a_shorter_batch_is_the_beginning_of_the_whole():
    module = make().module
    masks = torch.from_numpy(_KEYS), torch.from_numpy(_EACH)
    whole = module(*sources(), *masks)
    torch.testing.assert_close(module(*(s[:2] for s in sources()), *masks), whole[:2])


# Dropout


def test_dropout_falls_on_the_attention_weights(torch_device):
    module = copy.deepcopy(make(dropout=0.5, zero=True).module).to(torch_device).train()
    given = [s.to(torch_device) for s in sources()]
    keep = torch.from_numpy((values(3, 2, 4, 6) > 0).astype(np.float32) * 2).to(torch_device)
    with module.noise.fed([keep]):
        got = module(*given)
    with module.noise.fed([torch.ones_like(keep)]):
        torch.testing.assert_close(module(*given), module.eval()(*given), rtol=1e-4, atol=1e-5)

    w, b, _ = arrays(6, 6, 6)
    q, k, v = (s.cpu().numpy() @ w[n].T + b[n] for n, s in enumerate(given))
    k, v = (np.concatenate([rows, np.zeros((3, 1, 6))], 1) for rows in (k, v))
    joined = np.zeros((3, 4, 6))
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        scores = np.exp(q[..., part] @ k[..., part].swapaxes(1, 2) / np.sqrt(3))
        shares = scores / scores.sum(-1, keepdims=True) * keep[:, head].cpu().numpy()
        joined[..., part] = shares @ v[..., part]
    np.testing.assert_allclose(got.detach().cpu().numpy(), joined @ w[3].T + b[3], rtol=1e-4, atol=1e-5)


def test_dropout_draws_anew_in_training_and_rests_otherwise():
    module = make(dropout=0.5).module
    state = torch.get_rng_state()
    module.train()
    assert not torch.equal(module(*sources()), module(*sources()))
    module.eval()
    torch.testing.assert_close(module(*sources()), make().module(*sources()))
    assert torch.equal(state, torch.get_rng_state())


# Tensors and tracing


def test_parameters_are_the_tensors_own_memory():
    layer = make(attention_biases=True)
    roles = [use.role for use in layer._parameter_uses]
    projections = [f"{kind}.{n}" for n in range(4) for kind in ("weights", "biases")]
    assert roles == [*projections, "attentionBiases.0", "attentionBiases.1"]
    with torch.no_grad():
        layer.module.value_weight.fill_(3)
        layer.module.key_row.fill_(4)
    assert (layer.weights[2].numpy() == 3).all()
    assert (layer.attentionBiases[0].numpy() == 4).all()


def test_properties():
    layer = make(biased=False)
    assert layer.label == "MultiheadAttention"
    assert [p.tensor for p in layer.weightsParameters] == layer.weights
    assert layer.biases is None and layer.biasesParameters is None and layer.attentionBiases is None
    layer.weights.clear()
    assert len(layer.weights) == 4
    assert make().biasesParameters[3].isUpdatable
    assert repr(layer) == "MLCMultiheadAttentionLayer('MultiheadAttention', modelDimension=6, 2 heads, hasBiases=False)"


def test_one_tensor_for_every_projection_adds_its_gradients():
    weights = tensor(values(4, 4, low=-0.5, high=0.5))
    d = MLCMultiheadAttentionDescriptor(
        modelDimension=4,
        keyDimension=4,
        valueDimension=4,
        headCount=2,
        dropout=0.0,
        hasBiases=False,
        hasAttentionBiases=False,
        addsZeroAttention=False,
    )
    layer = MLCMultiheadAttentionLayer(descriptor=d, weights=[weights] * 4, biases=None, attentionBiases=None)
    given = sources(2, 3, 3, 4)
    layer.module(*given).sum().backward()
    total = sum(use.torch.grad for use in layer._parameter_uses)

    def direct(w):
        q, k, v = ((s.double() @ w.T).unflatten(2, (2, 2)).transpose(1, 2) for s in given)
        shares = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(2), -1)
        return ((shares @ v).transpose(1, 2).flatten(2) @ w.T).sum()

    w = torch.tensor(weights.numpy(), dtype=torch.float64, requires_grad=True)
    (want,) = torch.autograd.grad(direct(w), w)
    torch.testing.assert_close(total.double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_it_can_be_traced_with_its_gradient(masked, torch_device):
    module = copy.deepcopy(make().module).to(torch_device)
    names, parameters = zip(*module.named_parameters(), strict=True)
    masks = [torch.from_numpy(_KEYS).to(torch_device)] * masked
    given = [s.to(torch_device) for s in sources()]

    def step(q, k, v, *weights):
        result = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (q, k, v, *masks))
        return torch.autograd.grad(result.square().sum(), weights)

    traced = make_fx(step)(*given, *parameters)
    fresh = [s.flip(0) for s in given]
    others = [(p.detach() * 0.7 + 0.1).requires_grad_() for p in parameters]
    for a, b in zip(traced(*fresh, *others), step(*fresh, *others), strict=True):
        torch.testing.assert_close(a, b)


def test_it_can_be_exported():
    module, given = make().module.eval(), (*sources(), torch.from_numpy(_KEYS))
    exported = torch.export.export(module, given, strict=False).module()
    torch.testing.assert_close(exported(*given), module(*given))
