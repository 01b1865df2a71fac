"""Clusters: who is like whom, who was grouped with whom, and how that formed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from cadis.algorithm.methods.cadis import rescale
from cadis.analysis import Results, RunData, frames, steady
from cadis.report.figures.labels import label_of, legend_of_lines, seed_named
from cadis.report.style import (
    UNKNOWN,
    Place,
    cluster_colour,
    figure,
    head,
    heat_map,
    looks,
    round_axis,
    shown,
)
from cadis.types import ClientId

_COLUMNS = 60
_NAMES = 25
"""So many clients have their names along an axis; of more, the clusters have."""


def draw_similarity(results: Results, place: Place) -> Path | None:
    """The Q-matrix at the end of a run, clients of one cluster side by side."""
    run_data, path = similarity_run(results), place("similarity")
    if run_data is None or run_data.matrix is None:
        return None
    order = run_data.matrix.index_of(run_data.ordered_clients)
    q = rescale(run_data.matrix.mean, run_data.matrix.known)[order[:, None], order]
    with figure(path, 6.0, 4.8) as drawing:
        axes = drawing.subplots()
        image = heat_map(axes, q.numpy())
        drawing.colorbar(image, ax=axes, label="Q: 1 is alike, 0 is least alike", shrink=0.85)
        _mark_clients(axes, run_data.ordered_clients, run_data)
        never = "; grey: unknown" if q.isnan().any() else ""
        title = f"How alike the clients are{_whose(run_data, results)}"
        head(drawing, f"{title}\nframes: {_frames(run_data)}{never}")
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
    with figure(path, 6.0, 4.8) as drawing:
        axes = drawing.subplots()
        image = heat_map(axes, found.numpy())
        drawing.colorbar(image, ax=axes, label="part of their common rounds", shrink=0.85)
        _mark_clients(axes, clients, run_data)
        never = "; grey: never met" if found.isnan().any() else ""
        sides = "below the diagonal: found; above it: the truth" if has_truth else "as found"
        title = f"Who was grouped together{_whose(run_data, results)}"
        head(drawing, f"{title}\n{sides}{never}")
    return path.with_suffix(".png")


def draw_convergence(results: Results, place: Place) -> Path | None:
    """Mean squared error against the matrix that all observations of a run make."""
    path, styles = place("convergence"), looks([group.name for group in results.groups])
    told = [(group, [c for s in group.runs if (c := s.convergence)]) for group in results.groups]
    if not any(found for _, found in told):
        return None
    with figure(path, 6.4, 3.2) as drawing:
        axes = drawing.subplots()
        for (group, found), look in zip(told, styles, strict=True):
            if found:
                rounds = min((each.rounds for each in found), key=len)
                for name, ls in (("transitive", "-"), ("standard", (0, (4, 1.5)))):
                    if not getattr(found[0], name):  # it estimates nothing
                        continue
                    values = np.mean([getattr(each, name)[: len(rounds)] for each in found], axis=0)
                    label = "with" if name == "transitive" else "without"
                    text = f"{label_of(group)}, {label} transitive learning"
                    axes.plot(rounds, values, color=look.colour, ls=ls, label=text)
        round_axis(axes, max(len(run_data.history) for run_data in results.runs))
        axes.set(ylabel="mean squared error", ylim=(0, None))
        axes.grid(alpha=0.3)
        legend_of_lines(drawing)
        choice = next((s.choice for s in results.runs if s.choice), "")
        among = f"\namong pairs of {choice}" if choice else ""
        head(drawing, f"Distance of the similarity matrix to the one at the end{among}")
    return path.with_suffix(".png")


def draw_flow(results: Results, place: Place) -> Path | None:
    """The clusters found in a run, round by round; a cluster keeps its colour."""
    run_data, path = clustering_run(results), place("flow")
    if run_data is None or len(run_data.history) < 2:
        return None
    rounds, found = flow(run_data)
    if not rounds:
        return None
    clients = run_data.ordered_clients
    colours = [
        [to_rgb(cluster_colour(own[c]) if c in own else UNKNOWN) for own in found] for c in clients
    ]
    with figure(path, 6.4, min(8.6, 1.4 + 0.16 * len(clients))) as drawing:
        axes = drawing.subplots()
        axes.imshow(np.array(colours), aspect="auto", interpolation="nearest")
        _name_clients(axes.yaxis, clients, run_data)
        ticks = range(len(rounds) - 1, -1, -max(1, len(rounds) // 10))
        numbers = [f"{rounds[tick]}\n{len(set(found[tick].values()))}" for tick in ticks]
        axes.set_xticks(ticks, numbers)
        room = "" if len(rounds) == rounds[-1] - rounds[0] + 1 else " (early ones have more room)"
        axes.set(xlabel=f"round{room}, and the number of clusters after it")
        title = f"How the clusters formed{_whose(run_data, results)}"
        head(drawing, f"{title}\na colour is one cluster; grey: not seen yet")
    return path.with_suffix(".png")


def flow(run_data: RunData) -> tuple[list[int], list[dict[ClientId, int]]]:
    """Some rounds, and the cluster of each client seen by then, under numbers that stay."""
    wanted = set(np.geomspace(1, len(run_data.history), _COLUMNS).round().astype(int).tolist())
    told = list(frames(run_data.history, wanted, run_data.gamma, run_data.looked_at))
    labels = [dict(zip(frame.clients, frame.found.tolist(), strict=True)) for frame in told]
    return [frame.record.round for frame in told], steady(labels, run_data.true_clusters)


def _mark_clients(axes: Axes, clients: Sequence[ClientId], run_data: RunData) -> None:
    """Names along both axes, and a frame around each cluster."""
    _name_clients(axes.xaxis, clients, run_data)
    _name_clients(axes.yaxis, clients, run_data)
    for _, start, stop in _blocks(clients, run_data):
        corner, side = start - 0.5, stop - start
        axes.add_patch(Rectangle((corner, corner), side, side, fill=False, color="white", lw=1.5))


def _name_clients(axis: Axis, clients: Sequence[ClientId], run_data: RunData) -> None:
    """Names of clients along an axis; of too many, those of their clusters, if these are fewer."""
    blocks = _blocks(clients, run_data)
    if len(clients) <= _NAMES:
        places, names, what = list(range(len(clients))), list(map(shown, clients)), "client"
    elif len(blocks) <= _NAMES:
        places = [(start + stop - 1) // 2 for _, start, stop in blocks]
        names = [f"{label} ({stop - start})" for label, start, stop in blocks]
        what = f"{_frames(run_data).removesuffix('s')} (clients)"
    else:
        places = list(range(0, len(clients), -(-len(clients) // _NAMES)))
        names, what = [shown(clients[place]) for place in places], "client, some named"
    turned = 90 if isinstance(axis, XAxis) and max(map(len, names)) > 3 else 0
    axis.set_ticks(places, names, rotation=turned, size=8)
    axis.set_label_text(what)


def _blocks(clients: Sequence[ClientId], run_data: RunData) -> list[tuple[int, int, int]]:
    """The clusters that stand side by side: label, first place, and the place after the last."""
    labels = [_cluster_of(client, run_data) for client in clients]
    borders = [n for n in range(len(labels)) if n == 0 or labels[n] != labels[n - 1]]
    ends = [*borders[1:], len(labels)]
    return [(labels[start], start, stop) for start, stop in zip(borders, ends, strict=True)]


def _whose(run_data: RunData, results: Results) -> str:
    """Whose clusters they are, for a title: the method, the seed, and whom of many clients."""
    some = f"; {run_data.choice}" if run_data.choice else ""
    return f": {shown(run_data.label)}{seed_named(run_data, results)}{some}"


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
