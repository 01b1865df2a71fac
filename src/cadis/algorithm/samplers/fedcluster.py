"""FedCluster: in each round, the participants come from one cluster."""

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
    """Choose the participants of a round from one cluster, and each cluster once per cycle.

    The sampler uses the clusters that the method has found; all clients without a known cluster
    form one more cluster. If the method finds no clusters, clients are divided into groups
    according to their ids. A cycle has one round per cluster, in a new random order. Of the chosen
    cluster, as many clients as the round has participants are drawn at random; if it has fewer, all
    of them take part.

    Departure from the paper: what the paper calls a round, in which all clusters train one after
    the other, is a cycle here, with one round per cluster. The clusters that a method finds may
    change from round to round, so a cluster counts as finished if one of its clients took part in
    the cycle.

    Attributes:
        num_clusters: number of groups of clients if the method finds no clusters.
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
        """Draw the participants from the cluster of this round."""
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
        indices: Tensor = labels.unique(return_inverse=True)[1]
        return indices


def _choose_cluster(labels: Tensor, server_round: SamplerRound, state: TensorState) -> int:
    """Draw a cluster that was not chosen in this cycle; if all were, return the least recent."""
    rounds, num_clusters = _read_last_rounds(state), int(labels.max()) + 1
    client_rounds = torch.tensor([rounds.get(client, 0) for client in server_round.available])
    last_rounds = torch.zeros(num_clusters, dtype=torch.int64)  # of each cluster
    last_rounds = last_rounds.scatter_reduce(0, labels, client_rounds, "amax")
    num_finished_rounds = server_round.number - 1
    last_of_previous_cycle = num_finished_rounds - num_finished_rounds % num_clusters
    remaining = (last_rounds <= last_of_previous_cycle).nonzero()[:, 0]
    if not len(remaining):
        return int(last_rounds.argmin())
    if len(remaining) == 1:
        # without a random draw: if there is only one cluster, the participants are the same as with
        # Uniform
        return int(remaining)
    return int(remaining[torch.randint(len(remaining), (), generator=server_round.generator)])


def _read_last_rounds(state: TensorState) -> dict[ClientId, int]:
    """Return the last round in which each client took part."""
    return {client: number for client, (number,) in read_client_rows(state, "rounds").items()}
