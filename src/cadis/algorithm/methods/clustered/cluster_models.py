"""Shared code of methods with one model per cluster: clusters of clients, FedAvg per cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.aggregation import average_updates, compute_sample_weights
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.vectors import normalize
from cadis.types import (
    ClientId,
    ClientUpdate,
    Message,
    ModelState,
    TensorState,
    compute_client_keys,
)

COMMON_MODEL = "model"  # name of the model for clients that have no cluster yet


def get_cluster_model_name(label: int) -> str:
    """Return the name of the model of a cluster."""
    return f"cluster-{label}"


@dataclass(frozen=True)
class PerClientTable:
    """The latest value of each client, sorted by key; immutable."""

    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # (n,)
    values: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # (n, ...)

    def update(self, clients: Sequence[ClientId], values: Tensor) -> "PerClientTable":
        """Return a table with new values, (k, ...), for some clients."""
        keys, rows = compute_client_keys(clients), values
        if len(self.keys):
            keys, rows = torch.cat([self.keys, keys]), torch.cat([self.values, values])
        keys, order = keys.sort(stable=True)
        is_last = torch.ones(len(keys), dtype=torch.bool)  # of several values, keep the newest
        is_last[:-1] = keys[1:] != keys[:-1]
        return PerClientTable(keys[is_last], rows[order[is_last]])

    def get_labels(self, clients: Sequence[ClientId]) -> Tensor:
        """Return the values of clients as labels, -1 for a client without a value, (k,)."""
        if not len(self.keys):
            return torch.full((len(clients),), -1)
        keys = compute_client_keys(clients)
        rows = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[rows] == keys, self.values[rows], -1)

    def to_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the table as named tensors for a checkpoint."""
        return {f"{name}.keys": self.keys, f"{name}.values": self.values}

    @classmethod
    def from_tensors(cls, tensors: TensorState, name: str) -> "PerClientTable":
        """Restore the result of :meth:`to_tensors`; without tensors, the empty table."""
        if f"{name}.keys" not in tensors:
            return cls()
        return cls(tensors[f"{name}.keys"], tensors[f"{name}.values"])


class ClusteredMethod(BaseMethod):
    """Base class of methods that assign clients to clusters with one model each."""

    largest_share: ClassVar[float] = inf  # a client may be alone in its cluster
    table: ClassVar[str] = "assigned"
    """Name of the table in the server state with the cluster of each client."""

    @property
    def finds_clusters(self) -> bool:
        """True, because clients with the same model form a cluster."""
        return True

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Return the model of the client's cluster, or the common model before it has a cluster."""
        label = int(PerClientTable.from_tensors(state.tensors, self.table).get_labels([client]))
        return COMMON_MODEL if label < 0 else get_cluster_model_name(label)

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Return the cluster of each client, -1 if it is not assigned yet, (n,)."""
        return PerClientTable.from_tensors(state.tensors, self.table).get_labels(clients)


def average_by_model(
    updates: Sequence[ClientUpdate], names: Sequence[str | None]
) -> tuple[dict[str, ModelState], Tensor]:
    """Average updates with FedAvg into several models.

    Args:
        updates: updates of the participants.
        names: the model that each update is averaged into, which can differ from the model that
            the client received; None excludes the update.

    Returns:
        The averaged models by name, and the weight of each update in its model, (k,).
    """
    weights = torch.zeros(len(updates), dtype=torch.float64)
    name_by_index = {index: name for index, name in enumerate(names) if name is not None}
    if not name_by_index:
        return {}, weights
    included = [
        replace(updates[index], message=Message({name: updates[index].model}))
        for index, name in name_by_index.items()
    ]
    shares = compute_sample_weights([update.num_samples for update in included])
    models, shares = average_updates(included, shares)
    weights[list(name_by_index)] = shares
    return models, weights


def split_models(
    aggregation: Aggregation, centers: Tensor, assigned: PerClientTable, report: TensorState
) -> Aggregation:
    """Give every cluster a copy of the common model.

    Args:
        aggregation: aggregation of the round, which contains the common model.
        centers: centers of the clusters, of norm 1, (clusters, d), to assign later clients.
        assigned: cluster of each client.
        report: report of the round.
    """
    names = [COMMON_MODEL, *(get_cluster_model_name(label) for label in range(len(centers)))]
    models = dict.fromkeys(names, aggregation.models[COMMON_MODEL])
    tensors = {"centres": centers, **assigned.to_tensors("assigned")}
    return Aggregation(models, tensors, aggregation.weights, report)


def aggregate_by_cluster(
    updates: Sequence[ClientUpdate], signatures: Tensor, state: ServerState
) -> Aggregation:
    """Aggregate a round after the split: average each cluster with FedAvg, and assign new clients.

    New clients train the common model, which does not change after the split. So their signatures
    can be compared with the centers of the clusters. Their updates are not aggregated.

    Args:
        updates: updates of the participants.
        signatures: vectors to compare with the centers, (k, d).
        state: server state.
    """
    clients = [update.client_id for update in updates]
    centers = state.tensors["centres"]
    assigned = PerClientTable.from_tensors(state.tensors, "assigned")
    known = assigned.get_labels(clients)
    nearest = (normalize(signatures).to(centers.dtype) @ centers.T).argmax(dim=1)
    labels = torch.where(known < 0, nearest, known)
    names = [update.message.model_name for update in updates]
    models, weights = average_by_model(
        updates, [None if name == COMMON_MODEL else name for name in names]
    )
    tensors = {**state.tensors, **assigned.update(clients, labels).to_tensors("assigned")}
    return Aggregation(models, tensors, weights, {"clusters": labels})
