"""What programs that are tested with pytest need. The plugin itself is ``_mlc_torch_pytest``, outside this package."""

from mlc_torch.testing.closeness import assert_close
from mlc_torch.testing.devices import accelerators, device_named, devices
from mlc_torch.testing.seeding import seeded

__all__ = ["accelerators", "assert_close", "device_named", "devices", "seeded"]
