"""How the similarity matrix comes to be, round by round."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis import SimilarityMatrix, rescale
from cadis.server import RoundRecord
from cadis.store import (
    Alikeness,
    Observations,
    SeenProfiles,
    alikeness,
    grouped,
    joined,
    tells_profiles,
)
from cadis.types import ClientId


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


def growing(
    history: Sequence[RoundRecord],
    rounds: Set[int] | None = None,
    gamma: float | None = None,
    clients: Set[ClientId] | None = None,
) -> Iterator[SimilarityMatrix]:
    """The matrix after each round, brought up to date from one to the next.

    Args:
        history: all rounds.
        rounds: after which of them it is wanted; all unless told.
        gamma: the largest deviation of a transitive estimate; None estimates nothing.
        clients: who is in it; everybody unless told. All others help to estimate even so, which
            makes the estimates what they are with everybody in it.
    """
    if tells_profiles(history):
        yield from _growing_profiles(history, rounds, clients)
        return
    matrix, helping, told = SimilarityMatrix(), None, alikeness(history)
    if clients is not None and not clients >= set(joined(history)):
        helping = Observations(history, clients)
    for record in history:
        matrix = _observe(matrix, record, told, clients)
        if helping is not None:
            helping.add(record)
        if rounds is None or record.round in rounds:
            if gamma is not None:
                others = None if helping is None else helping.direct()
                matrix = matrix.estimate_missing(gamma, "mean", helping=others)
            yield matrix


def _growing_profiles(
    history: Sequence[RoundRecord], rounds: Set[int] | None, clients: Set[ClientId] | None
) -> Iterator[SimilarityMatrix]:
    """The same of clients that are compared by profiles, of whom nothing need be estimated."""
    seen = SeenProfiles()
    for record in history:
        seen.add(record)
        if rounds is None or record.round in rounds:
            yield seen.matrix(clients)


def _observe(
    matrix: SimilarityMatrix, record: RoundRecord, told: Alikeness, clients: Set[ClientId] | None
) -> SimilarityMatrix:
    """Fold in what a round tells of some clients, if it tells anything."""
    who, similarity = record.participants, told(record)
    if similarity is None:
        return matrix
    if clients is not None:
        places = [place for place, client in enumerate(who) if client in clients]
        who, similarity = [who[place] for place in places], similarity[places][:, places]
    return matrix.observe(who, similarity)


def frames(
    history: Sequence[RoundRecord],
    rounds: Set[int],
    gamma: float | None,
    clients: Set[ClientId] | None = None,
) -> Iterator[Frame]:
    """The clients after some of the rounds.

    Args:
        history: all rounds.
        rounds: which of them are wanted.
        gamma: the largest deviation of a transitive estimate; None if pairs that never met are
            not estimated.
        clients: who is looked at; everybody unless told.
    """
    told = alikeness(history)
    wanted = [r for r in history if r.round in rounds and told(r) is not None]
    numbers = {record.round for record in wanted}
    for record, matrix in zip(wanted, growing(history, numbers, gamma, clients), strict=True):
        q = rescale(matrix.mean, matrix.known)
        until = [r for r in history if r.round <= record.round]
        yield Frame(record, matrix.client_ids, q, grouped(matrix, until))


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
        transitive: its mean squared error then, with transitive learning; empty for a method that
            estimates nothing.
        standard: the same without.
    """

    rounds: list[int]
    transitive: list[float]
    standard: list[float]


def convergence(
    history: Sequence[RoundRecord],
    gamma: float | None,
    rounds: Set[int],
    clients: Set[ClientId] | None = None,
) -> Convergence:
    """The paper's figure of transitive learning, from one run's observations.

    Args:
        history: all rounds.
        gamma: the largest deviation of a transitive estimate; None if nothing was estimated.
        rounds: after which of them the matrix is looked at.
        clients: whose pairs are looked at; everybody's unless told.
    """
    (final,) = growing(history, {history[-1].round}, None, clients)
    wanted = [record.round for record in history if record.round in rounds]
    transitive, standard = [], []
    for matrix in growing(history, rounds, gamma, clients):
        standard.append(error(matrix.estimate_missing(0.0, "off"), final))
        if gamma is not None:
            transitive.append(error(matrix, final))
    return Convergence(wanted, transitive, standard)


def spread_rounds(total: int, limit: int) -> list[int]:
    """At most ``limit`` rounds from 1 to ``total``, both included, evenly spread."""
    if total <= limit:
        return list(range(1, total + 1))
    places = torch.linspace(1, total, limit).round().int().tolist()
    return sorted(set(places))


def some_of(shown: int, total: int) -> str:
    """How many of all are shown, in words; nothing if all are."""
    return "" if shown >= total else f"{shown} of {total:,} clients"
