"""Compares mlc_torch with hand-written PyTorch in one run, as ratios."""

import os

# torch 2.13's profiler tells stderr of each start and stop otherwise, between the lines of progress.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")
