"""What the global models are tested on after a round, and in which portions.

Nothing here depends on the number of workers, nor on the clock: the same is tested everywhere.
"""

from collections.abc import Sequence

import torch

from cadis.engine.federation import EngineSettings
from cadis.rng import generator_for

_PART = 256
"""Examples that are tested as one task, about."""

_SHARE = 0.1
"""What testing clients' own data may cost, as a part of the training since the last such test."""

_TRAINED = 3
"""Training on an example takes as long as testing on so many: forward, backward, and the step."""

_FEW = 100
"""So many clients are always tested: of fewer, the worst one says little."""


def is_due(number: int, every: int, last: int) -> bool:
    """Whether a test that is made every so many rounds, 0 for never, is made after this one."""
    return every > 0 and (number % every == 0 or number == last)


def equal_parts(num_examples: int) -> list[tuple[int, int]]:
    """Equal parts of a test set, from where to where."""
    parts = torch.arange(num_examples).tensor_split(-(-num_examples // _PART))
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def client_sample(num_clients: int, part: float, settings: EngineSettings) -> list[int]:
    """On whose data models are tested, the same clients every time: all, unless there are many.

    Of many, as many are drawn as can be tested in a tenth of the time that is trained between two
    tests, and at least 100. A smaller sample is part of every larger one of the same seed.

    Args:
        num_clients: n.
        part: what part of all clients is trained in a round.
        settings: how the federation is run.
    """
    rounds = min(settings.test_clients, settings.rounds)
    trained = rounds * part * num_clients * settings.local.epochs  # in passes over a client's data
    wanted = max(_FEW, int(_SHARE * _TRAINED * trained))
    if wanted >= num_clients:
        return list(range(num_clients))
    order = torch.randperm(num_clients, generator=generator_for(settings.seed, "test clients"))
    return sorted(order[:wanted].tolist())


def grouped(clients: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Clients in groups that have enough examples to be tested together, in their order.

    Args:
        clients: numbers of clients.
        sizes: of every client, how many examples it has.
    """
    groups: list[list[int]] = []
    filled = _PART
    for client in clients:
        if filled >= _PART:
            groups.append([])
            filled = 0
        groups[-1].append(client)
        filled += sizes[client]
    return [tuple(group) for group in groups]
