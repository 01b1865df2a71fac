"""FedCluster (Chen, Chen, Zhou, Kailkhura; 2020): clusters of clients take part in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.samplers.base import BaseSampler, SampledRound, SamplerRound, client_rows
from cadis.types import ClientId, TensorState, client_keys, ids_to_tensor


@dataclass(frozen=True)
class FedCluster(BaseSampler):
    """In every round the clients of one cluster take part, each cluster once in a cycle.

    The clusters are those that the method has found, and all clients it has not seen yet are one
    more; where it finds none, clients are in groups by their ids. A cycle has as many rounds as
    there are clusters, and its order is drawn anew. Of a cluster with fewer clients than are wanted
    all take part; of a larger one as many as are wanted, drawn at random.

    Departure: what the paper calls a round is a cycle here, and what it calls a cycle a round: as
    many clients train in one of its rounds as in M of ours. Clusters that a method finds change
    from round to round; the turn of a cluster has been when one of its clients took part in the
    cycle.

    Attributes:
        num_clusters: M, how many groups are made where the method finds no clusters.
    """

    name: ClassVar[str] = "fedcluster"
    about: ClassVar[About] = About(
        kind="who takes part", paper="Chen et al., 2020", server_memory="a number a client"
    )
    num_clusters: Annotated[int, Gt(0)] = 5

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """Draw from the cluster whose turn it is."""
        labels = self._labels(server_round)
        members = (labels == _turn(labels, server_round, memory)).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=server_round.generator)
        return server_round.clients_at(members[order[: server_round.wanted]])

    def learn(self, sampled: SampledRound, memory: TensorState) -> TensorState:
        """Remember in which round everybody took part last."""
        rounds = _rounds(memory) | {u.client_id: sampled.number for u in sampled.updates}
        return {
            "clients": ids_to_tensor(list(rounds)),
            "rounds": torch.tensor(list(rounds.values())),
        }

    def _labels(self, server_round: SamplerRound) -> Tensor:
        """The cluster of each client that is there, numbered from 0 without gaps, (n,)."""
        labels = server_round.cluster_labels(server_round.available)
        if (labels < 0).all():
            labels = client_keys(server_round.available) % self.num_clusters
        own: Tensor = labels.unique(return_inverse=True)[1]
        return own


def _turn(labels: Tensor, server_round: SamplerRound, memory: TensorState) -> int:
    """The cluster whose turn it is: any that had none in this cycle, else that of longest ago."""
    rounds, clusters = _rounds(memory), int(labels.max()) + 1
    own = torch.tensor([rounds.get(client, 0) for client in server_round.available])
    last = torch.zeros(clusters, dtype=torch.int64).scatter_reduce(0, labels, own, "amax")
    done = server_round.number - 1
    before = done - done % clusters  # the last round of the cycle before
    left = (last <= before).nonzero()[:, 0]
    if not len(left):
        return int(last.argmin())
    if len(left) == 1:
        return int(left)  # without a draw, so that a single cluster is drawn from as by uniform
    return int(left[torch.randint(len(left), (), generator=server_round.generator)])


def _rounds(memory: TensorState) -> dict[ClientId, int]:
    """By client, the round in which it took part last."""
    return {client: number for client, (number,) in client_rows(memory, "rounds").items()}
