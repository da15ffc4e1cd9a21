"""``python -m mlc_torch demo``: a round trip from a descriptor to a tensor and back, and the coverage of the API."""

from __future__ import annotations

import argparse
import sys

import numpy as np

import mlc_torch as mlc
from mlc_torch.coverage.compare import entries
from mlc_torch.coverage.report import by_group, percent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo takes none."""


def run(arguments: argparse.Namespace) -> int:
    descriptor = mlc.unwrap(mlc.MLCTensorDescriptor(shape=[2, 3], dataType=mlc.MLCDataType.float32))
    values = np.arange(6, dtype=np.float32)
    tensor = mlc.MLCTensor(descriptor=descriptor, data=mlc.MLCTensorData(bytesNoCopy=values, length=values.nbytes))
    sys.stdout.write(f"{descriptor}\n{tensor}\n{tensor.numpy()}\n\n")
    found = entries()
    for name, members in by_group(found).items():
        sys.stdout.write(f"{name:<12}{percent(members):6.1f} %\n")
    same = np.array_equal(tensor.numpy().ravel(), values)
    sys.stdout.write(f"\nround trip: {'equal' if same else 'DIFFERENT'}\n")
    return 0 if same else 1
