"""Section about clusters: similarities, clusters and weights in each round."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from cadis.analysis import (
    ClusterFrame,
    Results,
    RunData,
    align_cluster_labels,
    find_departures,
    replay_frames,
    select_rounds,
)
from cadis.store import (
    MAX_FIGURE_CLIENTS,
    adjusted_rand_index,
    get_clusters,
    get_confidence,
    get_threshold,
)
from cadis.types import ClientId

_BUDGET = 1_600_000  # bytes for the matrices of all runs together
_MAX_FLOW = 7  # rounds in the diagram of clusters over rounds
_FRAME_KEYS = ("rounds", "q", "found", "threshold", "confidence", "weights", "others")
"""Keys of a run that hold one entry per frame."""
_FLOW_KEYS = ("rounds", "found", "confidence")
"""The same for the diagram of clusters over rounds."""
_CACHE: WeakKeyDictionary[RunData, tuple[tuple[int, int], dict[str, Any]]] = WeakKeyDictionary()
"""Data of each run, since the page is made again and again while a run is being watched."""


def make_clusters_section(results: Results) -> dict[str, Any] | None:
    """Return the data of all runs with clusters; None if there is no such run."""
    clustered = [(index, run) for index, run in results.runs_by_group if run.cluster_estimates]
    runs = []
    for index, run_data in clustered:
        key, entry = (index, _BUDGET // len(clustered)), _CACHE.get(run_data)
        if entry is None or entry[0] != key:
            entry = _CACHE[run_data] = key, _make_run(run_data, *key)
        runs.append(entry[1])
    return {"runs": runs} if runs else None


def _make_run(run_data: RunData, index: int, budget: int) -> dict[str, Any]:
    order = run_data.client_order
    size = min(MAX_FIGURE_CLIENTS, len(order))  # an even sample if there are too many clients
    clients = [order[n * len(order) // size] for n in range(size)]
    pairs = len(clients) * (len(clients) - 1) // 2
    total = len(run_data.history)
    rounds = select_rounds(total, max(2, budget // max(1, pairs)))
    # Logarithmic steps, since clusters change most in the first rounds.
    flow = sorted(set(np.geomspace(1, total, _MAX_FLOW).round().astype(int).tolist()))
    needed = {*rounds, *flow}
    frames = list(replay_frames(run_data.history, needed, run_data.gamma, run_data.sampled_clients))
    aligned = align_cluster_labels([frame.labels for frame in frames], run_data.true_clusters)
    by_round = {
        frame.record.round: _make_frame(frame, labels, run_data, clients)
        for frame, labels in zip(frames, aligned, strict=True)
    }
    slider_frames = [by_round[number] for number in rounds if number in by_round]
    flow_frames = [by_round[number] for number in flow if number in by_round]
    departures = find_departures(run_data.history)
    true_clusters = [run_data.true_clusters[client] for client in clients]
    has_truth = None not in true_clusters
    return {
        "method": index,
        "seed": run_data.seed,
        "num_clients": len(run_data.true_clusters),
        "sampled": bool(run_data.sample_text),
        "measured": run_data.has_similarity,
        "clients": [str(client) for client in clients],
        "true": true_clusters if has_truth else None,
        **{key: [frame[key] for frame in slider_frames] for key in _FRAME_KEYS},
        "agreement": [frame["agreement"] for frame in slider_frames] if has_truth else None,
        "flow": {key: [frame[key] for frame in flow_frames] for key in _FLOW_KEYS},
        "last": [departures.get(client) for client in clients],  # if it is absent since then
    }


def _make_frame(
    frame: ClusterFrame,
    clusters: Mapping[ClientId, int],
    run_data: RunData,
    clients: Sequence[ClientId],
) -> dict[str, Any]:
    """Return the data of one round, with one entry for each of the frame keys."""
    weights, others = _split_weights(frame, clients)
    threshold, confidence = get_threshold(frame.record), get_confidence(frame.record)
    expected = [run_data.true_clusters[client] or 0 for client in frame.clients]
    return {
        "rounds": frame.record.round,
        "q": _pack_q(frame, clients),
        "found": [clusters.get(client, -1) for client in clients],  # -1: has not taken part yet
        "threshold": None if threshold is None else round(threshold, 4),
        "confidence": None if confidence is None else round(confidence, 4),
        "agreement": round(adjusted_rand_index(expected, frame.clusters.tolist()), 4),
        "weights": weights,
        "others": others,
    }


def _pack_q(frame: ClusterFrame, clients: Sequence[ClientId]) -> str:
    """Encode the upper triangle of the similarity matrix Q with one byte per pair.

    255 means unknown.
    """
    row_of = {client: row for row, client in enumerate(frame.clients)}
    rows = torch.tensor([row_of.get(client, -1) for client in clients])
    padded = torch.full((len(row_of) + 1, len(row_of) + 1), torch.nan)  # last row: unknown
    padded[:-1, :-1] = frame.q
    upper = torch.triu_indices(len(clients), len(clients), offset=1)
    values = padded[rows[upper[0]], rows[upper[1]]]
    quantized = (values * 254).round().nan_to_num(nan=255).to(torch.uint8)
    return base64.b64encode(quantized.numpy().tobytes()).decode("ascii")


def _split_weights(
    frame: ClusterFrame, clients: Sequence[ClientId]
) -> tuple[list[list[float]], dict[str, float]]:
    """Return index, weight and cluster of each participant that is shown, and totals.

    "count" and "weight" are totals of the participants that are not shown, because there may be
    thousands of them in each round. "clusters" is the number of clusters of all participants.
    """
    record, position = frame.record, {client: row for row, client in enumerate(clients)}
    labels = get_clusters(record) or [0] * len(record.participants)
    entries = list(zip(record.participants, record.weights, labels, strict=True))
    shown = [
        [position[client], round(weight, 5), label]
        for client, weight, label in entries
        if client in position
    ]
    rest = [weight for client, weight, _ in entries if client not in position]
    return shown, {"count": len(rest), "weight": round(sum(rest), 5), "clusters": len(set(labels))}
