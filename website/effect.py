"""Draw the first figure of the README: similarity of the clients, and accuracy on rare classes.

Run ``cadis compare --methods fedavg,cadis --seeds 5 --rounds 40 --out runs/effect``, then
``python -m website.effect runs/effect docs/images/effect.png``.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cadis.algorithm.methods.cadis import compute_q_matrix
from cadis.analysis import RunData, read_results


def draw_effect(runs: Mapping[str, Sequence[RunData]]) -> Figure:
    """Draw the similarity of the clients, and beside it the accuracy of each method."""
    figure = Figure(figsize=(9, 3.4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.6])
    _draw_similarity(left, runs["CADIS"][0])
    _draw_rare_classes(right, runs)
    return figure


def _draw_similarity(axes: Axes, run_data: RunData) -> None:
    matrix = run_data.matrix
    assert matrix is not None, "the runs have no similarities"
    order = matrix.find_rows(run_data.client_order)
    q = compute_q_matrix(matrix.mean, matrix.known)[order[:, None], order]
    axes.imshow(q, vmin=0, vmax=1, cmap="viridis")
    axes.set(title="Similarity of the clients,\nestimated by the server", xticks=[], yticks=[])
    axes.set(xlabel="20 clients, sorted by true cluster")


def _draw_rare_classes(axes: Axes, runs: Mapping[str, Sequence[RunData]]) -> None:
    for label, color in (("FedAvg", "#8a93a3"), ("CADIS", "#3454d1")):
        curves = np.array([_compute_rare_accuracy(run_data) for run_data in runs[label]])
        mean, deviation = curves.mean(axis=0), curves.std(axis=0, ddof=1)
        rounds = np.arange(1, len(mean) + 1)
        axes.plot(rounds, mean, color=color, label=label)
        axes.fill_between(rounds, mean - deviation, mean + deviation, color=color, alpha=0.2, lw=0)
    title = "Accuracy on the classes of the smallest clusters,"
    title += f"\nmean and standard deviation of {len(curves)} seeds"
    axes.set(title=title, xlabel="round", ylim=(0, 1), xlim=(1, len(mean)))
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _compute_rare_accuracy(run_data: RunData) -> list[float]:
    return [fmean(r.class_accuracy[n] or 0.0 for n in run_data.rare) for r in run_data.history]


if __name__ == "__main__":
    groups = read_results([Path(sys.argv[1])]).groups
    draw_effect({group.label: group.runs for group in groups}).savefig(sys.argv[2])
