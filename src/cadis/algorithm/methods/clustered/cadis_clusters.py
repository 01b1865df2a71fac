"""CADIS's clusters with a model each, instead of one model in which each has an equal voice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import CADIS, ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import profile_clusters, profiles_of
from cadis.algorithm.methods.cadis.clustering import nearest_centre
from cadis.algorithm.methods.clustered.cluster_models import (
    FindsClusters,
    PerClientTable,
    aggregate_by_cluster,
    split,
)
from cadis.types import ClientId, ClientUpdate, TensorState


@dataclass(frozen=True)
class CADISClusters(FindsClusters):
    """Finds clusters as CADIS does; once they are certain, each has a model of its own.

    Until then one model is trained with CADIS's weights, every cluster an equal voice, and without
    its distillation. When the same number of clusters, more than one, has been told with
    confidence for ``warmup`` rounds in a row, every cluster gets a model that begins as the common
    one, and clients are assigned for good. Within a cluster there is FedAvg. A client that comes
    later trains the common model, which stays as it was, and is assigned to the cluster with the
    centre nearest to its class profile. Where there are no clusters, there is one model for good.

    Attributes:
        warmup: rounds in a row that must tell as many clusters, before each has a model.
    """

    name: ClassVar[str] = "cadis-clusters"
    label: ClassVar[str] = "CADIS, a model each"
    compares_heads: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]] = {"sampler": "clusters"}
    about: ClassVar[About] = About(
        kind="one model per cluster",
        paper="ours",
        server_memory="a model a cluster, a number a class and client",
    )
    warmup: Annotated[int, Ge(1)] = 5

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """The clusters that clients are in before a round."""
        if _is_split(state):
            return super().cluster_labels(server_round, state, clients)
        return profile_clusters(clients, state.memory)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """One model with CADIS's weights; once clusters are certain, FedAvg in each of them."""
        if _is_split(state):
            profiles = profiles_of(server_round, updates, state)
            made = aggregate_by_cluster(updates, profiles, state)
            told = {name: state.memory[name] for name in ("cut", "confidence")}
            return replace(made, report={**made.report, **told})
        made = CADIS(distillation=0).aggregate(server_round, updates, state)
        certain = certain_rounds(state.memory, made.memory)
        if int(certain) < self.warmup:
            return replace(made, memory={**made.memory, "certain": certain})
        return _split_by_profiles(made)


def certain_rounds(before: TensorState, after: TensorState) -> Tensor:
    """Rounds in a row in which there was this number of clusters; 0 if there is one, ()."""
    number = len(after["centres"])
    if number < 2:
        return torch.tensor(0)
    same = "centres" in before and len(before["centres"]) == number
    return before["certain"] + 1 if same else torch.tensor(1)


def _is_split(state: ServerState) -> bool:
    return "assigned.keys" in state.memory


def _split_by_profiles(made: Aggregation) -> Aggregation:
    """Assign everybody seen to the nearest centre; profiles need not be remembered any longer."""
    centres, known = made.memory["centres"], ClientProfiles.from_tensors(made.memory)
    table = known.old.merged(known.new)
    assigned = PerClientTable(table.keys, nearest_centre(table.mean.float(), centres))
    divided = split(made, centres, assigned, made.report)
    told = {name: made.report[name] for name in ("cut", "confidence")}
    return replace(divided, memory={**divided.memory, **told})
