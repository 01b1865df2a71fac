"""What a sampler is: it says who takes part in a round."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cadis.types import ClientId, ClientUpdate, Message, TensorState


def _nobody_known(clients: Sequence[ClientId]) -> Tensor:
    return torch.full((len(clients),), -1)


@dataclass(frozen=True)
class SamplerRound:
    """What is known before a round.

    Attributes:
        number: the round, from 1.
        available: the clients that are there, always in the same order.
        wanted: k, how many are to take part; no more than there are.
        generator: the round's source of randomness.
        cluster_labels: returns the cluster of each of some clients as the method knows it, -1 if it
            was never seen, (n,); everybody is unknown to a method that finds no clusters.
    """

    number: int
    available: Sequence[ClientId]
    wanted: int
    generator: torch.Generator
    cluster_labels: Callable[[Sequence[ClientId]], Tensor] = _nobody_known


@dataclass(frozen=True)
class SampledRound:
    """What came of a round, for a sampler that learns from it.

    Attributes:
        number: the round, from 1.
        updates: of those chosen whose updates were good.
        sent: what each of these was sent, by client.
        report: what the method told about the round.
        head: where the classifier layer lies in a model's parameters: its weight and its bias, if
            it has one; nothing if there is no such layer.
        num_outputs: rows of the classifier layer's weight; 0 if there is no such layer.
    """

    number: int
    updates: Sequence[ClientUpdate]
    sent: Mapping[ClientId, Message] = field(default_factory=dict)
    report: TensorState = field(default_factory=dict)
    head: tuple[slice, ...] = ()
    num_outputs: int = 0


class Sampler(Protocol):
    """Says who takes part. State goes in and comes out; it is part of the checkpoint.

    Attributes:
        name: as users type it.
        needs_clusters: whether it asks for clusters; it is refused with a method that finds none.
        needs_head: whether it looks at the classifier layer, which the model must then have.
    """

    name: ClassVar[str]
    needs_clusters: ClassVar[bool]
    needs_head: ClassVar[bool]

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """The participants: ``wanted`` of the available clients or fewer, each once."""

    def learn(self, sampled: SampledRound, memory: TensorState) -> TensorState:
        """What to remember for the next round, from what came of this one."""


class BaseSampler:
    """A sampler that needs nothing and learns nothing; derive from it and write ``choose``."""

    needs_clusters: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False

    def learn(
        self,
        sampled: SampledRound,  # noqa: ARG002
        memory: TensorState,
    ) -> TensorState:
        """Return what was remembered, as it is."""
        return memory
