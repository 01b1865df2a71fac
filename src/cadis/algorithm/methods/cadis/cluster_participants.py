"""Who belongs together, from a round's updates: by class profiles, or by pairs as in the paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from cadis.algorithm.method import ServerRound, ServerState
from cadis.algorithm.methods.cadis.clustering import (
    LOOKED_AT,
    average_linkage,
    cluster,
    contrast_cut,
    found_clusters,
    nearest_centre,
    rescale,
    update_profiles,
)
from cadis.algorithm.methods.cadis.profiles import ClientProfiles, class_profiles
from cadis.algorithm.methods.cadis.similarity import (
    ObservedPairs,
    SimilarityMatrix,
    TransitiveMode,
    instance_similarity,
)
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate, TensorState, client_keys

Given: TypeAlias = Callable[[Sequence[ClientId]], Tensor]
"""Labels of clients that take the place of those found, for ablations, (n,)."""


@dataclass(frozen=True)
class Grouping:
    """The clusters of a round's participants."""

    labels: Tensor  # the cluster of each participant, (k,)
    sizes: Tensor  # M_i, how many clients are in it, (k,)
    memory: TensorState  # what is remembered for the next round
    report: TensorState  # what to tell about it


def profiles_of(
    server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
) -> Tensor:
    """The class profiles of a round's updates, (k, classes)."""
    changes = signatures(server_round, updates, state)
    weight, *bias = changes.split([place.stop - place.start for place in server_round.head], dim=1)
    rows = server_round.num_outputs or (bias[0].shape[1] if bias else 1)
    parts = [weight.unflatten(1, (rows, -1)), *bias]
    if rows == 1:  # one output tells two classes apart
        parts = [torch.cat([-part, part], dim=1) for part in parts]
    return class_profiles(*parts)


def group_by_profiles(
    profiles: Tensor,  # of the participants in this round, (k, classes)
    clients: Sequence[ClientId],
    memory: TensorState,
    threshold: float | None,  # epsilon; None reads the cut off the similarities
    given: Given | None = None,  # clusters to take instead of those found
) -> Grouping:
    """Clusters of all clients seen so far, by their mean profiles."""
    keys = client_keys(clients)
    known = update_profiles(ClientProfiles.from_tensors(memory), keys, profiles)
    found = found_clusters(*known.some(LOOKED_AT), threshold)
    labels = given(clients) if given else found.of(known.of(keys, profiles.shape[1])[0])
    told = _numbers(cut=found.cut.at, confidence=found.cut.confidence)
    if threshold is not None:
        told = _numbers(threshold=threshold)
    report = {"clusters": labels, "profile": profiles, **told}
    memory = {**known.to_tensors(), "centres": found.centres}
    return Grouping(labels, torch.bincount(labels)[labels], memory, report)


def profile_clusters(clients: Sequence[ClientId], memory: TensorState) -> Tensor:
    """The cluster of each of these clients by its mean profile, -1 if it was never seen, (n,)."""
    if "centres" not in memory:
        return torch.full((len(clients),), -1)
    centres = memory["centres"]
    known = ClientProfiles.from_tensors(memory)
    mean, count = known.of(client_keys(clients), centres.shape[1])
    return torch.where(count > 0, nearest_centre(mean, centres), -1)


@dataclass(frozen=True)
class PairRule:
    """How clients are compared by pairs that met, and by estimates of those that did not."""

    threshold: float | None  # epsilon; None reads the cut off the similarities
    among_all: bool  # look for clusters among all clients seen so far, not the participants alone
    transitive: TransitiveMode  # how pairs that never met are estimated
    gamma: float  # the largest deviation of such an estimate

    def group(
        self,
        changes: Tensor,  # the participants' updates of the classifier layer, (k, d)
        clients: Sequence[ClientId],
        memory: TensorState,
        generator: torch.Generator,  # the source of the draws of estimates
        given: Given | None = None,  # clusters to take instead of those found
    ) -> Grouping:
        """Similarities, Q-matrix, clusters: Sections III-A to III-C."""
        similarity = instance_similarity(changes)
        compared, present = tuple(clients), torch.arange(len(clients))
        if self.among_all:
            matrix = SimilarityMatrix.from_tensors(memory).observe(clients, similarity)
            matrix = matrix.estimate_missing(self.gamma, self.transitive, generator)
            compared, present = matrix.client_ids, matrix.index_of(clients)
            labels, told = self._cut_matrix(matrix)
            memory = matrix.to_tensors()
        else:  # the participants alone: all have just met, so there is nothing to estimate
            pairs, means = ObservedPairs.from_tensors(memory).observe(clients, similarity)
            labels, told = self._cut(means, rescale(means, lowest=pairs.lowest()))
            memory = pairs.to_tensors()
        if given:
            labels = given(compared)
        own = labels[present]
        report = {"clusters": own, "similarity": similarity, **told}
        if self.transitive != "off":
            report |= _numbers(gamma=self.gamma)
        return Grouping(own, torch.bincount(labels)[own], memory, report)

    def clusters(self, clients: Sequence[ClientId], memory: TensorState) -> Tensor:
        """The cluster of each of these clients among all seen, -1 if it was never seen, (n,)."""
        matrix = SimilarityMatrix.from_tensors(memory)
        if not matrix.client_ids:
            return torch.full((len(clients),), -1)
        labels, _ = self._cut_matrix(matrix)
        own = dict(zip(matrix.client_ids, labels.tolist(), strict=True))
        return torch.tensor([own.get(client, -1) for client in clients])

    def _cut_matrix(self, matrix: SimilarityMatrix) -> tuple[Tensor, dict[str, Tensor]]:
        """Cut a matrix in which pairs of which nothing is known are as unlike as can be."""
        similarity = torch.where(matrix.known, matrix.mean, -1)
        return self._cut(similarity, rescale(matrix.mean, matrix.known))

    def _cut(self, similarity: Tensor, q: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Labels of all that were compared, (n,), and what to tell of the cut."""
        if self.threshold is not None:
            return cluster(q, self.threshold), _numbers(threshold=self.threshold)
        cut = contrast_cut(similarity).if_confident()
        told = _numbers(cut=cut.at, confidence=cut.confidence)
        return average_linkage(similarity, cut.at), told


def _numbers(**told: float) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in told.items()}


def true_labels(truth: Mapping[ClientId, int] | None, clients: Sequence[ClientId]) -> Tensor:
    """Who really belongs together, numbered from 0, (n,)."""
    if truth is None:
        raise CadisError(
            "The true clusters of this federation are not known; leave clusters = true out."
        )
    truths = torch.tensor([truth[client] for client in clients])
    labels: Tensor = truths.unique(return_inverse=True)[1]
    return labels


def signatures(
    server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
) -> Tensor:
    """The clients' updates of the classifier layer, W_i - W_g, flat, (k, d)."""
    head = server_round.head
    sent = {name: model.parameters_at(head) for name, model in state.models.items()}
    changes = torch.stack([update.model.parameters_at(head) for update in updates])
    for row, update in zip(changes, updates, strict=True):  # in place: no second large matrix
        row.sub_(sent[update.message.model_name])
    return changes.to(torch.promote_types(changes.dtype, torch.float32))  # norms overflow in half
