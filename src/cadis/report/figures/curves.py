"""Lines over rounds, or simulated time: accuracy, loss, measures, several models, methods."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from cadis.analysis import LAST_ROUNDS, Results, RunData, at_times, time_axis
from cadis.report import style
from cadis.store import mean_accuracy, metric_words, scalar_of, told_scalars

Curve = NDArray[np.float64]
CurveOf = Callable[[RunData], Curve]
SHARES = (0.0, 1.0)
"""Between which shares lie, and so their deviations."""
_PANELS = 12  # of what methods report, so many numbers are drawn at most
_HATCHES = {"solid": None, "dashed": "////", "dotted": "...."}
"""Of bars, where a line of the same look is dashed or dotted."""


def draw_accuracy(results: Results) -> Figure | None:
    """Draw the accuracy of the global model; of a single method, on the rare classes too."""
    drawing, axes = style.new_axes()
    _plot_groups(axes, results, all_classes)
    if len(results.groups) == 1 and results.runs[0].rare:
        (_, look), *_ = style.styled_groups(results)
        rare = f"classes of the smallest clusters ({style.shown(results.rare_in_words, 44)})"
        curves = [rare_classes(run_data) for run_data in results.runs]
        plot_spread(axes, curves, style.Look(look.colour, "dotted"), rare, SHARES)
    return _finish(drawing, results, "Accuracy of the global model after each round")


def draw_ten_rounds(results: Results) -> Figure | None:
    """Draw the paper's 10-round average accuracy."""
    if results.longest < 2 * LAST_ROUNDS:
        return None
    drawing, axes = style.new_axes()
    _plot_groups(axes, results, lambda run_data: trailing(all_classes(run_data)))
    title, label = "Mean accuracy of the last 10 rounds", "10-round average accuracy"
    return _finish(drawing, results, title, label)


def draw_rare(results: Results) -> Figure | None:
    """Draw the accuracy on the classes of the smallest clusters."""
    if len(results.groups) == 1:  # it is in the first picture
        return None
    drawing, axes = style.new_axes()
    _plot_groups(axes, results, rare_classes)
    return _finish(drawing, results, "Accuracy on the classes of the smallest clusters")


def draw_accuracy_time(results: Results) -> Figure | None:
    """Draw the accuracy of the global model over simulated time, where clients have speeds."""
    timed = [run_data for run_data in results.runs if run_data.clocks]
    if not timed:
        return None
    drawing, axes = style.new_axes()
    times, far_apart = time_axis(timed)
    for group, look in style.styled_groups(results):
        found = [at_times(all_classes(run), run.clocks, times) for run in group.runs if run.clocks]
        gaps = np.isnan(found).any(axis=0)  # a mean of other seeds would jump there
        curves = [np.where(gaps, np.nan, curve) for curve in found]
        plot_spread(axes, curves, look, style.label_of(group), SHARES, times)
    scale = " (seconds, logarithmic)" if far_apart else " (seconds)"
    drawn = _finish(drawing, results, "Accuracy of the global model over simulated time")
    axes.set(xlabel=f"simulated time{scale}", xscale="log" if far_apart else "linear")
    axes.set_xlim(times[0] if far_apart else 0, times[-1])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    return drawn


def draw_measures(results: Results) -> Figure | None:
    """Draw further measures of the task, a panel for each."""
    curves = {name: partial(measured, name) for name in results.further_measures}
    return _draw_panels(results, "Further measures after each round", curves)


def draw_loss(results: Results) -> Figure | None:
    """Draw the loss on the test set, and of clients in training, where they tell it."""
    if not _any_known(client_loss, results):
        return None
    title = "Loss after each round (training: mean of participants)"
    return _draw_panels(results, title, {"training loss": client_loss, "test loss": _tested_loss})


def draw_method_report(results: Results) -> Figure | None:
    """Draw single numbers that methods tell of their rounds, a panel for each."""
    records = [record for run_data in results.runs for record in run_data.history]
    names = dict.fromkeys(name for record in records for name in told_scalars(record))
    curves = {name: partial(_reported, name) for name in list(names)[:_PANELS]}
    return _draw_panels(results, "What the methods report", curves)


def _tested_loss(run_data: RunData) -> Curve:
    return np.array([record.loss for record in run_data.history], float)


def client_loss(run_data: RunData) -> Curve:
    """Return the participants' mean training loss in each round, NaN where none told it."""
    told = ([v for v in record.client_loss if v is not None] for record in run_data.history)
    return np.array([fmean(losses) if losses else None for losses in told], float)


def measured(name: str, run_data: RunData) -> Curve:
    """Return a further measure of the task after each round, NaN where it is not known."""
    return np.array([record.measures.get(name) for record in run_data.history], float)


def _reported(name: str, run_data: RunData) -> Curve:
    return np.array([scalar_of(record, name) for record in run_data.history], float)


def all_classes(run_data: RunData) -> Curve:
    """Return the accuracy after each round, NaN where nobody tested."""
    return np.array([record.accuracy for record in run_data.history], float)


def rare_classes(run_data: RunData) -> Curve:
    """Return the accuracy on the rare classes after each round, NaN where nobody tested."""
    tested = (record if record.class_accuracy else None for record in run_data.history)
    return np.array([r and mean_accuracy(r, run_data.rare) for r in tested], float)


def trailing(values: Curve, width: int = LAST_ROUNDS) -> Curve:
    """Return the mean of the last rounds that are known, NaN after a round that is not."""
    last = (values[max(0, n - width + 1) : n + 1] for n in range(len(values)))
    pairs = zip(values, last, strict=True)
    return np.array([np.nan if np.isnan(own) else np.nanmean(some) for own, some in pairs])


def spread_of(curves: Sequence[Curve]) -> tuple[Curve, Curve, Curve]:
    """Return rounds that any curve has, and mean and sample deviation over the curves there.

    A single curve deviates by nothing.
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
    look: style.Look,
    label: str,
    limits: tuple[float, float] = (-np.inf, np.inf),
    times: Curve | None = None,
) -> None:
    """Plot the mean of curves with a value a round, or at each of ``times``, if any is known.

    Several have a band of one standard deviation, which ``limits`` cut: no value is beyond.
    """
    rounds, mean, deviation = spread_of(curves)
    if not len(rounds):
        return
    if times is not None:
        rounds = times[rounds.astype(int) - 1]
    marker = "." if len(rounds) < 10 else None  # a single round is no line
    line = {"color": look.colour, "ls": style.DASHES[look.dash], "marker": marker}
    axes.plot(rounds, mean, **line, label=label)
    if len(curves) > 1:
        low, high = np.clip([mean - deviation, mean + deviation], *limits)
        axes.fill_between(rounds, low, high, color=look.colour, alpha=0.15, lw=0)


def dress(axes: Axes, rounds: int, label: str) -> None:
    """Label the axes of a share over rounds, and give them a grid."""
    style.round_axis(axes, rounds)
    axes.set(ylabel=label, ylim=(-0.02, 1.02))
    axes.grid(alpha=0.3)


def _plot_groups(
    axes: Axes, results: Results, curve: CurveOf, limits: tuple[float, float] = SHARES
) -> None:
    for group, look in style.styled_groups(results):
        curves = [curve(run_data) for run_data in group.runs]
        plot_spread(axes, curves, look, style.label_of(group), limits)


def _finish(
    drawing: Figure, results: Results, title: str, label: str = "test accuracy"
) -> Figure | None:
    """Label the only plot of shares; return None if it has no line."""
    (axes,) = drawing.axes
    if not axes.get_lines():
        return None
    dress(axes, results.longest, label)
    return _with_titles(drawing, results, title)


def _with_titles(drawing: Figure, results: Results, title: str) -> Figure:
    """Add the legend, and say what lines and bands are."""
    style.legend_of_lines(drawing)
    seeds = max(len(group.runs) for group in results.groups)
    over = f"\nmean and standard deviation of {seeds} seeds" if seeds > 1 else ""
    style.head(drawing, f"{title}{over}")
    return drawing


def _draw_panels(results: Results, title: str, curves: Mapping[str, CurveOf]) -> Figure | None:
    """Draw a panel for each curve, in which there is a line for each method that has it."""
    told = {name: curve for name, curve in curves.items() if _any_known(curve, results)}
    if not told:
        return None
    columns = min(3, len(told))
    drawing = style.new_figure(1.2 + 3.6 * columns, 0.3 + 2.7 * -(-len(told) // columns))
    panels = style.panel_grid(drawing, len(told), columns)
    for axes, (name, curve) in zip(panels, told.items(), strict=True):
        _fill_panel(axes, results, curve, is_loss="loss" in name)
        axes.set_title(style.shown(metric_words(name)), fontsize=10)
    return _with_titles(drawing, results, title)


def _fill_panel(axes: Axes, results: Results, curve: CurveOf, is_loss: bool) -> None:
    """Plot lines on an axis from 0 to 1 for shares, else on one that fits the values."""
    values = np.concatenate([curve(run_data) for run_data in results.runs])
    low, high = np.nanmin(values), np.nanmax(values)
    are_shares = not is_loss and low >= 0 and high <= 1
    limits = SHARES if are_shares else (0.0 if low >= 0 else -np.inf, np.inf)
    _plot_groups(axes, results, curve, limits)
    fitting = axes.get_ylim()
    dress(axes, results.longest, "")
    if not are_shares:
        axes.set_ylim(fitting)


def _any_known(curve: CurveOf, results: Results) -> bool:
    return not all(np.isnan(curve(run_data)).all() for run_data in results.runs)


def draw_models(results: Results) -> Figure | None:
    """Draw the accuracy of each model over rounds, and how many participants trained it."""
    run_data = next((run for run in results.runs if model_names(run)), None)
    if run_data is None:
        return None
    names, rounds = model_names(run_data), np.arange(1, len(run_data.history) + 1)
    drawing = style.new_figure(8.4, 3.2)
    left, right = drawing.subplots(1, 2)
    below = np.zeros(len(rounds))
    for name, look in zip(names, style.looks(names), strict=True):
        values = model_accuracy(run_data, name)
        known = ~np.isnan(values)
        marker = "." if known.sum() < 10 else None
        line = {"color": look.colour, "ls": style.DASHES[look.dash], "marker": marker}
        left.plot(rounds[known], values[known], **line)
        counts = np.array(model_participants(run_data, name), float)
        bars = {"color": look.colour, "edgecolor": "white", "hatch": _HATCHES[look.dash]}
        right.bar(rounds, counts, 1.0, below, label=style.shown(name), lw=0, **bars)
        below += counts
    dress(left, len(rounds), "test accuracy")
    left.set_title("Accuracy of each model", fontsize=10)
    style.round_axis(right, len(rounds))
    right.set(ylabel="participants", xlim=(0.5, len(rounds) + 0.5))
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_title("Who trained which model", fontsize=10)
    handles, labels = right.get_legend_handles_labels()
    style.legend_below(drawing, dict(zip(labels, handles, strict=True)))
    style.head(
        drawing, f"The models of {style.shown(run_data.label)}{style.name_seed(run_data, results)}"
    )
    return drawing


def model_names(run_data: RunData) -> list[str]:
    """Return the names of all models that a run has had; none if there was but one."""
    told = (model.name for record in run_data.history for model in record.models)
    return list(dict.fromkeys(told))


def model_accuracy(run_data: RunData, name: str) -> Curve:
    """Return the accuracy of a model after each round, NaN where nobody tested or uses it.

    While there was but one model, it was the first.
    """
    first = model_names(run_data)[0]
    told = [
        {model.name: model.accuracy for model in record.models if model.clients}
        if record.models
        else {first: record.accuracy}
        for record in run_data.history
    ]
    return np.array([accuracies.get(name) for accuracies in told], float)


def model_participants(run_data: RunData, name: str) -> list[int]:
    """Return how many participants trained a model in each round."""
    first = model_names(run_data)[0]
    return [
        (record.client_models or [first] * len(record.participants)).count(name)
        for record in run_data.history
    ]
