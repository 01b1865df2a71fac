"""Who is like whom, how soon that is known, and who was grouped with whom."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from cadis.analysis import Results, RunData
from cadis.core import ClientId, rescale
from cadis.report.style import UNKNOWN, Place, figure, looks, shown


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


def _clusters_title(run_data: RunData, has_truth: bool, has_strangers: bool) -> str:
    side = "Below the diagonal: g" if has_truth else "G"
    above = f";{chr(10) if run_data.choice else ' '}above it: the truth" if has_truth else ""
    never = "\n(grey: never took part together)" if has_strangers else ""
    some = f"; {run_data.choice}" if run_data.choice else ""
    return f"{side}rouped together by {shown(run_data.label)}{above}{some}{never}"


def heat_map(axes: Axes, values: NDArray[np.float64]) -> AxesImage:
    """Shares from 0 to 1; grey is unknown."""
    colours = colormaps["viridis"].with_extremes(bad=UNKNOWN)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")


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
