"""A forecast with an LSTM that carries its states, after dhrebeniuk/MLCLSTMExample.

1000 points of a noisy squared sine; the network sees them one after the other and says what comes 50 steps later. It
learns from several stretches of the series side by side and then forecasts one point at a time: two graphs of different
shapes over the same weight tensors, which the original's author wanted and had to give up.

    // Swift                                                # Python, below
    let shape = MLCLSTMDescriptor(inputSize: 1,             shape = MLCLSTMDescriptor(inputSize=1,
        hiddenSize: 16, layerCount: 1, usesBiases: true,        hiddenSize=16, layerCount=1, usesBiases=True,
        batchFirst: true, isBidirectional: false,               batchFirst=True, isBidirectional=False,
        returnsSequences: true, dropout: 0,                     returnsSequences=True, dropout=0,
        resultMode: .outputAndStates)                           resultMode=MLCLSTMResultMode.outputAndStates)
    let lstm = MLCLSTMLayer(descriptor: shape,              lstm = MLCLSTMLayer(descriptor=shape,
        inputWeights: w, hiddenWeights: u, biases: b)!          inputWeights=w, hiddenWeights=u, biases=b)
    let output = graph.node(with: lstm,                     output = graph.node(lstm,
        sources: [x, h0, c0])!                                  sources=[x, h0, c0])
    let states = graph.resultTensors(for: lstm)[1...2]      states = graph.resultTensors(for_=lstm)[1:]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_torch import (
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCLSTMResultMode,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.programs import chosen_device, options, progress, save_picture, tensor_data

POINTS, AHEAD, PERIOD, NOISE = 1000, 50, 80, 0.05
STRETCHES, WINDOW, HIDDEN = 8, 24, 16
LEARNED = STRETCHES * WINDOW * 4
"""How many points the network learns from: each of the stretches is four windows long."""

SYNCHRONOUS = [MLCExecutionOptions.synchronous]


class Weights:
    """The trained tensors. Every network below is made of these."""

    def __init__(self) -> None:
        numbers = np.random.default_rng(0)

        def parameters(count: int, size: int) -> list[MLCTensor]:
            start = [numbers.uniform(-0.25, 0.25, size).astype(np.float32) for _ in range(count)]
            return [
                MLCTensor(shape=[1, size, 1, 1], data=tensor_data(values), dataType=MLCDataType.float32)
                for values in start
            ]

        # The four gates: input, forget, cell, output.
        self.inputs, self.hidden, self.biases = (
            parameters(4, HIDDEN),
            parameters(4, HIDDEN * HIDDEN),
            parameters(4, HIDDEN),
        )
        self.dense, self.dense_bias = parameters(1, HIDDEN)[0], parameters(1, 1)[0]


@dataclass
class Network:
    """A graph for ``batch`` sequences of ``time`` steps over the shared weights."""

    weights: Weights
    batch: int
    time: int

    def __post_init__(self) -> None:
        shape = MLCLSTMDescriptor(
            inputSize=1,
            hiddenSize=HIDDEN,
            layerCount=1,
            usesBiases=True,
            batchFirst=True,
            isBidirectional=False,
            returnsSequences=True,
            dropout=0,
            resultMode=MLCLSTMResultMode.outputAndStates,
        )
        held = self.weights
        lstm = unwrap(
            MLCLSTMLayer(descriptor=shape, inputWeights=held.inputs, hiddenWeights=held.hidden, biases=held.biases)
        )
        dense = MLCFullyConnectedLayer(
            weights=held.dense,
            biases=held.dense_bias,
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=(1, 1), inputFeatureChannelCount=HIDDEN, outputFeatureChannelCount=1
            ),
        )
        state = [1, 1, self.batch, HIDDEN]  # layers, directions, batch, hidden
        self.inputs = {
            "x": MLCTensor(shape=[self.batch, self.time, 1]),
            "h": MLCTensor(shape=state),
            "c": MLCTensor(shape=state),
        }
        self.graph = MLCGraph()
        output = unwrap(self.graph.node(lstm, sources=list(self.inputs.values())))
        self.forecast = unwrap(self.graph.node(unwrap(dense), source=output))
        _, h, c = self.graph.resultTensors(for_=lstm)
        self.states = {"h": h, "c": c}

    def fresh_states(self) -> dict[str, MLCTensorData]:
        """Zeros that every execute reads as its first states and then overwrites with its last."""
        made = {name: np.zeros((1, 1, self.batch, HIDDEN), np.float32) for name in self.states}
        return {name: MLCTensorData(bytesNoCopy=values, length=values.nbytes) for name, values in made.items()}


def forecasts(weights: Weights, series: np.ndarray, step: int, device: Any) -> np.ndarray:
    """Read a series ``step`` points at a time, carrying the states; gives a forecast for each point."""
    network = Network(weights, batch=1, time=step)
    inference = MLCInferenceGraph(graphObjects=[network.graph])
    inference.addInputs(network.inputs)
    inference.addOutputs({"forecast": network.forecast, **network.states})
    inference.compile(options=[], device=device)
    states, found = network.fresh_states(), np.empty(len(series), np.float32)
    for first in range(0, len(series), step):
        now = found[first : first + step]
        inference.execute(
            inputsData={"x": tensor_data(series[first : first + step]), **states},
            outputsData={"forecast": MLCTensorData(bytesNoCopy=now, length=now.nbytes), **states},
            batchSize=1,
            options=SYNCHRONOUS,
        )
    return found


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the errors on points that were not learned from, and how far one step at a time is from all at once."""
    chosen = options(__doc__, 90, given)
    device = chosen_device(chosen.device)
    numbers = np.random.default_rng(1)
    series = np.sin(np.pi * np.arange(POINTS) / PERIOD) ** 2 + numbers.normal(0, NOISE, POINTS)
    series = series.astype(np.float32)
    now, later = series[:-AHEAD], series[AHEAD:]
    x, y = (part[:LEARNED].reshape(STRETCHES, -1, WINDOW) for part in (now, later))

    weights = Weights()
    network = Network(weights, STRETCHES, WINDOW)
    label = MLCTensor(shape=[STRETCHES, WINDOW, 1])
    training = MLCTrainingGraph(
        graphObjects=[network.graph],
        lossLayer=MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1),
        optimizer=MLCAdamOptimizer(
            descriptor=MLCOptimizerDescriptor(
                learningRate=0.01,
                gradientRescale=1,
                regularizationType=MLCRegularizationType.none,
                regularizationScale=0,
            )
        ),
    )
    training.addInputs(network.inputs, lossLabels={"y": label})
    training.addOutputs(network.states)
    training.compile(options=[], device=device)

    losses: list[float] = []

    def keep_loss(loss, error, seconds):
        losses.append(float(loss.numpy()[0]))

    for _ in progress(chosen.epochs, "epoch"):
        states = network.fresh_states()
        for window in range(x.shape[1]):
            training.execute(
                inputsData={"x": tensor_data(np.ascontiguousarray(x[:, window])), **states},
                lossLabelsData={"y": tensor_data(np.ascontiguousarray(y[:, window]))},
                lossLabelWeightsData=None,
                outputsData=states,
                batchSize=STRETCHES,
                options=SYNCHRONOUS,
                completionHandler=keep_loss,
            )
    training.synchronizeUpdates()

    one_by_one = forecasts(weights, now, 1, device)
    at_once = forecasts(weights, now, len(now), device)
    unseen = slice(LEARNED, None)
    error = float(np.mean((one_by_one[unseen] - later[unseen]) ** 2))
    repeated = float(np.mean((now[unseen] - later[unseen]) ** 2))
    constant = float(np.var(later[unseen]))

    path = save_picture(chosen.out / "sequence_lstm.png", {"training": losses}, "A forecast with an LSTM", "window")
    print(f"the loss is drawn in {path}")
    print(f"mean squared error {AHEAD} steps ahead, on {len(later[unseen])} points that were not learned from:")
    print(f"  repeat the last value   {repeated:.4f}")
    print(f"  always say the mean     {constant:.4f}")
    print(f"  the LSTM                {error:.4f}   (the noise alone: {NOISE**2:.4f})")
    difference = float(np.abs(one_by_one - at_once).max())
    print(f"one point at a time and all {len(now)} at once differ by at most {difference:.1e}")
    return {"error": error, "repeated": repeated, "constant": constant, "difference": difference, "losses": losses}


if __name__ == "__main__":
    main()
