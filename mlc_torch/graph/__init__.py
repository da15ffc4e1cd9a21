"""Building graphs and the public face of running them."""

from mlc_torch.graph.graph import MLCGraph
from mlc_torch.graph.inference import MLCInferenceGraph
from mlc_torch.graph.training import MLCTrainingGraph

__all__ = ["MLCGraph", "MLCInferenceGraph", "MLCTrainingGraph"]
