"""Small federations and models that several tests use."""

from pathlib import Path

import torch
from torch import Tensor, nn

from cadis.data import Examples
from cadis.engine import Engine, EngineSettings, EngineState, Federation, RoundResult
from cadis.methods import METHODS, Method
from cadis.training import LocalSettings

ALL_METHODS = [kind() for kind in METHODS.values()]


def blobs(count: int, labels: list[int], seed: int) -> Examples:
    """Pictures of 1 x 4 x 4 pixels; each class lights up pixels of its own."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(labels).repeat_interleave(-(-count // len(labels)))[:count]
    x = 0.3 * torch.randn(count, 16, generator=generator)
    x[torch.arange(count), 3 * y] += 2
    return Examples(x.view(count, 1, 4, 4), y)


def small_federation() -> Federation:
    """Five clients in three clusters: {0, 1}, {0, 1}, {0, 1}, {2, 3}, {4}."""
    owned = [[0, 1], [0, 1], [0, 1], [2, 3], [4]]
    clients = [blobs(9 + 2 * n, labels, seed=n) for n, labels in enumerate(owned)]
    truth = torch.tensor([0, 0, 0, 1, 2])
    return Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99), cluster_of_client=truth)


def small_model(batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    """A network for the pictures of :func:`blobs`."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, kernel_size=3, padding=1),
        nn.BatchNorm2d(3) if batch_norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(48, 7),
        nn.ReLU(),
        nn.Linear(7, 5),
    )


def small_settings(rounds: int = 3, workers: int = 1, per_round: int | None = 3) -> EngineSettings:
    local = LocalSettings(epochs=2, batch_size=4, lr=0.1)
    return EngineSettings(rounds, per_round, seed=7, workers=workers, device="cpu", local=local)


def run_rounds(
    method: Method,
    folder: Path,
    settings: EngineSettings | None = None,
    model: nn.Module | None = None,
    start: EngineState | None = None,
) -> list[RoundResult]:
    """Run the small federation; the results of all rounds."""
    engine = Engine(
        model or small_model(), small_federation(), method, settings or small_settings(), folder
    )
    return list(engine.rounds(start or engine.start))


def same(first: Tensor, second: Tensor) -> bool:
    """Bit for bit; NaN equals NaN."""
    return first.dtype == second.dtype and torch.equal(first.nan_to_num(), second.nan_to_num())
