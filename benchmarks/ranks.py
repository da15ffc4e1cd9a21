"""Time of a training step on several processes: this library against torch's DistributedDataParallel.

    torchrun --nproc-per-node=2 -m benchmarks.ranks [--rounds 12] [--only perceptron,convolutional]

Both take turns within one run, on the same networks, the same shares of the same batches, one thread a process, with
Adam. DDP has a static graph, buckets that gradients are views of, and torch's fused optimizer. Batch normalization is
local on both sides, and synchronised on ours in a column of its own. Printed by rank 0: medians, and the median of the
ratios of neighbouring measurements.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks import graphs, networks
from mlc_torch import (
    MLCAdamOptimizer,
    MLCDevice,
    MLCDeviceType,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    unwrap,
)

CLASSES, STEPS, BATCHES = 10, 8, 4
Step = Callable[[int], None]


class Wide(nn.Module):
    """5.8 million parameters in three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(784, 2048), nn.Linear(2048, 2048), nn.Linear(2048, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.middle(F.relu(self.first(x)))))


class Convolutional(nn.Module):
    """Two convolutions, with batch normalization if wanted, and a mean over the pixels."""

    def __init__(self, normalized: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=not normalized)
        self.second = nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=not normalized)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(32)] if normalized else [])
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate((self.first, self.second)):
            x = layer(x)
            x = F.relu(self.norms[number](x) if self.norms else x)
        return self.last(x.mean((2, 3)))


def wide(build: graphs.Builder, x: MLCTensor, net: Wide) -> MLCTensor:
    return build.linear(build.relu(build.linear(build.relu(build.linear(x, net.first)), net.middle)), net.last)


def convolutional(build: graphs.Builder, x: MLCTensor, net: Convolutional) -> MLCTensor:
    for number, layer in enumerate((net.first, net.second)):
        x = build.convolution(x, layer)
        x = build.relu(build.batch_norm(x, net.norms[number]) if net.norms else x)
    return build.linear(build.mean(x, 2, 3), net.last)


@dataclass(frozen=True)
class Case:
    module: Callable[[], nn.Module]
    graph: Callable[..., MLCTensor]
    shape: tuple[int, ...]
    """Of the whole batch."""
    normalized: bool = False


CASES = {
    "perceptron": Case(networks.Perceptron, graphs.perceptron, (64, 784)),
    "wide perceptron": Case(Wide, wide, (64, 784)),
    "convolutional": Case(lambda: Convolutional(False), convolutional, (32, 3, 16, 16)),
    "with batch norm": Case(lambda: Convolutional(True), convolutional, (32, 3, 16, 16), normalized=True),
    "LSTM": Case(networks.Recurrent, graphs.recurrent, (32, 32, 64)),
}


def module_of(case: Case) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return case.module()


def arrays(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(1)
    batch = case.shape[0]
    return [(draw.standard_normal(case.shape, np.float32), draw.integers(0, CLASSES, batch)) for _ in range(BATCHES)]


def theirs(case: Case) -> Step:
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(
        module_of(case), gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3, fused=True)
    data = [tuple(torch.from_numpy(a).chunk(world)[rank] for a in pair) for pair in arrays(case)]

    def step(n: int) -> None:
        x, y = data[n % BATCHES]
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def ours(case: Case, synchronized: bool) -> Step:
    device = unwrap(MLCDevice(type=MLCDeviceType.cpu, selectsMultipleComputeDevices=True))
    device.synchronizes_batch_norm = synchronized
    build, batch = graphs.Builder(), case.shape[0]
    x, y = MLCTensor(shape=list(case.shape)), MLCTensor(shape=[batch, CLASSES])
    case.graph(build, x, module_of(case))
    descriptor = MLCOptimizerDescriptor(
        learningRate=1e-3,
        gradientRescale=1.0,
        regularizationType=MLCRegularizationType.l2,
        regularizationScale=1e-3,
    )
    loss = MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    training = MLCTrainingGraph(
        graphObjects=[build.graph],
        lossLayer=MLCLossLayer(descriptor=loss),
        optimizer=MLCAdamOptimizer(descriptor=descriptor),
    )
    assert training.addInputs({"x": x}, lossLabels={"y": y})
    assert training.compile(options=[], device=device)
    one_hot = np.eye(CLASSES, dtype=np.float32)
    data = [(_data(a), _data(one_hot[b])) for a, b in arrays(case)]

    def step(n: int) -> None:
        given, labels = data[n % BATCHES]
        assert training.execute(
            inputsData={"x": given},
            lossLabelsData={"y": labels},
            lossLabelWeightsData=None,
            batchSize=batch,
            options=[],
        )

    return step


def _data(array: np.ndarray) -> MLCTensorData:
    return MLCTensorData(bytesNoCopy=array, length=array.nbytes)


def measure(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step, in turns, so that what else the machine does meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, step in steps.items():
            dist.barrier()
            started = time.perf_counter()
            for n in range(STEPS):
                step(n)
            if turn >= 2:
                times[name].append((time.perf_counter() - started) / STEPS)
    return times


def ratio(times: dict[str, list[float]], name: str) -> str:
    found = sorted(a / b for a, b in zip(times[name], times["DDP"], strict=True))
    quarter = len(found) // 4
    return f"{statistics.median(found):.2f} ({found[quarter]:.2f} to {found[-1 - quarter]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=12, help=f"measurements of {STEPS} steps each")
    parser.add_argument("--only", default="", help="names of networks, with commas between them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    unwrap(MLCDevice(type=MLCDeviceType.cpu, selectsMultipleComputeDevices=True))  # joins
    for name, case in CASES.items():
        if arguments.only and name not in arguments.only.split(","):
            continue
        steps: dict[str, Any] = {"ours": ours(case, not case.normalized), "DDP": theirs(case)}
        if case.normalized:
            steps["ours, synchronised"] = ours(case, True)
        times = measure(steps, arguments.rounds)
        if dist.get_rank() == 0:
            middle = ", ".join(f"{who} {statistics.median(t) * 1e3:.2f} ms" for who, t in times.items())
            line = f"{name}: {middle}; ours/DDP {ratio(times, 'ours')}"
            if case.normalized:
                line += f", synchronised {ratio(times, 'ours, synchronised')}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
