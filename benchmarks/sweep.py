"""Random networks against by hand: ``python -m benchmarks.sweep``.

The workloads of ``workloads.py`` are the ones that everything was tuned with. These are not: perceptrons, convolutions, LSTMs
and transformers of random sizes, trained or inferred, each with its numbers compared first. Slow spots are found here, and
wrong numbers.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.__main__ import measure, parsed, use_threads
from benchmarks.contenders import HAND_WRITTEN, ONE_CALL
from benchmarks.networks import TransformerBlock, recurrent
from benchmarks.workloads import Workload, sequence

Network = tuple[str, Callable[[], nn.Module], tuple[int, ...]]
"""A name, what makes it, and the shape of its data."""
Measurer = Callable[[Workload], tuple[float, float]]

_GELU = partial(nn.GELU, approximate="tanh")
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "LeakyReLU": nn.LeakyReLU,
    "ELU": nn.ELU,
    "GELU": _GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "hard swish": nn.Hardswish,
}


def _grouped(channels: int) -> nn.Module:
    return nn.GroupNorm(1 if channels % 2 else 2, channels)


_NORMS = {None: "", nn.BatchNorm2d: ", batch norm", _grouped: ", group norm"}


def perceptron(draw: random.Random) -> Network:
    samples = draw.choice([1, 2, 7, 16, 32, 64, 128, 300, 1024])
    widths = [draw.choice([4, 10, 32, 64, 100, 256, 512]) for _ in range(draw.randint(2, 6))]
    name, normed = draw.choice(list(_ACTIVATIONS)), draw.random() < 0.25

    def make() -> nn.Module:
        parts: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            parts += [nn.Linear(inputs, outputs), *([nn.LayerNorm(outputs)] if normed else []), _ACTIVATIONS[name]()]
        return nn.Sequential(*parts, nn.Linear(widths[-1], 10))

    how = f"{name}{', layer norm' if normed else ''}"
    return f"{samples} samples, {'-'.join(map(str, widths))}, {how}", make, (samples, widths[0])


def convolutions(draw: random.Random) -> Network:
    images, size, channels = (
        draw.choice([1, 2, 8, 16, 32]),
        draw.choice([8, 14, 16, 28, 32, 48]),
        draw.choice([1, 3, 16]),
    )
    name, normed = (
        draw.choice(list(_ACTIVATIONS)[:5]),
        draw.choice([None, None, nn.BatchNorm2d, nn.BatchNorm2d, _grouped]),
    )
    pooling = draw.choice([None, nn.MaxPool2d, nn.AvgPool2d])
    layers, given, left = [], channels, size
    for _ in range(draw.randint(1, 4)):
        made, kernel, stride = (
            draw.choice([5, 6, 8, 12, 16, 20, 32, 36, 64]),
            draw.choice([1, 3, 3, 5]),
            draw.choice([1, 1, 2]),
        )
        groups = draw.choice([1, 1, 1, 2]) if given % 2 == made % 2 == 0 else 1
        if draw.random() < 0.15 and given > 1:
            made = groups = given
        layers.append((given, made, kernel, stride, groups))
        given, left = made, (left - 1) // stride + 1
    pools = pooling is not None and left % 2 == 0
    if images == left == 1 and normed is nn.BatchNorm2d:
        normed = None  # a channel of one number has no variance

    def make() -> nn.Module:
        parts: list[nn.Module] = []
        for inputs, outputs, kernel, stride, groups in layers:
            parts.append(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups))
            parts += [*([normed(outputs)] if normed else []), _ACTIVATIONS[name]()]
        if pooling is not None and pools:
            parts.append(pooling(2))
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(given * (left // 2 if pools else left) ** 2, 10))

    said = " ".join(f"{i}-{o}:{k}x{k}{f'/{s}' * (s > 1)}{f' of {g}' * (g > 1)}" for i, o, k, s, g in layers)
    how = f"{name}{_NORMS[normed]}{f', {pooling.__name__}' if pooling is not None and pools else ''}"
    return f"{images} images of {size}x{size}, {said}, {how}", make, (images, channels, size, size)


def lstm(draw: random.Random) -> Network:
    samples, steps, inputs = draw.choice([1, 2, 8, 16, 64]), draw.choice([5, 12, 30, 60]), draw.choice([4, 16, 64])
    hidden, layers, both = draw.choice([8, 16, 32, 100, 128]), draw.choice([1, 1, 2, 3]), draw.random() < 0.3
    name = (
        f"LSTM, {samples} samples of {steps} steps, {inputs} to {hidden}, {layers} layers{', both directions' * both}"
    )
    return name, partial(recurrent, inputs, hidden, layers, both), (samples, steps, inputs)


def attention(draw: random.Random) -> Network:
    samples, steps = draw.choice([1, 2, 8, 16]), draw.choice([5, 16, 33, 64, 128])
    width, heads = draw.choice([(16, 2), (32, 4), (60, 3), (128, 4), (128, 8), (256, 8)])
    name = f"attention, {samples} samples of {steps} steps, {heads} heads of {width // heads}"
    return name, partial(TransformerBlock, width, heads), (samples, steps, width)


def drawn(seed: int, count: int) -> list[Workload]:
    """So many random workloads, the same for the same seed."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        name, make, shape = draw.choice([perceptron, perceptron, convolutions, convolutions, lstm, attention])(draw)
        optimizer = draw.choice(["adam", "sgd", "adamw", "rmsprop", "sgd plain"])
        infers, style = draw.random() < 0.4, draw.choice(["prepared", "prepared", "handler"])
        said = f"{'infer' if infers else f'train, {optimizer}'}, {style}: {name}"
        found.append(sequence(said, make, *shape, optimizer=optimizer, infers=infers, style=style))
    return found


def measurer(parser: argparse.ArgumentParser, arguments: list[str] | None) -> tuple[argparse.Namespace, Measurer]:
    """What was asked for, and a function that measures a workload so: the ratio, and the seconds by hand."""
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; torch's own number unless given")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    how = parsed(["--device", options.device, "--rounds", str(options.rounds), "--block", "0.03"])
    use_threads(options.threads, arguments, parser.prog.removeprefix("python -m "))

    def run(workload: Workload) -> tuple[float, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about kernels that it tries
            measured = measure(workload, torch.device(options.device), how)
        if ONE_CALL not in measured:
            raise SystemExit(f"{workload.name} does not run")  # why stands above
        return measured[ONE_CALL]["ratio"], measured[HAND_WRITTEN]["seconds"]

    return options, run


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    options, run = measurer(parser, arguments)
    found = []
    for workload in drawn(options.seed, options.count):
        ratio, seconds = run(workload)
        found.append(ratio)
        print(f"{'! ' if ratio > 1 else '  '}{ratio:.3f} of {seconds * 1e3:9.3f} ms  {workload.name}", flush=True)
    print(f"{len(found)} networks, median {statistics.median(found):.2f}, above 1: {sum(r > 1 for r in found)}")
    return found


if __name__ == "__main__":
    main()
