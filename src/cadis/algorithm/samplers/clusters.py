"""Participants drawn evenly from the clusters that the method has found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.samplers.base import BaseSampler, SamplerRound
from cadis.types import ClientId, TensorState


@dataclass(frozen=True)
class Clusters(BaseSampler):
    """The seats of a round are dealt evenly over the clusters, and in each drawn at random.

    So no cluster is forgotten for want of participants, however small it is. Clients that were
    never seen have as many seats as chance would give them, but no more than a part: at first there
    are hardly any others, of a great many clients some are always new, and one that never answers
    would otherwise be asked in every round.

    Attributes:
        newcomers: the part of the seats that clients never seen have at the most.
    """

    name: ClassVar[str] = "clusters"
    needs_clusters: ClassVar[bool] = True
    about: ClassVar[About] = About(kind="who takes part", paper="ours")
    newcomers: Annotated[float, Ge(0), Le(1)] = 0.5

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """Deal the seats."""
        del memory
        clients, wanted = server_round.available, server_round.wanted
        labels = server_round.cluster_labels(clients)
        order = torch.randperm(len(clients), generator=server_round.generator)
        unseen = order[labels[order] < 0][: self._seats(server_round, labels)]
        known = order[labels[order] >= 0]
        dealt = _deal(known, labels, wanted - len(unseen), server_round.generator)
        chosen = torch.cat([unseen, dealt])
        others = order[~torch.isin(order, chosen)][: wanted - len(chosen)]
        return server_round.clients_at(torch.cat([chosen, others]))

    def _seats(self, server_round: SamplerRound, labels: Tensor) -> int:
        """How many seats clients have that were never seen; all, if nobody was."""
        wanted, unseen = server_round.wanted, float((labels < 0).float().mean())
        if unseen == 1:
            return wanted
        chances = torch.rand(wanted, generator=server_round.generator)
        return min(int((chances < unseen).sum()), round(self.newcomers * wanted))


def _deal(places: Tensor, labels: Tensor, seats: int, generator: torch.Generator) -> Tensor:
    """Choose as many of the clients at some indices as there are seats, from the clusters in turn.

    Which of the clusters come first is drawn; within one, the order of the indices counts.
    """
    if not len(places) or seats < 1:
        return places[:0]
    _, own, sizes = labels[places].unique(return_inverse=True, return_counts=True)
    grouped = own.argsort(stable=True)
    firsts = sizes.cumsum(dim=0) - sizes
    turn = torch.empty_like(own)  # how many of its cluster come before each
    turn[grouped] = torch.arange(len(own)) - firsts[own[grouped]]
    rank = torch.randperm(len(sizes), generator=generator)[own]
    return places[(turn * len(sizes) + rank).argsort()[:seats]]
