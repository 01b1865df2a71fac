"""How fast clients are. It is simulated: nobody waits, but a clock goes on as if."""

from collections.abc import Mapping, Sequence
from math import isfinite, log
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cadis._io import read_object
from cadis.algorithm import SecondsOf
from cadis.errors import CadisError
from cadis.rng import generator_for
from cadis.types import ClientId

Speeds: TypeAlias = str | tuple[float, ...]
"""As a user gives them: ``""``, ``"LOW:HIGH"``, ``"FILE.json"``, or a number for each client."""

_SLOWEST, _FASTEST = 1e-9, 1e12
"""Samples a second; with anything beyond, sums of times may not be numbers."""


def check_speeds(speeds: str) -> None:
    """Refuse a text that is neither empty, nor LOW:HIGH, nor the name of a file."""
    if speeds and not speeds.endswith(".json"):
        _range_in(speeds)


def speeds_by_client(
    speeds: Mapping[Any, Any], client_ids: Sequence[ClientId], where: str
) -> tuple[float, ...]:
    """The speed of each client, in their order, by its name as text; others are passed over.

    A sentence about what is missing says ``where`` it was looked for.
    """
    known = {str(client): speed for client, speed in speeds.items()}
    for client in client_ids:
        if str(client) not in known:
            raise CadisError(f"{where} has no speed for client {client}; give one for each.")
    return tuple(_checked(known[str(client)], client) for client in client_ids)


def client_speeds(speeds: Speeds, client_ids: Sequence[ClientId], seed: int) -> Tensor:
    """Samples a second of each client, (n,), float64.

    Args:
        speeds: as they are given; if empty, everybody handles one sample per unit of time.
        client_ids: the clients, in the federation's order.
        seed: of the draw, log-uniform between LOW and HIGH; all methods of a seed see the same.
    """
    if isinstance(speeds, tuple):
        if len(speeds) != len(client_ids):
            raise CadisError(
                f"{len(speeds)} speeds are given for {len(client_ids)} clients; give one for each."
            )
        given = [_checked(s, client) for s, client in zip(speeds, client_ids, strict=True)]
        return torch.tensor(given, dtype=torch.float64)
    if not speeds:
        return torch.ones(len(client_ids), dtype=torch.float64)
    if speeds.endswith(".json"):
        found = speeds_by_client(read_object(Path(speeds)), client_ids, f"The file {speeds}")
        return torch.tensor(found, dtype=torch.float64)
    low, high = _range_in(speeds)
    generator = generator_for(seed, "speeds")
    chance = torch.rand(len(client_ids), dtype=torch.float64, generator=generator)
    return torch.exp(log(low) + chance * (log(high) - log(low))).clamp(low, high)


def seconds_by_speed(
    client_ids: Sequence[ClientId], sizes: Sequence[int], epochs: int, speeds: Tensor
) -> SecondsOf:
    """The simulated time of a round of a client: epochs * n_i / speed_i."""
    times = (epochs * torch.tensor(sizes, dtype=torch.float64) / speeds).tolist()
    seconds = dict(zip(client_ids, times, strict=True))
    return lambda clients: torch.tensor([seconds[c] for c in clients], dtype=torch.float64)


def _range_in(text: str) -> tuple[float, float]:
    """LOW and HIGH of a text."""
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        low = high = 0.0
    if not _SLOWEST <= low <= high <= _FASTEST:
        raise CadisError(
            "speeds should be LOW:HIGH in samples a second, such as 10:1000, or a file FILE.json "
            f"of {{client: samples a second}}, not {text[:60]!r}."
        )
    return low, high


def _checked(speed: Any, client: ClientId) -> float:
    number = isinstance(speed, int | float) and not isinstance(speed, bool) and isfinite(speed)
    if not number or not _SLOWEST <= speed <= _FASTEST:
        raise CadisError(
            f"The speed of client {client} should be a positive number of samples a second, not "
            f"{str(speed)[:60]!r}."
        )
    return float(speed)
