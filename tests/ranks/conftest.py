"""What needs a CUDA device is not collected where there is none."""

from __future__ import annotations

import torch

collect_ignore = [] if torch.cuda.is_available() else ["test_on_a_gpu.py"]
