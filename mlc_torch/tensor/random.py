"""The random initializers, as decided from all evidence (evidence.md A.6)."""

from __future__ import annotations

import math

import torch

from mlc_torch.device import randomness
from mlc_torch.enums import MLCDataType, MLCRandomInitializerType
from mlc_torch.refusals import refuse
from mlc_torch.tensor.descriptor import MLCTensorDescriptor
from mlc_torch.tensor.state import allocate


def random_values(descriptor: MLCTensorDescriptor, kind: MLCRandomInitializerType) -> torch.Tensor:
    """A tensor filled by ``kind``. Fans are the first two dimensions of a rank-4 tensor, and 1 and 1 otherwise.

    uniform is U(0, 1); glorotUniform is U(±√(6/(f1+f2))); xavier is N(0, (0.5·√(2/(f1+f2)))²).
    """
    if descriptor.dataType not in (MLCDataType.float32, MLCDataType.float16):
        refuse(f"random values are floating-point numbers, the tensor's type is {descriptor.dataType.name}")
    values = allocate(descriptor)
    fans = sum(descriptor._shape[:2]) if len(descriptor._shape) == 4 else 2
    generator = randomness.restarted()
    if kind is MLCRandomInitializerType.uniform:
        return values.uniform_(generator=generator)
    if kind is MLCRandomInitializerType.glorotUniform:
        bound = math.sqrt(6 / fans)
        return values.uniform_(-bound, bound, generator=generator)
    return values.normal_(0, 0.5 * math.sqrt(2 / fans), generator=generator)
