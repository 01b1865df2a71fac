"""CFL: clustered federated learning with recursive splits of clusters.

Problem: clients with contradicting data distributions cannot share one model.

Sattler et al., arXiv 2019 (IEEE Transactions on Neural Networks and Learning Systems 2021),
https://arxiv.org/abs/1910.01991
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import compute_sample_weights
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.cadis import ObservedPairs
from cadis.algorithm.methods.cadis.similarity import find_rows
from cadis.algorithm.methods.clustered.cluster_models import (
    ClusteredMethod,
    PerClientTable,
    average_by_model,
)
from cadis.algorithm.methods.clustered.cluster_tree import ClusterTree, get_node_model_name
from cadis.types import ClientId, ClientUpdate

_CHUNK = 2**18  # parameters that are converted to float64 at once, to save memory


@dataclass(frozen=True)
class CFL(ClusteredMethod):
    """Clusters with one model each, split in two when the updates of their clients contradict.

    Use it if clients need different models and the number of clusters is unknown.

    FedAvg trains one model per cluster; at first all clients are in one cluster. A cluster is split
    if ``||mean update|| < eps1 * L`` and ``max_i ||update_i|| > eps2 * L``: the mean model hardly
    changes any more, but some clients would still change it. The split minimizes the largest cosine
    similarity of two updates on different sides.

    Departure from the paper: there, both thresholds are norms of updates, chosen for each model.
    Here they are relative to L, the largest norm of a mean update so far, as a rule of thumb of the
    paper suggests.

    Departure from the paper: there, all clients take part in every round. Here the similarity of
    two clients is the mean over the rounds in which both trained the same model; it is unknown if
    there is no such round. So the clients of a cluster are divided in three steps. First, the split
    divides the participants, and the absent clients whose similarities to these and to each other
    are all known. Second, an absent client that is very similar to a client on one side joins this
    side. Third, each other client trains the model of the old cluster once more when it next takes
    part. Its update is not aggregated; it joins the side whose mean direction is most similar to
    this update. The paper assigns new clients in the same way.

    Attributes:
        eps1: split a cluster only if the norm of its mean update is below eps1 * L, where L is the
            largest norm of a mean update so far.
        eps2: split a cluster only if the largest norm of a client's update is above eps2 * L, where
            L is the largest norm of a mean update so far.
    """

    name: ClassVar[str] = "cfl"
    about: ClassVar[About] = About(
        topic="one model per cluster",
        paper=Paper(
            title="Clustered Federated Learning: Model-Agnostic Distributed Multi-Task "
            "Optimization under Privacy Constraints",
            authors="Felix Sattler, Klaus-Robert Müller, Wojciech Samek",
            venue="arXiv",
            year=2019,
            link="https://arxiv.org/abs/1910.01991",
        ),
        server_state="one model per cluster, two per split, one number per observed pair",
    )
    eps1: Annotated[float, Gt(0)] = 0.4
    eps2: Annotated[float, Gt(0)] = 1.0

    def model_name_for(self, client: ClientId, state: ServerState) -> str:
        """Return the model of the client's node in the tree of clusters."""
        members = PerClientTable.from_tensors(state.tensors, "members")
        return get_node_model_name(max(0, int(members.get_labels([client]))))

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Return the cluster of each client, -1 if its side of a split is unknown, (n,)."""
        tree = ClusterTree.from_tensors(state.tensors)
        known, nodes = tree.members.get_labels(clients), tree.find_nodes(clients)
        return torch.where(tree.children[nodes] < 0, known, -1)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Average each cluster with FedAvg, split clusters, and assign clients to new clusters."""
        tree = ClusterTree.from_tensors(state.tensors)
        clients = [update.client_id for update in updates]
        max_norm = state.tensors.get("longest", torch.zeros((), dtype=torch.float64))
        nodes = tree.find_nodes(clients)
        names: list[str | None] = [None] * len(updates)
        for node in nodes.unique().tolist():
            indices = (nodes == node).nonzero().flatten().tolist()
            members = [updates[index] for index in indices]
            member_ids = [update.client_id for update in members]
            cluster_parameters = state.models[get_node_model_name(node)].parameters
            if tree.children[node] >= 0:  # a split node: its clients move to a child
                children = [
                    tree.choose_child(node, update.model.parameters - cluster_parameters)
                    for update in members
                ]
                tree = tree.move(member_ids, torch.tensor(children))
                continue
            tree, max_norm = self._update_leaf(tree, node, members, cluster_parameters, max_norm)
            for index, leaf in zip(indices, tree.find_nodes(member_ids).tolist(), strict=True):
                names[index] = get_node_model_name(leaf)
        models, weights = average_by_model(updates, names)
        report = {"clusters": tree.find_nodes(clients)}
        return Aggregation(models, {**tree.to_tensors(), "longest": max_norm}, weights, report)

    def _update_leaf(
        self,
        tree: ClusterTree,
        node: int,
        updates: Sequence[ClientUpdate],
        cluster_parameters: Tensor,
        max_norm: Tensor,
    ) -> tuple[ClusterTree, Tensor]:
        """Add the similarities of a round to a leaf, and split it if its clients contradict.

        Returns:
            The tree, and the largest norm of a mean update so far.
        """
        clients = [update.client_id for update in updates]
        products = compute_inner_products(updates, cluster_parameters)
        norms = products.diagonal().sqrt()
        weights = compute_sample_weights([update.num_samples for update in updates])
        mean_norm = (weights @ products @ weights).clamp(min=0).sqrt()
        max_norm = torch.maximum(max_norm, mean_norm)
        tree = tree.move(clients, torch.full((len(clients),), node))
        known = tree.pairs.get(node, ObservedPairs())
        pairs, _ = known.observe(clients, _compute_cosines(products, norms))
        tree = replace(tree, pairs={**tree.pairs, node: pairs})
        contradict = mean_norm < self.eps1 * max_norm and norms.max() > self.eps2 * max_norm
        if contradict and len(clients) > 1:
            tree = _split_leaf(tree, node, updates, cluster_parameters, norms)
        return tree, max_norm


def find_bipartition(similarity: Tensor) -> Tensor:
    """Divide clients into two sides so that the largest similarity across the cut is minimal.

    Clients are added one by one to a maximum spanning tree: the next client is always the client
    with the largest similarity to any client in the tree, and this similarity is its link. The tree
    is cut at its weakest link, which is then the largest similarity across the cut. No other cut is
    better, because at least one link crosses it, and no link is weaker.

    Args:
        similarity: symmetric similarities of at least two clients, (n, n).

    Returns:
        The side of each client, 0 or 1, (n,).
    """
    num_clients = len(similarity)
    order, links, nearest = [0], list[float](), similarity[0].clone()
    for _ in range(num_clients - 1):
        nearest[order] = -torch.inf
        best = int(nearest.argmax())
        links.append(float(nearest[best]))
        order.append(best)
        nearest = torch.maximum(nearest, similarity[best])
    cut = links.index(min(links)) + 1
    sides = torch.zeros(num_clients, dtype=torch.long)
    sides[order[cut:]] = 1
    return sides


def compute_inner_products(updates: Sequence[ClientUpdate], cluster_parameters: Tensor) -> Tensor:
    """Return the inner products of all pairs of updates w_i - w_t, (k, k), float64.

    Args:
        updates: updates of k clients.
        cluster_parameters: parameters w_t of the model of their cluster, (P,).
    """
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for start in range(0, len(cluster_parameters), _CHUNK):
        chunk = slice(start, min(start + _CHUNK, len(cluster_parameters)))
        parts = torch.stack([update.model.select_parameters((chunk,)) for update in updates])
        changes = parts.double() - cluster_parameters[chunk].double()
        products += changes @ changes.T
    return products


def _compute_cosines(products: Tensor, norms: Tensor) -> Tensor:
    """Return cosines, (k, k), from inner products; 0 between a zero update and all others."""
    scale = torch.where(norms > 0, norms, 1)
    return (products / (scale[:, None] * scale)).clamp(-1, 1).fill_diagonal_(1)


def _split_leaf(
    tree: ClusterTree,
    node: int,
    updates: Sequence[ClientUpdate],
    cluster_parameters: Tensor,
    norms: Tensor,
) -> ClusterTree:
    """Split a leaf in two, unless one side would contain only absent clients."""
    clients = [update.client_id for update in updates]
    observed, similarity = find_fully_observed(tree.pairs[node], clients)
    sides = find_bipartition(similarity)
    present_sides = sides[: len(clients)]
    if present_sides.min() == present_sides.max():
        return tree
    max_across = float(similarity[sides == 0][:, sides == 1].max())
    assigned, sides = assign_similar_clients(tree.pairs[node], observed, sides, max_across)
    tree = tree.split(node, _compute_direction(updates, cluster_parameters, norms, present_sides))
    return tree.move(assigned, int(tree.children[node]) + sides)


def _compute_direction(
    updates: Sequence[ClientUpdate], cluster_parameters: Tensor, norms: Tensor, sides: Tensor
) -> Tensor:
    """Return the mean direction of side 0 minus the mean direction of side 1, (P,).

    Both mean directions have norm 1. So an update is more similar to side 0 than to side 1 if its
    inner product with the result is positive.
    """
    dtype = torch.promote_types(cluster_parameters.dtype, torch.float32)
    means = torch.zeros(2, len(cluster_parameters), dtype=dtype)
    for update, norm, side in zip(updates, norms.tolist(), sides.tolist(), strict=True):
        means[side] += (update.model.parameters - cluster_parameters) / (norm or 1.0)
    mean_norms = torch.linalg.vector_norm(means, dim=1).clamp(min=torch.finfo(means.dtype).tiny)
    direction: Tensor = means[0] / mean_norms[0] - means[1] / mean_norms[1]
    return direction


def _separate_rows(pairs: ObservedPairs, clients: Sequence[ClientId]) -> tuple[Tensor, Tensor]:
    """Return the row numbers of these clients, and the row numbers of all other clients."""
    rows, all_rows = find_rows(clients, pairs.client_ids), torch.arange(len(pairs.client_ids))
    return rows, all_rows[~torch.isin(all_rows, rows)]


def find_fully_observed(
    pairs: ObservedPairs, clients: Sequence[ClientId]
) -> tuple[list[ClientId], Tensor]:
    """Extend a set of clients as long as all pairs in the set were observed.

    All pairs of the given clients must have been observed. Other clients are added in order if they
    were observed with all clients added before.

    Returns:
        The clients, the given ones first, and their mean similarities, (n, n).
    """
    rows, others = _separate_rows(pairs, clients)
    is_observed = ~pairs.get_similarity(others[:, None], rows).isnan().any(dim=1)
    for row in others[is_observed]:
        if not pairs.get_similarity(rows, row).isnan().any():
            rows = torch.cat([rows, row[None]])
    return [pairs.client_ids[row] for row in rows], pairs.get_similarity(rows[:, None], rows)


def assign_similar_clients(
    pairs: ObservedPairs, clients: Sequence[ClientId], sides: Tensor, max_across: float
) -> tuple[list[ClientId], Tensor]:
    """Assign further clients to the side of their most similar client.

    Repeat: find the client without a side that is most similar to any client with a side. If this
    similarity is nearer to 1 than to ``max_across``, assign it to the same side, else stop. So the
    clients of a cluster stay together although some of them are absent.

    Args:
        pairs: observed similarities.
        clients: clients with a known side.
        sides: sides of these clients, (n,).
        max_across: largest similarity across the cut.

    Returns:
        All clients with a known side, the given ones first, and their sides, (m,).
    """
    rows, rest = _separate_rows(pairs, clients)
    similarity, nearest = pairs.get_similarity(rest[:, None], rows).nan_to_num(nan=-1).max(dim=1)
    nearest_sides = sides[nearest]
    while len(rest) and similarity.max() > (1 + max_across) / 2:
        index = int(similarity.argmax())
        row, side = rest[index : index + 1], nearest_sides[index : index + 1]
        rows, sides = torch.cat([rows, row]), torch.cat([sides, side])
        new, remains = pairs.get_similarity(rest, row).nan_to_num(nan=-1), rest != row
        nearest_sides = torch.where(new > similarity, side, nearest_sides)[remains]
        similarity, rest = torch.maximum(similarity, new)[remains], rest[remains]
    return [pairs.client_ids[row] for row in rows], sides
