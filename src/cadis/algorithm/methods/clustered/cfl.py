"""CFL (Sattler, Müller and Samek, 2019): clusters are split in two where their clients disagree."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.algorithm.methods.cadis.similarity import index_of
from cadis.algorithm.methods.clustered.cluster_models import FindsClusters, PerClientTable, averaged
from cadis.algorithm.methods.clustered.cluster_tree import ClusterTree, node_model
from cadis.types import ClientId, ClientUpdate

_CHUNK = 2**18  # parameters of all updates that are worked on at once


@dataclass(frozen=True)
class CFL(FindsClusters):
    """Begins with one model, and splits a cluster in two when its clients pull it apart.

    Each cluster has FedAvg on its own model. When its mean update is nearly zero while those of
    single clients are not, it has come to a compromise that suits nobody: it is split such that
    the largest cosine similarity of two updates across the cut is the smallest possible.

    Departure: the paper's thresholds are lengths of updates, to be found for each model. Here they
    are parts of the longest mean update of any cluster so far, as its rule of thumb has it.

    Departure: in the paper everybody takes part in every round. Here similarities are means over
    the rounds in which two clients trained the same model. A split is made among the participants
    and those others who have met all of them and each other; one who is much like somebody on a
    side follows. Whoever is left is put to a side as the paper does with newcomers: when it takes
    part again it is sent the model as it was at the split, and goes to the side whose mean
    direction is most like its update, which is not averaged.

    Attributes:
        eps1: below which part of the longest mean update so far a mean update is nearly zero.
        eps2: above which part of it the longest update of a single client is not.
    """

    name: ClassVar[str] = "cfl"
    about: ClassVar[About] = About(
        kind="one model per cluster",
        paper="Sattler, Müller and Samek, 2019",
        server_memory="a model a cluster, two models a split, a number a pair that met",
    )
    eps1: Annotated[float, Gt(0)] = 0.4
    eps2: Annotated[float, Gt(0)] = 1.0

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """The model of the node that a client has come to."""
        members = PerClientTable.from_tensors(state.memory, "members")
        return node_model(max(0, int(members.labels([client]))))

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """The clusters of clients, -1 for those whose side of a split is not known yet."""
        tree = ClusterTree.from_tensors(state.memory)
        known, nodes = tree.members.labels(clients), tree.nodes(clients)
        return torch.where(tree.children[nodes] < 0, known, -1)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """FedAvg in each cluster; those who disagree are split, and newcomers put to a side."""
        tree = ClusterTree.from_tensors(state.memory)
        clients = [update.client_id for update in updates]
        longest = state.memory.get("longest", torch.zeros((), dtype=torch.float64))
        nodes = tree.nodes(clients)
        names: list[str | None] = [None] * len(updates)
        for node in nodes.unique().tolist():
            places = (nodes == node).nonzero().flatten().tolist()
            own, sent = [updates[p] for p in places], state.models[node_model(node)].parameters
            who = [update.client_id for update in own]
            if tree.children[node] >= 0:  # it was split: whoever trained its model goes to a side
                sides = [tree.side_of(node, update.model.parameters - sent) for update in own]
                tree = tree.moved(who, torch.tensor(sides))
                continue
            tree, longest = self._with_round(tree, node, own, sent, longest)
            for place, now in zip(places, tree.nodes(who).tolist(), strict=True):
                names[place] = node_model(now)
        models, weights = averaged(updates, names)
        report = {"clusters": tree.nodes(clients)}
        return Aggregation(models, {**tree.to_tensors(), "longest": longest}, weights, report)

    def _with_round(
        self,
        tree: ClusterTree,
        node: int,
        own: Sequence[ClientUpdate],
        sent: Tensor,
        longest: Tensor,
    ) -> tuple[ClusterTree, Tensor]:
        """The tree after a leaf's clients have trained its model, and the longest mean update."""
        clients = [update.client_id for update in own]
        products = inner_products(own, sent)
        lengths = products.diagonal().sqrt()
        weights = example_weights([update.num_examples for update in own])
        mean = (weights @ products @ weights).clamp(min=0).sqrt()
        longest = torch.maximum(longest, mean)
        tree = tree.moved(clients, torch.full((len(clients),), node))
        known = tree.pairs.get(node, ObservedPairs())
        pairs, _ = known.observe(clients, _cosines(products, lengths))
        tree = replace(tree, pairs={**tree.pairs, node: pairs})
        disagree = mean < self.eps1 * longest and lengths.max() > self.eps2 * longest
        if disagree and len(clients) > 1:
            tree = _split(tree, node, own, sent, lengths)
        return tree, longest


def bipartition(similarity: Tensor) -> Tensor:
    """The two sides across which the largest similarity is the smallest possible, (n,), 0 or 1.

    Clients are joined one by one, always the one that is most like any that is in already. When the
    weakest of these links is made, nobody outside is more like anybody inside; so that it is the
    largest similarity across the cut there. Every cut is crossed by one of the links, and none of
    them is weaker. The similarity is that of two or more clients, symmetric, (n, n).
    """
    number = len(similarity)
    order, links, nearest = [0], list[float](), similarity[0].clone()
    for _ in range(number - 1):
        nearest[order] = -torch.inf
        best = int(nearest.argmax())
        links.append(float(nearest[best]))
        order.append(best)
        nearest = torch.maximum(nearest, similarity[best])
    cut = links.index(min(links)) + 1
    sides = torch.zeros(number, dtype=torch.long)
    sides[order[cut:]] = 1
    return sides


def inner_products(updates: Sequence[ClientUpdate], sent: Tensor) -> Tensor:
    """The inner products of all pairs of updates w_i - w_t of one model, (k, k), float64."""
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for start in range(0, len(sent), _CHUNK):
        place = slice(start, min(start + _CHUNK, len(sent)))
        parts = torch.stack([update.model.parameters_at((place,)) for update in updates])
        changes = parts.double() - sent[place].double()
        products += changes @ changes.T
    return products


def _cosines(products: Tensor, lengths: Tensor) -> Tensor:
    """Cosines of updates from their inner products; one that is zero is like nobody else."""
    scale = torch.where(lengths > 0, lengths, 1)
    return (products / (scale[:, None] * scale)).clamp(-1, 1).fill_diagonal_(1)


def _split(
    tree: ClusterTree, node: int, updates: Sequence[ClientUpdate], sent: Tensor, lengths: Tensor
) -> ClusterTree:
    """The tree with a leaf split in two, unless one of the sides would be of absent clients."""
    clients = [update.client_id for update in updates]
    all_met, similarity = acquainted(tree.pairs[node], clients)
    sides = bipartition(similarity)
    present = sides[: len(clients)]
    if present.min() == present.max():
        return tree
    across = float(similarity[sides == 0][:, sides == 1].max())
    decided, sides = followers(tree.pairs[node], all_met, sides, across)
    split = tree.split(node, _direction(updates, sent, lengths, present))
    return split.moved(decided, int(split.children[node]) + sides)


def _direction(
    updates: Sequence[ClientUpdate], sent: Tensor, lengths: Tensor, sides: Tensor
) -> Tensor:
    """The mean direction of the first side's updates minus that of the second's, each of length 1.

    An update is more like the first, by its cosine, if its inner product with this is positive.
    """
    means = torch.zeros(2, len(sent), dtype=torch.promote_types(sent.dtype, torch.float32))
    for update, length, side in zip(updates, lengths.tolist(), sides.tolist(), strict=True):
        means[side] += (update.model.parameters - sent) / (length or 1.0)
    norms = torch.linalg.vector_norm(means, dim=1).clamp(min=torch.finfo(means.dtype).tiny)
    direction: Tensor = means[0] / norms[0] - means[1] / norms[1]
    return direction


def _rows(pairs: ObservedPairs, clients: Sequence[ClientId]) -> tuple[Tensor, Tensor]:
    """The rows of these clients, and those of all others."""
    rows, everybody = index_of(clients, pairs.client_ids), torch.arange(len(pairs.client_ids))
    return rows, everybody[~torch.isin(everybody, rows)]


def acquainted(pairs: ObservedPairs, clients: Sequence[ClientId]) -> tuple[list[ClientId], Tensor]:
    """Clients who have all met, those given first, and their mean similarities, (n, n).

    The given ones have just met; others join them in turn who have met everybody so far.
    """
    rows, others = _rows(pairs, clients)
    met = ~pairs.between(others[:, None], rows).isnan().any(dim=1)
    for row in others[met]:
        if not pairs.between(rows, row).isnan().any():
            rows = torch.cat([rows, row[None]])
    return [pairs.client_ids[row] for row in rows], pairs.between(rows[:, None], rows)


def followers(
    pairs: ObservedPairs, clients: Sequence[ClientId], sides: Tensor, across: float
) -> tuple[list[ClientId], Tensor]:
    """All whose side of a split is known, those given first, and their sides, (m,).

    Others follow somebody on a side. They join one by one, the one that is most like anybody there
    first, as long as that is nearer to 1, which is alike, than to the largest similarity across the
    cut; so that a cluster of which a part was absent stays one.
    """
    rows, left = _rows(pairs, clients)
    alike, whom = pairs.between(left[:, None], rows).nan_to_num(nan=-1).max(dim=1)
    followed = sides[whom]
    while len(left) and alike.max() > (1 + across) / 2:
        place = int(alike.argmax())
        row, side = left[place : place + 1], followed[place : place + 1]
        rows, sides = torch.cat([rows, row]), torch.cat([sides, side])
        new, stays = pairs.between(left, row).nan_to_num(nan=-1), left != row
        followed = torch.where(new > alike, side, followed)[stays]
        alike, left = torch.maximum(alike, new)[stays], left[stays]
    return [pairs.client_ids[row] for row in rows], sides
