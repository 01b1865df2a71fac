"""How a federation is run."""

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

import torch
from annotated_types import Gt

from cadis.core import CadisError
from cadis.training import LocalSettings

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]


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
    """

    rounds: Annotated[int, Gt(0)]
    per_round: Annotated[int, Gt(0)] | None = None
    seed: int = 0
    workers: Annotated[int, Gt(0)] | Literal["auto"] = "auto"
    device: Device = "auto"
    local: LocalSettings = field(default_factory=LocalSettings)


def choose_device(device: Device) -> torch.device:
    """The only place where a device is chosen."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next((name for name, there in available.items() if there), "cpu"))
    if not available.get(device, True):
        raise CadisError(f"There is no '{device}' device on this machine; use the device 'cpu'.")
    return torch.device(device)


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
