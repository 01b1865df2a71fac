"""Who was grouped with whom, round by round, for the page."""

import base64
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from cadis.analysis import Frame, Results, Story, frames, spread_rounds
from cadis.core import ClientId
from cadis.methods import CADIS
from cadis.runs import agreement

_MOST_CLIENTS = 120
"""Clients that are shown, at most."""
_BUDGET = 1_600_000
"""Bytes for the matrices of all runs together."""
_FLOW = 7
"""Rounds in the picture of the flow, at most."""


def grouping(results: Results) -> dict[str, Any] | None:
    """The runs that looked for clusters."""
    found = [
        (place, story, story.method)
        for place, group in enumerate(results.groups)
        for story in group.stories
    ]
    telling = [(p, s, m) for p, s, m in found if isinstance(m, CADIS) and s.found_cluster]
    if not telling:
        return None
    return {"runs": [_run(p, s, m, _BUDGET // len(telling)) for p, s, m in telling]}


@lru_cache(maxsize=64)  # a page that is looked at while a run works is made again and again
def _run(place: int, story: Story, method: CADIS, budget: int) -> dict[str, Any]:
    clients = _shown_clients(story)
    pairs = len(clients) * (len(clients) - 1) // 2
    total = len(story.history)
    kept = spread_rounds(total, max(2, budget // max(1, pairs)))
    flow = _flow_rounds(total)
    every = frames(story.history, sorted({*kept, *flow}), method.gamma, method.transitive != "off")
    by_round = {frame.record.round: frame for frame in every}
    chosen = [by_round[number] for number in kept if number in by_round]
    truth = [story.true_cluster[client] for client in clients]
    position = {client: row for row, client in enumerate(clients)}
    flow_rounds = [number for number in flow if number in by_round]
    return {
        "method": place,
        "seed": story.seed,
        "of": len(story.true_cluster),
        "clients": [str(client) for client in clients],
        "true": None if None in truth else truth,
        "rounds": [frame.record.round for frame in chosen],
        "q": [_packed(frame, clients) for frame in chosen],
        "found": [_labels(frame, clients) for frame in chosen],
        "threshold": [round(frame.record.threshold or 0, 4) for frame in chosen],
        "agreement": None if None in truth else [_agreement(f, story.true_cluster) for f in chosen],
        "weights": [_weights(frame, position) for frame in chosen],
        "flow": {
            "rounds": flow_rounds,
            "found": [_labels(by_round[number], clients) for number in flow_rounds],
        },
    }


def _shown_clients(story: Story) -> list[ClientId]:
    """All clients that were seen, or an even choice of them."""
    ordered = story.ordered_clients
    if len(ordered) <= _MOST_CLIENTS:
        return ordered
    return [ordered[n * len(ordered) // _MOST_CLIENTS] for n in range(_MOST_CLIENTS)]


def _flow_rounds(total: int) -> list[int]:
    """The first rounds and the last: the clusters change most at the beginning."""
    places = np.geomspace(1, total, _FLOW).round().astype(int).tolist()
    return sorted(set(places))


def _packed(frame: Frame, clients: Sequence[ClientId]) -> str:
    """The upper triangle of Q, a byte a pair; 255 is unknown."""
    seen = {client: row for row, client in enumerate(frame.clients)}
    rows = torch.tensor([seen.get(client, -1) for client in clients])
    padded = torch.full((len(seen) + 1, len(seen) + 1), torch.nan)  # the last row: not seen yet
    padded[:-1, :-1] = frame.q
    upper = torch.triu_indices(len(clients), len(clients), offset=1)
    values = padded[rows[upper[0]], rows[upper[1]]]
    quantised = (values * 254).round().nan_to_num(nan=255).to(torch.uint8)
    return base64.b64encode(quantised.numpy().tobytes()).decode("ascii")


def _labels(frame: Frame, clients: Sequence[ClientId]) -> list[int]:
    """Each client's cluster among all seen, -1 if it was not seen yet."""
    label = dict(zip(frame.clients, frame.found.tolist(), strict=True))
    return [label.get(client, -1) for client in clients]


def _agreement(frame: Frame, truth: Mapping[ClientId, int | None]) -> float:
    true_clusters = [truth[client] or 0 for client in frame.clients]
    return round(agreement(true_clusters, frame.found.tolist()), 4)


def _weights(frame: Frame, position: Mapping[ClientId, int]) -> list[list[float]]:
    """The round's participants: who, what they weighed, and their cluster of the round."""
    record = frame.record
    clusters = record.clusters or [0] * len(record.participants)
    return [
        [position.get(client, -1), round(weight, 5), label]
        for client, weight, label in zip(record.participants, record.weights, clusters, strict=True)
    ]
