"""How a federation is run."""

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le

from cadis.training import Device, LocalSettings


@dataclass(frozen=True)
class EngineSettings:
    """How a federation is run.

    Attributes:
        rounds: how many rounds.
        per_round: k, clients that take part in a round; None for all.
        seed: of everything random.
        workers: processes that train clients; "auto" takes one for each core.
        device: where models are trained; "auto" takes an accelerator if there is one.
        local: how a client trains.
        test_clients: after how many rounds, and the last, the global model is tested on every
            client's own data; 0 is never.
    """

    rounds: Annotated[int, Gt(0)]
    per_round: Annotated[int, Gt(0)] | None = None
    seed: int = 0
    workers: Annotated[int, Gt(0), Le(1024)] | Literal["auto"] = "auto"
    device: Device = "auto"
    local: LocalSettings = field(default_factory=LocalSettings)
    test_clients: Annotated[int, Ge(0)] = 10


def choose_workers(workers: int | Literal["auto"], device: torch.device, per_round: int) -> int:
    """One process for each core, no more than clients in a round; an accelerator is not shared."""
    if device.type != "cpu":
        return 1
    if workers == "auto":
        workers = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else (os.cpu_count() or 1)
        )
    return min(workers, per_round)
