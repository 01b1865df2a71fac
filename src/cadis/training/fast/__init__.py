"""Faster ways to the results of the plain training loop: in-place and stacked training."""
