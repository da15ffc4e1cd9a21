"""Trains one convolution after the other and compares its gradients with the plain gear's; run as a process of its own.

``python -m tests.gears.convolution_grid --threads 4 [--large]`` says what it is about to do before it does it, so that the
last line of a process that died names the convolution.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from mlc_torch import (
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCConvolutionType,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCPaddingPolicy,
    MLCTrainingGraph,
)
from tests.graph.programs import cpu, data, loss, placeholder, sgd
from tests.layers.convolution_records import RECORDS
from tests.layers.records import tensor, values

STEPS = 60
PLAIN = MLCGraphCompilationOptions.disableLayerFusion


def layer(inputs: int, outputs: int, kernel: int, stride: int, groups: int, dilation: int, seed: int = 0) -> Any:
    depthwise = groups > 1 and groups == inputs
    per = inputs // groups
    return MLCConvolutionLayer(
        weights=tensor(values(outputs, per, kernel, kernel, seed=seed) * 0.2, (1, outputs * per, kernel, kernel)),
        biases=tensor(values(outputs, seed=seed + 1), (1, outputs, 1, 1)),
        descriptor=MLCConvolutionDescriptor(
            type=MLCConvolutionType.depthwise if depthwise else MLCConvolutionType.standard,
            kernelSizes=(kernel, kernel),
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            groupCount=1 if depthwise else groups,
            strides=(stride, stride),
            dilationRates=(dilation, dilation),
            paddingPolicy=MLCPaddingPolicy.same,
        ),
    )


class Trained:
    """A convolution behind one of 3x3, which hands its result on with channels last where the rules say so."""

    def __init__(self, make: Any, shape: tuple[int, ...], options: Any = ()) -> None:
        self.x, graph = placeholder(*shape), MLCGraph()
        self.layers = [layer(shape[1], shape[1], 3, 1, 1, 1, seed=5), make()]
        y = graph.node(self.layers[1], source=graph.node(self.layers[0], source=self.x))
        self.t = placeholder(*y.descriptor.shape)
        self.graph = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(1e-3))
        assert self.graph.addInputs({"x": self.x}, lossLabels={"t": self.t})
        self.given = {"x": values(*shape), "t": values(*y.descriptor.shape, seed=1)}
        assert self.graph.compile(options=options, device=cpu())

    def tensors(self) -> list[Any]:
        return [t for one in self.layers for t in (one.weights, one.biases) if t is not None]

    def step(self) -> None:
        assert self.graph.execute(
            inputsData={"x": data(self.given["x"])},
            lossLabelsData={"t": data(self.given["t"])},
            lossLabelWeightsData=None,
            batchSize=0,
        )

    def gradients(self) -> list[np.ndarray]:
        """Forward and gradient as phases."""
        assert self.graph.bindAndWriteData(
            {name: data(self.given[name]) for name in ("x", "t")},
            forInputs={"x": self.x, "t": self.t},
            to=cpu(),
            synchronous=True,
        )
        assert self.graph.executeForward(batchSize=0) and self.graph.executeGradient(batchSize=0)
        found = [
            self.graph.gradientData(forParameter=t, layer=one)
            for one in self.layers
            for t in (one.weights, one.biases)
            if t is not None
        ]
        return [np.frombuffer(f, np.float32).copy() for f in found]

    def update(self) -> None:
        assert self.graph.executeOptimizerUpdate()


def check(name: str, make: Any, shape: tuple[int, ...], steps: int = STEPS) -> None:
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()
    fast, plain = Trained(make, shape), Trained(make, shape, PLAIN)
    for _ in range(steps):
        fast.step()
    for _ in range(steps):
        fast.gradients()
        fast.update()
    fast.graph.synchronizeUpdates()
    for mine, theirs in zip(fast.tensors(), plain.tensors(), strict=True):
        theirs.torch.copy_(mine.torch)
    for mine, theirs in zip(fast.gradients(), plain.gradients(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * max(float(np.abs(theirs).max()), 1e-6))


def grid(large: bool) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """Fewer channels than a vector holds, where oneDNN's kernel goes wrong, and in the large grid as many as two hold."""
    for record in RECORDS:
        yield f"record {record.name}", record.make, record.sources[0].shape
    # Known to die by the old rule, with 3 and 4 threads for 2 images, with 8 threads for 4.
    for batch in (2, 4):
        yield f"1x1, stride 2, {batch} of 16, 8 channels", lambda: layer(8, 16, 1, 2, 1, 1), (batch, 8, 16, 16)
    strides, dilations = ((1, 2, 3), (1, 2)) if large else ((1, 2), (1,))
    batches, sizes = ((1, 2, 8, 32), (15, 16)) if large else ((2,), (9,))
    ways = itertools.product(((8, 16), (32, 32)) if large else ((8, 16),), (1, 3), strides, (1, 2, 0), dilations)
    for (inputs, outputs), kernel, stride, groups, dilation in ways:
        if kernel == 1 and dilation > 1:
            continue
        for batch, size in itertools.product(batches, sizes):
            name = (
                f"{kernel}x{kernel}, stride {stride}, groups {groups or inputs}, dilation {dilation}, {batch} of {size}"
            )
            make = lambda a=(inputs, outputs, kernel, stride, groups or inputs, dilation): layer(*a)  # noqa: E731
            yield f"{name}, {inputs} channels", make, (batch, inputs, size, size)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    count = 0
    for name, make, shape in grid(options.large):
        check(name, make, shape, options.steps)
        count += 1
    sys.stdout.write(f"{count} convolutions, all sound\n")


if __name__ == "__main__":
    main()
