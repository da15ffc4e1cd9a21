"""LSTMs against ``nn.LSTM``, as a table: ``python -m benchmarks.lstm_sizes``.

Sizes from one step of one sample to 50 steps of 32, one layer to four, both directions, begun from given states; trained and
inferred. What a program brings with its LSTM, a dense layer and an optimizer, is there on both sides.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks import networks, translation
from benchmarks.sweep import measurer
from benchmarks.workloads import Workload, sequence

SIZES = (
    (1, 1, 16, 32),
    (1, 12, 16, 32),
    (1, 100, 8, 16),
    (8, 12, 16, 32),
    (8, 50, 16, 32),
    (32, 12, 16, 32),
    (128, 12, 16, 32),
    (8, 12, 64, 128),
    (32, 50, 64, 128),
    (64, 20, 64, 256),
    (4, 6, 128, 512),
)
"""Samples, steps, inputs and the width of the state."""
LAYERS = (1, 2, 3, 4)


def workloads(samples: int, steps: int, inputs: int, hidden: int, infers: bool) -> dict[str, Workload]:
    """Every kind of LSTM of one size, by its column."""
    name = f"{'infer' if infers else 'train'} LSTM {samples}, {steps}, {inputs}, {hidden}, "
    made = {}
    for layers, both in (*((count, False) for count in LAYERS), (1, True)):
        column = "both ways" if both else f"{layers} layer{'s' * (layers > 1)}"
        network = partial(networks.recurrent, inputs, hidden, layers, both)
        made[column] = sequence(name + column, network, samples, steps, inputs, infers=infers)
    made["states"] = Workload(
        f"{name}states", partial(networks.FromStates, inputs, hidden), translation.from_states, (samples, steps, inputs),
        trains=not infers, second=(1, 1, samples, hidden),
    )  # fmt: skip
    return made


def main(arguments: list[str] | None = None) -> list[float]:
    _, run = measurer(argparse.ArgumentParser(prog="python -m benchmarks.lstm_sizes", description=__doc__), arguments)
    columns = list(workloads(*SIZES[0], infers=False))
    print(f"| samples, steps, inputs, width: training / inference | {' | '.join(columns)} |")
    print("|" + " --- |" * (1 + len(columns)), flush=True)
    found: list[float] = []
    for size in SIZES:
        row = []
        trained, inferred = (workloads(*size, infers=infers) for infers in (False, True))
        for column in columns:
            pair = [run(of[column])[0] for of in (trained, inferred)]
            found += pair
            row.append(" / ".join(f"{ratio:.2f}" for ratio in pair))
        print(f"| {', '.join(map(str, size))} | {' | '.join(row)} |", flush=True)
    print(f"{len(found)} ratios, above 1: {sum(ratio > 1 for ratio in found)}")
    return found


if __name__ == "__main__":
    main()
