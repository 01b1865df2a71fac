"""What the JSON files of a run must look like."""

from dataclasses import dataclass
from typing import ClassVar

from cadis.server import STRICT
from cadis.types import ClientId


@dataclass(frozen=True)
class ClientShape:
    """A client in ``federation.json``: its samples per class and its true cluster, if known.

    Samples are those that it trains on; those that it has held out to be tested on, if any were
    asked for, are counted apart.
    """

    __pydantic_config__: ClassVar = STRICT
    id: ClientId
    cluster: int | None
    samples: list[int] | None
    test_samples: list[int] | None = None


@dataclass(frozen=True)
class FederationShape:
    """What ``federation.json`` must look like."""

    __pydantic_config__: ClassVar = STRICT
    classes: list[str]
    clients: list[ClientShape]


@dataclass(frozen=True)
class SummaryShape:
    """What ``summary.json`` must look like, as far as anybody relies on it."""

    method: str
    rounds: int
    accuracy: float | None
    loss: float | None
    best_accuracy: float | None
    best_round: int
    rare_classes: list[int]
    rare_accuracy: float | None
    rejected: int
    confusion: list[list[int]] | None
    seconds: dict[str, float]
    versions: dict[str, str]
    clusters_found: int = 0
    clusters_among: int | None = None
    cluster_agreement: float | None = None
    round_agreement: float | None = None
