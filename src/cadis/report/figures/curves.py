"""Lines over rounds, or simulated time: accuracy, loss, further measures, and what methods tell."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray

from cadis.analysis import LAST_ROUNDS, Group, Results, RunData, at_times, clocks_of, time_axis
from cadis.report.figures.labels import label_of, legend_of_lines
from cadis.report.style import DASHES, Look, Place, figure, head, looks, round_axis, shown
from cadis.store import mean_accuracy, metric_words, scalar_of, told_scalars

Curve = NDArray[np.float64]
SHARES = (0.0, 1.0)
"""Between which shares lie, and so their deviations."""
_PANELS = 12
"""Of what methods report, so many numbers are drawn at most."""


def draw_accuracy(results: Results, place: Place) -> Path | None:
    """Accuracy of the global model over rounds; of a single method, on the rare classes too."""
    title = "Accuracy of the global model after each round"
    return _draw(results, place("accuracy"), title, "test accuracy", all_classes, also_rare=True)


def draw_accuracy_time(results: Results, place: Place) -> Path | None:
    """Accuracy of the global model over simulated time, where clients have speeds."""
    timed = [run_data for run_data in results.runs if clocks_of(run_data)]
    if not _any_known(all_classes, timed):
        return None
    path, (times, far_apart) = place("accuracy-time"), time_axis(timed)
    with figure(path, 6.4, 3.2) as drawing:
        axes = drawing.subplots()
        for group, look in zip(
            results.groups, looks([g.name for g in results.groups]), strict=True
        ):
            curves = _over_time(group.runs, times)
            if curves:
                plot_spread(axes, curves, look, label_of(group), SHARES, times)
        dress(axes, 1, "test accuracy")
        scale = " (seconds, logarithmic)" if far_apart else " (seconds)"
        axes.set(xlabel=f"simulated time{scale}", xscale="log" if far_apart else "linear")
        axes.set_xlim(times[0] if far_apart else 0, times[-1])
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        legend_of_lines(drawing)
        head(drawing, f"Accuracy of the global model over simulated time{_over_seeds(results)}")
    return path.with_suffix(".png")


def _over_time(runs: Sequence[RunData], times: Curve) -> list[Curve]:
    """The accuracy of each run at these times, NaN where not all of them are under way."""
    found = [
        at_times(all_classes(run), clocks, times) for run in runs if (clocks := clocks_of(run))
    ]
    gaps = np.isnan(found).any(axis=0)  # a mean of other seeds would jump there
    return [] if not found or gaps.all() else [np.where(gaps, np.nan, curve) for curve in found]


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


def draw_measures(results: Results, place: Place) -> Path | None:
    """Further measures of the task over rounds, a panel for each."""
    curves = {name: partial(measured, name) for name in measure_names(results.runs)}
    return _draw_panels(results, place("measures"), "Further measures after each round", curves)


def draw_loss(results: Results, place: Place) -> Path | None:
    """Loss on the test set, and of clients in training where they tell it."""
    panels = {"training loss": client_loss, "test loss": tested_loss}
    if not _any_known(client_loss, results.runs):
        return None
    title = "Loss after each round (training: mean of participants)"
    return _draw_panels(results, place("loss"), title, panels)


def draw_method_report(results: Results, place: Place) -> Path | None:
    """Single numbers that methods tell of their rounds, a panel for each."""
    records = [record for run_data in results.runs for record in run_data.history]
    names = dict.fromkeys(name for record in records for name in told_scalars(record))
    curves = {name: partial(_reported, name) for name in list(names)[:_PANELS]}
    return _draw_panels(results, place("method-report"), "What the methods report", curves)


def tested_loss(run_data: RunData) -> Curve:
    """Mean loss on the test set after each round, NaN where nobody tested."""
    return np.array([record.loss for record in run_data.history], float)


def client_loss(run_data: RunData) -> Curve:
    """Mean training loss of the participants of each round, NaN where none told it."""
    told = ([v for v in record.client_loss if v is not None] for record in run_data.history)
    return np.array([fmean(losses) if losses else None for losses in told], float)


def measure_names(runs: Sequence[RunData]) -> list[str]:
    """The further measures of the task that any of the runs has."""
    records = (record for run_data in runs for record in run_data.history)
    return list(dict.fromkeys(name for record in records for name in record.measures))


def measured(name: str, run_data: RunData) -> Curve:
    """A further measure of the task after each round, NaN where it is not known."""
    return np.array([record.measures.get(name) for record in run_data.history], float)


def _reported(name: str, run_data: RunData) -> Curve:
    return np.array([scalar_of(record, name) for record in run_data.history], float)


def all_classes(run_data: RunData) -> Curve:
    """Accuracy after each round, NaN where nobody tested."""
    return np.array([record.accuracy for record in run_data.history], float)


def rare_classes(run_data: RunData) -> Curve:
    """Accuracy on the rare classes after each round, NaN where nobody tested."""
    tested = (record if record.class_accuracy else None for record in run_data.history)
    return np.array([r and mean_accuracy(r, run_data.rare) for r in tested], float)


def trailing(values: Curve, width: int = LAST_ROUNDS) -> Curve:
    """The mean of those of the last rounds that are known, NaN after a round that is not."""
    last = (values[max(0, n - width + 1) : n + 1] for n in range(len(values)))
    pairs = zip(values, last, strict=True)
    return np.array([np.nan if np.isnan(own) else np.nanmean(some) for own, some in pairs])


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


def plot_spread(
    axes: Axes,
    curves: list[Curve],
    look: Look,
    label: str,
    limits: tuple[float, float] = (-np.inf, np.inf),
    times: Curve | None = None,
) -> None:
    """The mean of curves, and a band of one standard deviation; of one curve, itself.

    Args:
        axes: where to draw.
        curves: with a value a round, or one for each of ``times``.
        look: how lines look.
        label: what the legend says.
        limits: what no value can be below and above, and so the band is not.
        times: where values are, if not at rounds.
    """
    rounds, mean, deviation = spread_of(curves)
    if times is not None:
        rounds = times[rounds.astype(int) - 1]
    marker = "." if len(rounds) < 10 else None  # a single round is no line
    line = {"color": look.colour, "ls": DASHES[look.dash], "marker": marker}
    axes.plot(rounds, mean, **line, label=label)
    if len(curves) > 1:
        low, high = np.clip([mean - deviation, mean + deviation], *limits)
        axes.fill_between(rounds, low, high, color=look.colour, alpha=0.15, lw=0)


def dress(axes: Axes, rounds: int, label: str) -> None:
    """Label the axes of a share over rounds, and give them a grid."""
    round_axis(axes, rounds)
    axes.set(ylabel=label, ylim=(-0.02, 1.02))
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
    if not _any_known(curve, results.runs):
        return None
    with figure(path, 6.4, 3.2) as drawing:
        axes = drawing.subplots()
        for group, look in zip(results.groups, styles, strict=True):
            if _any_known(curve, group.runs):
                curves = [curve(run_data) for run_data in group.runs]
                plot_spread(axes, curves, look, label_of(group), SHARES)
        if also_rare and len(results.groups) == 1 and results.runs[0].rare:
            dashed = Look(styles[0].colour, "dotted")
            rare = f"classes of the smallest clusters ({shown(results.rare_in_words, 44)})"
            curves = [rare_classes(run_data) for run_data in results.runs]
            plot_spread(axes, curves, dashed, rare, SHARES)
        dress(axes, max(len(run_data.history) for run_data in results.runs), label)
        legend_of_lines(drawing)
        head(drawing, f"{title}{_over_seeds(results)}")
    return path.with_suffix(".png")


def _draw_panels(
    results: Results, path: Path, title: str, curves: Mapping[str, Callable[[RunData], Curve]]
) -> Path | None:
    """A panel for each curve, in which there is a line for each method that has it."""
    groups = list(zip(results.groups, looks([g.name for g in results.groups]), strict=True))
    told = {name: curve for name, curve in curves.items() if _any_known(curve, results.runs)}
    if not told:
        return None
    columns = min(3, len(told))
    rows = -(-len(told) // columns)
    with figure(path, 1.2 + 3.6 * columns, 0.3 + 2.7 * rows) as drawing:
        panels = list(drawing.subplots(rows, columns, squeeze=False).flat)
        for axes, (name, curve) in zip(panels, told.items(), strict=False):
            _fill_panel(axes, results, curve, groups, zoomed="loss" in name)
            axes.set_title(shown(metric_words(name)), fontsize=10)
        for axes in panels[len(told) :]:
            axes.set_axis_off()
        legend_of_lines(drawing)
        head(drawing, f"{title}{_over_seeds(results)}")
    return path.with_suffix(".png")


def _fill_panel(
    axes: Axes,
    results: Results,
    curve: Callable[[RunData], Curve],
    groups: Sequence[tuple[Group, Look]],
    zoomed: bool = False,
) -> None:
    """The lines of one panel, on an axis from 0 to 1 for shares, else on one that fits the values.

    Args:
        axes: where to draw.
        results: of which runs.
        curve: what of each run.
        groups: the methods, and how each looks.
        zoomed: whether values are no shares, even if all lie between 0 and 1.
    """
    values = np.concatenate([curve(run_data) for run_data in results.runs])
    shares = not zoomed and np.nanmin(values) >= 0 and np.nanmax(values) <= 1
    limits = SHARES if shares else (0.0 if np.nanmin(values) >= 0 else -np.inf, np.inf)
    for group, look in groups:
        if _any_known(curve, group.runs):
            curves = [curve(run_data) for run_data in group.runs]
            plot_spread(axes, curves, look, label_of(group), limits)
    fitting = axes.get_ylim()
    dress(axes, max(len(run_data.history) for run_data in results.runs), "")
    if not shares:
        axes.set_ylim(fitting)


def _any_known(curve: Callable[[RunData], Curve], runs: Sequence[RunData]) -> bool:
    return not all(np.isnan(curve(run_data)).all() for run_data in runs)


def _over_seeds(results: Results) -> str:
    """What lines and bands are, if there are several seeds."""
    seeds = max(len(group.runs) for group in results.groups)
    return f"\nmean and standard deviation of {seeds} seeds" if seeds > 1 else ""
