"""Who had a say in the global model."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cadis.analysis import Group, Results, RunData
from cadis.report.figures.labels import label_of
from cadis.report.style import Place, figure, head, legend_below, looks

_LEAST_WIDTH = 6.4
_BAR = 0.09
"""Inches that a bar has at least."""


def draw_cluster_weights(results: Results, place: Place) -> Path | None:
    """The share that each true cluster had in the global model, mean over the rounds."""
    told = [group for group in results.groups if cluster_weights(group)]
    if not told:
        return None
    path, sizes = place("voice"), Counter(results.runs[0].true_clusters.values())
    clusters = sorted({label for group in told for label in cluster_weights(group)})
    width = max(_LEAST_WIDTH, 1.2 + _BAR * (len(told) + 1) * len(clusters))
    with figure(path, min(24.0, width), 3.0) as drawing:
        axes = drawing.subplots()
        handles = _bars(axes, results, told, clusters)
        axes.axhline(1 / len(clusters), color="black", lw=0.8, ls=(0, (4, 2)))
        names = [f"{label}\n{sizes[label]} client{'s' * (sizes[label] != 1)}" for label in clusters]
        turned = len(clusters) > 8
        axes.set_xticks(range(len(clusters)), names, rotation=90 if turned else 0, size=8)
        axes.set(xlabel="true cluster", ylabel="share in the global model")
        point = {"marker": "_", "color": "black", "ls": "", "mew": 1.5}
        present = Line2D([], [], **point)  # type: ignore[arg-type]
        equal = Line2D([], [], color="black", lw=0.8, ls=(0, (4, 2)))
        more: dict[str, Artist] = {"when it took part": present, "equal share": equal}
        legend_below(drawing, handles | more, _caption(len(clusters)))
        seeds = " and seeds" if max(len(group.runs) for group in told) > 1 else ""
        head(drawing, f"The voice of each cluster: its share in the model, mean over rounds{seeds}")
    return path.with_suffix(".png")


def _caption(clusters: int) -> str:
    """What an equal share is, and why one is not equal."""
    return (
        f"An equal share is 1/{clusters}. Bars are means of all rounds: in a round in which nobody "
        "of a cluster takes part, or all its updates are left out, it has no share. The marks are "
        "means of the rounds in which somebody does; they differ by the samples n_i of the "
        "participants, by which all weigh (CADIS: divided by the participants of the cluster)."
    )


def _bars(
    axes: Axes, results: Results, told: Sequence[Group], clusters: Sequence[int]
) -> dict[str, Artist]:
    """A bar for each group and cluster, and a mark where its share was when it took part."""
    styles = looks([group.name for group in results.groups])
    width, handles = 0.8 / len(told), dict[str, Artist]()
    for number, group in enumerate(told):
        places = np.arange(len(clusters)) + (number - (len(told) - 1) / 2) * width
        colour = styles[results.groups.index(group)].colour
        shares, present = cluster_weights(group), cluster_weights(group, present_only=True)
        axes.bar(places, [shares[label] for label in clusters], 0.95 * width, color=colour)
        marks = [present[label] for label in clusters]
        size = min(14.0, 300.0 * width / len(clusters))
        axes.plot(places, marks, "_", color="black", ms=size, mew=1.5)
        handles[label_of(group)] = Patch(color=colour)
    return handles


def cluster_weights(group: Group, present_only: bool = False) -> dict[int, float]:
    """By true cluster, the mean of what its participants weighed together.

    Nothing without true clusters, and where there is not one global model to weigh in.

    Args:
        group: whose runs.
        present_only: whether only the rounds count in which anybody of the cluster took part.
    """
    rounds: list[dict[int, float]] = []
    for run_data in group.runs:
        if group.is_reference or not _has_cluster_weights(run_data):
            return {}
        rounds += [_shares(run_data, number) for number in range(len(run_data.history))]
    labels = sorted({int(label or 0) for run in group.runs for label in run.true_clusters.values()})
    found: dict[int, float] = {}
    for label in labels:
        told = [shares[label] for shares in rounds if label in shares]
        counted = len(told) if present_only else len(rounds)
        found[label] = sum(told) / max(1, counted)
    return found


def _has_cluster_weights(run_data: RunData) -> bool:
    labels = set(run_data.true_clusters.values())
    return None not in labels and len(labels) > 1 and not run_data.history[-1].models


def _shares(run_data: RunData, number: int) -> dict[int, float]:
    """What the participants of each true cluster weighed together in a round."""
    record, shares = run_data.history[number], dict[int, float]()
    for client, weight in zip(record.participants, record.weights, strict=True):
        label = int(run_data.true_clusters[client] or 0)
        shares[label] = shares.get(label, 0.0) + weight
    return shares
