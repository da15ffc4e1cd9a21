"""LSTM stacks in every form, against loops over sequences, steps and gates."""

from __future__ import annotations

import numpy as np

from mlc_torch.descriptors import MLCActivationDescriptor, MLCLSTMDescriptor
from mlc_torch.enums import MLCActivationType as Kind
from mlc_torch.enums import MLCLSTMResultMode as Mode
from mlc_torch.layers.lstm import LSTM, MLCLSTMLayer
from tests.layers.activation_records import FORMULAS
from tests.layers.records import Record, Refusal, tensor, values

_DESCRIBED = (
    "descriptorWithInputSize_hiddenSize_layerCount_usesBiases_batchFirst_isBidirectional_returnsSequences_dropout_"
    "resultMode_"
)
_SIGMOID, _TANH = (Kind.sigmoid, 1.0, 1.0), (Kind.tanh, 1.0, 1.0)
STANDARD = [_SIGMOID, _SIGMOID, _TANH, _SIGMOID, _TANH]


def _function(activation):
    kind, a, b = activation
    return lambda x: FORMULAS[kind](x, a, b)


def one_sequence(x, weights, h, c, activations):
    """One sequence [time, features] in the order given: the outputs of every step, and the states at the end."""
    wi, wh, peep, b = weights
    f_i, f_f, f_g, f_o, f_out = map(_function, activations)
    outputs = []
    for step in x:
        i, f, g, o = (wi[gate] @ step + wh[gate] @ h + b[gate] for gate in range(4))
        i, f = f_i(i + peep[0] * c), f_f(f + peep[1] * c)
        c = f * c + i * f_g(g)
        h = f_o(o + peep[3] * c) * f_out(c)
        outputs.append(h)
    return outputs, h, c


def stack(x, lists, layers, directions, hidden, activations=STANDARD, h0=None, c0=None, lengths=None):
    """x [batch, time, features] to the outputs [batch, time, hidden·directions] and both final states.

    ``lists`` are the input, hidden, peephole and bias arrays, gate by gate; states are [layers, directions, batch,
    hidden].
    """
    batch, time, _ = x.shape
    h_end, c_end = np.zeros((2, layers, directions, batch, hidden))
    for layer in range(layers):
        y = np.zeros((batch, time, hidden * directions))
        for direction in range(directions):
            first = (direction * layers + layer) * 4
            weights = [[w.astype(float) for w in kind[first : first + 4]] for kind in lists]
            for n in range(batch):
                length = time if lengths is None else min(max(int(lengths[n]), 0), time)
                h = np.zeros(hidden) if h0 is None else h0[layer, direction, n]
                c = np.zeros(hidden) if c0 is None else c0[layer, direction, n]
                order = list(range(length))[:: -1 if direction else 1]
                outputs, h, c = one_sequence(x[n, order], weights, h, c, activations)
                for t, output in zip(order, outputs, strict=True):
                    y[n, t, direction * hidden : (direction + 1) * hidden] = output
                h_end[layer, direction, n], c_end[layer, direction, n] = h, c
        x = y
    return x, h_end, c_end


def arrays(inputs, hidden, layers, directions, biased=True, peepholes=False, seed=0):
    """The input, hidden, peephole and bias arrays, one entry per gate."""
    count = layers * directions * 4
    widths = [inputs if index // 4 % layers == 0 else hidden * directions for index in range(count)]

    def small(*shape, seed):
        return values(*shape, seed=seed, low=-0.9, high=0.9)

    return (
        [small(hidden, width, seed=seed + 10 * n) for n, width in enumerate(widths)],
        [small(hidden, hidden, seed=seed + 10 * n + 1) for n in range(count)],
        [small(hidden, seed=seed + 10 * n + 2) * (1 if peepholes else 0) for n in range(count)],
        [small(hidden, seed=seed + 10 * n + 3) * (1 if biased else 0) for n in range(count)],
    )


SHAPES = {
    "flat image": lambda w: (1, w.size, 1, 1),
    "flat": lambda w: (1, w.size),
    "transposed": lambda w: w.shape[::-1],
    "plain": lambda w: w.shape,
}


def tensors(lists, shape="flat image"):
    return [[tensor(w, SHAPES[shape](w)) for w in kind] for kind in lists]


def descriptors(activations):
    *gates, output = (MLCActivationDescriptor(type=kind, a=a, b=b) for kind, a, b in activations)
    return gates, output


def lstm(
    name,
    size,
    inputs,
    hidden,
    result,
    layers=1,
    bidirectional=False,
    biased=True,
    peepholes=False,
    activations=None,
    states=0,
    lengths=None,
    mode=Mode.output,
    sequences=True,
    batch_first=True,
    dropout=0.0,
    shape="flat image",
    image="",
    **kw,
) -> Record:
    """``size`` is (batch, time); ``states`` the batch of the initial states, 0 for none.

    ``image`` is the order of the source's four dimensions: "bf1t" or "b1f1".
    """
    directions = 2 if bidirectional else 1
    lists = arrays(inputs, hidden, layers, directions, biased, peepholes)
    given = {
        "inputSize": inputs,
        "hiddenSize": hidden,
        "layerCount": layers,
        "usesBiases": biased,
        "batchFirst": batch_first,
        "isBidirectional": bidirectional,
        "returnsSequences": sequences,
        "dropout": dropout,
        "resultMode": mode,
    }

    def swift():
        wi, wh, peep, b = tensors(lists, shape)
        more = {}
        if activations:
            more["gateActivations"], more["outputResultActivation"] = descriptors(activations)
        if peepholes or activations:
            more["peepholeWeights"] = peep if peepholes else None
        more["biases"] = b if biased else None
        return MLCLSTMLayer(descriptor=MLCLSTMDescriptor(**given), inputWeights=wi, hiddenWeights=wh, **more)

    def objc():
        wi, wh, peep, b = tensors(lists, shape)
        arguments = [getattr(MLCLSTMDescriptor, _DESCRIBED)(*given.values()), wi, wh, b if biased else None]
        selector = "layerWithDescriptor_inputWeights_hiddenWeights_biases_"
        if peepholes or activations:
            selector = "layerWithDescriptor_inputWeights_hiddenWeights_peepholeWeights_biases_"
            arguments.insert(3, peep if peepholes else None)
        if activations:
            selector += "gateActivations_outputResultActivation_"
            arguments += descriptors(activations)
        return getattr(MLCLSTMLayer, selector)(*arguments)

    sources = [values(*(size if batch_first else size[::-1]), inputs, low=-1.5, high=1.5)]
    if image:
        batch, time, features = sources[0].shape
        sources = [
            sources[0].swapaxes(1, 2).reshape([{"b": batch, "f": features, "t": time, "1": 1}[n] for n in image])
        ]
    if states:
        sources += [values(layers, directions, states, hidden, seed=s, low=-1, high=1) for s in (5, 6)]
    if lengths is not None:
        sources.append(np.array(lengths, np.int32))

    def reference(x, *rest):
        if image:
            x = x.reshape(len(x), inputs, -1).swapaxes(1, 2)
        x = x if batch_first else x.swapaxes(0, 1)
        h0, c0 = rest[:2] if states else (None, None)
        ends = None if lengths is None else rest[-1].ravel()
        y, h, c = stack(x, lists, layers, directions, hidden, activations or STANDARD, h0, c0, ends)
        if not sequences:
            y = np.concatenate(list(h[-1]), 1)[:, None]
        y = y if batch_first else y.swapaxes(0, 1)
        if image:
            y = y.swapaxes(1, 2)[:, :, None]
        return y if mode is Mode.output else (y, h, c)

    return Record(name, swift, sources, result, reference, objc=objc, rtol=1e-4, atol=1e-5, **kw)


_OWN = [
    (Kind.hardSigmoid, 0.3, 0.4),
    (Kind.softSign, 1.0, 1.0),
    (Kind.gelu, 1.0, 1.0),
    (Kind.linear, 0.5, 0.1),
    (Kind.tanh, 1.5, 0.5),
]

RECORDS = [
    lstm("one layer", (3, 4), 2, 3, (3, 4, 3), module=LSTM),
    lstm("one step, one of everything", (1, 1), 1, 1, (1, 1, 1), shape="plain"),
    lstm("no biases, flat weights", (2, 3), 3, 2, (2, 3, 2), biased=False, shape="flat"),
    lstm("weights of shape [input, hidden]", (2, 3), 4, 2, (2, 3, 2), shape="transposed"),
    lstm("three layers", (2, 4), 2, 3, (2, 4, 3), layers=3),
    lstm("both directions", (2, 4), 3, 2, (2, 4, 4), bidirectional=True),
    lstm(
        "two layers, both directions, states in and out",
        (2, 3),
        2,
        3,
        [(2, 3, 6), (2, 2, 2, 3), (2, 2, 2, 3)],
        layers=2,
        bidirectional=True,
        states=2,
        mode=Mode.outputAndStates,
    ),
    lstm("output and states", (3, 2), 2, 2, [(3, 2, 2), (1, 1, 3, 2), (1, 1, 3, 2)], mode=Mode.outputAndStates),
    lstm("initial states", (3, 2), 2, 2, (3, 2, 2), states=3),
    lstm("initial states of a larger batch", (2, 3), 2, 2, (2, 3, 2), layers=2, states=5),
    lstm("peepholes", (2, 4), 2, 3, (2, 4, 3), peepholes=True),
    lstm(
        "peepholes, two layers, both directions, no biases",
        (2, 3),
        2,
        2,
        (2, 3, 4),
        layers=2,
        bidirectional=True,
        peepholes=True,
        biased=False,
    ),
    lstm("own activations", (2, 3), 2, 3, (2, 3, 3), activations=_OWN),
    lstm("own activations that are the standard ones", (2, 3), 2, 3, (2, 3, 3), activations=STANDARD),
    lstm(
        "a scaled tanh is not the standard one",
        (2, 3),
        2,
        3,
        (2, 3, 3),
        activations=[*STANDARD[:4], (Kind.tanh, 2.0, 0.5)],
    ),
    lstm(
        "own activations and peepholes, states in and out",
        (2, 3),
        2,
        2,
        [(2, 3, 2), (2, 1, 2, 2), (2, 1, 2, 2)],
        layers=2,
        activations=_OWN,
        peepholes=True,
        states=2,
        mode=Mode.outputAndStates,
    ),
    lstm("lengths", (3, 4), 2, 3, (3, 4, 3), lengths=[4, 2, 1]),
    lstm(
        "lengths, unsorted, none and too many",
        (4, 3),
        2,
        2,
        [(4, 3, 2), (1, 1, 4, 2), (1, 1, 4, 2)],
        lengths=[1, 0, 9, -2],
        mode=Mode.outputAndStates,
    ),
    lstm("lengths as a column, of a larger batch", (2, 3), 2, 2, (2, 3, 2), lengths=[[3], [1], [2]]),
    lstm(
        "lengths, two layers, both directions, states in and out",
        (3, 4),
        2,
        2,
        [(3, 4, 4), (2, 2, 3, 2), (2, 2, 3, 2)],
        layers=2,
        bidirectional=True,
        states=3,
        lengths=[4, 3, 1],
        mode=Mode.outputAndStates,
    ),
    lstm(
        "lengths, peepholes, own activations, both directions",
        (2, 3),
        2,
        2,
        (2, 3, 4),
        bidirectional=True,
        activations=_OWN,
        peepholes=True,
        lengths=[3, 2],
    ),
    lstm("last output", (3, 4), 2, 3, (3, 1, 3), sequences=False),
    lstm("last output, both directions", (3, 4), 2, 3, (3, 1, 6), layers=2, bidirectional=True, sequences=False),
    lstm(
        "last output, lengths, both directions, states",
        (3, 4),
        2,
        2,
        [(3, 1, 4), (1, 2, 3, 2), (1, 2, 3, 2)],
        bidirectional=True,
        lengths=[4, 2, 1],
        sequences=False,
        mode=Mode.outputAndStates,
    ),
    lstm("time first", (2, 4), 3, 2, (4, 2, 2), batch_first=False),
    lstm(
        "time first, lengths, both directions, states",
        (2, 3),
        3,
        2,
        [(3, 2, 4), (1, 2, 2, 2), (1, 2, 2, 2)],
        batch_first=False,
        bidirectional=True,
        states=2,
        lengths=[3, 2],
        mode=Mode.outputAndStates,
    ),
    lstm("time first, last output", (2, 4), 3, 2, (1, 2, 4), batch_first=False, bidirectional=True, sequences=False),
    lstm("four dimensions", (2, 4), 3, 2, (2, 2, 1, 4), image="bf1t"),
    lstm("four dimensions, one of everything", (1, 1), 1, 1, (1, 1, 1, 1), image="bf1t"),
    lstm("four dimensions, one step, features behind", (3, 1), 2, 3, (3, 3, 1, 1), image="b1f1"),
    lstm(
        "four dimensions, two layers, both directions, lengths, states in and out",
        (3, 4),
        2,
        2,
        [(3, 4, 1, 4), (2, 2, 3, 2), (2, 2, 3, 2)],
        layers=2,
        bidirectional=True,
        states=3,
        lengths=[4, 3, 1],
        mode=Mode.outputAndStates,
        image="bf1t",
    ),
    lstm("four dimensions, last output", (2, 3), 2, 3, (2, 6, 1, 1), bidirectional=True, sequences=False, image="bf1t"),
    lstm("dropout outside training", (2, 3), 2, 2, (2, 3, 2), layers=2, dropout=0.5),
    lstm("one layer has no gap to drop in", (2, 3), 2, 2, (2, 3, 2), dropout=0.5, training=True),
]


def _layer(layers=1, biased=True, bidirectional=False, more=None, **lists):
    """An LSTM from 2 to 3 features; ``biases={3: array}`` replaces one tensor, a number keeps so many, None all."""
    d = MLCLSTMDescriptor(
        inputSize=2, hiddenSize=3, layerCount=layers, usesBiases=biased, isBidirectional=bidirectional, dropout=0.0
    )
    names = ("inputWeights", "hiddenWeights", "peepholeWeights", "biases")
    given = dict(zip(names, tensors(arrays(2, 3, layers, 2 if bidirectional else 1)), strict=True))
    if "peepholeWeights" not in lists:
        del given["peepholeWeights"]
    for name, change in lists.items():
        if isinstance(change, dict):
            for index, array in change.items():
                given[name][index] = tensor(array)
        else:
            given[name] = None if change is None else given[name][:change]
    return MLCLSTMLayer(descriptor=d, **given, **(more or {}))


def _time_first():
    wi, wh, _, b = tensors(arrays(2, 3, 1, 1))
    d = MLCLSTMDescriptor(
        inputSize=2,
        hiddenSize=3,
        layerCount=1,
        usesBiases=True,
        batchFirst=False,
        isBidirectional=False,
        dropout=0.0,
    )
    return MLCLSTMLayer(descriptor=d, inputWeights=wi, hiddenWeights=wh, biases=b)


def _activations(count, kind=Kind.tanh, **numbers):
    made = MLCActivationDescriptor(type=kind, **numbers)
    return {"gateActivations": [made] * count, "outputResultActivation": made}


def _stacked(layers):
    wi, wh, _, b = tensors(arrays(2, 3, 1, 1))
    d = MLCLSTMDescriptor(inputSize=2, hiddenSize=3, layerCount=layers)
    return MLCLSTMLayer(descriptor=d, inputWeights=wi, hiddenWeights=wh, biases=b)


_X = ((2, 4, 2), "float32")
_H = ((1, 1, 2, 3), "float32")

REFUSALS = [
    Refusal("few input weights", lambda: _layer(inputWeights=3), "inputWeights must hold 4 tensors, got 3"),
    Refusal("few hidden weights", lambda: _layer(2, hiddenWeights=7), "hiddenWeights must hold 8 tensors, got 7"),
    Refusal(
        "more layers than a list could hold weights for, at once",
        lambda: _stacked(2**63 - 1),
        f"inputWeights must hold {4 * (2**63 - 1)} tensors, got 4",
    ),
    Refusal(
        "weights for one direction of two",
        lambda: _layer(bidirectional=True, inputWeights=4),
        "inputWeights must hold 8 tensors, got 4",
    ),
    Refusal(
        "input weight size",
        lambda: _layer(inputWeights={2: values(1, 7)}),
        "inputWeights[2] needs 6 elements, got shape [1, 7]",
    ),
    Refusal(
        "input weight size of layer 1",
        lambda: _layer(2, inputWeights={5: values(3, 2)}),
        "inputWeights[5] needs 9 elements",
    ),
    Refusal("hidden weight size", lambda: _layer(hiddenWeights={0: values(3, 2)}), "hiddenWeights[0] needs 9 elements"),
    Refusal("integer weights", lambda: _layer(inputWeights={1: np.zeros(6, np.int32)}), "inputWeights[1]"),
    Refusal("bias size", lambda: _layer(biases={3: values(2)}), "biases[3] needs 3 elements"),
    Refusal("biases missing", lambda: _layer(biases=None), "biases must hold 4 tensors, got none"),
    Refusal("biases not wanted", lambda: _layer(biased=False), "usesBiases is False"),
    Refusal("few peepholes", lambda: _layer(peepholeWeights=3), "peepholeWeights must hold 4 tensors, got 3"),
    Refusal(
        "peephole size",
        lambda: _layer(peepholeWeights={0: values(3, 3)}),
        "peepholeWeights[0] needs 3 elements, got shape [3, 3]",
    ),
    Refusal("three activations", lambda: _layer(peepholeWeights=None, more=_activations(3)), "gateActivations"),
    Refusal(
        "impossible activation",
        lambda: _layer(peepholeWeights=None, more=_activations(4, Kind.celu, a=0.0)),
        "must not be 0",
    ),
    Refusal("five sources", _layer, "got 5", [_X, _H, _H, ((2,), "int32"), ((2,), "int32")]),
    Refusal("rank", _layer, "[batch, time, features]", [((2, 2), "float32")]),
    Refusal("features of four dimensions", _layer, "with 2 features", [((2, 3, 1, 4), "float32")]),
    Refusal("several steps with the features behind", _layer, "for one step [batch, 1,", [((2, 1, 2, 4), "float32")]),
    Refusal("a height of four dimensions", _layer, "with 2 features", [((2, 2, 3, 4), "float32")]),
    Refusal("four dimensions, time first", _time_first, "batchFirst false", [((2, 2, 1, 4), "float32")]),
    Refusal("features", _layer, "3 features, the LSTM takes 2", [((2, 4, 3), "float32")]),
    Refusal("integer input", _layer, "int32", [((2, 4, 2), "int32")]),
    Refusal("float lengths", _layer, "(the last source; states are two, [input, h0, c0])", [_X, ((2,), "float32")]),
    Refusal("too few lengths", _layer, "2 sequences", [_X, ((1,), "int32")]),
    Refusal("state shape", _layer, "batch, hidden] = [1, 1, 2, 3], got [1, 2, 3]", [_X, ((1, 2, 3), "float32"), _H]),
    Refusal("state too small a batch", _layer, "c0 must be", [_X, _H, ((1, 1, 1, 3), "float32")]),
    Refusal("state type", _layer, "c0 must be float32", [_X, _H, ((1, 1, 2, 3), "float16")]),
    Refusal(
        "source unlike the weights",
        _layer,
        "Weights.0, float32, got float16",
        [((2, 4, 2), "float16")],
        at_compile=True,
    ),
]
