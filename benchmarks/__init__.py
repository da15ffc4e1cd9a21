"""Compares mlc_torch with hand-written PyTorch in one run, as ratios."""
