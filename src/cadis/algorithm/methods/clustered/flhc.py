"""FL+HC: FedAvg, then one hierarchical clustering of the updates.

Problem: clients with contradicting data distributions cannot share one model.

Briggs et al., IJCNN 2020, https://arxiv.org/abs/2004.11791
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import average_linkage
from cadis.algorithm.methods.cadis.cluster_participants import compute_signatures
from cadis.algorithm.methods.clustered.cluster_models import (
    ClusteredMethod,
    PerClientTable,
    aggregate_by_cluster,
    split_models,
)
from cadis.algorithm.vectors import compute_cosines, normalize
from cadis.types import ClientUpdate

_MAX_CLUSTERED_CLIENTS = 1000  # if there are more, only a subset is clustered (quadratic cost)


@dataclass(frozen=True)
class FLHC(ClusteredMethod):
    """FedAvg for some rounds, then one clustering of the clients and one model per cluster.

    Use it if clients need different models and most of them take part in the first rounds.

    After ``warmup`` rounds of FedAvg, the server clusters the clients once. It uses average linkage
    with the cosine distance ``1 - cos(u_i, u_j)`` of their updates u_i, and merges clusters as long
    as their mean distance is at most ``distance``. Then FedAvg trains one model per cluster, which
    starts as a copy of the common model. If there is only one cluster, FedAvg continues with the
    common model.

    Departure from the paper: there, all clients train in the round of the clustering, and whole
    updates are compared. Here the latest update of each client is used. Only the classifier layer
    is compared, because whole updates would need as much memory as one model per client. The common
    model does not change after the clustering: a new client trains it once, and is assigned to the
    cluster whose mean update is most similar to its update.

    Attributes:
        warmup: number of rounds of FedAvg before the clustering. Choose a small number: the more
            the model has learned, the less similar are the updates of clients with similar data.
        distance: largest mean cosine distance of two clusters that are merged; 0 means equal
            directions of the updates, 1 unrelated directions.
    """

    name: ClassVar[str] = "flhc"
    label: ClassVar[str] = "FL+HC"
    needs_head: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="one model per cluster",
        paper=Paper(
            title="Federated Learning with Hierarchical Clustering of Local Updates to Improve "
            "Training on Non-IID Data",
            authors="Christopher Briggs, Zhong Fan, Peter Andras",
            venue="IJCNN",
            year=2020,
            link="https://arxiv.org/abs/2004.11791",
        ),
        server_state="one model per cluster; in the warm-up, one classifier layer per client",
    )
    warmup: Annotated[int, Ge(1)] = 3
    distance: Annotated[float, Ge(0), Le(2)] = 0.7

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Aggregate with FedAvg; cluster the clients in the last round of the warm-up."""
        if "alone" in state.tensors:  # there is only one cluster
            aggregation = super().aggregate(server_round, updates, state)
            labels = torch.zeros(len(updates), dtype=torch.long)
            return replace(aggregation, report={"clusters": labels})
        heads = normalize(compute_signatures(server_round, updates, state))
        if "centres" in state.tensors:
            return aggregate_by_cluster(updates, heads, state)
        aggregation = super().aggregate(server_round, updates, state)
        clients = [update.client_id for update in updates]
        known = PerClientTable.from_tensors(state.tensors, "heads").update(clients, heads.half())
        if server_round.number < self.warmup:
            return replace(aggregation, tensors=known.to_tensors("heads"))
        assigned, centers = cluster_heads(known, self.distance)
        report = {"clusters": assigned.get_labels(clients)}
        if len(centers) == 1:
            return replace(aggregation, tensors={"alone": torch.ones(1)}, report=report)
        return split_models(aggregation, centers, assigned, report)


def cluster_heads(known: PerClientTable, distance: float) -> tuple[PerClientTable, Tensor]:
    """Cluster clients hierarchically by their updates of the classifier layer.

    Args:
        known: update of each client, of norm 1, (n, d).
        distance: largest mean cosine distance of two clusters that are merged.

    Returns:
        The cluster of every client, and the mean update of each cluster, of norm 1, (clusters, d).
    """
    updates = normalize(known.values.float())
    step = -(-len(updates) // _MAX_CLUSTERED_CLIENTS)
    subset = updates[::step]
    subset_labels = average_linkage(compute_cosines(subset), 1 - distance)
    sums = torch.zeros(int(subset_labels.max()) + 1, updates.shape[1])
    centers = normalize(sums.index_add(0, subset_labels, subset))
    labels = (updates @ centers.T).argmax(dim=1)
    labels[::step] = subset_labels
    return PerClientTable(known.keys, labels), centers
