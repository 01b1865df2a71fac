"""A round's tail: what it costs to test the global model on clients' own data, over a run."""

from statistics import median

import torch
from torch import Tensor, nn

import cadis
from benchmarks.measure import Measured
from cadis.models import cnn, small_cnn
from cadis.server import RoundRecord

Pair = tuple[Tensor, Tensor]
LIMIT = 0.1


def random_clients(number: int, size: int, side: int) -> list[Pair]:
    """Clients of equally many pictures; they are parts of one tensor."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(number * size, 1, side, side, generator=generator)
    labels = torch.randint(0, 10, (number * size,), generator=generator)
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def tail_on_cnn(rounds: int) -> Measured:
    """100 clients of 58 pictures, 10 a round, the FedAvg CNN; a fifth of MNIST's proportions."""
    clients = random_clients(100, 58, 28)
    history = _run(cnn(1, 28, 28, 10), clients, 10, rounds)
    return _measured("testing clients' data / rounds, FedAvg CNN", history)


def tail_of_many(rounds: int) -> Measured:
    """10,000 clients of 14 pictures of 8 x 8, 100 a round."""
    history = _run(small_cnn(1, 8, 8, 10), random_clients(10_000, 14, 8), 100, rounds)
    return _measured("testing clients' data / rounds, 10,000 clients", history)


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


def _measured(name: str, history: list[RoundRecord]) -> Measured:
    """Seconds of such tests / seconds of training, all workers together.

    Each test is compared with the training of its own round: a machine that is busy just then is
    so for both.
    """
    plain = median(r.seconds.evaluate for r in history[1:] if r.client_accuracy is None)
    tested = [r for r in history if r.client_accuracy is not None]
    rounds = sum((r.seconds.evaluate - plain) / r.seconds.train for r in tested)
    who = sum(accuracy is not None for accuracy in tested[-1].client_accuracy or [])
    note = f"{len(history)} rounds, {len(tested)} tests on {who:,} clients"
    return Measured(name, rounds / len(history), LIMIT, note=note)
