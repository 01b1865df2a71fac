"""Measure the clusters that a server reports: agreement with the true clusters, and stability."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean

import torch

from cadis.algorithm.methods.cadis.hierarchy import Hierarchy
from cadis.analysis import ClusterFrame, replay_frames
from cadis.server import RoundRecord
from cadis.store import adjusted_rand_index
from cadis.store.observations import get_centers
from cadis.types import ClientId

_FIRST_ROUND = 10
"""First round in which the clusters are measured."""

_FIRST_STABLE_ROUND = 15
"""Rounds after this one count for changes of membership."""


def measure_reported_clusters(
    history: Sequence[RoundRecord], truth: Mapping[ClientId, int | None]
) -> dict[str, float]:
    """Return measures of the reported clusters of all clients that have taken part so far.

    - ``reported``: adjusted Rand index with the true clusters, mean over rounds.
    - ``reference``: the same for average linkage of the same profiles into the true number of
      clusters, which the server does not know.
    - ``none``: fraction of rounds in which the server reports no clusters.
    - ``changes``: mean fraction of clients whose cluster differs from that of the last round.

    Args:
        history: records of all rounds.
        truth: true cluster of each client, or None.

    Returns:
        The measures; empty if the method does not report the centers of its clusters, or if there
        were too few rounds.
    """
    if len(history) <= _FIRST_STABLE_ROUND or get_centers(history[-1]) is None:
        return {}
    rounds = {record.round for record in history if record.round >= _FIRST_ROUND}
    frames = list(replay_frames(history, rounds, gamma=None))
    measures = {
        "none": mean(float(len(set(frame.labels.values())) == 1) for frame in frames),
        "changes": _measure_changes(frames),
    }
    if None not in truth.values() and len(set(truth.values())) > 1:
        pairs = [_measure_agreement(frame, truth) for frame in frames]
        reported, reference = zip(*pairs, strict=True)
        measures |= {"reported": mean(reported), "reference": mean(reference)}
    return {name: round(value, 4) for name, value in measures.items()}


def _measure_agreement(
    frame: ClusterFrame, truth: Mapping[ClientId, int | None]
) -> tuple[float, float]:
    """Return the agreement of the reported clusters, and of average linkage with their number."""
    true_labels = torch.tensor([truth[client] for client in frame.clients])
    number = len(true_labels.unique())
    hierarchy = Hierarchy.build(frame.q.double(), max_clusters=number)
    # A clustering into one cluster per client is not in the hierarchy.
    reference = hierarchy.get_labels(min(number, len(hierarchy.labels) + 1))
    return (
        adjusted_rand_index(true_labels.tolist(), frame.clusters.tolist()),
        adjusted_rand_index(true_labels.tolist(), reference.tolist()),
    )


def _measure_changes(frames: Sequence[ClusterFrame]) -> float:
    """Return the mean fraction of clients that change their cluster from one round to the next."""
    fractions = []
    for before, after in pairwise(frames):
        if after.record.round > _FIRST_STABLE_ROUND:
            pairs = [(label, after.labels[client]) for client, label in before.labels.items()]
            fractions.append(mean(float(old != new) for old, new in pairs))
    return mean(fractions)
