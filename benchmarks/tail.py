"""Cost of testing the global model on the data of clients, relative to training."""

from statistics import median

import torch
from torch import Tensor, nn

import cadis
from benchmarks.measure import Measurement
from cadis.models import cnn, small_cnn
from cadis.server import RoundRecord

Pair = tuple[Tensor, Tensor]
LIMIT = 0.1


def make_random_clients(number: int, size: int, side: int) -> list[Pair]:
    """Return clients with the same number of images, as slices of one tensor."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(number * size, 1, side, side, generator=generator)
    labels = torch.randint(0, 10, (number * size,), generator=generator)
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def measure_tail_on_cnn(rounds: int) -> Measurement:
    """Measure the FedAvg CNN with 100 clients of 58 images, 10 per round."""
    clients = make_random_clients(100, 58, 28)
    history = _run(cnn(1, 28, 28, 10), clients, 10, rounds)
    return _compute_ratio("testing clients' data / rounds, FedAvg CNN", history)


def measure_tail_of_many(rounds: int) -> Measurement:
    """Measure 10,000 clients of 14 images of 8 x 8, 100 per round."""
    history = _run(small_cnn(1, 8, 8, 10), make_random_clients(10_000, 14, 8), 100, rounds)
    return _compute_ratio("testing clients' data / rounds, 10,000 clients", history)


def _run(model: nn.Module, clients: list[Pair], per_round: int, rounds: int) -> list[RoundRecord]:
    return cadis.run(
        model,
        clients,
        clients[0],
        rounds=rounds,
        per_round=per_round,
        method="fedavg",
        lr=0.001,
        workers=2,
        device="cpu",
    ).history


def _compute_ratio(name: str, history: list[RoundRecord]) -> Measurement:
    """Return the time of tests relative to training, over all workers.

    Each test is compared with the training of the same round, so that load on the machine affects
    both.
    """
    plain = median(r.seconds.evaluate for r in history[1:] if r.client_accuracy is None)
    tested = [r for r in history if r.client_accuracy is not None]
    rounds = sum((r.seconds.evaluate - plain) / r.seconds.train for r in tested)
    tested_clients = sum(accuracy is not None for accuracy in tested[-1].client_accuracy or [])
    note = f"{len(history)} rounds, {len(tested)} tests on {tested_clients:,} clients"
    return Measurement(name, rounds / len(history), LIMIT, note=note)
