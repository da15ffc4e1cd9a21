"""The first argument of what stands beside the classes: a graph."""

from __future__ import annotations

from typing import Any

from torch import nn

from mlc_torch.graph import MLCGraph


def expect_graph(graph: Any, who: str) -> None:
    if not isinstance(graph, MLCGraph):
        raise TypeError(f"{who} expects an MLCGraph or a training or inference graph, got {_came(graph)}")


def _came(value: Any) -> str:
    """A module that ``to_module`` made bears the name of its graph's class, which would say nothing."""
    if isinstance(value, nn.Module):
        return (
            "a torch module: give the graph that it was made of by to_module, or one that has it as TorchLayer(module)"
        )
    return type(value).__name__
