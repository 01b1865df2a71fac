"""Who belongs together, from a round's updates: by class profiles, or by pairs as in the paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from cadis.algorithm.method import ServerRound, ServerState
from cadis.algorithm.methods.cadis.auto_clusters import (
    LOOKED_AT,
    Cut,
    ProfileClusters,
    average_linkage,
    contrast_cut,
    found_clusters,
    update_profiles,
)
from cadis.algorithm.methods.cadis.clustering import cluster, rescale
from cadis.algorithm.methods.cadis.observed_pairs import ObservedPairs
from cadis.algorithm.methods.cadis.profiles import ClientProfiles, class_profiles
from cadis.algorithm.methods.cadis.similarity import (
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
    """The clusters of a round's participants.

    Attributes:
        labels: the cluster of each participant, (k,).
        sizes: M_i, how many clients are in it, (k,).
        memory: what is remembered for the next round.
        report: what to tell about it.
    """

    labels: Tensor
    sizes: Tensor
    memory: TensorState
    report: TensorState


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
    profiles: Tensor,
    clients: Sequence[ClientId],
    memory: TensorState,
    threshold: float | None,
    given: Given | None = None,
) -> Grouping:
    """Clusters of all clients seen so far, by their mean profiles.

    Args:
        profiles: of the participants in this round, (k, classes).
        clients: who they are.
        memory: what was remembered.
        threshold: epsilon; None reads the cut off the similarities.
        given: clusters to take instead of those found.
    """
    keys = client_keys(clients)
    known = update_profiles(ClientProfiles.from_tensors(memory), keys, profiles)
    found = found_clusters(*known.some(LOOKED_AT), threshold)
    labels = given(clients) if given else found.of(known.of(keys, profiles.shape[1])[0])
    report = {"clusters": labels, "profile": profiles, **_told(found.cut, threshold)}
    return Grouping(
        labels,
        torch.bincount(labels)[labels],
        {**known.to_tensors(), "centres": found.centres},
        report,
    )


def profile_clusters(clients: Sequence[ClientId], memory: TensorState) -> Tensor:
    """The cluster of each of these clients by its mean profile, -1 if it was never seen, (n,)."""
    if "centres" not in memory:
        return torch.full((len(clients),), -1)
    found = ProfileClusters(memory["centres"], Cut(0, 0))
    known = ClientProfiles.from_tensors(memory)
    mean, count = known.of(client_keys(clients), found.centres.shape[1])
    return torch.where(count > 0, found.of(mean), -1)


@dataclass(frozen=True)
class PairRule:
    """How clients are compared by pairs that met, and by estimates of those that did not.

    Attributes:
        threshold: epsilon; None reads the cut off the similarities.
        among_all: whether clusters are looked for among all clients seen so far, instead of the
            participants alone.
        transitive: how pairs that never met are estimated.
        gamma: the largest deviation of such an estimate.
    """

    threshold: float | None
    among_all: bool
    transitive: TransitiveMode
    gamma: float

    def group(
        self,
        changes: Tensor,
        clients: Sequence[ClientId],
        memory: TensorState,
        generator: torch.Generator,
        given: Given | None = None,
    ) -> Grouping:
        """Similarities, Q-matrix, clusters: Sections III-A to III-C.

        Args:
            changes: the participants' updates of the classifier layer, (k, d).
            clients: who they are.
            memory: what was remembered.
            generator: the source of the draws of estimates.
            given: clusters to take instead of those found.
        """
        similarity = instance_similarity(changes)
        compare = self._with_all if self.among_all else _in_round
        compared = compare(clients, similarity, memory, generator)
        labels, told = self._cut(compared)
        if given:
            labels = given(compared.clients)
        own = labels[compared.present]
        report = {"clusters": own, "similarity": similarity, **told}
        if self.transitive != "off":
            report["gamma"] = torch.tensor(self.gamma, dtype=torch.float64)
        return Grouping(own, torch.bincount(labels)[own], compared.memory, report)

    def clusters(self, clients: Sequence[ClientId], memory: TensorState) -> Tensor:
        """The cluster of each of these clients among all seen, -1 if it was never seen, (n,)."""
        matrix = SimilarityMatrix.from_tensors(memory)
        if not matrix.client_ids:
            return torch.full((len(clients),), -1)
        labels = self._cut(_compare_all(matrix, clients=()))[0]
        own = dict(zip(matrix.client_ids, labels.tolist(), strict=True))
        return torch.tensor([own.get(client, -1) for client in clients])

    def _with_all(
        self,
        clients: Sequence[ClientId],
        similarity: Tensor,
        memory: TensorState,
        generator: torch.Generator,
    ) -> "_Compared":
        """All clients ever seen; pairs that never met are estimated."""
        matrix = SimilarityMatrix.from_tensors(memory).observe(clients, similarity)
        matrix = matrix.estimate_missing(self.gamma, self.transitive, generator)
        return _compare_all(matrix, clients)

    def _cut(self, compared: "_Compared") -> tuple[Tensor, dict[str, Tensor]]:
        """Labels of all that were compared, (n,), and what to tell of the cut."""
        if self.threshold is not None:
            labels = cluster(compared.q, self.threshold)
            return labels, _told(Cut(0, 0), self.threshold)
        cut = contrast_cut(compared.similarity).if_confident()
        return average_linkage(compared.similarity, cut.at), _told(cut, None)


@dataclass(frozen=True)
class _Compared:
    """Clients among whom clusters are looked for.

    Attributes:
        clients: who they are.
        present: places of the participants among them, (k,).
        similarity: how alike they are, -1 where nothing is known, (n, n).
        q: their Q-matrix, (n, n).
        memory: what is remembered of all that were ever compared.
    """

    clients: Sequence[ClientId]
    present: Tensor
    similarity: Tensor
    q: Tensor
    memory: TensorState


def _compare_all(matrix: SimilarityMatrix, clients: Sequence[ClientId]) -> _Compared:
    """Compare all clients ever seen; pairs of which nothing is known are as unlike as can be."""
    q = rescale(matrix.mean, matrix.known)
    present, values = matrix.index_of(clients), torch.where(matrix.known, matrix.mean, -1)
    return _Compared(matrix.client_ids, present, values, q, matrix.to_tensors())


def _in_round(
    clients: Sequence[ClientId],
    similarity: Tensor,
    memory: TensorState,
    _generator: torch.Generator,
) -> _Compared:
    """The participants alone: all of them have just met, so there is nothing to estimate."""
    pairs, together = ObservedPairs.from_tensors(memory).observe(clients, similarity)
    q = rescale(together, torch.ones_like(together, dtype=torch.bool), pairs.lowest())
    return _Compared(clients, torch.arange(len(clients)), together, q, pairs.to_tensors())


def _told(cut: Cut, threshold: float | None) -> dict[str, Tensor]:
    """What to tell of where similarities were cut."""
    told = {"cut": cut.at, "confidence": cut.confidence}
    if threshold is not None:
        told = {"threshold": threshold}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in told.items()}


def true_labels(truth: Mapping[ClientId, int] | None, clients: Sequence[ClientId]) -> Tensor:
    """Who really belongs together, numbered from 0, (n,)."""
    if truth is None:
        raise CadisError(
            "The true clusters of this federation are not known; leave clusters = true out."
        )
    labels: Tensor = torch.tensor([truth[client] for client in clients]).unique(
        return_inverse=True
    )[1]
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
