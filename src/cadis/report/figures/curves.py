"""Accuracy over rounds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cadis.analysis import LAST_ROUNDS, Results, RunData
from cadis.report.style import DASHES, Look, Place, figure, looks, shown, shown_text
from cadis.runs import mean_accuracy

Curve = NDArray[np.float64]


def draw_accuracy(results: Results, place: Place) -> Path | None:
    """Accuracy of the global model over rounds; of a single method, on the rare classes too."""
    title = "Accuracy of the global model after each round"
    return _draw(results, place("accuracy"), title, "test accuracy", all_classes, also_rare=True)


def draw_ten_rounds(results: Results, place: Place) -> Path | None:
    """The paper's 10-round average accuracy over rounds."""
    if max(len(run_data.history) for run_data in results.runs) < 2 * LAST_ROUNDS:
        return None
    title, label = "Mean accuracy of the last 10 rounds", "10-round average accuracy"
    return _draw(
        results, place("accuracy-10-rounds"), title, label, lambda s: trailing(all_classes(s))
    )


def draw_rare(results: Results, place: Place) -> Path | None:
    """Accuracy on the classes of the smallest clusters over rounds."""
    if len(results.groups) == 1:  # it is in the first picture
        return None
    title = "Accuracy on the classes of the smallest clusters"
    return _draw(results, place("accuracy-rare"), title, "test accuracy", rare_classes)


def all_classes(run_data: RunData) -> Curve:
    """Accuracy after each round, NaN where nobody tested."""
    return np.array([record.accuracy for record in run_data.history], float)


def rare_classes(run_data: RunData) -> Curve:
    """The same on the rare classes."""
    tested = (record if record.class_accuracy else None for record in run_data.history)
    return np.array([r and mean_accuracy(r, run_data.rare) for r in tested], float)


def trailing(values: Curve, width: int = LAST_ROUNDS) -> Curve:
    """The mean of the last rounds, of fewer at the beginning."""
    return np.array([values[max(0, n - width + 1) : n + 1].mean() for n in range(len(values))])


def spread_of(curves: list[Curve]) -> tuple[Curve, Curve, Curve]:
    """Rounds that any curve has, and over the curves there the mean and the sample's deviation.

    A single curve deviates by nothing.
    """
    padded = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in enumerate(curves):
        padded[row, : len(curve)] = curve
    known = (~np.isnan(padded)).sum(axis=0)
    rounds = np.flatnonzero(known).astype(float) + 1
    padded, known = padded[:, known > 0], known[known > 0]
    mean = np.nanmean(padded, axis=0)
    squares = np.nansum((padded - mean) ** 2, axis=0)
    return rounds, mean, np.sqrt(squares / np.maximum(known - 1, 1))


def plot_spread(axes: Axes, curves: list[Curve], look: Look, label: str) -> None:
    """The mean of curves, and a band of one standard deviation; of one curve, itself."""
    rounds, mean, deviation = spread_of(curves)
    marker = "." if max(map(len, curves)) < 10 else None  # a single round is no line
    line = {"color": look.colour, "ls": DASHES[look.dash], "marker": marker}
    axes.plot(rounds, mean, **line, label=label)
    if len(curves) > 1:
        low, high = mean - deviation, mean + deviation
        axes.fill_between(rounds, low, high, color=look.colour, alpha=0.15, lw=0)


def dress(axes: Axes, rounds: int, label: str) -> None:
    """Axes of a share over rounds."""
    axes.set(xlabel="round", ylabel=label, xlim=(1, max(2, rounds)))
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.3)


def _draw(
    results: Results,
    path: Path,
    title: str,
    label: str,
    curve: Callable[[RunData], Curve],
    also_rare: bool = False,
) -> Path | None:
    """A line for each method that was tested."""
    styles = looks([group.name for group in results.groups])
    if all(np.isnan(curve(run_data)).all() for run_data in results.runs):
        return None
    with figure(path, 6.4, 3.8) as drawing:
        axes = drawing.subplots()
        for group, look in zip(results.groups, styles, strict=True):
            curves = [curve(run_data) for run_data in group.runs]
            if not all(np.isnan(values).all() for values in curves):
                plot_spread(axes, curves, look, shown(group.label))
        if also_rare and len(results.groups) == 1 and results.runs[0].rare:
            dashed = Look(styles[0].colour, "dotted")
            rare = f"classes of the smallest clusters ({shown_text(results.rare_in_words)})"
            plot_spread(axes, [rare_classes(run_data) for run_data in results.runs], dashed, rare)
        dress(axes, max(len(run_data.history) for run_data in results.runs), label)
        columns = 1 if len(results.groups) <= 8 else 2
        axes.legend(loc="lower right", fontsize=8, ncols=columns)
        seeds = max(len(group.runs) for group in results.groups)
        note = f"\nmean and standard deviation of {seeds} seeds" if seeds > 1 else ""
        axes.set_title(f"{title}{note}", fontsize=10)
    return path.with_suffix(".png")
