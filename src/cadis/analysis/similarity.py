"""How the similarity matrix and the clusters come to be, round by round."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from cadis.algorithm.methods.cadis import SimilarityMatrix, rescale
from cadis.server import RoundRecord
from cadis.store import Observations, SeenProfiles, alikeness, grouped, joined, tells_profiles
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

    @property
    def labels(self) -> dict[ClientId, int]:
        """The cluster of each client."""
        return dict(zip(self.clients, self.found.tolist(), strict=True))


def growing(
    history: Sequence[RoundRecord],
    rounds: Set[int] | None = None,
    gamma: float | None = None,
    clients: Set[ClientId] | None = None,
) -> Iterator[SimilarityMatrix]:
    """Yield the matrix after each round, brought up to date from one to the next.

    Args:
        history: all rounds.
        rounds: after which of them it is wanted; all unless told.
        gamma: the largest deviation of a transitive estimate; None estimates nothing. Nothing is
            ever estimated of clients that are compared by profiles.
        clients: who is in it; everybody unless told. All others help to estimate even so, which
            makes the estimates what they are with everybody in it.
    """
    if tells_profiles(history):
        seen = SeenProfiles()
        for record in history:
            seen.add(record)
            if rounds is None or record.round in rounds:
                yield seen.matrix(clients)
        return
    matrix, helping, told = SimilarityMatrix(), None, alikeness(history)
    if clients is not None and not clients >= set(joined(history)):
        helping = Observations(history, clients)
    for record in history:
        who, similarity = record.participants, told(record)
        if similarity is not None:
            kept = [n for n, client in enumerate(who) if clients is None or client in clients]
            matrix = matrix.observe([who[n] for n in kept], similarity[kept][:, kept])
        if helping is not None:
            helping.add(record)
        if rounds is None or record.round in rounds:
            if gamma is not None:
                others = None if helping is None else helping.direct()
                matrix = matrix.estimate_missing(gamma, "mean", helping=others)
            yield matrix


def frames(
    history: Sequence[RoundRecord],
    rounds: Set[int],
    gamma: float | None,
    clients: Set[ClientId] | None = None,
) -> Iterator[Frame]:
    """Yield some or all clients after some of the rounds; ``gamma`` is that of :func:`growing`."""
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
    """Return the paper's figure of transitive learning, from one run's observations.

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
    return sorted(set(torch.linspace(1, total, limit).round().int().tolist()))


def some_of(shown: int, total: int) -> str:
    """How many of all are shown, in words; nothing if all are."""
    return "" if shown >= total else f"{shown} of {total:,} clients"


def steady(
    rounds: Sequence[Mapping[ClientId, int]], true_clusters: Mapping[ClientId, int | None]
) -> list[dict[ClientId, int]]:
    """The same clusters, under numbers that a cluster keeps from round to round.

    What a method calls a cluster in a round need not mean anything in another. So clusters are
    followed back from the last round to the first: of two rounds, those are the same that share
    most of their clients, all pairs taken together. In the last round a cluster has the number of
    the true one that it shares most with, where that is known.
    """
    known = {client: label for client, label in true_clusters.items() if label is not None}
    free = count(1 + max(known.values(), default=-1))
    found: list[dict[ClientId, int]] = []
    for labels in reversed(rounds):
        found.append(_rename(labels, found[-1] if found else known, free))
    return found[::-1]


def _rename(
    labels: Mapping[ClientId, int], model: Mapping[ClientId, int], free: "count[int]"
) -> dict[ClientId, int]:
    """The clusters under the names of those in ``model`` that they are, else under free ones."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415

    own = list(dict.fromkeys(labels.values()))  # in the clients' order, whatever their labels
    theirs = sorted(set(model.values()))
    shared = Counter((labels[client], model[client]) for client in labels if client in model)
    overlap = np.array([[shared[a, b] for b in theirs] for a in own], int)
    pairs = zip(*linear_sum_assignment(overlap.reshape(len(own), -1), maximize=True), strict=True)
    name = {own[a]: theirs[b] for a, b in pairs if overlap[a, b]}
    for label in own:
        if label not in name:
            name[label] = next(free)
    return {client: name[label] for client, label in labels.items()}
