"""The tree of clusters of CFL.

The root is node 0. A split of a cluster adds two child nodes, and the leaves are the clusters. The
model of a node that was split does not change any more: a client that is still at this node trains
the model once more, and its update decides to which child the client moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.algorithm.methods.clustered.cluster_models import (
    COMMON_MODEL,
    PerClientTable,
    get_cluster_model_name,
)
from cadis.types import ClientId, TensorState

_NO_CHILDREN = -1


def get_node_model_name(node: int) -> str:
    """Return the name of the model of a node."""
    return get_cluster_model_name(node) if node else COMMON_MODEL


@dataclass(frozen=True)
class ClusterTree:
    """The clusters of CFL as an immutable binary tree.

    Attributes:
        children: first of the two children of each node, -1 for a leaf, (nodes,).
        members: node of each client; a client that is not in the table is at the root.
        directions: for each split node, the vector that assigns an update to a child, (P,).
        pairs: for each leaf, the similarities of the clients that trained its model.
    """

    children: Tensor = field(default_factory=lambda: torch.tensor([_NO_CHILDREN]))
    members: PerClientTable = field(default_factory=PerClientTable)
    directions: dict[int, Tensor] = field(default_factory=dict)
    pairs: dict[int, ObservedPairs] = field(default_factory=dict)

    def find_nodes(self, clients: Sequence[ClientId]) -> Tensor:
        """Return the node of each client, (k,)."""
        return self.members.get_labels(clients).clamp(min=0)

    def move(self, clients: Sequence[ClientId], nodes: Tensor) -> "ClusterTree":
        """Return the tree in which k clients are moved to other nodes, (k,)."""
        return replace(self, members=self.members.update(clients, nodes))

    def choose_child(self, node: int, update: Tensor) -> int:
        """Return the child of a split node to which a client with this update, (P,), belongs."""
        direction = self.directions[node]
        return int(self.children[node]) + int(update.to(direction.dtype) @ direction < 0)

    def split(self, node: int, direction: Tensor) -> "ClusterTree":
        """Return the tree with two new leaves under a leaf. This does not move clients.

        Args:
            node: the leaf to split.
            direction: mean direction of the updates on the first side, minus the mean direction on
                the second side, (P,).
        """
        first = len(self.children)
        children = torch.cat([self.children, torch.full((2,), _NO_CHILDREN)])
        children[node] = first
        pairs = {leaf: known for leaf, known in self.pairs.items() if leaf != node}
        directions = {**self.directions, node: direction}
        return replace(self, children=children, directions=directions, pairs=pairs)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tree as named tensors for a checkpoint."""
        tensors = {"children": self.children, **self.members.to_tensors("members")}
        tensors |= {f"direction-{node}": vector for node, vector in self.directions.items()}
        for node, pairs in self.pairs.items():
            tensors |= {f"pairs-{node}.{k}": tensor for k, tensor in pairs.to_tensors().items()}
        return tensors

    @classmethod
    def from_tensors(cls, tensors: TensorState) -> "ClusterTree":
        """Restore the result of :meth:`to_tensors`; without these tensors, return only a root."""
        if "children" not in tensors:
            return cls()
        nodes = range(len(tensors["children"]))
        return cls(
            tensors["children"],
            PerClientTable.from_tensors(tensors, "members"),
            {n: tensors[f"direction-{n}"] for n in nodes if f"direction-{n}" in tensors},
            {n: pairs for n in nodes if (pairs := _read_pairs(tensors, f"pairs-{n}.")).client_ids},
        )


def _read_pairs(tensors: TensorState, prefix: str) -> ObservedPairs:
    table = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    return ObservedPairs.from_tensors(table)
