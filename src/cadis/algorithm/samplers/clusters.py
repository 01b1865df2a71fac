"""Sampling of the same number of participants from each cluster that the method has found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.samplers.base import BaseSampler, SamplerRound, draw_newcomers
from cadis.types import ClientId, TensorState


@dataclass(frozen=True)
class Clusters(BaseSampler):
    """Choose the same number of clients from each cluster, at random within a cluster.

    So even a small cluster has participants in each round. Of the clients without a known cluster
    (newcomers), as many are chosen as in uniform sampling, up to a maximum fraction of the
    participants. Newcomers that never reply then cannot fill the round.

    Attributes:
        newcomers: maximum fraction of participants without a known cluster, such as new clients.
    """

    name: ClassVar[str] = "clusters"
    needs_clusters: ClassVar[bool] = True
    about: ClassVar[About] = About("client selection")
    newcomers: Annotated[float, Ge(0), Le(1)] = 0.5

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw newcomers, then one client from each cluster in turn."""
        del state
        clients, num_participants = server_round.available, server_round.num_participants
        labels = server_round.cluster_labels(clients)
        order = torch.randperm(len(clients), generator=server_round.generator)
        newcomers = draw_newcomers(order, labels < 0, self.newcomers, server_round)
        others = order[labels[order] >= 0]
        count = num_participants - len(newcomers)
        chosen = torch.cat([newcomers, _take_turns(others, labels, count, server_round.generator)])
        rest = order[~torch.isin(order, chosen)][: num_participants - len(chosen)]
        return server_round.select_clients(torch.cat([chosen, rest]))


def _take_turns(clients: Tensor, labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Choose clients, one from each cluster in turn, and return their indices, (count,).

    The order of the clusters is random; within a cluster, the order of ``clients`` is kept.

    Args:
        clients: indices of the clients to choose from, (m,).
        labels: cluster of each available client, (n,).
        count: number of clients to choose.
        generator: random generator.
    """
    if not len(clients) or count < 1:
        return clients[:0]
    _, clusters, sizes = labels[clients].unique(return_inverse=True, return_counts=True)
    by_cluster = clusters.argsort(stable=True)
    starts = sizes.cumsum(dim=0) - sizes
    turn = torch.empty_like(clusters)  # position of each client within its cluster
    turn[by_cluster] = torch.arange(len(clusters)) - starts[clusters[by_cluster]]
    rank = torch.randperm(len(sizes), generator=generator)[clusters]
    return clients[(turn * len(sizes) + rank).argsort()[:count]]
