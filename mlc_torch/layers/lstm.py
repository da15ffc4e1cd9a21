"""LSTM stacks: any number of layers, one or both directions, over sequences (evidence.md D.17).

Each list of tensors holds the gates i, f, g, o of layer 0, then of layer 1 and so on; with two directions all of this
for the forward one, then all of it for the backward one. One tensor may stand in a list many times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from mlc_torch.descriptors import MLCActivationDescriptor, MLCLSTMDescriptor
from mlc_torch.enums import MLCActivationType, MLCLSTMResultMode
from mlc_torch.layers.activation import MLCActivationLayer
from mlc_torch.layers.base import FLOATS, INDICES, MLCLayer, described, element_count, of_type
from mlc_torch.layers.lstm_cudnn import cudnn_stack, has_cudnn_lstm
from mlc_torch.layers.lstm_gates import joined
from mlc_torch.layers.lstm_layout import layout_of
from mlc_torch.layers.lstm_sequence import Weights, lstm_sequence
from mlc_torch.layers.noise import Dropout
from mlc_torch.layers.sharing import Samples, mixes
from mlc_torch.layers.tensor_lists import counted, fitting, fitting_if, list_prop, parameters, same_type_as_source
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensorDescriptor

States = list[torch.Tensor]
"""One for each layer and direction: layer 0 forward, layer 0 backward, layer 1 forward and so on."""
Source = TypeVar("Source")  # a torch tensor where a sequence runs, a descriptor where its shape is worked out

_GATES = 4
_SIGMOID, _TANH = MLCActivationType.sigmoid, MLCActivationType.tanh
_WEIGHTS = "descriptor: MLCLSTMDescriptor, inputWeights: [MLCTensor], hiddenWeights: [MLCTensor]"


def _directions(descriptor: MLCLSTMDescriptor) -> int:
    return 2 if descriptor.isBidirectional else 1


def _input_width(descriptor: MLCLSTMDescriptor, layer: int) -> int:
    """What a layer reads: the source, or all directions of the layer below."""
    return descriptor.hiddenSize * _directions(descriptor) if layer else descriptor.inputSize


def _split(rest: Sequence[Source]) -> tuple[Sequence[Source], Source | None]:
    """The sources after the input: none or both initial states, and the sequence lengths if their number is odd."""
    return rest[: len(rest) // 2 * 2], rest[-1] if len(rest) % 2 else None


def _longest(lengths: MLCTensorDescriptor) -> int:
    """The dimension of the sequence lengths that they lie along."""
    return lengths._shape.index(max(lengths._shape))


def _apart(state: torch.Tensor) -> States:
    """[layers·directions, batch, hidden] as one matrix for each place; a single one is only looked at."""
    return [state.squeeze(0)] if len(state) == 1 else list(state.unbind(0))


def _together(states: States, layers: int) -> torch.Tensor:
    whole = states[0] if len(states) == 1 else torch.stack(states)
    return whole.view(layers, len(states) // layers, *states[0].shape)


class LSTM(nn.Module):
    """(x), (x, lengths), (x, h0, c0) or (x, h0, c0, lengths) to the output, or to the output and the final states."""

    def __init__(self, descriptor: MLCLSTMDescriptor, activations: list[nn.Module]) -> None:
        super().__init__()
        self.shape, self.directions = descriptor, _directions(descriptor)
        standard = [nn.Sigmoid, nn.Sigmoid, nn.Tanh, nn.Sigmoid, nn.Tanh]
        self.activations = None if [type(a) for a in activations] == standard else nn.ModuleList(activations)
        # One place for each gap between layers, so that each draws its own mask.
        gaps = descriptor.layerCount - 1 if descriptor.dropout else 0
        dropouts = [Dropout(descriptor.dropout) for _ in range(gaps)]
        for dropout in dropouts:
            dropout.noise.sample_axis = 1  # here time comes first
        self.dropouts = nn.ModuleList(dropouts)

    @property
    def plain(self) -> bool:
        return self.activations is None and self.peepholeWeights_0 is None

    def gates(self, kind: str, layer: int, direction: int) -> list[torch.Tensor] | None:
        """Those of one layer and direction, if it has such weights."""
        first = (direction * self.shape.layerCount + layer) * _GATES
        gates = [getattr(self, f"{kind}_{first + gate}") for gate in range(_GATES)]
        return None if gates[0] is None else gates

    def joined(self, kind: str, layer: int, direction: int) -> torch.Tensor | None:
        """The same as one tensor."""
        gates = self.gates(kind, layer, direction)
        return None if gates is None else joined(gates)

    def weights(self, layer: int, direction: int) -> Weights:
        wi, wh = self.joined("inputWeights", layer, direction), self.joined("hiddenWeights", layer, direction)
        assert wi is not None
        assert wh is not None
        return wi, wh, self.joined("biases", layer, direction)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        d = self.shape
        layout = layout_of(x.shape, d.inputSize, d.batchFirst)
        x = layout.by_step(x)
        batch = x.shape[1]
        # Of a short last batch only the input is short; states and lengths come in full.
        states, lengths = _split(rest)
        if lengths is not None:
            lengths = lengths.reshape(-1)[:batch]
        whole = self.plain and lengths is None and has_cudnn_lstm(x) and not (self.training and len(self.dropouts))
        given = [state[:, :, :batch] for state in states]
        x, h, c = self.at_once(x, given) if whole else self.one_by_one(x, given, lengths)
        if not d.returnsSequences:
            # Where each direction ends: the forward one at the sequence's last step, the backward one at step 0.
            x = (h[-1] if self.directions == 1 else torch.cat(h[-2:], 1)).unsqueeze(0)
        x = layout.back(x)
        if d.resultMode is MLCLSTMResultMode.output:
            return x
        return x, *(_together(state, d.layerCount) for state in (h, c))

    def at_once(self, x: torch.Tensor, states: list[torch.Tensor]) -> tuple[torch.Tensor, States, States]:
        """The whole stack in one call, which runs layers and directions side by side."""
        places = [(layer, direction) for layer in range(self.shape.layerCount) for direction in range(self.directions)]
        kinds = "inputWeights", "hiddenWeights", "biases"
        weights: list[Any] = [[self.gates(kind, *place) for kind in kinds] for place in places]
        zeros = x.new_zeros(len(places), x.shape[1], self.shape.hiddenSize)
        h0, c0 = [state.flatten(0, 1) for state in states] or (zeros, zeros)
        x, h, c = cudnn_stack(x, weights, h0, c0, self.directions)
        return x, _apart(h), _apart(c)

    def one_by_one(
        self, x: torch.Tensor, states: list[torch.Tensor], lengths: torch.Tensor | None
    ) -> tuple[torch.Tensor, States, States]:
        """Layer by layer, direction by direction."""
        zeros = [x.new_zeros(x.shape[1], self.shape.hiddenSize)] * (self.shape.layerCount * self.directions)
        h0, c0 = [_apart(state.flatten(0, 1)) for state in states] or (zeros, zeros)
        hs: list[torch.Tensor] = []
        cs: list[torch.Tensor] = []
        activations = None if self.activations is None else tuple(self.activations)
        no_bias = x.new_zeros(_GATES * self.shape.hiddenSize)
        for layer in range(self.shape.layerCount):
            if layer and len(self.dropouts):
                x = self.dropouts[layer - 1](x)
            outputs = []
            for direction in range(self.directions):
                output, h, c = lstm_sequence(
                    x,
                    *self.weights(layer, direction),
                    h0[len(hs)],
                    c0[len(cs)],
                    peepholes=self.gates("peepholeWeights", layer, direction),
                    activations=activations,
                    lengths=lengths,
                    reverse=direction == 1,
                    no_bias=no_bias,
                )
                outputs.append(output)
                hs.append(h)
                cs.append(c)
            x = outputs[0] if self.directions == 1 else torch.cat(outputs, 2)
        return x, hs, cs

    def extra_repr(self) -> str:
        d = self.shape
        return (
            f"{d.inputSize}, {d.hiddenSize}, layers={d.layerCount}, bidirectional={d.isBidirectional}, "
            f"batch_first={d.batchFirst}, returns_sequences={d.returnsSequences}"
        )


class MLCLSTMLayer(MLCLayer):
    """A stack of LSTM layers with trainable weights, biases and peepholes for every gate."""

    descriptor = prop("MLCLSTMDescriptor", "Sizes and switches.")
    inputWeights = list_prop("[MLCTensor]", "What the gates multiply the source with.")
    hiddenWeights = list_prop("[MLCTensor]", "What the gates multiply the previous hidden state with.")
    peepholeWeights = list_prop("[MLCTensor]?", "What the gates multiply the cell state with, or ``None``.")
    biases = list_prop("[MLCTensor]?", "The biases of the gates, or ``None``.")
    gateActivations = list_prop("[MLCActivationDescriptor]", "The activation functions of the gates i, f, g, o.")
    outputResultActivation = prop(
        "MLCActivationDescriptor", "The activation function of the cell state on its way to the output."
    )
    inputWeightsParameters = list_prop("[MLCTensorParameter]", "The input weights as parameters.")
    hiddenWeightsParameters = list_prop("[MLCTensorParameter]", "The hidden weights as parameters.")
    peepholeWeightsParameters = list_prop("[MLCTensorParameter]?", "The peephole weights as parameters, or ``None``.")
    biasesParameters = list_prop("[MLCTensorParameter]?", "The biases as parameters, or ``None``.")
    _named = "LSTM"
    _knows_samples = True

    @declare(f"init?({_WEIGHTS}, biases: [MLCTensor]?)", "layerWithDescriptor:inputWeights:hiddenWeights:biases:")
    @declare(
        f"init?({_WEIGHTS}, peepholeWeights: [MLCTensor]?, biases: [MLCTensor]?)",
        "layerWithDescriptor:inputWeights:hiddenWeights:peepholeWeights:biases:",
    )
    @declare(
        f"init?({_WEIGHTS}, peepholeWeights: [MLCTensor]?, biases: [MLCTensor]?, "
        "gateActivations: [MLCActivationDescriptor], outputResultActivation: MLCActivationDescriptor)",
        "layerWithDescriptor:inputWeights:hiddenWeights:peepholeWeights:biases:gateActivations:outputResultActivation:",
    )
    def _create(
        cls,
        descriptor,
        inputWeights,
        hiddenWeights,
        biases,
        peepholeWeights=None,
        gateActivations=None,
        outputResultActivation=None,
    ):
        """Each list holds one tensor per gate (i, f, g, o), layer by layer, then the same for the backward direction."""
        d, hidden = descriptor, descriptor.hiddenSize
        count = _directions(d) * d.layerCount * _GATES
        # First of all: layerCount may be any number, and lists of that length are made below.
        counted("inputWeights", inputWeights, count)
        every_gate = range(count)
        vectors = [hidden for _ in every_gate]
        inputs = [hidden * _input_width(d, index // _GATES % d.layerCount) for index in every_gate]
        lists = {
            "inputWeights": fitting("inputWeights", inputWeights, inputs),
            "hiddenWeights": fitting("hiddenWeights", hiddenWeights, [hidden * hidden for _ in every_gate]),
            "peepholeWeights": fitting("peepholeWeights", peepholeWeights, vectors) if peepholeWeights else None,
            "biases": fitting_if(d.usesBiases, "usesBiases", "biases", biases, vectors),
        }
        if gateActivations is None:
            # The framework's defaults (measured, evidence.md D.17).
            gateActivations = [MLCActivationDescriptor._create(k) for k in (_SIGMOID, _SIGMOID, _TANH, _SIGMOID)]
            outputResultActivation = MLCActivationDescriptor._create(_TANH)
        if len(gateActivations) != _GATES:
            refuse(f"gateActivations must be those of the gates i, f, g and o, got {len(gateActivations)}")
        for activation in (*gateActivations, outputResultActivation):
            MLCActivationLayer._create(activation)
        return cls._layer(
            descriptor=descriptor,
            **lists,
            **{f"{name}Parameters": parameters(tensors) for name, tensors in lists.items()},
            gateActivations=gateActivations,
            outputResultActivation=outputResultActivation,
        )

    def _infer(self, sources):
        d = self._descriptor
        if not 1 <= len(sources) <= 4:
            forms = "[input], [input, lengths], [input, h0, c0] or [input, h0, c0, lengths]"
            refuse(f"takes the sources {forms}, got {len(sources)}")
        source, *rest = sources
        of_type(source, FLOATS)
        layout = self._layout(source._shape)
        time, batch, _ = layout.extent(source._shape)
        states, lengths = _split(rest)
        if lengths is not None:
            alone = "" if states else "; states are two, [input, h0, c0]"
            of_type(lengths, INDICES, f"the sequence lengths (the last source{alone})")
            if element_count(lengths) < batch:
                refuse(f"the sequence lengths must hold a number for each of {batch} sequences, got {lengths.shape}")
        expected = (d.layerCount, _directions(d), batch, d.hiddenSize)
        for name, state in zip(("h0", "c0"), states, strict=False):
            of_type(state, frozenset({source._dataType}), name)
            # A larger batch serves too: only its first sequences are read.
            *outer, given, hidden = state._shape if len(state._shape) == 4 else (0, 0, 0, 0)
            if (*outer, min(given, batch), hidden) != expected:
                refuse(f"{name} must be [layers, directions, batch, hidden] = {list(expected)}, got {state.shape}")
        steps = time if d.returnsSequences else 1
        output = described(layout.result(steps, batch, d.hiddenSize * expected[1]), source._dataType)
        if d.resultMode is MLCLSTMResultMode.output:
            return [output]
        return [output, described(expected, source._dataType), described(expected, source._dataType)]

    def _layout(self, shape):
        return layout_of(shape, self._descriptor.inputSize, self._descriptor.batchFirst)

    def _batch_axis(self, position, sources):
        """States are narrowed by the module, to the batch that the input has."""
        if position == 0:
            return 0 if self._descriptor.batchFirst else 1
        return _longest(sources[position]) if self._index_limit(position, sources) is not None else None

    def _index_limit(self, position, sources):
        """The lengths, where there are any, count from 0 to all steps."""
        if len(sources) % 2 or position != len(sources) - 1:
            return None
        time, _, _ = self._layout(sources[0]._shape).extent(sources[0]._shape)
        return time + 1

    def _check(self, sources):
        same_type_as_source(self, sources[0])

    def _samples(self, axes, sources, results):
        batch = self._batch_axis(0, sources)
        if axes[0] is None:
            return Samples(axes, [None] * len(results))
        if axes[0] != batch:
            mixes(f"takes sequences along dimension {batch}, and the source counts samples along dimension {axes[0]}")
        states, lengths = _split(sources[1:])
        found = [batch, *(2 for _ in states)]
        if lengths is not None:
            found.append(_longest(lengths))
        return Samples(found, [batch, 2, 2][: len(results)])

    def _build(self):
        d, hidden = self._descriptor, self._descriptor.hiddenSize
        descriptors = (*self._gateActivations, self._outputResultActivation)
        module = LSTM(d, [MLCActivationLayer._create(activation).module for activation in descriptors])
        for index in range(_directions(d) * d.layerCount * _GATES):
            width = _input_width(d, index // _GATES % d.layerCount)
            shapes = {
                "inputWeights": (hidden, width),
                "hiddenWeights": (hidden, hidden),
                "peepholeWeights": (hidden,),
                "biases": (hidden,),
            }
            for kind, shape in shapes.items():
                held = self.__dict__[f"_{kind}Parameters"]
                self._show(module, f"{kind}_{index}", shape, held[index] if held else None, f"{kind}.{index}")
        return module

    def _shown(self):
        return ["descriptor"]
