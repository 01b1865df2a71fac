"""Who uses which model, where every cluster has a model of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.base_method import BaseMethod, weighted_models
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.vectors import unit
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState, client_keys

COMMON = "model"  # the name of the model that everybody begins with


def cluster_model(number: int) -> str:
    """The name of a cluster's own model."""
    return f"cluster-{number}"


@dataclass(frozen=True)
class PerClientTable:
    """The latest value of each client, (n, ...), sorted by key; nothing is changed in place."""

    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    values: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def put(self, clients: Sequence[ClientId], values: Tensor) -> "PerClientTable":
        """The same with new values of some clients, (k, ...)."""
        keys, rows = client_keys(clients), values
        if len(self.keys):
            keys, rows = torch.cat([self.keys, keys]), torch.cat([self.values, values])
        keys, order = keys.sort(stable=True)
        last = torch.ones(len(keys), dtype=torch.bool)  # of equal keys, that of the newest value
        last[:-1] = keys[1:] != keys[:-1]
        return PerClientTable(keys[last], rows[order[last]])

    def labels(self, clients: Sequence[ClientId]) -> Tensor:
        """The values of clients, where these are labels, (k,); -1 of those that have none."""
        if not len(self.keys):
            return torch.full((len(clients),), -1)
        keys = client_keys(clients)
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[places] == keys, self.values[places], -1)

    def to_tensors(self, name: str) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        return {f"{name}.keys": self.keys, f"{name}.values": self.values}

    @classmethod
    def from_tensors(cls, memory: TensorState, name: str) -> "PerClientTable":
        """The inverse of :meth:`to_tensors`; nobody, if there is nothing."""
        if f"{name}.keys" not in memory:
            return cls()
        return cls(memory[f"{name}.keys"], memory[f"{name}.values"])


class FindsClusters(BaseMethod):
    """A method that assigns clients to clusters, each of which has a model of its own."""

    table: ClassVar[str] = "assigned"
    """The name under which the server keeps the cluster of each client."""

    @property
    def finds_clusters(self) -> bool:
        """Whether clusters are known: the clients that use the same model."""
        return True

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """The model of the client's cluster; until it is known, the common one."""
        label = int(PerClientTable.from_tensors(state.memory, self.table).labels([client]))
        return COMMON if label < 0 else cluster_model(label)

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """The clusters that clients were assigned to, -1 for those that were not yet, (n,)."""
        return PerClientTable.from_tensors(state.memory, self.table).labels(clients)


def averaged(
    updates: Sequence[ClientUpdate], names: Sequence[str | None]
) -> tuple[dict[str, ModelState], Tensor]:
    """FedAvg in each of several models; and what each update weighs in its own, (k,).

    An update is averaged in the model of this name, which need not be the one that the client was
    sent; None leaves it out, and it weighs 0.
    """
    weights = torch.zeros(len(updates), dtype=torch.float64)
    named = {place: name for place, name in enumerate(names) if name is not None}
    if not named:
        return {}, weights
    sent = {place: Message({name: updates[place].model}) for place, name in named.items()}
    own = [replace(updates[place], message=message) for place, message in sent.items()]
    models, shares = weighted_models(own, example_weights([u.num_examples for u in own]))
    weights[list(named)] = shares
    return models, weights


def split(
    made: Aggregation, centres: Tensor, assigned: PerClientTable, report: TensorState
) -> Aggregation:
    """Give every cluster a model of its own, begun from the common one as a round has left it.

    Clients are assigned by the centres from now on, which are of length 1, (clusters, d).
    """
    names = [COMMON, *(cluster_model(number) for number in range(len(centres)))]
    memory = {"centres": centres, **assigned.to_tensors("assigned")}
    return Aggregation(dict.fromkeys(names, made.models[COMMON]), memory, made.weights, report)


def aggregate_by_cluster(
    updates: Sequence[ClientUpdate], signatures: Tensor, state: ServerState
) -> Aggregation:
    """A round after the split: FedAvg in every cluster, and newcomers are assigned.

    Those have trained the common model, which stays as it was at the split, so that signatures are
    those of the same model, (k, d); these tell where they belong, and updates are not averaged.
    """
    clients = [update.client_id for update in updates]
    centres = state.memory["centres"]
    assigned = PerClientTable.from_tensors(state.memory, "assigned")
    known = assigned.labels(clients)
    nearest = (unit(signatures).to(centres.dtype) @ centres.T).argmax(dim=1)
    labels = torch.where(known < 0, nearest, known)
    trained = [update.message.model_name for update in updates]
    models, weights = averaged(updates, [None if name == COMMON else name for name in trained])
    memory = {**state.memory, **assigned.put(clients, labels).to_tensors("assigned")}
    return Aggregation(models, memory, weights, {"clusters": labels})
