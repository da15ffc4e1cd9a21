"""The four optimizers: what they are told, and how they change the weights."""

from mlc_torch.optimizers.adam import MLCAdamOptimizer, MLCAdamWOptimizer
from mlc_torch.optimizers.base import MLCOptimizer
from mlc_torch.optimizers.rmsprop import MLCRMSPropOptimizer
from mlc_torch.optimizers.sgd import MLCSGDOptimizer

__all__ = [
    "MLCAdamOptimizer",
    "MLCAdamWOptimizer",
    "MLCOptimizer",
    "MLCRMSPropOptimizer",
    "MLCSGDOptimizer",
]
