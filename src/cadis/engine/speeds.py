"""Simulated speeds of clients, for the simulated clock of the engine.

Times are only computed; no process waits. :mod:`cadis.experiment` checks the option ``speeds``.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, log
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cadis._io import read_json_object
from cadis.algorithm import EstimateSeconds
from cadis.errors import CadisError
from cadis.rng import derive_generator
from cadis.types import ClientId

Speeds: TypeAlias = str | tuple[float, ...]
"""The option ``speeds``: ``""``, ``"LOW:HIGH"``, ``"FILE.json"``, or one number per client."""

_MIN_SPEED, _MAX_SPEED = 1e-9, 1e12
"""Samples per second; beyond this range, sums of times may overflow."""


def check_speeds(speeds: str) -> None:
    """Raise an error unless ``speeds`` is empty, LOW:HIGH, or the name of a JSON file."""
    if speeds and not speeds.endswith(".json"):
        _parse_range(speeds)


def select_speeds(
    speeds: Mapping[Any, Any], client_ids: Sequence[ClientId], source: str
) -> tuple[float, ...]:
    """Return the speed of each client, in the order of ``client_ids``.

    Args:
        speeds: speeds by client id; ids are compared as text, and other ids are ignored.
        client_ids: ids of the clients.
        source: origin of the speeds, for error messages.
    """
    by_name = {str(client): speed for client, speed in speeds.items()}
    for client in client_ids:
        if str(client) not in by_name:
            raise CadisError(f"{source} has no speed for client {client}; give one per client.")
    return tuple(_validate_speed(by_name[str(client)], client) for client in client_ids)


def resolve_speeds(speeds: Speeds, client_ids: Sequence[ClientId], seed: int) -> Tensor:
    """Return the speed of each client in samples per second, (n,), float64.

    Args:
        speeds: the option of the user; if empty, all clients have speed 1.
        client_ids: ids of the clients, in the order of the federation.
        seed: seed of the log-uniform draw between LOW and HIGH; the speeds of a run do not depend
            on its method.
    """
    if isinstance(speeds, tuple):
        if len(speeds) != len(client_ids):
            raise CadisError(
                f"{len(speeds)} speeds are given for {len(client_ids)} clients; give one per "
                "client."
            )
        values = [_validate_speed(s, client) for s, client in zip(speeds, client_ids, strict=True)]
        return torch.tensor(values, dtype=torch.float64)
    if not speeds:
        return torch.ones(len(client_ids), dtype=torch.float64)
    if speeds.endswith(".json"):
        content = read_json_object(Path(speeds))
        selected = select_speeds(content, client_ids, f"The file {speeds}")
        return torch.tensor(selected, dtype=torch.float64)
    low, high = _parse_range(speeds)
    generator = derive_generator(seed, "speeds")
    uniform = torch.rand(len(client_ids), dtype=torch.float64, generator=generator)
    return torch.exp(log(low) + uniform * (log(high) - log(low))).clamp(low, high)


def make_time_estimator(
    client_ids: Sequence[ClientId], sizes: Sequence[int], epochs: int, speeds: Tensor
) -> EstimateSeconds:
    """Return a function that computes the simulated seconds of clients: epochs * n_i / speed_i."""
    times = (epochs * torch.tensor(sizes, dtype=torch.float64) / speeds).tolist()
    seconds = dict(zip(client_ids, times, strict=True))
    return lambda clients: torch.tensor([seconds[c] for c in clients], dtype=torch.float64)


def _parse_range(text: str) -> tuple[float, float]:
    """Parse "LOW:HIGH"."""
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        low = high = 0.0
    if not _MIN_SPEED <= low <= high <= _MAX_SPEED:
        raise CadisError(
            "speeds must be LOW:HIGH in samples per second, such as 10:1000, or a file FILE.json "
            f"with {{client: samples per second}}, not {text[:60]!r}."
        )
    return low, high


def _validate_speed(speed: Any, client: ClientId) -> float:
    is_number = isinstance(speed, int | float) and not isinstance(speed, bool) and isfinite(speed)
    if not is_number or not _MIN_SPEED <= speed <= _MAX_SPEED:
        raise CadisError(
            f"The speed of client {client} must be a positive number of samples per second, not "
            f"{str(speed)[:60]!r}."
        )
    return float(speed)
