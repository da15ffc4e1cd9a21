"""Runs plans: the three phases, and the gears that run them."""
