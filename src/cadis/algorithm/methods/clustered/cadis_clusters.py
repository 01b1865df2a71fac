"""CADIS's clusters with a model each, instead of one model in which each has an equal voice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod, weighted_models
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import (
    ClientProfiles,
    Cut,
    Grouping,
    ProfileClusters,
    cluster_weights,
    group_by_profiles,
    profile_clusters,
    profiles_of,
)
from cadis.algorithm.methods.clustered.cluster_models import (
    PerClientTable,
    aggregate_by_cluster,
    assigned_labels,
    assigned_model,
    split,
)
from cadis.types import ClientId, ClientUpdate


@dataclass(frozen=True)
class CADISClusters(BaseMethod):
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

    @property
    def finds_clusters(self) -> bool:
        """As CADIS does, from the first round on."""
        return True

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """The model of the client's cluster; until it is known, the common one."""
        return assigned_model(client, state.memory)

    def cluster_labels(
        self,
        server_round: ServerRound,  # noqa: ARG002
        state: ServerState,
        clients: Sequence[ClientId],
    ) -> Tensor:
        """The clusters that clients are in before a round."""
        if _is_split(state):
            return assigned_labels(clients, state.memory)
        return profile_clusters(clients, state.memory)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """One model with CADIS's weights; once clusters are certain, FedAvg in each of them."""
        profiles = profiles_of(server_round, updates, state)
        if _is_split(state):
            made = aggregate_by_cluster(updates, profiles, state)
            told = {name: state.memory[name] for name in ("cut", "confidence")}
            return replace(made, report={**made.report, **told})
        clients = [update.client_id for update in updates]
        grouping = group_by_profiles(profiles, clients, state.memory, threshold=None)
        counts = [update.num_examples for update in updates]
        weights = cluster_weights(counts, grouping.labels, grouping.sizes)
        models, weights = weighted_models(updates, weights)
        certain = certain_rounds(state.memory, grouping)
        made = Aggregation(models, {**grouping.memory, "certain": certain}, weights)
        if int(certain) < self.warmup:
            return replace(made, report=grouping.report)
        return _split_by_profiles(made, grouping)


def certain_rounds(memory: Mapping[str, Tensor], grouping: Grouping) -> Tensor:
    """Rounds in a row in which there was this number of clusters; 0 if there is one, ()."""
    number = len(grouping.memory["centres"])
    if number < 2:
        return torch.tensor(0)
    before = len(memory["centres"]) if "centres" in memory else 0
    return memory["certain"] + 1 if number == before else torch.tensor(1)


def _is_split(state: ServerState) -> bool:
    return "assigned.keys" in state.memory


def _split_by_profiles(made: Aggregation, grouping: Grouping) -> Aggregation:
    """Assign everybody seen to the nearest centre; profiles need not be remembered any longer."""
    centres = grouping.memory["centres"]
    known = ClientProfiles.from_tensors(grouping.memory)
    table = known.old.merged(known.new)
    labels = ProfileClusters(centres, Cut(0, 0)).of(table.mean.float())
    divided = split(made, centres, PerClientTable(table.keys, labels), grouping.report)
    told = {name: grouping.report[name] for name in ("cut", "confidence")}
    return replace(divided, memory={**divided.memory, **told})
