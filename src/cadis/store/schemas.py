"""Schemas of ``federation.json`` and ``summary.json``.

:class:`~cadis.store.RunFolder` validates the files with them.
"""

from dataclasses import dataclass
from typing import ClassVar

from cadis.server import STRICT
from cadis.types import ClientId


@dataclass(frozen=True)
class ClientSchema:
    """A client in ``federation.json``.

    Attributes:
        id: id of the client.
        cluster: true cluster, if known.
        samples: number of training samples per class, if known.
        test_samples: number of held-out samples per class, if samples are held out.
    """

    __pydantic_config__: ClassVar = STRICT
    id: ClientId
    cluster: int | None
    samples: list[int] | None
    test_samples: list[int] | None = None


@dataclass(frozen=True)
class FederationSchema:
    """Schema of ``federation.json``."""

    __pydantic_config__: ClassVar = STRICT
    classes: list[str]
    clients: list[ClientSchema]


@dataclass(frozen=True)
class SummarySchema:
    """The keys of ``summary.json`` that other packages read; further keys are allowed."""

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


SCHEMAS: dict[str, type] = {"federation.json": FederationSchema, "summary.json": SummarySchema}
"""Schema of each file that is validated when it is read."""
