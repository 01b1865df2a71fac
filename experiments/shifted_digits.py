"""Digits in clusters of clients that differ in their inputs, not in their labels.

Each function is a dataset (``cadis run --dataset experiments/shifted_digits.py:rotated``). All
clients have all classes. Each client is tested on held-out samples with its own kind of inputs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cadis.data import load

Change = Callable[[Tensor], Tensor]

_CLIENTS_BY_CLUSTER = (10, 6, 4)
_TEST_SHARE = 4
"""Every n-th sample of a client is a test sample."""


def rotated() -> dict[str, Any]:
    """Rotate the images of the second and third cluster by 90 and 180 degrees."""
    return _make_clients([_rotate(turns) for turns in range(3)])


def inverted() -> dict[str, Any]:
    """Invert the brightness in the second cluster; mirror the images of the third."""
    return _make_clients([_rotate(0), lambda inputs: -inputs, lambda inputs: inputs.flip(-1)])


def noisy() -> dict[str, Any]:
    """Add weak noise in the second cluster, and strong noise in the third."""
    return _make_clients([_add_noise(scale) for scale in (0.0, 0.3, 0.6)])


def _rotate(turns: int) -> Change:
    return lambda inputs: torch.rot90(inputs, turns, dims=(-2, -1))


def _add_noise(scale: float) -> Change:
    def change(inputs: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return inputs + scale * torch.randn(inputs.shape, generator=generator)

    return change


def _make_clients(changes: Sequence[Change]) -> dict[str, Any]:
    """Split the digits evenly among clients, and change the inputs of each cluster."""
    digits = load("digits").train
    clusters = [n for n, count in enumerate(_CLIENTS_BY_CLUSTER) for _ in range(count)]
    order = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(0))
    clients: dict[str, tuple[Tensor, Tensor]] = {}
    tests: dict[str, tuple[Tensor, Tensor]] = {}
    for number, cluster in enumerate(clusters):
        own = order[number :: len(clusters)]
        inputs, labels = changes[cluster](digits.scaled_inputs[own]), digits.labels[own]
        is_test = torch.arange(len(own)) % _TEST_SHARE == 0
        name = f"cluster {cluster + 1}, client {number + 1}"
        clients[name] = inputs[~is_test].clone(), labels[~is_test]
        tests[name] = inputs[is_test].clone(), labels[is_test]
    return {"clients": clients, "client_tests": tests}
