"""How fast it is, as ratios measured within one run: ``python -m benchmarks``."""
