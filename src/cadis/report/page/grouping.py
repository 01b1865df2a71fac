"""Who was grouped with whom, round by round, for the page."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from cadis.analysis import Frame, Results, RunData, frames, spread_rounds, steady
from cadis.store import SHOWN, agreement, clusters_of, confidence_of, threshold_of
from cadis.types import ClientId

_BUDGET = 1_600_000  # bytes for the matrices of all runs together
_FLOW = 7  # rounds in the picture of the flow, at most
_FRAME = ("rounds", "q", "found", "threshold", "confidence", "weights", "others")
"""What there is a list of, with an entry for each frame."""
_MADE: WeakKeyDictionary[RunData, tuple[tuple[int, int], dict[str, Any]]] = WeakKeyDictionary()
"""A page that is looked at while a run works is made again and again; other runs may have ended."""


def grouping(results: Results) -> dict[str, Any] | None:
    """The runs that looked for clusters; of one that has not changed since, what was made then."""
    telling = [(place, run) for place, run in results.numbered_runs if run.found_clusters]
    runs = []
    for place, run_data in telling:
        asked, known = (place, _BUDGET // len(telling)), _MADE.get(run_data)
        if known is None or known[0] != asked:
            known = _MADE[run_data] = asked, _make_run(run_data, *asked)
        runs.append(known[1])
    return {"runs": runs} if runs else None


def _make_run(run_data: RunData, place: int, budget: int) -> dict[str, Any]:
    ordered = run_data.ordered_clients
    shown = min(SHOWN, len(ordered))  # all clients that were seen, or an even choice of them
    clients = [ordered[n * len(ordered) // shown] for n in range(shown)]
    pairs = len(clients) * (len(clients) - 1) // 2
    total = len(run_data.history)
    kept = spread_rounds(total, max(2, budget // max(1, pairs)))
    # The first rounds and the last: the clusters change most at the beginning.
    flow = sorted(set(np.geomspace(1, total, _FLOW).round().astype(int).tolist()))
    told = list(frames(run_data.history, {*kept, *flow}, run_data.gamma, run_data.looked_at))
    found = steady([frame.labels for frame in told], run_data.true_clusters)
    by_round = {
        frame.record.round: _shown(frame, labels, run_data, clients)
        for frame, labels in zip(told, found, strict=True)
    }
    chosen = [by_round[number] for number in kept if number in by_round]
    flowing = [by_round[number] for number in flow if number in by_round]
    true_clusters = [run_data.true_clusters[client] for client in clients]
    has_truth = None not in true_clusters
    return {
        "method": place,
        "seed": run_data.seed,
        "of": len(run_data.true_clusters),
        "sampled": bool(run_data.choice),
        "measured": run_data.tells_similarity,
        "clients": [str(client) for client in clients],
        "true": true_clusters if has_truth else None,
        **{key: [frame[key] for frame in chosen] for key in _FRAME},
        "agreement": [frame["agreement"] for frame in chosen] if has_truth else None,
        "flow": {key: [frame[key] for frame in flowing] for key in ("rounds", "found")},
    }


def _shown(
    frame: Frame, found: Mapping[ClientId, int], run_data: RunData, clients: Sequence[ClientId]
) -> dict[str, Any]:
    """What the page shows of a frame, by the names of the lists that it is an entry of."""
    weights, others = _weights(frame, clients)
    threshold, confidence = threshold_of(frame.record), confidence_of(frame.record)
    expected = [run_data.true_clusters[client] or 0 for client in frame.clients]
    return {
        "rounds": frame.record.round,
        "q": _packed(frame, clients),
        "found": [found.get(client, -1) for client in clients],  # -1: not seen yet
        "threshold": None if threshold is None else round(threshold, 4),
        "confidence": None if confidence is None else round(confidence, 4),
        "agreement": round(agreement(expected, frame.found.tolist()), 4),
        "weights": weights,
        "others": others,
    }


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


def _weights(
    frame: Frame, clients: Sequence[ClientId]
) -> tuple[list[list[float]], dict[str, float]]:
    """The participants shown: who, what they weighed, their cluster of the round; and all others.

    There may be thousands of others in each round: of them, only the sums are told.
    """
    record, position = frame.record, {client: row for row, client in enumerate(clients)}
    labels = clusters_of(record) or [0] * len(record.participants)
    told = list(zip(record.participants, record.weights, labels, strict=True))
    shown = [
        [position[client], round(weight, 5), label]
        for client, weight, label in told
        if client in position
    ]
    rest = [weight for client, weight, _ in told if client not in position]
    return shown, {"count": len(rest), "weight": round(sum(rest), 5), "clusters": len(set(labels))}
