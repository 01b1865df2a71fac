"""What the clusters did: how they formed, and how much say each had."""

from collections import Counter
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap

from cadis.analysis import Frame, Group, Results, RunData, frames
from cadis.report.figures.matrices import clustering_run, some_shown
from cadis.report.style import OKABE_ITO, UNKNOWN, Place, figure, looks, shown

_COLUMNS = 60
_CLUSTERS = 7
"""Colours for clusters; further ones begin again."""


def draw_flow(results: Results, place: Place) -> Path | None:
    """The clusters found in a run, round by round; a colour is the true cluster that one is of."""
    run_data, path = clustering_run(results), place("flow")
    if run_data is None or len(run_data.history) < 2:
        return None
    rounds = set(np.geomspace(1, len(run_data.history), _COLUMNS).round().astype(int).tolist())
    told = list(frames(run_data.history, rounds, run_data.gamma, run_data.looked_at))
    labels = np.array([_colours(frame, run_data) for frame in told]).T  # (clients, rounds)
    clients = run_data.ordered_clients
    with figure(path, 6.4, min(9.0, 1.6 + 0.16 * len(clients))) as drawing:
        axes = drawing.subplots()
        colours = ListedColormap([UNKNOWN, *OKABE_ITO[:_CLUSTERS]])
        axes.imshow(labels, cmap=colours, vmin=0, vmax=_CLUSTERS, aspect="auto")
        step = -(-len(clients) // 25)
        axes.set_yticks(range(0, len(clients), step), list(map(shown, clients[::step])), size=8)
        ticks = range(0, len(told), max(1, len(told) // 10))
        axes.set_xticks(ticks, [str(told[tick].record.round) for tick in ticks])
        axes.set(xlabel="round (early ones have more room)", ylabel="client")
        whose = "found cluster"
        if None not in run_data.true_clusters.values():
            whose = "true cluster that most of a found one are of"
        title = f"How the clusters formed{some_shown(run_data)}"
        axes.set_title(f"{title}\ncolour: {whose}; grey: not seen yet", fontsize=10)
    return path.with_suffix(".png")


def draw_voice(results: Results, place: Place) -> Path | None:
    """The share that each true cluster had in the global model, mean over the rounds."""
    told = [(group, shares) for group in results.groups if (shares := voices(group))]
    if not told:
        return None
    path, styles = place("voice"), looks([group.name for group in results.groups])
    clusters = sorted({label for _, shares in told for label in shares})
    with figure(path, 6.4, 3.4) as drawing:
        axes = drawing.subplots()
        width = 0.8 / len(told)
        for number, (group, shares) in enumerate(told):
            places = np.arange(len(clusters)) + (number - (len(told) - 1) / 2) * width
            heights = [shares.get(label, 0.0) for label in clusters]
            colour = styles[results.groups.index(group)].colour
            axes.bar(places, heights, 0.95 * width, color=colour, label=shown(group.label))
        axes.axhline(1 / len(clusters), color="black", lw=0.8, ls=(0, (4, 2)))
        sizes = Counter(results.runs[0].true_clusters.values())
        names = [f"{label}\n{sizes[label]} clients" for label in clusters]
        axes.set_xticks(range(len(clusters)), names)
        axes.set(xlabel="true cluster", ylabel="share in the global model")
        axes.legend(fontsize=8)
        axes.set_title("The voice of each cluster, mean over rounds; dashed: equal", fontsize=10)
    return path.with_suffix(".png")


def _colours(frame: Frame, run_data: RunData) -> list[int]:
    """For each client the number of its cluster from 1, 0 if it was not seen yet.

    A cluster has the number of the true cluster that most of its clients are of; without true
    clusters, its own.
    """
    found = dict(zip(frame.clients, frame.found.tolist(), strict=True))
    members: dict[int, list[int]] = {}
    for client, label in found.items():
        expected = run_data.true_clusters[client]
        members.setdefault(label, []).append(label if expected is None else expected)
    number = {label: Counter(whose).most_common(1)[0][0] for label, whose in members.items()}
    return [
        1 + number[found[client]] % _CLUSTERS if client in found else 0
        for client in run_data.ordered_clients
    ]


def voices(group: Group) -> dict[int, float]:
    """By true cluster, the mean of what its participants weighed together.

    Nothing without true clusters, and where there is not one global model to weigh in.
    """
    rounds: list[dict[int, float]] = []
    for run_data in group.runs:
        true_clusters = run_data.true_clusters
        several = len(set(true_clusters.values())) > 1 and not run_data.history[-1].models
        if None in true_clusters.values() or not several or group.is_reference:
            return {}
        for record in run_data.history:
            shares: dict[int, float] = {}
            for client, weight in zip(record.participants, record.weights, strict=True):
                label = int(true_clusters[client] or 0)
                shares[label] = shares.get(label, 0.0) + weight
            rounds.append(shares)
    labels = {label for shares in rounds for label in shares}
    return {label: sum(s.get(label, 0.0) for s in rounds) / len(rounds) for label in labels}
