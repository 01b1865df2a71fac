"""Randomness: always an explicit generator, named by what it is for."""

import hashlib
import json

import torch


def derive_seed(*path: int | str) -> int:
    """A 63-bit seed for one purpose, e.g. ``derive_seed(seed, "train", round, client)``.

    The same path gives the same seed on every machine, and paths that differ anywhere give
    unrelated seeds, so that no result depends on which process did what, or when.
    """
    digest = hashlib.sha256(json.dumps(path).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator_for(*path: int | str) -> torch.Generator:
    """A torch generator on the CPU, seeded by :func:`derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(*path))
