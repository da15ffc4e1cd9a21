"""Compiling and executing graphs."""

from mlc_torch.running.inference import MLCInferenceGraph
from mlc_torch.running.training import MLCTrainingGraph

__all__ = ["MLCInferenceGraph", "MLCTrainingGraph"]
