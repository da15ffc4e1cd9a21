"""The language of the public API: how a member is declared once and spelt in two ways. Knows nothing of machine learning."""

from mlc_torch.spelling.arguments import CLASSES, YX, HeightWidth
from mlc_torch.spelling.direct import direct_call
from mlc_torch.spelling.door import PACKING, Packing
from mlc_torch.spelling.members import declare, objc_only, prop, static_prop
from mlc_torch.spelling.objects import MLCObject

__all__ = [
    "CLASSES",
    "PACKING",
    "YX",
    "HeightWidth",
    "MLCObject",
    "Packing",
    "declare",
    "direct_call",
    "objc_only",
    "prop",
    "static_prop",
]
