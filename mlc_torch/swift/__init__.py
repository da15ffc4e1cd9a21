"""Swift programs, unchanged: the module ``MLCompute`` that they import, and how it is built and run on Linux.

Nothing in this room needs torch, and importing it loads none: only :mod:`mlc_torch.swift.inside`, which runs within the
Swift program, does.
"""
