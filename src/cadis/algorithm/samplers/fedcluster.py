"""FedCluster: the clusters of clients take part in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.samplers.base import (
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    read_client_rows,
)
from cadis.types import ClientId, TensorState, compute_client_keys, ids_to_tensor


@dataclass(frozen=True)
class FedCluster(BaseSampler):
    """Choose the clients of one cluster in each round, and each cluster once per cycle.

    The clusters are those that the method has found; all clients without a known cluster form one
    more. If the method finds no clusters, clients are grouped by their ids. A cycle has one round
    per cluster, in a new random order. All clients of a small cluster take part; of a cluster with
    more than k clients, k are drawn at random.

    Departure: a round of the paper is a cycle here, and a cycle of the paper is a round: one of its
    rounds trains as many clients as M of ours. The clusters of a method change from round to round;
    a cluster counts as done if one of its clients took part in the cycle.

    Attributes:
        num_clusters: M, the number of groups if the method finds no clusters.
    """

    name: ClassVar[str] = "fedcluster"
    about: ClassVar[About] = About(
        topic="client selection",
        paper=Paper(
            title="FedCluster: Boosting the Convergence of Federated Learning via Cluster-Cycling",
            authors="Cheng Chen, Ziyi Chen, Yi Zhou, Bhavya Kailkhura",
            venue="IEEE BigData",
            year=2020,
            link="https://arxiv.org/abs/2009.10748",
        ),
        server_state="one number per client",
    )
    num_clusters: Annotated[int, Gt(0)] = 5

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Draw from the cluster whose turn it is."""
        labels = self._label_clients(server_round)
        members = (labels == _choose_cluster(labels, server_round, state)).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=server_round.generator)
        return server_round.select_clients(members[order[: server_round.num_participants]])

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Store the last round of each client that has taken part."""
        rounds = _read_last_rounds(state) | {
            update.client_id: feedback.number for update in feedback.updates
        }
        return {
            "clients": ids_to_tensor(list(rounds)),
            "rounds": torch.tensor(list(rounds.values())),
        }

    def _label_clients(self, server_round: SamplerRound) -> Tensor:
        """Return the cluster of each available client, numbered from 0 without gaps, (n,)."""
        labels = server_round.cluster_labels(server_round.available)
        if (labels < 0).all():
            labels = compute_client_keys(server_round.available) % self.num_clusters
        numbers: Tensor = labels.unique(return_inverse=True)[1]
        return numbers


def _choose_cluster(labels: Tensor, server_round: SamplerRound, state: TensorState) -> int:
    """Draw a cluster that was not chosen in this cycle; without one, take the least recent."""
    rounds, num_clusters = _read_last_rounds(state), int(labels.max()) + 1
    last_rounds = torch.tensor([rounds.get(client, 0) for client in server_round.available])
    by_cluster = torch.zeros(num_clusters, dtype=torch.int64)
    by_cluster = by_cluster.scatter_reduce(0, labels, last_rounds, "amax")
    finished = server_round.number - 1
    cycle_start = finished - finished % num_clusters  # last round of the previous cycle
    remaining = (by_cluster <= cycle_start).nonzero()[:, 0]
    if not len(remaining):
        return int(by_cluster.argmin())
    if len(remaining) == 1:
        return int(remaining)  # without a random draw: a single cluster then equals Uniform
    return int(remaining[torch.randint(len(remaining), (), generator=server_round.generator)])


def _read_last_rounds(state: TensorState) -> dict[ClientId, int]:
    """Return the last round in which each client took part."""
    return {client: number for client, (number,) in read_client_rows(state, "rounds").items()}
