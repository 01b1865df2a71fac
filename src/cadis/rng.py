"""Reproducible randomness: seeds and generators for each purpose, and single-threaded code."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(*path: int | str) -> int:
    """Return a 63-bit seed for one purpose, e.g. ``derive_seed(seed, "train", round, client)``.

    The same path gives the same seed on every machine, and different paths give unrelated seeds.
    So no result depends on which process does the work, or on the order of the work.

    Args:
        path: the numbers and names that identify the purpose.

    Example:
        >>> derive_seed(0, "train", 1, "client-a") == derive_seed(0, "train", 1, "client-a")
        True
        >>> derive_seed(0, "train", 1, "client-a") == derive_seed(0, "train", 2, "client-a")
        False
    """
    digest = hashlib.sha256(json.dumps(path).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def derive_generator(*path: int | str) -> torch.Generator:
    """Return a torch generator on the CPU, seeded with :func:`derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(*path))


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Let torch use one thread: small steps are faster, and the number of cores has no effect."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
