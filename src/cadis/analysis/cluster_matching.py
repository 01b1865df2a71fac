"""Which clusters of different rounds are the same one: those that share most of their clients."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np

from cadis.types import ClientId

Labels = Mapping[ClientId, int]
"""The cluster of each client seen so far."""


def steady(
    rounds: Sequence[Labels], true_clusters: Mapping[ClientId, int | None]
) -> list[dict[ClientId, int]]:
    """The same clusters, under numbers that a cluster keeps from round to round.

    What a method calls a cluster in a round need not mean anything in another. So clusters are
    followed back from the last round to the first: of two rounds, those are the same that share
    most of their clients, all pairs taken together. In the last round a cluster has the number of
    the true one that it shares most with, if there are true ones.

    Args:
        rounds: the clusters after some rounds.
        true_clusters: of all clients, None where they are not known.
    """
    known = {client: label for client, label in true_clusters.items() if label is not None}
    free = count(1 + max(known.values(), default=-1))
    found: list[dict[ClientId, int]] = []
    for labels in reversed(rounds):
        found.append(_renamed(labels, found[-1] if found else known, free))
    return found[::-1]


def _renamed(labels: Labels, model: Labels, free: "count[int]") -> dict[ClientId, int]:
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
