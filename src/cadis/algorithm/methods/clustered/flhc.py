"""FL+HC (Briggs, Fan and Andras, 2020): FedAvg, then once a hierarchical clustering of updates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import average_linkage
from cadis.algorithm.methods.cadis.cluster_participants import signatures
from cadis.algorithm.methods.clustered.cluster_models import (
    FindsClusters,
    PerClientTable,
    aggregate_by_cluster,
    split,
)
from cadis.algorithm.vectors import cosines, unit
from cadis.types import ClientUpdate

_LOOKED_AT = 1000  # clients to cluster, all or an even choice of more; others go to the nearest


@dataclass(frozen=True)
class FLHC(FindsClusters):
    """FedAvg for some rounds; then clients are clustered once, and each cluster has a model.

    Clusters are joined by average linkage of the cosine distance, as long as two are nearer than
    ``distance`` on the average. Each goes on with FedAvg on a model of its own, begun from the
    common one. If there is but one cluster, its model stays the common one.

    Departure: the paper has everybody train in the round that clusters are made of, and compares
    whole updates. Here the latest update of each client in the warm-up is compared, which may be
    of an earlier round; and of it the classifier layer alone, as whole updates of all clients are
    as many models to keep. A client that comes after that trains the common model, which stays as
    it was, and is assigned to the cluster whose mean update is most like its own.

    Attributes:
        warmup: rounds of FedAvg before clients are clustered. The more the model has learned, the
            less alike the updates of clients are that have the same classes; but who is not seen by
            then has no say in what clusters there are.
        distance: mean cosine distance above which clusters stay apart; 0 is alike, 1 is unrelated.
    """

    name: ClassVar[str] = "flhc"
    label: ClassVar[str] = "FL+HC"
    compares_heads: ClassVar[bool] = True
    about: ClassVar[About] = About(
        kind="one model per cluster",
        paper="Briggs, Fan and Andras, 2020",
        server_memory="a model a cluster; in the warm-up, a classifier layer a client",
    )
    warmup: Annotated[int, Ge(1)] = 3
    distance: Annotated[float, Ge(0), Le(2)] = 0.7

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """FedAvg; at the end of the warm-up, clusters; from then on FedAvg in each of them."""
        if "alone" in state.memory:
            made = super().aggregate(server_round, updates, state)
            return replace(made, report={"clusters": torch.zeros(len(updates), dtype=torch.long)})
        heads = unit(signatures(server_round, updates, state))
        if "centres" in state.memory:
            return aggregate_by_cluster(updates, heads, state)
        made = super().aggregate(server_round, updates, state)
        clients = [update.client_id for update in updates]
        known = PerClientTable.from_tensors(state.memory, "heads").put(clients, heads.half())
        if server_round.number < self.warmup:
            return replace(made, memory=known.to_tensors("heads"))
        assigned, centres = clusters_of_heads(known, self.distance)
        report = {"clusters": assigned.labels(clients)}
        if len(centres) == 1:
            return replace(made, memory={"alone": torch.ones(1)}, report=report)
        return split(made, centres, assigned, report)


def clusters_of_heads(known: PerClientTable, distance: float) -> tuple[PerClientTable, Tensor]:
    """Hierarchical clusters of clients by their updates, of length 1, (n, d).

    Returns:
        The cluster of every client, and the mean update of each, of length 1, (clusters, d).
    """
    updates = unit(known.values.float())
    step = -(-len(updates) // _LOOKED_AT)
    chosen = updates[::step]
    found = average_linkage(cosines(chosen), 1 - distance)
    sums = torch.zeros(int(found.max()) + 1, updates.shape[1])
    centres = unit(sums.index_add(0, found, chosen))
    labels = (updates @ centres.T).argmax(dim=1)
    labels[::step] = found
    return PerClientTable(known.keys, labels), centres
