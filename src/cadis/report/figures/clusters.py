"""Clusters: who is like whom, who was grouped with whom, how that formed, and who had a say."""

from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from cadis.algorithm.methods.cadis import rescale
from cadis.analysis import Group, Results, RunData, frames, steady
from cadis.report import style
from cadis.types import ClientId

_COLUMNS = 60
_NAMES = 25  # so many clients have their names along an axis; of more, the clusters have
_LEAST_WIDTH = 6.4
_BAR = 0.09  # inches that a bar has at least
_CAPTION = (
    "An equal share is 1/{}. Bars are means of all rounds: in a round in which nobody of a cluster "
    "takes part, or all its updates are left out, it has no share. The marks are means of the "
    "rounds in which somebody does; they differ by the samples n_i of the participants, by which "
    "all weigh (CADIS: divided by the participants of the cluster)."
)


def draw_similarity(results: Results) -> Figure | None:
    """Draw the Q-matrix at the end of a run, clients of one cluster side by side."""
    run_data = _first(results, lambda run: run.tells_similarity)
    if run_data is None or run_data.matrix is None:
        return None
    order = run_data.matrix.index_of(run_data.ordered_clients)
    q = rescale(run_data.matrix.mean, run_data.matrix.known)[order[:, None], order]
    never = "; grey: unknown" if q.isnan().any() else ""
    title = f"How alike the clients are{_whose(run_data, results)}"
    title = f"{title}\nframes: {_frames(run_data)}{never}"
    return _draw_matrix(run_data, q, "Q: 1 is alike, 0 is least alike", title)


def draw_clusters(results: Results) -> Figure | None:
    """Draw who was grouped with whom in a run: found below the diagonal, true above it."""
    run_data = _first(results, lambda run: run.tells_clusters)
    if run_data is None:
        return None
    found, sides = run_data.grouped_together(), "as found"
    true_clusters = [run_data.true_clusters[client] for client in run_data.ordered_clients]
    if None not in true_clusters:
        labels = torch.tensor(true_clusters)
        found = torch.where(torch.ones_like(found).triu(1) > 0, labels[:, None] == labels, found)
        sides = "below the diagonal: found; above it: the truth"
    never = "; grey: never met" if found.isnan().any() else ""
    title = f"Who was grouped together{_whose(run_data, results)}\n{sides}{never}"
    return _draw_matrix(run_data, found, "part of their common rounds", title)


def draw_convergence(results: Results) -> Figure | None:
    """Draw the mean squared error against the matrix that all observations of a run make."""
    drawing, axes = style.new_axes()
    for group, look in style.styled_groups(results):
        found = [c for run_data in group.runs if (c := run_data.convergence)]
        rounds = min((each.rounds for each in found), key=len, default=[])
        kinds = {
            "with": ([each.transitive for each in found], "-"),
            "without": ([each.standard for each in found], (0, (4, 1.5))),
        }
        for kind, (errors, ls) in kinds.items():
            if found and errors[0]:  # else it estimates nothing
                values = np.mean([own[: len(rounds)] for own in errors], axis=0)
                text = f"{style.label_of(group)}, {kind} transitive learning"
                axes.plot(rounds, values, color=look.colour, ls=ls, label=text)
    if not axes.get_lines():
        return None
    style.round_axis(axes, results.longest)
    axes.set(ylabel="mean squared error", ylim=(0, None))
    axes.grid(alpha=0.3)
    style.legend_of_lines(drawing)
    choice = next((s.choice for s in results.runs if s.choice), "")
    among = f"\namong pairs of {choice}" if choice else ""
    style.head(drawing, f"Distance of the similarity matrix to the one at the end{among}")
    return drawing


def draw_flow(results: Results) -> Figure | None:
    """Draw the clusters found in a run, round by round; a cluster keeps its colour."""
    run_data = _first(results, lambda run: run.tells_clusters)
    rounds, found = ([], []) if run_data is None else flow(run_data)
    if run_data is None or len(run_data.history) < 2 or not rounds:
        return None
    clients = run_data.ordered_clients
    colours = [
        [to_rgb(style.cluster_colour(own[c]) if c in own else style.UNKNOWN) for own in found]
        for c in clients
    ]
    drawing, axes = style.new_axes(6.4, min(8.6, 1.4 + 0.16 * len(clients)))
    axes.imshow(np.array(colours), aspect="auto", interpolation="nearest")
    _name_clients(axes.yaxis, run_data)
    ticks = range(len(rounds) - 1, -1, -max(1, len(rounds) // 10))
    numbers = [f"{rounds[tick]}\n{len(set(found[tick].values()))}" for tick in ticks]
    axes.set_xticks(ticks, numbers)
    room = "" if len(rounds) == rounds[-1] - rounds[0] + 1 else " (early ones have more room)"
    axes.set(xlabel=f"round{room}, and the number of clusters after it")
    title = f"How the clusters formed{_whose(run_data, results)}"
    style.head(drawing, f"{title}\na colour is one cluster; grey: not seen yet")
    return drawing


def flow(run_data: RunData) -> tuple[list[int], list[dict[ClientId, int]]]:
    """Return some rounds, and the cluster of each client seen by then, under numbers that stay."""
    wanted = set(np.geomspace(1, len(run_data.history), _COLUMNS).round().astype(int).tolist())
    told = list(frames(run_data.history, wanted, run_data.gamma, run_data.looked_at))
    found = steady([frame.labels for frame in told], run_data.true_clusters)
    return [frame.record.round for frame in told], found


def _first(results: Results, has: Callable[[RunData], bool]) -> RunData | None:
    return next(filter(has, results.runs), None)


def _draw_matrix(run_data: RunData, values: Tensor, label: str, title: str) -> Figure:
    """Draw shares by pairs of clients, named along both axes, with a frame around each cluster."""
    drawing, axes = style.new_axes(6.0, 4.8)
    drawing.colorbar(style.heat_map(axes, values.numpy()), ax=axes, label=label, shrink=0.85)
    _name_clients(axes.xaxis, run_data)
    _name_clients(axes.yaxis, run_data)
    for _, start, stop in _blocks(run_data):
        corner, side = start - 0.5, stop - start
        axes.add_patch(Rectangle((corner, corner), side, side, fill=False, color="white", lw=1.5))
    style.head(drawing, title)
    return drawing


def _name_clients(axis: Axis, run_data: RunData) -> None:
    """Names of clients along an axis; of too many, those of their clusters, if these are fewer."""
    clients, blocks = run_data.ordered_clients, _blocks(run_data)
    if len(clients) <= _NAMES:
        places, names, what = list(range(len(clients))), list(map(style.shown, clients)), "client"
    elif len(blocks) <= _NAMES:
        places = [(start + stop - 1) // 2 for _, start, stop in blocks]
        names = [f"{label} ({stop - start})" for label, start, stop in blocks]
        what = f"{_frames(run_data).removesuffix('s')} (clients)"
    else:
        places = list(range(0, len(clients), -(-len(clients) // _NAMES)))
        names, what = [style.shown(clients[place]) for place in places], "client, some named"
    turned = 90 if isinstance(axis, XAxis) and max(map(len, names)) > 3 else 0
    axis.set_ticks(places, names, rotation=turned, size=8)
    axis.set_label_text(what)


def _blocks(run_data: RunData) -> list[tuple[int, int, int]]:
    """The clusters that stand side by side: label, first place, and the place after the last."""
    true, found = run_data.true_clusters, run_data.found_clusters
    clients = run_data.ordered_clients
    labels = [found[c] if (label := true[c]) is None else label for c in clients]
    borders = [n for n in range(len(labels)) if n == 0 or labels[n] != labels[n - 1]]
    ends = [*borders[1:], len(labels)]
    return [(labels[start], start, stop) for start, stop in zip(borders, ends, strict=True)]


def _whose(run_data: RunData, results: Results) -> str:
    """Whose clusters they are, for a title: the method, the seed, and whom of many clients."""
    some = f"; {run_data.choice}" if run_data.choice else ""
    return f": {style.shown(run_data.label)}{style.name_seed(run_data, results)}{some}"


def _frames(run_data: RunData) -> str:
    return "found clusters" if None in run_data.true_clusters.values() else "true clusters"


def draw_cluster_weights(results: Results) -> Figure | None:
    """Draw the share that each true cluster had in the global model, mean over the rounds."""
    told = [(group, look) for group, look in style.styled_groups(results) if cluster_weights(group)]
    if not told:
        return None
    sizes = Counter(results.runs[0].true_clusters.values())
    clusters = sorted({label for group, _ in told for label in cluster_weights(group)})
    width = max(_LEAST_WIDTH, 1.2 + _BAR * (len(told) + 1) * len(clusters))
    drawing, axes = style.new_axes(min(24.0, width), 3.0)
    handles: dict[str, Artist] = {}
    bar = 0.8 / len(told)
    for number, (group, look) in enumerate(told):
        places = np.arange(len(clusters)) + (number - (len(told) - 1) / 2) * bar
        shares, present = cluster_weights(group), cluster_weights(group, present_only=True)
        axes.bar(places, [shares[label] for label in clusters], 0.95 * bar, color=look.colour)
        size = min(14.0, 300.0 * bar / len(clusters))
        marks = [present[label] for label in clusters]
        axes.plot(places, marks, "_", color="black", ms=size, mew=1.5)
        handles[style.label_of(group)] = Patch(color=look.colour)
    equal = axes.axhline(1 / len(clusters), color="black", lw=0.8, ls=(0, (4, 2)))
    names = [f"{label}\n{sizes[label]} client{'s' * (sizes[label] != 1)}" for label in clusters]
    axes.set_xticks(range(len(clusters)), names, rotation=90 if len(clusters) > 8 else 0, size=8)
    axes.set(xlabel="true cluster", ylabel="share in the global model")
    handles["when it took part"] = Line2D([], [], marker="_", color="black", ls="", mew=1.5)
    handles["equal share"] = equal
    style.legend_below(drawing, handles, _CAPTION.format(len(clusters)))
    seeds = " and seeds" if max(len(group.runs) for group, _ in told) > 1 else ""
    style.head(
        drawing, f"The voice of each cluster: its share in the model, mean over rounds{seeds}"
    )
    return drawing


def cluster_weights(group: Group, present_only: bool = False) -> dict[int, float]:
    """Return, by true cluster, the mean of what its participants weighed together.

    Nothing without true clusters, and where there is not one global model to weigh in.

    Args:
        group: whose runs.
        present_only: whether only the rounds count in which anybody of the cluster took part.
    """
    if group.is_reference or not all(map(_has_cluster_weights, group.runs)):
        return {}
    rounds = [shares for run_data in group.runs for shares in _shares(run_data)]
    labels = sorted({int(label or 0) for run in group.runs for label in run.true_clusters.values()})
    found: dict[int, float] = {}
    for label in labels:
        told = [shares[label] for shares in rounds if label in shares]
        found[label] = sum(told) / max(1, len(told) if present_only else len(rounds))
    return found


def _has_cluster_weights(run_data: RunData) -> bool:
    labels = set(run_data.true_clusters.values())
    return None not in labels and len(labels) > 1 and not run_data.history[-1].models


def _shares(run_data: RunData) -> list[dict[int, float]]:
    """Return what the participants of each true cluster weighed together in each round."""
    rounds = []
    for record in run_data.history:
        shares: dict[int, float] = defaultdict(float)
        for client, weight in zip(record.participants, record.weights, strict=True):
            shares[int(run_data.true_clusters[client] or 0)] += weight
        rounds.append(shares)
    return rounds
