"""The commands of ``python -m mlc_torch``, one file each. A command has ``add_arguments`` and ``run``."""
