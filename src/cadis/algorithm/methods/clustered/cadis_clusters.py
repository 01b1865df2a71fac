"""CADIS with one model per cluster, instead of one global model.

Problem: for clients that need only their own classes, a model of their cluster is better than a
global model.

This method is not published. It finds clusters as :mod:`cadis.algorithm.methods.cadis` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import CADIS, ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import assign_by_profiles, compute_profiles
from cadis.algorithm.methods.cadis.clustering import find_nearest_center
from cadis.algorithm.methods.clustered.cluster_models import (
    ClusteredMethod,
    PerClientTable,
    aggregate_by_cluster,
    split_models,
)
from cadis.types import ClientId, ClientUpdate, TensorState


@dataclass(frozen=True)
class CADISClusters(ClusteredMethod):
    """One model per cluster, with the clusters that CADIS finds.

    Use it if clients form clusters and each client needs only the classes of its cluster.

    At first all clients train one common model, which is aggregated with the weights of CADIS,
    ``alpha_i = (1 / M_i) * (n_i / N)``, without distillation. When the server has found the same
    number of clusters, at least two, in ``warmup`` consecutive rounds, every cluster gets a copy of
    the common model. All known clients are assigned to a cluster permanently, and FedAvg trains the
    model of each cluster. The common model does not change any more: a new client trains it once,
    and is assigned to the cluster whose center is nearest to its class profile. If the server finds
    no clusters, there is only the common model.

    Attributes:
        warmup: number of consecutive rounds with the same number of clusters before each cluster
            gets its own model.
    """

    name: ClassVar[str] = "cadis-clusters"
    label: ClassVar[str] = "CADIS, one model per cluster"
    needs_head: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]] = {"sampler": "clusters"}
    about: ClassVar[About] = About(
        topic="one model per cluster",
        paper=CADIS.about.paper,
        server_state="one model per cluster, one number per class and client",
    )
    warmup: Annotated[int, Ge(1)] = 5

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Return the cluster of each client before a round, -1 if it is unknown, (n,)."""
        if _is_split(state):
            return super().cluster_labels(server_round, state, clients)
        return assign_by_profiles(clients, state.tensors)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Aggregate one model with the weights of CADIS; after the split, FedAvg per cluster."""
        if _is_split(state):
            profiles = compute_profiles(server_round, updates, state)
            aggregation = aggregate_by_cluster(updates, profiles, state)
            scalars = {name: state.tensors[name] for name in ("centres", "cut", "confidence")}
            return replace(aggregation, report={**aggregation.report, **scalars})
        aggregation = CADIS(distillation=0).aggregate(server_round, updates, state)
        certain = count_certain_rounds(state.tensors, aggregation.tensors)
        if int(certain) < self.warmup:
            return replace(aggregation, tensors={**aggregation.tensors, "certain": certain})
        return _split_by_profiles(aggregation)


def count_certain_rounds(before: TensorState, after: TensorState) -> Tensor:
    """Count the consecutive rounds with the same number of clusters; 0 if there is one cluster."""
    num_clusters = len(after["centres"])
    if num_clusters < 2:
        return torch.tensor(0)
    is_same = "centres" in before and len(before["centres"]) == num_clusters
    return before["certain"] + 1 if is_same else torch.tensor(1)


def _is_split(state: ServerState) -> bool:
    return "assigned.keys" in state.tensors


def _split_by_profiles(aggregation: Aggregation) -> Aggregation:
    """Assign all known clients to the nearest center, and remove the profiles from the state."""
    centers = aggregation.tensors["centres"]
    known = ClientProfiles.from_tensors(aggregation.tensors)
    table = known.old.merge(known.new)
    assigned = PerClientTable(table.keys, find_nearest_center(table.mean.float(), centers))
    split = split_models(aggregation, centers, assigned, aggregation.report)
    scalars = {name: aggregation.report[name] for name in ("cut", "confidence")}
    return replace(split, tensors={**split.tensors, **scalars})
