"""The first argument of what stands beside the classes: a graph."""

from __future__ import annotations

from typing import Any

from mlc_torch.graph import MLCGraph


def expect_graph(graph: Any, who: str) -> None:
    if not isinstance(graph, MLCGraph):
        raise TypeError(f"{who} expects an MLCGraph or a training or inference graph, got {type(graph).__name__}")
