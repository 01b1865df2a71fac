"""Clusters: who is like whom, who was grouped with whom, how that formed, and who had a say."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from cadis.analysis import Frame, Group, Results, RunData, frames
from cadis.core import ClientId, rescale
from cadis.report.style import OKABE_ITO, UNKNOWN, Place, figure, heat_map, looks, shown

_COLUMNS = 60
_CLUSTERS = 7
"""Colours for clusters; further ones begin again."""


def draw_similarity(results: Results, place: Place) -> Path | None:
    """The Q-matrix at the end of a run, clients of one cluster side by side."""
    run_data, path = similarity_run(results), place("similarity")
    if run_data is None or run_data.matrix is None:
        return None
    order = run_data.matrix.index_of(run_data.ordered_clients)
    q = rescale(run_data.matrix.mean, run_data.matrix.known)[order[:, None], order]
    with figure(path, 6.0, 5.2) as drawing:
        axes = drawing.subplots()
        image = heat_map(axes, q.numpy())
        drawing.colorbar(image, ax=axes, label="Q: 1 is alike, 0 is least alike", shrink=0.85)
        _mark_clients(axes, run_data.ordered_clients, run_data)
        never = " (grey: unknown)" if q.isnan().any() else ""
        title = f"How alike the clients are{some_shown(run_data)}{never}"
        axes.set_title(f"{title};\nframes: {_frames(run_data)}")
    return path.with_suffix(".png")


def draw_clusters(results: Results, place: Place) -> Path | None:
    """Who was grouped with whom in a run: found below the diagonal, true above it."""
    run_data, path = clustering_run(results), place("clusters")
    if run_data is None:
        return None
    clients = run_data.ordered_clients
    found = run_data.grouped_together()
    true_clusters = [run_data.true_clusters[client] for client in clients]
    has_truth = None not in true_clusters
    if has_truth:
        labels = torch.tensor(true_clusters)
        found = torch.where(torch.ones_like(found).triu(1) > 0, labels[:, None] == labels, found)
    with figure(path, 6.0, 5.2) as drawing:
        axes = drawing.subplots()
        image = heat_map(axes, found.numpy())
        drawing.colorbar(image, ax=axes, label="part of their common rounds", shrink=0.85)
        _mark_clients(axes, clients, run_data)
        axes.set_title(_clusters_title(run_data, has_truth, bool(found.isnan().any())))
    return path.with_suffix(".png")


def draw_convergence(results: Results, place: Place) -> Path | None:
    """Mean squared error against the matrix that all observations of a run make."""
    path, styles = place("convergence"), looks([group.name for group in results.groups])
    told = [(group, [c for s in group.runs if (c := s.convergence)]) for group in results.groups]
    if not any(found for _, found in told):
        return None
    with figure(path, 6.4, 3.6) as drawing:
        axes = drawing.subplots()
        for (group, found), look in zip(told, styles, strict=True):
            if found:
                rounds = min((each.rounds for each in found), key=len)
                for name, ls in (("transitive", "-"), ("standard", (0, (4, 1.5)))):
                    if not getattr(found[0], name):  # it estimates nothing
                        continue
                    values = np.mean([getattr(each, name)[: len(rounds)] for each in found], axis=0)
                    label = "with" if name == "transitive" else "without"
                    text = f"{shown(group.label)}, {label} transitive learning"
                    axes.plot(rounds, values, color=look.colour, ls=ls, label=text)
        axes.set(xlabel="round", ylabel="mean squared error", xlim=(1, None))
        axes.set_ylim(0, None)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        choice = next((s.choice for s in results.runs if s.choice), "")
        among = f"\namong pairs of {choice}" if choice else ""
        title = f"Distance of the similarity matrix to the one at the end{among}"
        axes.set_title(title, fontsize=10)
    return path.with_suffix(".png")


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


def _clusters_title(run_data: RunData, has_truth: bool, has_strangers: bool) -> str:
    side = "Below the diagonal: g" if has_truth else "G"
    above = f";{chr(10) if run_data.choice else ' '}above it: the truth" if has_truth else ""
    never = "\n(grey: never took part together)" if has_strangers else ""
    some = f"; {run_data.choice}" if run_data.choice else ""
    return f"{side}rouped together by {shown(run_data.label)}{above}{some}{never}"


def _mark_clients(axes: Axes, clients: Sequence[ClientId], run_data: RunData) -> None:
    """Names of the clients (not too many), and a frame around each cluster."""
    step = -(-len(clients) // 25)
    places = range(0, len(clients), step)
    names = [shown(clients[place]) for place in places]
    long = max(map(len, names)) > 3
    axes.set_xticks(places, names, rotation=90 if long else 0, size=8)
    axes.set_yticks(places, names, size=8)
    axes.set(xlabel="client", ylabel="client")
    labels = [_cluster_of(client, run_data) for client in clients]
    borders = [n for n in range(len(labels)) if n == 0 or labels[n] != labels[n - 1]]
    for start, stop in zip(borders, [*borders[1:], len(labels)], strict=True):
        corner, side = start - 0.5, stop - start
        axes.add_patch(Rectangle((corner, corner), side, side, fill=False, color="white", lw=1.5))


def some_shown(run_data: RunData) -> str:
    """What to add to a title if not all clients are shown."""
    return f": {run_data.choice}" if run_data.choice else ""


def clustering_run(results: Results) -> RunData | None:
    """The first run whose method told clusters, if any did."""
    return next((run_data for run_data in results.runs if run_data.tells_clusters), None)


def similarity_run(results: Results) -> RunData | None:
    """The first run whose method told how alike clients are, if any did."""
    return next((run_data for run_data in results.runs if run_data.tells_similarity), None)


def _cluster_of(client: ClientId, run_data: RunData) -> int:
    expected = run_data.true_clusters[client]
    return run_data.found_clusters[client] if expected is None else expected


def _frames(run_data: RunData) -> str:
    return "found clusters" if None in run_data.true_clusters.values() else "true clusters"


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
