"""The base class of samplers, uniform sampling, and what several samplers use."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from cadis.algorithm.about import About
from cadis.types import ClientId, ClientUpdate, Message, TensorState, ids_from_tensor


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

    def clients_at(self, indices: Tensor) -> list[ClientId]:
        """Return the available clients at these indices, in the order of the clients."""
        return [self.available[index] for index in sorted(indices.tolist())]


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


class BaseSampler:
    """Says who takes part; derive from it and write ``choose``.

    State goes in and comes out; it is part of the checkpoint. Unless overridden, a sampler needs
    nothing and learns nothing.

    Attributes:
        name: as users type it.
        needs_clusters: whether it asks for clusters; it is refused with a method that finds none.
        needs_head: whether it looks at the classifier layer, which the model must then have.
    """

    name: ClassVar[str]
    needs_clusters: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False

    @abstractmethod
    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """Return the participants: ``wanted`` of the available clients or fewer, each once."""

    def learn(self, sampled: SampledRound, memory: TensorState) -> TensorState:
        """Return what to remember for the next round, from what came of this one."""
        del sampled
        return memory


@dataclass(frozen=True)
class Uniform(BaseSampler):
    """k of n without replacement, in the order of the clients."""

    name: ClassVar[str] = "uniform"
    about: ClassVar[About] = About(kind="who takes part", paper="McMahan et al., 2017")

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """Draw the participants."""
        del memory
        order = torch.randperm(len(server_round.available), generator=server_round.generator)
        return server_round.clients_at(order[: server_round.wanted])


def draw(log_weights: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Draw so many indices without replacement, each by its weight among those that are left.

    The highest of logarithm of the weight plus Gumbel noise are such a draw, and no weight is too
    small for it. Logarithms may be off by a constant; indices are in the order of the draws.
    """
    noise = torch.empty(len(log_weights), dtype=torch.float64)
    noise.exponential_(generator=generator)
    drawn: Tensor = (log_weights.double() - noise.log()).topk(number).indices
    return drawn


def client_rows(memory: TensorState, *columns: str) -> dict[ClientId, tuple[Any, ...]]:
    """Return what a sampler remembers of each client: an entry of each of these columns."""
    if not memory:
        return {}
    table = [memory[name] for name in columns]
    rows = zip(*(one if one.dim() > 1 else one.tolist() for one in table), strict=True)
    return dict(zip(ids_from_tensor(memory["clients"]), rows, strict=True))
