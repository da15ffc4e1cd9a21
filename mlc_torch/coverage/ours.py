"""Our own additions to Apple's classes, in one place. A public name that stands neither here nor in the list is a mistake."""

from __future__ import annotations

FOR_USERS: dict[str, frozenset[str]] = {
    "ExecutableGraph": frozenset({"memory", "profile"}),  # inference and training graphs
    "MLCDevice": frozenset({"feeds_own_share", "rank", "rank_count", "synchronizes_batch_norm", "torch_device"}),
    "MLCGraph": frozenset({"draw", "summary", "to_module"}),
    "MLCLayer": frozenset({"module"}),
    "MLCTensor": frozenset({"dtype", "from_numpy", "from_torch", "numpy", "shape", "torch"}),
    "MLCTrainingGraph": frozenset({"evaluate", "fit", "register_gradient_hook", "step"}),
    "TorchLayer": frozenset({"parameters_by_name"}),
}
"""What programs may use, by class; subclasses inherit it. The type stubs name exactly these."""

OF_NSOBJECT = frozenset({"debugDescription", "description", "hash", "isEqual"})
"""What the framework's classes inherit from Objective-C's root, which the API list leaves out."""
