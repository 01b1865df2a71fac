"""Replay the similarity matrix and the clusters of a run, round by round."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from cadis.algorithm.methods.cadis import SimilarityMatrix, compute_q_matrix
from cadis.server import RoundRecord
from cadis.store import (
    MeanProfiles,
    RunningSimilarities,
    assign_clusters,
    choose_similarity_reader,
    has_profiles,
    list_compared_clients,
)
from cadis.types import ClientId


@dataclass(frozen=True)
class ClusterFrame:
    """Similarities and clusters as the server sees them after a round.

    Attributes:
        record: record of the round.
        clients: clients with known similarities.
        q: Q-matrix in the order of the clients, NaN for unknown pairs, (clients, clients).
        clusters: cluster of each client, (clients,).
    """

    record: RoundRecord
    clients: tuple[ClientId, ...]
    q: Tensor
    clusters: Tensor

    @property
    def labels(self) -> dict[ClientId, int]:
        """Cluster of each client."""
        return dict(zip(self.clients, self.clusters.tolist(), strict=True))


def replay_matrices(
    history: Sequence[RoundRecord],
    rounds: Set[int] | None = None,
    gamma: float | None = None,
    clients: Set[ClientId] | None = None,
) -> Iterator[SimilarityMatrix]:
    """Yield the similarity matrix after each round, updated incrementally.

    Args:
        history: records of all rounds.
        rounds: rounds to yield the matrix of; all by default.
        gamma: largest deviation allowed for transitive estimates; None for no estimates.
            Similarities of class profiles never need estimates.
        clients: clients in the matrix; all by default. The other clients still contribute to
            estimates, so the estimates do not depend on this choice.
    """
    if has_profiles(history):
        profiles = MeanProfiles()
        for record in history:
            profiles.add(record)
            if rounds is None or record.round in rounds:
                yield profiles.compute_matrix(clients)
        return
    matrix, helpers, read_similarity = SimilarityMatrix(), None, choose_similarity_reader(history)
    if clients is not None and not clients >= set(list_compared_clients(history)):
        helpers = RunningSimilarities(history, clients)
    for record in history:
        participants, similarity = record.participants, read_similarity(record)
        if similarity is not None:
            rows = [i for i, c in enumerate(participants) if clients is None or c in clients]
            matrix = matrix.observe([participants[i] for i in rows], similarity[rows][:, rows])
        if helpers is not None:
            helpers.add(record)
        if rounds is None or record.round in rounds:
            if gamma is not None:
                others = None if helpers is None else helpers.get_observed()
                matrix = matrix.estimate_missing(gamma, "mean", helpers=others)
            yield matrix


def replay_frames(
    history: Sequence[RoundRecord],
    rounds: Set[int],
    gamma: float | None,
    clients: Set[ClientId] | None = None,
) -> Iterator[ClusterFrame]:
    """Yield similarities and clusters after some rounds.

    The arguments are the same as for :func:`replay_matrices`. Rounds without similarities are
    skipped.
    """
    read_similarity = choose_similarity_reader(history)
    records = [r for r in history if r.round in rounds and read_similarity(r) is not None]
    used_rounds = {record.round for record in records}
    matrices = replay_matrices(history, used_rounds, gamma, clients)
    for record, matrix in zip(records, matrices, strict=True):
        q = compute_q_matrix(matrix.mean, matrix.known)
        past = [r for r in history if r.round <= record.round]
        yield ClusterFrame(record, matrix.client_ids, q, assign_clusters(matrix, past))


def compute_matrix_error(matrix: SimilarityMatrix, final: SimilarityMatrix) -> float:
    """Return the mean squared error over the pairs observed in the final matrix.

    Pairs that are unknown in ``matrix`` count as similarity 0.
    """
    rows = final.find_rows(matrix.client_ids)
    values = torch.eye(len(final.client_ids))
    values[rows[:, None], rows] = torch.where(matrix.known, matrix.mean, 0)
    known: Tensor = final.count > 0
    return float((values - final.mean)[known].square().mean())


@dataclass(frozen=True)
class Convergence:
    """Error of the similarity matrix in each round, relative to the mean of all observations.

    Attributes:
        rounds: rounds at which the error is computed.
        transitive: mean squared error with transitive estimates, one per round; empty for a
            method without estimates.
        standard: mean squared error without estimates, one per round.
    """

    rounds: list[int]
    transitive: list[float]
    standard: list[float]


def compute_convergence(
    history: Sequence[RoundRecord],
    gamma: float | None,
    rounds: Set[int],
    clients: Set[ClientId] | None = None,
) -> Convergence:
    """Compute the data of the paper's figure about transitive learning, for one run.

    Args:
        history: records of all rounds.
        gamma: largest deviation allowed for transitive estimates; None for no estimates.
        rounds: rounds at which to compute the error.
        clients: clients whose pairs count; all by default.
    """
    (final,) = replay_matrices(history, {history[-1].round}, None, clients)
    used_rounds = [record.round for record in history if record.round in rounds]
    transitive, standard = [], []
    for matrix in replay_matrices(history, rounds, gamma, clients):
        standard.append(compute_matrix_error(matrix.estimate_missing(0.0, "off"), final))
        if gamma is not None:
            transitive.append(compute_matrix_error(matrix, final))
    return Convergence(used_rounds, transitive, standard)


def select_rounds(total: int, limit: int) -> list[int]:
    """Return at most ``limit`` evenly spaced rounds from 1 to ``total``, both included.

    Example:
        >>> select_rounds(100, 4)
        [1, 34, 67, 100]
    """
    if total <= limit:
        return list(range(1, total + 1))
    return sorted(set(torch.linspace(1, total, limit).round().int().tolist()))


def format_sample_size(size: int, total: int) -> str:
    """Return text such as "120 of 1,400 clients"; empty if all clients are in the sample."""
    return "" if size >= total else f"{size} of {total:,} clients"


def align_cluster_labels(
    rounds: Sequence[Mapping[ClientId, int]], true_clusters: Mapping[ClientId, int | None]
) -> list[dict[ClientId, int]]:
    """Renumber the clusters of each round so that a cluster keeps its number over rounds.

    A method may use other labels for the same clusters in each round. Clusters are therefore
    matched backwards, from the last round to the first, so that matched clusters have as many
    clients in common as possible. In the last round, they are matched with the true clusters, if
    known.

    Args:
        rounds: cluster of each client, one mapping per round.
        true_clusters: true cluster of each client; None if it is unknown.

    Returns:
        The same clusters with new numbers, one mapping per round.
    """
    known = {client: label for client, label in true_clusters.items() if label is not None}
    free = count(1 + max(known.values(), default=-1))
    aligned: list[dict[ClientId, int]] = []
    for labels in reversed(rounds):
        aligned.append(_align_labels(labels, aligned[-1] if aligned else known, free))
    return aligned[::-1]


def _align_labels(
    labels: Mapping[ClientId, int], reference: Mapping[ClientId, int], free: "count[int]"
) -> dict[ClientId, int]:
    """Give clusters the labels of the reference clusters that they match; others get new labels."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    sources = list(dict.fromkeys(labels.values()))  # in the order of the clients, not of the labels
    targets = sorted(set(reference.values()))
    common = Counter(
        (labels[client], reference[client]) for client in labels if client in reference
    )
    overlap = np.array([[common[a, b] for b in targets] for a in sources], int)
    overlap = overlap.reshape(len(sources), -1)
    pairs = zip(*linear_sum_assignment(overlap, maximize=True), strict=True)
    new_labels = {sources[a]: targets[b] for a, b in pairs if overlap[a, b]}
    for label in sources:
        if label not in new_labels:
            new_labels[label] = next(free)
    return {client: new_labels[label] for client, label in labels.items()}
