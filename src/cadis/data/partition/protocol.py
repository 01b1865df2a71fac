"""Who owns what, and what every way of dealing it out looks like."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.types import ClientId


@dataclass(frozen=True, repr=False)
class Partition:
    """Who owns what.

    Attributes:
        indices: each client's examples.
        true_clusters: the true cluster of each client, (n,); None if there are none.
        client_ids: names of the clients; by default their positions.
    """

    indices: tuple[Tensor, ...]
    true_clusters: Tensor | None = None
    client_ids: tuple[ClientId, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not self.client_ids:
            object.__setattr__(self, "client_ids", tuple(range(len(self.indices))))

    def counts(self, labels: Tensor, num_classes: int) -> Tensor:
        """How many samples of each class each client has, (clients, classes)."""
        return torch.stack(
            [torch.bincount(labels[owned], minlength=num_classes) for owned in self.indices]
        )


class Partitioner(Protocol):
    """A way of dealing out a dataset: a frozen dataclass of its parameters."""

    name: ClassVar[str]

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """Deal out examples; none belongs to two clients.

        Args:
            labels: of all examples, (n,).
            num_clients: how many clients there are to be.
            minimum: the fewest samples a client may have.
            generator: deals.
        """
