"""Figures of clusters: similarity, clusters over rounds, and weight of each cluster."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray
from torch import Tensor

from cadis.algorithm.methods.cadis import compute_q_matrix
from cadis.analysis import (
    Group,
    Results,
    RunData,
    align_cluster_labels,
    find_departures,
    replay_frames,
)
from cadis.report import style
from cadis.server import RoundRecord
from cadis.store import get_confidence
from cadis.types import ClientId

_MAX_COLUMNS = 60  # rounds in the figure of clusters over rounds
_MAX_NAMES = 25  # clients that are named along an axis; if there are more, clusters are named
_MIN_WIDTH = 6.4  # inches
_MIN_BAR = 0.09  # inches
_THIN = 0.9  # inches, height of the panel of the confidence
_PALE = 0.35  # saturation of the colors of clients that are absent for long
_CAPTION = (
    "Bars: mean over all rounds; a cluster without participants in a round has weight 0 in it. "
    "Black marks: mean over the rounds in which the cluster has participants. "
    "Dashed line: equal weights (1/{}). FedAvg weighs a client by its number of samples; "
    "CADIS divides this by the number of participants in its cluster."
)


def draw_similarity(results: Results) -> Figure | None:
    """Draw the Q-matrix after the last round, with clients sorted by cluster."""
    run_data = _first(results, lambda run: run.has_similarity)
    if run_data is None or run_data.matrix is None:
        return None
    order = run_data.matrix.find_rows(run_data.client_order)
    q = compute_q_matrix(run_data.matrix.mean, run_data.matrix.known)[order[:, None], order]
    unknown = "; gray: unknown" if q.isnan().any() else ""
    title = f"Similarity of clients{_describe_run(run_data, results)}"
    title = f"{title}\nwhite frames: {_get_frame_name(run_data)}{unknown}"
    return _draw_matrix(run_data, q, "similarity Q (0: lowest, 1: highest)", title)


def draw_clusters(results: Results) -> Figure | None:
    """Draw found clusters below the diagonal, and true clusters above it."""
    run_data = _first(results, lambda run: run.has_clusters)
    if run_data is None:
        return None
    shares, halves = run_data.compute_coassociation(), "clusters found by the server"
    true_clusters = [run_data.true_clusters[client] for client in run_data.client_order]
    if None not in true_clusters:
        labels = torch.tensor(true_clusters)
        is_upper = torch.ones_like(shares).triu(1) > 0
        shares = torch.where(is_upper, labels[:, None] == labels, shares)
        halves = "below the diagonal: found clusters; above: true clusters"
    unknown = "; gray: never in the same round" if shares.isnan().any() else ""
    title = f"Pairs of clients in the same cluster{_describe_run(run_data, results)}"
    title = f"{title}\n{halves}{unknown}"
    return _draw_matrix(run_data, shares, "fraction of common rounds in the same cluster", title)


def draw_convergence(results: Results) -> Figure | None:
    """Draw the error of the similarity matrix against the mean of all observations of a run."""
    drawing, axes = style.new_axes()
    for group, line_style in style.get_group_styles(results):
        curves = [c for run_data in group.runs if (c := run_data.convergence)]
        rounds = min((curve.rounds for curve in curves), key=len, default=[])
        kinds = {
            "with": ([curve.transitive for curve in curves], "solid"),
            "without": ([curve.standard for curve in curves], "dashed"),
        }
        for kind, (errors, dash) in kinds.items():
            if curves and errors[0]:  # empty for methods without transitive estimates
                values = np.mean([error[: len(rounds)] for error in errors], axis=0)
                text = f"{style.get_legend_label(group)}, {kind} transitive learning"
                ls = style.DASHES[dash]
                axes.plot(rounds, values, color=line_style.color, ls=ls, label=text)
    if not axes.get_lines():
        return None
    style.set_round_axis(axes, results.max_rounds)
    axes.set(ylabel="mean squared error", ylim=(0, None))
    axes.grid(alpha=0.3)
    style.add_line_legend(drawing)
    sample = next((run.sample_text for run in results.runs if run.sample_text), "")
    pairs = f"\ncomputed from the pairs among {sample}" if sample else ""
    title = "Error of the similarity matrix, compared with the mean of all observations"
    style.add_title(drawing, f"{title}{pairs}")
    return drawing


def draw_flow(results: Results) -> Figure | None:
    """Draw the cluster of each client over rounds, and the confidence that there are clusters.

    A cluster keeps its color.
    """
    run_data = _first(results, lambda run: run.has_clusters)
    records, clusters = ([], []) if run_data is None else compute_flow(run_data)
    if run_data is None or len(run_data.history) < 2 or not records:
        return None
    confidences = [get_confidence(record) for record in records]
    has_confidence = any(value is not None for value in confidences)
    heights = [min(8.6, 1.4 + 0.16 * len(run_data.client_order)), *[_THIN] * has_confidence]
    drawing = style.new_figure(_MIN_WIDTH, sum(heights))
    axes, *panels = drawing.subplots(
        len(heights), sharex=True, squeeze=False, height_ratios=heights
    ).flat
    colors, marks = _color_flow(run_data, records, clusters)
    axes.imshow(colors, aspect="auto", interpolation="nearest")
    _name_clients(axes.yaxis, run_data)
    for panel in panels:
        has_clusters = [len(set(by_client.values())) > 1 for by_client in clusters]
        _draw_confidence(panel, confidences, has_clusters)
        marks += "" if all(has_clusters) else "; white bar: no clusters found"
    ticks = range(len(records) - 1, -1, -max(1, len(records) // 10))
    labels = [f"{records[tick].round}\n{len(set(clusters[tick].values()))}" for tick in ticks]
    drawing.axes[-1].set_xticks(ticks, labels)
    is_linear = len(records) == records[-1].round - records[0].round + 1
    scale = "" if is_linear else ", logarithmic"
    drawing.axes[-1].set_xlabel(f"round (above{scale}) and number of clusters (below)")
    title = f"Clusters found by the server over rounds{_describe_run(run_data, results)}"
    style.add_title(drawing, f"{title}\n{marks}")
    return drawing


def compute_flow(run_data: RunData) -> tuple[list[RoundRecord], list[dict[ClientId, int]]]:
    """Return some rounds and, for each, the cluster of each client that has taken part so far."""
    count = len(run_data.history)
    rounds = set(np.geomspace(1, count, _MAX_COLUMNS).round().astype(int).tolist())
    frames = list(replay_frames(run_data.history, rounds, run_data.gamma, run_data.sampled_clients))
    clusters = align_cluster_labels([frame.labels for frame in frames], run_data.true_clusters)
    return [frame.record for frame in frames], clusters


def _color_flow(
    run_data: RunData, records: Sequence[RoundRecord], clusters: Sequence[Mapping[ClientId, int]]
) -> tuple[NDArray[np.float64], str]:
    """Return the color of each client in each round, (clients, rounds, 3), and their meaning."""
    colors = np.full((len(run_data.client_order), len(records), 3), to_rgb(style.UNKNOWN))
    departures = find_departures(run_data.history)
    for row, client in enumerate(run_data.client_order):
        for column, (record, by_client) in enumerate(zip(records, clusters, strict=True)):
            if client in by_client:
                colors[row, column] = to_rgb(style.get_cluster_color(by_client[client]))
            if record.round > departures.get(client, record.round):
                colors[row, column] = 1 - _PALE * (1 - colors[row, column])
    meaning = "one color per cluster; gray: has not taken part yet"
    is_pale = not departures.keys().isdisjoint(run_data.client_order)
    return colors, meaning + "; pale: absent for long" * is_pale


def _draw_confidence(
    axes: Axes, confidences: Sequence[float | None], has_clusters: Sequence[bool]
) -> None:
    """Draw the confidence in each round as a bar, which is white if no clusters were found."""
    heights = [0.0 if value is None else value for value in confidences]
    fills = [style.ALONE if found else "white" for found in has_clusters]
    axes.bar(range(len(heights)), heights, 0.8, color=fills, edgecolor=style.ALONE, lw=0.8)
    limits = {"xlim": (-0.5, len(heights) - 0.5), "ylim": (0, 1)}
    axes.set(ylabel="confidence", yticks=[0, 0.5, 1], **limits)


def _first(results: Results, has: Callable[[RunData], bool]) -> RunData | None:
    return next(filter(has, results.runs), None)


def _draw_matrix(run_data: RunData, values: Tensor, label: str, title: str) -> Figure:
    """Draw fractions for pairs of clients, with a frame around each cluster."""
    drawing, axes = style.new_axes(6.0, 4.8)
    drawing.colorbar(style.draw_heat_map(axes, values.numpy()), ax=axes, label=label, shrink=0.85)
    _name_clients(axes.xaxis, run_data)
    _name_clients(axes.yaxis, run_data)
    for _, start, stop in _find_blocks(run_data):
        corner, side = start - 0.5, stop - start
        axes.add_patch(Rectangle((corner, corner), side, side, fill=False, color="white", lw=1.5))
    style.add_title(drawing, title)
    return drawing


def _name_clients(axis: Axis, run_data: RunData) -> None:
    """Label an axis with clients; with clusters if there are too many clients."""
    clients, blocks = run_data.client_order, _find_blocks(run_data)
    if len(clients) <= _MAX_NAMES:
        ticks, names, title = list(range(len(clients))), list(map(style.shorten, clients)), "client"
    elif len(blocks) <= _MAX_NAMES:
        ticks = [(start + stop - 1) // 2 for _, start, stop in blocks]
        names = [f"{label} ({stop - start})" for label, start, stop in blocks]
        title = f"{_get_frame_name(run_data).removesuffix('s')} (number of clients)"
    else:
        ticks = list(range(0, len(clients), -(-len(clients) // _MAX_NAMES)))
        names, title = [style.shorten(clients[tick]) for tick in ticks], "client (some are named)"
    rotation = 90 if isinstance(axis, XAxis) and max(map(len, names)) > 3 else 0
    axis.set_ticks(ticks, names, rotation=rotation, size=8)
    axis.set_label_text(title)


def _find_blocks(run_data: RunData) -> list[tuple[int, int, int]]:
    """Return label, first index and end index of each cluster in the order of clients."""
    true, estimated = run_data.true_clusters, run_data.cluster_estimates
    clients = run_data.client_order
    labels = [estimated[c] if (label := true[c]) is None else label for c in clients]
    borders = [n for n in range(len(labels)) if n == 0 or labels[n] != labels[n - 1]]
    ends = [*borders[1:], len(labels)]
    return [(labels[start], start, stop) for start, stop in zip(borders, ends, strict=True)]


def _describe_run(run_data: RunData, results: Results) -> str:
    """Return method, seed and sample of clients for a title."""
    sample = f" ({run_data.sample_text})" if run_data.sample_text else ""
    return f": {style.shorten(run_data.label)}{style.format_seed(run_data, results)}{sample}"


def _get_frame_name(run_data: RunData) -> str:
    return "found clusters" if None in run_data.true_clusters.values() else "true clusters"


def draw_cluster_weights(results: Results) -> Figure | None:
    """Draw the weight of each true cluster in the global model, mean over rounds."""
    pairs = style.get_group_styles(results)
    groups = [(group, line.color) for group, line in pairs if compute_cluster_weights(group)]
    if not groups:
        return None
    sizes = Counter(results.runs[0].true_clusters.values())
    clusters = sorted({label for group, _ in groups for label in compute_cluster_weights(group)})
    width = max(_MIN_WIDTH, 1.2 + _MIN_BAR * (len(groups) + 1) * len(clusters))
    drawing, axes = style.new_axes(min(24.0, width), 3.0)
    handles: dict[str, Artist] = {}
    bar = 0.8 / len(groups)
    for index, (group, color) in enumerate(groups):
        x = np.arange(len(clusters)) + (index - (len(groups) - 1) / 2) * bar
        weights = compute_cluster_weights(group)
        present = compute_cluster_weights(group, present_only=True)
        axes.bar(x, [weights[label] for label in clusters], 0.95 * bar, color=color)
        size = min(14.0, 300.0 * bar / len(clusters))
        axes.plot(x, [present[c] for c in clusters], "_", color="black", ms=size, mew=1.5)
        handles[style.get_legend_label(group)] = Patch(color=color)
    equal = axes.axhline(1 / len(clusters), color="black", lw=0.8, ls=(0, (4, 2)))
    names = [f"{label}\n{sizes[label]} client{'s' * (sizes[label] != 1)}" for label in clusters]
    axes.set_xticks(range(len(clusters)), names, rotation=90 if len(clusters) > 8 else 0, size=8)
    axes.set(xlabel="true cluster", ylabel="weight in the global model")
    handles["in rounds with participants"] = Line2D(
        [], [], marker="_", color="black", ls="", mew=1.5
    )
    handles["equal weight"] = equal
    style.add_legend(drawing, handles, _CAPTION.format(len(clusters)))
    seeds = " and seeds" if max(len(group.runs) for group, _ in groups) > 1 else ""
    style.add_title(drawing, f"Weight of each cluster in the global model, mean over rounds{seeds}")
    return drawing


def compute_cluster_weights(group: Group, present_only: bool = False) -> dict[int, float]:
    """Return the total weight of the participants of each true cluster, mean over rounds.

    Args:
        group: runs of one method.
        present_only: whether to average only over rounds in which the cluster has participants.

    Returns:
        Weight by cluster; empty without true clusters, and for methods with several models.
    """
    if group.is_reference or not all(map(_has_cluster_weights, group.runs)):
        return {}
    rounds = [shares for run_data in group.runs for shares in _sum_weights(run_data)]
    labels = sorted({int(label or 0) for run in group.runs for label in run.true_clusters.values()})
    weights: dict[int, float] = {}
    for label in labels:
        present = [shares[label] for shares in rounds if label in shares]
        weights[label] = sum(present) / max(1, len(present) if present_only else len(rounds))
    return weights


def _has_cluster_weights(run_data: RunData) -> bool:
    labels = set(run_data.true_clusters.values())
    return None not in labels and len(labels) > 1 and not run_data.history[-1].models


def _sum_weights(run_data: RunData) -> list[dict[int, float]]:
    """Return the total weight of the participants of each true cluster, by round."""
    rounds = []
    for record in run_data.history:
        shares: dict[int, float] = defaultdict(float)
        for client, weight in zip(record.participants, record.weights, strict=True):
            shares[int(run_data.true_clusters[client] or 0)] += weight
        rounds.append(shares)
    return rounds
