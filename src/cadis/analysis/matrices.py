"""How the similarity matrix comes to be, round by round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.core import ClientId, SimilarityMatrix, cluster, rescale
from cadis.runs import RoundRecord


@dataclass(frozen=True)
class Frame:
    """The clients as the server sees them after a round.

    Attributes:
        record: the round.
        clients: who was seen so far.
        q: the Q-matrix, NaN where nothing is known, in that order, (n, n).
        found: their clusters, (n,).
    """

    record: RoundRecord
    clients: tuple[ClientId, ...]
    q: Tensor
    found: Tensor


def growing(history: Sequence[RoundRecord]) -> Iterator[SimilarityMatrix]:
    """The matrix after each round, observations only."""
    matrix = SimilarityMatrix()
    for record in history:
        if record.similarity is not None:
            matrix = matrix.observe(record.participants, torch.tensor(record.similarity))
        yield matrix


def frames(
    history: Sequence[RoundRecord], rounds: Sequence[int], gamma: float, transitive: bool
) -> Iterator[Frame]:
    """The clients after some of the rounds.

    Args:
        history: all rounds.
        rounds: which of them are wanted.
        gamma: the largest deviation of a transitive estimate.
        transitive: whether pairs that never met are estimated.
    """
    wanted = set(rounds)
    for record, observed in zip(history, growing(history), strict=True):
        if record.round in wanted and record.threshold is not None:
            matrix = observed.estimate_missing(gamma, "mean" if transitive else "off")
            q = rescale(matrix.mean, matrix.known)
            yield Frame(record, matrix.client_ids, q, cluster(q, record.threshold))


def error(matrix: SimilarityMatrix, final: SimilarityMatrix) -> float:
    """Mean squared error over the pairs that the final matrix knows; unknown counts as 0."""
    rows = final.index_of(matrix.client_ids)
    values = torch.eye(len(final.client_ids))
    values[rows[:, None], rows] = torch.where(matrix.known, matrix.mean, 0)
    known: Tensor = final.count > 0
    return float((values - final.mean)[known].square().mean())


@dataclass(frozen=True)
class Convergence:
    """How fast the similarity matrix becomes what all observations of the run make of it.

    Attributes:
        rounds: after which rounds it was looked at.
        transitive: its mean squared error then, with transitive learning.
        standard: the same without.
    """

    rounds: list[int]
    transitive: list[float]
    standard: list[float]


def convergence(history: Sequence[RoundRecord], gamma: float, rounds: Sequence[int]) -> Convergence:
    """The paper's figure of transitive learning, from one run's observations."""
    matrices = list(growing(history))
    final, wanted = matrices[-1], set(rounds)
    looked = [
        (record.round, matrix)
        for record, matrix in zip(history, matrices, strict=True)
        if record.round in wanted
    ]
    return Convergence(
        [number for number, _ in looked],
        [error(matrix.estimate_missing(gamma, "mean"), final) for _, matrix in looked],
        [error(matrix.estimate_missing(gamma, "off"), final) for _, matrix in looked],
    )


def spread_rounds(total: int, limit: int) -> list[int]:
    """At most ``limit`` rounds from 1 to ``total``, both included, evenly spread."""
    if total <= limit:
        return list(range(1, total + 1))
    places = torch.linspace(1, total, limit).round().int().tolist()
    return sorted(set(places))
