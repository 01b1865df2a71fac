"""Figures with lines over rounds or simulated time: accuracy, loss, metrics, models."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray

from cadis.analysis import LAST_ROUNDS, Results, RunData, make_time_axis, resample_at_times
from cadis.report import style
from cadis.store import compute_mean_accuracy, format_metric_name, get_scalar, list_other_scalars

Curve = NDArray[np.float64]
CurveOf = Callable[[RunData], Curve]
UNIT_RANGE = (0.0, 1.0)
"""Range of accuracies and other fractions; bands are cut to it."""
_MIN_SPAN = 0.1  # height of an axis of fractions, so that small noise does not look large
_MAX_PANELS = 12


def draw_accuracy(results: Results) -> Figure | None:
    """Draw the accuracy of the global model; for a single method, also on the rare classes."""
    drawing, axes = style.new_axes()
    _plot_groups(axes, results, get_accuracy)
    if len(results.groups) == 1 and results.runs[0].rare:
        (_, line_style), *_ = style.get_group_styles(results)
        rare = f"on rare classes ({style.shorten(results.rare_classes_text, 44)})"
        curves = [get_rare_accuracy(run_data) for run_data in results.runs]
        rare_style = style.LineStyle(line_style.color, "dotted", "s")
        plot_spread(axes, curves, rare_style, rare, UNIT_RANGE, index=1)
    return _finish(drawing, results, "Accuracy of the global model after each round")


def draw_ten_rounds(results: Results) -> Figure | None:
    """Draw the mean accuracy of the last 10 rounds, as the paper does."""
    if results.max_rounds < 2 * LAST_ROUNDS:
        return None
    drawing, axes = style.new_axes()
    _plot_groups(axes, results, lambda run_data: compute_trailing_mean(get_accuracy(run_data)))
    title, label = "Accuracy, mean of the last 10 rounds", "mean test accuracy"
    return _finish(drawing, results, title, label)


def draw_rare(results: Results) -> Figure | None:
    """Draw the accuracy on the rare classes."""
    if len(results.groups) == 1:  # the figure of accuracy shows it
        return None
    drawing, axes = style.new_axes()
    _plot_groups(axes, results, get_rare_accuracy)
    return _finish(
        drawing, results, "Accuracy on rare classes (classes that only the smallest clusters have)"
    )


def draw_accuracy_time(results: Results) -> Figure | None:
    """Draw the accuracy of the global model over simulated time, if clients have speeds."""
    timed = [run_data for run_data in results.runs if run_data.round_end_times]
    if not timed:
        return None
    drawing, axes = style.new_axes()
    times, is_logarithmic = make_time_axis(timed)
    for index, (group, line_style) in enumerate(style.get_group_styles(results)):
        curves = [
            resample_at_times(get_accuracy(run), run.round_end_times, times)
            for run in group.runs
            if run.round_end_times
        ]
        gaps = np.isnan(curves).any(axis=0)  # a mean over fewer seeds would jump
        curves = [np.where(gaps, np.nan, curve) for curve in curves]
        label = style.get_legend_label(group)
        plot_spread(axes, curves, line_style, label, UNIT_RANGE, times, index)
    scale = " (seconds, logarithmic)" if is_logarithmic else " (seconds)"
    figure = _finish(drawing, results, "Accuracy of the global model over simulated time")
    axes.set(xlabel=f"simulated time{scale}", xscale="log" if is_logarithmic else "linear")
    axes.set_xlim(times[0] if is_logarithmic else 0, 1.02 * times[-1])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    return figure


def draw_metrics(results: Results) -> Figure | None:
    """Draw further metrics of the task, one panel each."""
    curves = {name: partial(get_task_metric, name) for name in results.task_metric_names}
    return _draw_panels(results, "Further metrics after each round", curves)


def draw_loss(results: Results) -> Figure | None:
    """Draw test loss and training loss, if clients report it."""
    if not _has_values(get_client_loss, results):
        return None
    title = "Loss after each round (training loss: mean over participants)"
    curves: dict[str, CurveOf] = {"training loss": get_client_loss, "test loss": _get_test_loss}
    return _draw_panels(results, title, curves)


def draw_method_report(results: Results) -> Figure | None:
    """Draw the scalars that methods report, one panel each."""
    records = [record for run_data in results.runs for record in run_data.history]
    names = dict.fromkeys(name for record in records for name in list_other_scalars(record))
    curves = {name: partial(_get_scalar_curve, name) for name in list(names)[:_MAX_PANELS]}
    return _draw_panels(results, "Quantities reported by the methods after each round", curves)


def _get_test_loss(run_data: RunData) -> Curve:
    return np.array([record.loss for record in run_data.history], float)


def get_client_loss(run_data: RunData) -> Curve:
    """Return the mean training loss of the participants in each round, NaN if unknown."""
    rounds = ([v for v in record.client_loss if v is not None] for record in run_data.history)
    return np.array([fmean(losses) if losses else None for losses in rounds], float)


def get_task_metric(name: str, run_data: RunData) -> Curve:
    """Return a metric of the task after each round, NaN if unknown."""
    return np.array([record.metrics.get(name) for record in run_data.history], float)


def _get_scalar_curve(name: str, run_data: RunData) -> Curve:
    return np.array([get_scalar(record, name) for record in run_data.history], float)


def get_accuracy(run_data: RunData) -> Curve:
    """Return the accuracy after each round, NaN for rounds without a test."""
    return np.array([record.accuracy for record in run_data.history], float)


def get_rare_accuracy(run_data: RunData) -> Curve:
    """Return the accuracy on the rare classes after each round, NaN for rounds without a test."""
    tested = (record if record.class_accuracy else None for record in run_data.history)
    return np.array([r and compute_mean_accuracy(r, run_data.rare) for r in tested], float)


def compute_trailing_mean(values: Curve, width: int = LAST_ROUNDS) -> Curve:
    """Return the mean of the known values in the last rounds, NaN where the value is NaN."""
    windows = (values[max(0, n - width + 1) : n + 1] for n in range(len(values)))
    pairs = zip(values, windows, strict=True)
    return np.array([np.nan if np.isnan(value) else np.nanmean(w) for value, w in pairs])


def compute_band(curves: Sequence[Curve]) -> tuple[Curve, Curve, Curve]:
    """Compute mean and sample standard deviation of curves of different lengths.

    Args:
        curves: one value per round each, NaN if unknown.

    Returns:
        The rounds in which any curve is known, and mean and deviation in these rounds; the
        deviation of a single value is 0.
    """
    padded = np.full((len(curves), max(map(len, curves), default=0)), np.nan)
    for row, curve in enumerate(curves):
        padded[row, : len(curve)] = curve
    known = (~np.isnan(padded)).sum(axis=0)
    rounds = np.flatnonzero(known).astype(float) + 1
    padded, known = padded[:, known > 0], known[known > 0]
    mean = np.nanmean(padded, axis=0)
    squares = np.nansum((padded - mean) ** 2, axis=0)
    return rounds, mean, np.sqrt(squares / np.maximum(known - 1, 1))


def plot_spread(
    axes: Axes,
    curves: Sequence[Curve],
    line_style: style.LineStyle,
    label: str,
    limits: tuple[float, float] = (-np.inf, np.inf),
    times: Curve | None = None,
    index: int = 0,
) -> None:
    """Plot the mean of curves and a band of one standard deviation.

    Args:
        axes: axes to plot into.
        curves: one curve per seed, with one value per round or per time.
        line_style: style of the line.
        label: label in the legend.
        limits: range of possible values, to which the band is cut.
        times: x-values, if they are not the rounds.
        index: index of the line in the figure; markers are shifted according to it.
    """
    rounds, mean, deviation = compute_band(curves)
    if not len(rounds):
        return
    if times is not None:
        rounds = times[rounds.astype(int) - 1]
    axes.plot(rounds, mean, label=label, **line_style.make_line_options(len(rounds), index))
    if len(curves) > 1:
        low, high = np.clip([mean - deviation, mean + deviation], *limits)
        axes.fill_between(rounds, low, high, color=line_style.color, alpha=0.15, lw=0)


def format_axes(axes: Axes, last: int, label: str, first: int = 1) -> None:
    """Format axes of fractions over rounds: fit them to the data within 0 and 1."""
    style.set_round_axis(axes, last, first)
    low, high = axes.get_ylim()
    margin = max(0.0, _MIN_SPAN - (high - low)) / 2
    axes.set(ylabel=label, ylim=(max(low - margin, -0.02), min(high + margin, 1.02)))
    axes.grid(alpha=0.3)


def _plot_groups(
    axes: Axes, results: Results, curve: CurveOf, limits: tuple[float, float] = UNIT_RANGE
) -> None:
    for index, (group, line_style) in enumerate(style.get_group_styles(results)):
        curves = [curve(run_data) for run_data in group.runs]
        label = style.get_legend_label(group)
        plot_spread(axes, curves, line_style, label, limits, index=index)


def _finish(
    drawing: Figure, results: Results, title: str, label: str = "test accuracy"
) -> Figure | None:
    """Format the only axes and add title and legend; return None without a line."""
    (axes,) = drawing.axes
    if not axes.get_lines():
        return None
    format_axes(axes, results.max_rounds, label)
    return _add_titles(drawing, results, title)


def _add_titles(drawing: Figure, results: Results, title: str) -> Figure:
    """Add the legend and a title that explains lines and bands."""
    style.add_line_legend(drawing)
    seeds = max(len(group.runs) for group in results.groups)
    bands = f"\nlines: mean of {seeds} seeds; bands: ± one standard deviation" if seeds > 1 else ""
    style.add_title(drawing, f"{title}{bands}")
    return drawing


def _draw_panels(results: Results, title: str, curves: Mapping[str, CurveOf]) -> Figure | None:
    """Draw one panel per quantity, each with one line per method that has it."""
    known = {name: curve for name, curve in curves.items() if _has_values(curve, results)}
    if not known:
        return None
    columns = min(3, len(known))
    drawing = style.new_figure(1.2 + 3.6 * columns, 0.3 + 2.7 * -(-len(known) // columns))
    panels = style.make_panels(drawing, len(known), columns)
    for axes, (name, curve) in zip(panels, known.items(), strict=True):
        _fill_panel(axes, results, curve, is_loss="loss" in name)
        axes.set_title(style.shorten(format_metric_name(name)), fontsize=10)
    return _add_titles(drawing, results, title)


def _fill_panel(axes: Axes, results: Results, curve: CurveOf, is_loss: bool) -> None:
    """Plot one line per method; only fractions are limited to values from 0 to 1."""
    values = np.concatenate([curve(run_data) for run_data in results.runs])
    low, high = np.nanmin(values), np.nanmax(values)
    are_fractions = not is_loss and low >= 0 and high <= 1
    limits = UNIT_RANGE if are_fractions else (0.0 if low >= 0 else -np.inf, np.inf)
    _plot_groups(axes, results, curve, limits)
    y_limits = axes.get_ylim()
    format_axes(axes, results.max_rounds, "")
    if not are_fractions:
        axes.set_ylim(y_limits)


def _has_values(curve: CurveOf, results: Results) -> bool:
    return not all(np.isnan(curve(run_data)).all() for run_data in results.runs)
