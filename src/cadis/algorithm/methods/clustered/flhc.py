"""FL+HC: FedAvg, then one hierarchical clustering of the updates.

Problem: clients with contradicting data distributions cannot share one model.

Christopher Briggs, Zhong Fan, Peter Andras: Federated Learning with Hierarchical Clustering of
Local Updates to Improve Training on Non-IID Data. IJCNN 2020. https://arxiv.org/abs/2004.11791
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

_MAX_CLUSTERED_CLIENTS = 1000  # of more clients a regular subset is clustered: quadratic cost


@dataclass(frozen=True)
class FLHC(ClusteredMethod):
    """FedAvg for some rounds, then one clustering of clients with one model per cluster.

    After ``warmup`` rounds, clients are clustered once by average linkage of the cosine distance of
    their updates; clusters are merged while their mean distance is below ``distance``. Then FedAvg
    trains one model per cluster, which starts as the common one. With one cluster, the common model
    is trained on.

    Use it if clients need different models and most of them take part early.

    Departure: in the paper all clients train in the round of the clustering, and whole updates are
    compared. Here the latest update of each client in the warm-up is used, which can be older. Only
    the classifier layer is compared, since whole updates would take as much memory as all models. A
    later client first trains the common model, which does not change any more, and is assigned to
    the cluster whose mean update is most similar to its own.

    Attributes:
        warmup: rounds before clustering; later, updates within a cluster are less similar.
        distance: mean cosine distance from which clusters are not merged; 0 equal, 1 unrelated.
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
        """Aggregate with FedAvg, cluster at the end of the warm-up, then FedAvg per cluster."""
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
        assigned, centres = cluster_heads(known, self.distance)
        report = {"clusters": assigned.get_labels(clients)}
        if len(centres) == 1:
            return replace(aggregation, tensors={"alone": torch.ones(1)}, report=report)
        return split_models(aggregation, centres, assigned, report)


def cluster_heads(known: PerClientTable, distance: float) -> tuple[PerClientTable, Tensor]:
    """Cluster clients hierarchically by their updates of the classifier layer.

    Args:
        known: update of each client, of norm 1, (n, d).
        distance: mean cosine distance from which clusters are not merged.

    Returns:
        The cluster of every client, and the mean update of each cluster, of norm 1, (clusters, d).
    """
    updates = normalize(known.values.float())
    step = -(-len(updates) // _MAX_CLUSTERED_CLIENTS)
    subset = updates[::step]
    subset_labels = average_linkage(compute_cosines(subset), 1 - distance)
    sums = torch.zeros(int(subset_labels.max()) + 1, updates.shape[1])
    centres = normalize(sums.index_add(0, subset_labels, subset))
    labels = (updates @ centres.T).argmax(dim=1)
    labels[::step] = subset_labels
    return PerClientTable(known.keys, labels), centres
