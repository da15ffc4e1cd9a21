"""Building graphs, and a graph as an ``nn.Module``."""

from mlc_torch.graph.graph import MLCGraph

__all__ = ["MLCGraph"]
