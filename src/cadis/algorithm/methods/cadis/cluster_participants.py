"""Clusters of the participants of a round, computed from their updates.

There are two ways to compare clients: by their class profiles (the default), or by the similarity
of pairs that took part in the same round (as in the paper).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from cadis.algorithm.method import ServerRound, ServerState
from cadis.algorithm.methods.cadis.clustering import (
    MAX_CLUSTERED_CLIENTS,
    average_linkage,
    cluster_by_threshold,
    compute_q_matrix,
    find_contrast_cut,
    find_nearest_center,
    find_threshold_centers,
    update_profiles,
)
from cadis.algorithm.methods.cadis.profiles import ClientProfiles, compute_class_profiles
from cadis.algorithm.methods.cadis.similarity import (
    ObservedPairs,
    SimilarityMatrix,
    TransitiveMode,
    instance_similarity,
)
from cadis.algorithm.methods.cadis.stable_clusters import StableClusters
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate, TensorState, compute_client_keys

LabelClients: TypeAlias = Callable[[Sequence[ClientId]], Tensor]
"""Function from n clients to cluster labels, (n,). It replaces the clustering in ablations."""


@dataclass(frozen=True)
class ParticipantClusters:
    """The clusters of the participants of a round."""

    labels: Tensor  # cluster of each participant, (k,)
    sizes: Tensor  # M_i, number of clients in the cluster of each participant, (k,)
    tensors: TensorState  # server state for the next round
    report: TensorState  # named arrays for the record of the round


def compute_signatures(
    server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
) -> Tensor:
    """Return each client's update of the classifier layer, W_i - W_g (Section III-B.2).

    The paper calls this update the improvement of the penultimate layer.

    Returns:
        Flat updates, weight before bias, (k, d), in float32 or a wider type.
    """
    head = server_round.head
    received = {name: model.select_parameters(head) for name, model in state.models.items()}
    changes = torch.stack([update.model.select_parameters(head) for update in updates])
    for row, update in zip(changes, updates, strict=True):  # in place, to save memory
        row.sub_(received[update.message.model_name])
    wide = torch.promote_types(changes.dtype, torch.float32)  # norms overflow in float16
    return changes.to(wide)


def compute_profiles(
    server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
) -> Tensor:
    """Return the class profile of each participant in this round, (k, classes)."""
    changes = compute_signatures(server_round, updates, state)
    weight, *bias = changes.split([part.stop - part.start for part in server_round.head], dim=1)
    rows = server_round.num_outputs or (bias[0].shape[1] if bias else 1)
    parts = [weight.unflatten(1, (rows, -1)), *bias]
    if rows == 1:  # binary classification with one output: add a row for the other class
        parts = [torch.cat([-part, part], dim=1) for part in parts]
    return compute_class_profiles(*parts)


def cluster_by_profiles(
    profiles: Tensor,
    clients: Sequence[ClientId],
    tensors: TensorState,
    threshold: float | None,
    label_clients: LabelClients | None = None,
) -> ParticipantClusters:
    """Cluster all clients seen so far by their mean class profiles. Not in the paper.

    Args:
        profiles: class profiles of the participants in this round, (k, classes).
        clients: the participants.
        tensors: server state.
        threshold: epsilon in Eq. 13; None uses :class:`StableClusters`.
        label_clients: returns the labels to use instead of the clusters found, for ablations.
    """
    keys = compute_client_keys(clients)
    known = update_profiles(ClientProfiles.from_tensors(tensors), keys, profiles)
    mean_profiles, num_rounds = known.subsample(MAX_CLUSTERED_CLIENTS)
    if threshold is None:
        clusters = StableClusters.from_tensors(tensors).update(mean_profiles, num_rounds)
        found = clusters.to_tensors()
        scalars = {name: found[name] for name in ("cut", "confidence")}
    else:
        found = {"centres": find_threshold_centers(mean_profiles, threshold)}
        scalars = _to_scalars(threshold=threshold)
    if label_clients:
        labels = label_clients(clients)
    else:
        labels = find_nearest_center(known.get(keys, profiles.shape[1])[0], found["centres"])
    report = {"clusters": labels, "profile": profiles, "centres": found["centres"], **scalars}
    tensors = {**known.to_tensors(), **found}
    return ParticipantClusters(labels, torch.bincount(labels)[labels], tensors, report)


def assign_by_profiles(clients: Sequence[ClientId], tensors: TensorState) -> Tensor:
    """Return the cluster nearest to each client's mean profile, -1 for unknown clients, (n,)."""
    if "centres" not in tensors:
        return torch.full((len(clients),), -1)
    centers = tensors["centres"]
    known = ClientProfiles.from_tensors(tensors)
    mean_profiles, num_rounds = known.get(compute_client_keys(clients), centers.shape[1])
    return torch.where(num_rounds > 0, find_nearest_center(mean_profiles, centers), -1)


def read_profiles(clients: Sequence[ClientId], tensors: TensorState) -> Tensor:
    """Return the mean profile of each client, zeros for a client never seen, (n, classes)."""
    known = ClientProfiles.from_tensors(tensors)
    return known.get(compute_client_keys(clients), known.num_classes)[0]


@dataclass(frozen=True)
class PairClustering:
    """Clustering by the similarity of pairs of clients (Sections III-B and III-C of the paper)."""

    threshold: float | None  # epsilon in Eq. 13; None uses find_contrast_cut
    among_all: bool  # cluster all clients seen so far, not only the participants of a round
    transitive: TransitiveMode  # how to estimate pairs that were never in the same round
    gamma: float  # largest standard deviation of an estimate that is used

    def cluster_participants(
        self,
        signatures: Tensor,
        clients: Sequence[ClientId],
        tensors: TensorState,
        generator: torch.Generator,
        label_clients: LabelClients | None = None,
    ) -> ParticipantClusters:
        """Compute the similarities, the Q-matrix and the clusters of a round.

        Args:
            signatures: updates of the classifier layer, (k, d).
            clients: the participants.
            tensors: server state.
            generator: random generator for the transitive mode "sample".
            label_clients: returns the labels to use instead of the clusters found, for ablations.
        """
        similarity = instance_similarity(signatures)
        compared, rows = tuple(clients), torch.arange(len(clients))
        if self.among_all:
            matrix = SimilarityMatrix.from_tensors(tensors).observe(clients, similarity)
            matrix = matrix.estimate_missing(self.gamma, self.transitive, generator)
            compared, rows = matrix.client_ids, matrix.find_rows(clients)
            labels, scalars = self._cluster_matrix(matrix)
            tensors = matrix.to_tensors()
        else:  # all participants were observed together: there is nothing to estimate
            pairs, means = ObservedPairs.from_tensors(tensors).observe(clients, similarity)
            q = compute_q_matrix(means, minimum=pairs.min_similarity())
            labels, scalars = self._cluster(means, q)
            tensors = pairs.to_tensors()
        if label_clients:
            labels = label_clients(compared)
        participant_labels = labels[rows]
        report = {"clusters": participant_labels, "similarity": similarity, **scalars}
        if self.transitive != "off":
            report |= _to_scalars(gamma=self.gamma)
        sizes = torch.bincount(labels)[participant_labels]
        return ParticipantClusters(participant_labels, sizes, tensors, report)

    def assign_clients(self, clients: Sequence[ClientId], tensors: TensorState) -> Tensor:
        """Return the cluster of each client, -1 for a client that never took part, (n,)."""
        matrix = SimilarityMatrix.from_tensors(tensors)
        if not matrix.client_ids:
            return torch.full((len(clients),), -1)
        labels, _ = self._cluster_matrix(matrix)
        label_by_client = dict(zip(matrix.client_ids, labels.tolist(), strict=True))
        return torch.tensor([label_by_client.get(client, -1) for client in clients])

    def _cluster_matrix(self, matrix: SimilarityMatrix) -> tuple[Tensor, dict[str, Tensor]]:
        """Cluster all clients of a matrix; unknown pairs get the smallest cosine, -1."""
        similarity = torch.where(matrix.known, matrix.mean, -1)
        return self._cluster(similarity, compute_q_matrix(matrix.mean, matrix.known))

    def _cluster(self, similarity: Tensor, q: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the labels of the n clients compared, (n,), and scalars for the report."""
        if self.threshold is not None:
            return cluster_by_threshold(q, self.threshold), _to_scalars(threshold=self.threshold)
        cut = find_contrast_cut(similarity).merge_all_if_uncertain()
        scalars = _to_scalars(cut=cut.level, confidence=cut.confidence)
        return average_linkage(similarity, cut.level), scalars


def _to_scalars(**values: float) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def get_true_labels(truth: Mapping[ClientId, int] | None, clients: Sequence[ClientId]) -> Tensor:
    """Return the true cluster of each client, numbered from 0, (n,)."""
    if truth is None:
        raise CadisError(
            "The true clusters of this federation are not known; leave clusters = true out."
        )
    truths = torch.tensor([truth[client] for client in clients])
    labels: Tensor = truths.unique(return_inverse=True)[1]
    return labels
