"""Figures of accuracy by class (confusion matrices) and by client."""

from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cadis.analysis import Group, Results, RunData
from cadis.report import style
from cadis.report.figures.curves import UNIT_RANGE, Curve, format_axes
from cadis.types import ClientId

_MAX_CELL_CLASSES = 12  # with more classes, cells have no numbers
_PANEL_SIZE = 4.1  # inches without class names
_CHAR_WIDTH = 0.075  # inches that a character of a class name takes
_MIN_TESTS = 3  # with fewer tested rounds, there is no figure over rounds
_MAX_NAMED_CLIENTS = 12  # with more clients, a box plot is drawn
_MAX_NUMBERED = 6  # with more methods, points have no numbers
_MAX_CLIENT_NAME = 56  # characters of the name of a client
_NAME_LINE = 28  # characters in one line of the name


def draw_confusion(results: Results) -> Figure | None:
    """Draw the confusion matrix of each method after the last round (Fig. 1 of the paper)."""
    by_label = {
        group.label: next((run for run in group.runs if run.summary["confusion"] is not None), None)
        for group in results.groups
    }
    runs = {label: run_data for label, run_data in by_label.items() if run_data is not None}
    if not runs:
        return None
    columns = 2 if len(runs) == 4 else min(3, len(runs))  # avoid a row with a single panel
    rows, first = -(-len(runs) // columns), next(iter(runs.values()))
    longest = max(len(style.shorten(name)) for name in first.classes)
    side = _PANEL_SIZE + _CHAR_WIDTH * max(0, longest - 4)
    drawing = style.new_figure(columns * side + 1.2, rows * side + 0.2, layout="compressed")
    panels = style.make_panels(drawing, len(runs), columns)
    for axes, (label, run_data) in zip(panels, runs.items(), strict=True):
        _fill_confusion(axes, label, run_data)
    image, label = panels[0].images[0], "fraction of the true class"
    drawing.colorbar(image, ax=drawing.axes, label=label, shrink=1 / rows)
    seed = f", seed {first.seed}" if len(results.runs) > len(results.groups) else ""
    rare = "\n*: rare class, which only the smallest clusters have" if first.rare else ""
    style.add_title(drawing, f"Confusion matrices after the last round{seed}{rare}")
    return drawing


def _fill_confusion(axes: Axes, label: str, run_data: RunData) -> None:
    counts = np.array(run_data.summary["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(shares)
    style.draw_heat_map(axes, shares)
    if size <= _MAX_CELL_CLASSES:
        for row, column in np.argwhere(shares >= 0.005):
            share = shares[row, column]
            shade = "white" if share < 0.6 else "black"
            axes.text(column, row, f"{share:.2f}", ha="center", va="center", size=7, color=shade)
    ticks = range(0, size, -(-size // 20))
    names = [f"{style.shorten(run_data.classes[n])}{' *' * (n in run_data.rare)}" for n in ticks]
    rotation = 90 if max(map(len, names)) > 4 else 0
    axes.set_xticks(ticks, names, rotation=rotation, size=8)
    axes.set_yticks(ticks, names, size=8)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(f"{style.shorten(label, 36)}, after round {run_data.summary['rounds']}", size=10)


def draw_clients(results: Results) -> Figure | None:
    """Draw the accuracy of each client in its last test.

    A few clients with names get one row each; otherwise, each method gets a box plot.
    """
    groups = [pair for pair in style.get_group_styles(results) if _get_last_accuracy(pair[0])]
    if not groups:
        return None
    clients = list(results.runs[0].true_clusters)
    are_named = not all(str(client).isdecimal() for client in clients)
    are_same = all(list(run.true_clusters) == clients for run in results.runs)
    if are_same and are_named and len(clients) <= _MAX_NAMED_CLIENTS:
        return _draw_named_clients(results, groups, clients)
    drawing, axes = style.new_axes(6.4, 1.0 + 0.4 * len(groups))
    for row, (group, line_style) in enumerate(groups):
        values = [v for run in group.runs for v in run.last_client_accuracy.values()]
        _plot_box(axes, row, np.array(values), line_style.color)
    axes.set_yticks(range(len(groups)), [style.shorten(group.label) for group, _ in groups])
    axes.invert_yaxis()
    axes.set(xlabel=f"accuracy of the last global model on a client's {results.own_data}")
    low, high = axes.get_xlim()
    axes.set_xlim(max(low, -0.02), min(high, 1.02))
    axes.grid(axis="x", alpha=0.3)
    seeds = " and seeds" if max(len(group.runs) for group, _ in groups) > 1 else ""
    sample = _get_sample_text(results) or "clients"
    key = f"points: {sample}{seeds}; box: middle half of them; whiskers: minimum and maximum"
    style.add_title(drawing, f"Accuracy across clients\n{key}")
    return drawing


def _plot_box(axes: Axes, row: int, values: Curve, color: str) -> None:
    """Plot a box with whiskers from minimum to maximum, and a point for each value."""
    box = {"color": color, "lw": 1.3}
    axes.boxplot(
        values,
        positions=[row],
        orientation="horizontal",
        widths=0.6,
        showfliers=False,
        whis=(0, 100),
        boxprops=box,
        medianprops=box,
        whiskerprops=box,
        capprops=box,
    )
    jitter = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.zeros(1)
    axes.scatter(values, row + jitter, s=9, color=color, alpha=0.5, lw=0)


def draw_client_rounds(results: Results) -> Figure | None:
    """Draw mean and standard deviation of the clients' accuracy over rounds."""
    tested = [run for run in results.runs if len(run.client_accuracy) >= _MIN_TESTS]
    if not tested:
        return None
    drawing, axes = style.new_axes()
    for index, (group, line_style) in enumerate(style.get_group_styles(results)):
        runs = [run_data for run_data in group.runs if run_data in tested]
        if runs:
            rounds, mean, deviation = _average_clients(runs)
            line = line_style.make_line_options(len(rounds), index)
            axes.plot(rounds, mean, **line, label=style.get_legend_label(group))
            low, high = np.clip([mean - deviation, mean + deviation], *UNIT_RANGE)
            axes.fill_between(rounds, low, high, color=line_style.color, alpha=0.12, lw=0)
    numbers = [number for run_data in tested for number in run_data.client_accuracy]
    format_axes(axes, max(numbers), "accuracy", first=min(numbers))
    style.add_line_legend(drawing)
    title = f"Accuracy of the global model on clients' {results.own_data}"
    sample = _get_sample_text(results) or "clients"
    key = f"lines: mean over {sample}; bands: ± one standard deviation over clients"
    style.add_title(drawing, f"{title}\n{key}")
    return drawing


def _average_clients(runs: Sequence[RunData]) -> tuple[list[int], Curve, Curve]:
    """Return rounds, and mean and standard deviation over clients, averaged over seeds."""
    rounds = sorted(set.intersection(*(set(run_data.client_accuracy) for run_data in runs)))
    tests = [[list(s.client_accuracy[r].values()) for r in rounds] for s in runs]
    mean = np.mean([[np.mean(values) for values in one] for one in tests], axis=0)
    return rounds, mean, np.mean([[np.std(values) for values in one] for one in tests], axis=0)


def _draw_named_clients(
    results: Results, groups: Sequence[tuple[Group, style.LineStyle]], clients: Sequence[ClientId]
) -> Figure:
    """Draw one row per client with the accuracy of each method on its data, mean over seeds."""
    height = min(16.0, 0.8 + len(clients) * max(0.5, 0.2 * len(groups)))
    drawing, axes = style.new_axes(7.2, height)
    for index, (group, line_style) in enumerate(groups):
        offset = 0.8 * ((index + 0.5) / len(groups) - 0.5)
        has_numbers = len(groups) <= _MAX_NUMBERED
        _plot_named_clients(axes, group, clients, offset, line_style, has_numbers)
    names = [
        f"{fill(style.shorten(client, _MAX_CLIENT_NAME), _NAME_LINE)}\n"
        f"{_format_samples(results.runs[0], client)}"
        for client in clients
    ]
    axes.set_yticks(range(len(clients)), names, size=8)
    for border in range(1, len(clients)):
        axes.axhline(border - 0.5, color="#dddddd", lw=0.8)
    axes.set_ylim(len(clients) - 0.5, -0.5)
    axes.set(xlabel=f"accuracy of the last global model on the client's {results.own_data}")
    axes.set_xlim(-0.02, 1.12)  # space for the number beside an accuracy of 1
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.grid(axis="x", alpha=0.3)
    style.add_line_legend(drawing)
    seeds = max(len(group.runs) for group, _ in groups)
    key = f"\npoints: mean of {seeds} seeds; lines: range over seeds" if seeds > 1 else ""
    style.add_title(drawing, f"Accuracy of each client{key}")
    return drawing


def _plot_named_clients(
    axes: Axes,
    group: Group,
    clients: Sequence[ClientId],
    offset: float,
    line_style: style.LineStyle,
    has_numbers: bool,
) -> None:
    """Plot the mean of one method for each client, and a line from the worst seed to the best."""
    by_client, label = _get_last_accuracy(group), style.get_legend_label(group)
    color, marker = line_style.color, line_style.marker
    for row, client in enumerate(clients):
        if not (values := by_client.get(client)):
            continue
        mean, y = float(np.mean(values)), row + offset
        axes.plot([min(values), max(values)], [y, y], color=color, lw=1.5)
        axes.plot([mean], [y], marker, ms=5, color=color, label=label)
        if has_numbers:
            text = f"{mean:.2f}"
            axes.text(max(values) + 0.02, y, text, va="center", size=7, color="#333333")


def _get_last_accuracy(group: Group) -> dict[ClientId, list[float]]:
    """Return the accuracy of each client in the last test, one value per seed."""
    by_client: dict[ClientId, list[float]] = {}
    for run_data in group.runs:
        for client, value in run_data.last_client_accuracy.items():
            by_client.setdefault(client, []).append(value)
    return by_client


def _get_sample_text(results: Results) -> str:
    return next((run.test_sample_text for run in results.runs if run.test_sample_text), "")


def _format_samples(run_data: RunData, client: ClientId) -> str:
    """Return the number of samples that a client is tested on; empty if it is unknown."""
    (entry,) = [entry for entry in run_data.federation["clients"] if entry["id"] == client]
    samples = entry.get("test_samples") if run_data.test_sizes else entry["samples"]
    if samples is None:
        return ""
    return f"{sum(samples):,} sample{'s' * (sum(samples) != 1)}"
