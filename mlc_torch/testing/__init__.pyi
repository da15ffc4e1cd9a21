# Written by tools/stubs.py from the declarations. Do not edit; run the tool again.
from mlc_torch import MLCDevice
from mlc_torch.testing.closeness import assert_close as assert_close
from mlc_torch.testing.devices import accelerators as accelerators
from mlc_torch.testing.devices import devices as devices
from mlc_torch.testing.seeding import seeded as seeded

__all__ = [
    "accelerators",
    "assert_close",
    "device_named",
    "devices",
    "seeded",
]

def device_named(name: str) -> MLCDevice: """The ``MLCDevice`` of a name; a ``ValueError`` says what is there if it is not."""
