"""ML Compute beside PyTorch: modules in and out, torch's optimizers, checkpoints, export."""

from mlc_torch.interop.checkpoint import describe_checkpoint, load_checkpoint, save_checkpoint
from mlc_torch.interop.export import export_onnx, export_program
from mlc_torch.interop.torch_layer import TorchLayer
from mlc_torch.interop.torch_optimizer import TorchOptimizer

__all__ = [
    "TorchLayer",
    "TorchOptimizer",
    "describe_checkpoint",
    "export_onnx",
    "export_program",
    "load_checkpoint",
    "save_checkpoint",
]
