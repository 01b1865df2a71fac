"""The same numbers on every machine: generators named by what they are for, and one thread."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: small steps are faster so, and results do not depend on the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
