"""A cluster that is split in two again and again: the tree of its models, and who is where in it.

The root is node 0; a split adds two nodes. Leaves are the clusters; the model of a node that was
split stays as it was then, for clients of whom it is not known yet to which side they belong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.algorithm.methods.clustered.cluster_models import COMMON, PerClientTable, cluster_model
from cadis.types import ClientId, TensorState

_NO_CHILDREN = -1


def node_model(node: int) -> str:
    """The name of a node's model."""
    return cluster_model(node) if node else COMMON


@dataclass(frozen=True)
class ClusterTree:
    """What the server remembers of splits. It is a value: nothing is changed in place.

    Attributes:
        children: the first of the two nodes that each node was split into, -1 for a leaf, (nodes,).
        members: the node that each client has come to; the root, if it is not among them.
        directions: of each node that was split, by which side an update is on, (P,).
        pairs: of each leaf, how alike its clients' updates of its model were.
    """

    children: Tensor = field(default_factory=lambda: torch.tensor([_NO_CHILDREN]))
    members: PerClientTable = field(default_factory=PerClientTable)
    directions: dict[int, Tensor] = field(default_factory=dict)
    pairs: dict[int, ObservedPairs] = field(default_factory=dict)

    def nodes(self, clients: Sequence[ClientId]) -> Tensor:
        """The nodes that clients have come to, (k,)."""
        return self.members.labels(clients).clamp(min=0)

    def moved(self, clients: Sequence[ClientId], nodes: Tensor) -> "ClusterTree":
        """The tree with clients at other nodes, (k,)."""
        return replace(self, members=self.members.put(clients, nodes))

    def side_of(self, node: int, update: Tensor) -> int:
        """The child that a client goes to whose update of a split node's model is this, (P,)."""
        direction = self.directions[node]
        return int(self.children[node]) + int(update.to(direction.dtype) @ direction < 0)

    def split(self, node: int, direction: Tensor) -> "ClusterTree":
        """The tree with two new leaves under one, whose clients stay where they are.

        The direction is the mean one of the first side's updates minus that of the second's, (P,).
        """
        first = len(self.children)
        children = torch.cat([self.children, torch.full((2,), _NO_CHILDREN)])
        children[node] = first
        pairs = {leaf: known for leaf, known in self.pairs.items() if leaf != node}
        directions = {**self.directions, node: direction}
        return replace(self, children=children, directions=directions, pairs=pairs)

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        tensors = {"children": self.children, **self.members.to_tensors("members")}
        tensors |= {f"direction-{node}": vector for node, vector in self.directions.items()}
        for node, pairs in self.pairs.items():
            tensors |= {f"pairs-{node}.{k}": tensor for k, tensor in pairs.to_tensors().items()}
        return tensors

    @classmethod
    def from_tensors(cls, memory: TensorState) -> "ClusterTree":
        """The inverse of :meth:`to_tensors`; of no tensors, a root and nobody."""
        if "children" not in memory:
            return cls()
        nodes = range(len(memory["children"]))
        return cls(
            memory["children"],
            PerClientTable.from_tensors(memory, "members"),
            {n: memory[f"direction-{n}"] for n in nodes if f"direction-{n}" in memory},
            {n: pairs for n in nodes if (pairs := _pairs_of(memory, f"pairs-{n}.")).client_ids},
        )


def _pairs_of(memory: TensorState, prefix: str) -> ObservedPairs:
    own = {k.removeprefix(prefix): t for k, t in memory.items() if k.startswith(prefix)}
    return ObservedPairs.from_tensors(own)
