"""CADIS with one model per cluster, instead of one model with equal weight for every cluster.

Problem: clients that only need their own classes are served better by a model of their cluster.

Not published; the clusters are those of :mod:`cadis.algorithm.methods.cadis`.
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
from cadis.algorithm.methods.cadis.clustering import find_nearest_centre
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

    At first one model is trained with the weights of CADIS, without distillation. After ``warmup``
    consecutive rounds with the same number of clusters, more than one, every cluster gets a copy of
    the common model, all clients seen are assigned permanently, and FedAvg trains each cluster. A
    later client first trains the common model, which does not change any more, and is assigned to
    the cluster whose centre is nearest to its class profile. Without clusters there is only one
    model.

    Use it if clients form clusters and each needs only the classes of its cluster.

    Attributes:
        warmup: consecutive rounds with the same number of clusters before the models are split.
    """

    name: ClassVar[str] = "cadis-clusters"
    label: ClassVar[str] = "CADIS, a model each"
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
            scalars = {name: state.tensors[name] for name in ("cut", "confidence")}
            return replace(aggregation, report={**aggregation.report, **scalars})
        aggregation = CADIS(distillation=0).aggregate(server_round, updates, state)
        certain = count_certain_rounds(state.tensors, aggregation.tensors)
        if int(certain) < self.warmup:
            return replace(aggregation, tensors={**aggregation.tensors, "certain": certain})
        return _split_by_profiles(aggregation)


def count_certain_rounds(before: TensorState, after: TensorState) -> Tensor:
    """Count the consecutive rounds with the same number of clusters; 0 for one cluster, ()."""
    number = len(after["centres"])
    if number < 2:
        return torch.tensor(0)
    is_same = "centres" in before and len(before["centres"]) == number
    return before["certain"] + 1 if is_same else torch.tensor(1)


def _is_split(state: ServerState) -> bool:
    return "assigned.keys" in state.tensors


def _split_by_profiles(aggregation: Aggregation) -> Aggregation:
    """Assign all clients seen to the nearest centre, and drop the profiles from the state."""
    centres = aggregation.tensors["centres"]
    known = ClientProfiles.from_tensors(aggregation.tensors)
    table = known.old.merge(known.new)
    assigned = PerClientTable(table.keys, find_nearest_centre(table.mean.float(), centres))
    split = split_models(aggregation, centres, assigned, aggregation.report)
    scalars = {name: aggregation.report[name] for name in ("cut", "confidence")}
    return replace(split, tensors={**split.tensors, **scalars})
