"""Whom the global models serve: every class, and clients' own data."""

from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cadis.analysis import Group, Results, RunData
from cadis.report import style
from cadis.report.figures.curves import SHARES, Curve, dress
from cadis.types import ClientId

_FEW = 12  # so many classes have their shares written into the cells
_PANEL = 4.1
_LETTERS = 0.075
"""Inches: the side of a panel but for names, and how far a letter of a name moves it."""
_MOST_SITES = 12  # of more sites, a picture of all names would be no picture
_NUMBERS = 6  # up to so many methods have their accuracies written beside their points
_NAME, _LINE = 56, 28  # letters of a site's name, and of a line of it


def draw_confusion(results: Results) -> Figure | None:
    """Draw what the last models of the first seed made of each class: the paper's first figure."""
    tested = {
        group.label: next((run for run in group.runs if run.summary["confusion"] is not None), None)
        for group in results.groups
    }
    told = {label: run_data for label, run_data in tested.items() if run_data is not None}
    if not told:
        return None
    columns = 2 if len(told) == 4 else min(3, len(told))  # no row of a single panel
    rows, first = -(-len(told) // columns), next(iter(told.values()))
    longest = max(len(style.shown(name)) for name in first.classes)
    side = _PANEL + _LETTERS * max(0, longest - 4)
    drawing = style.new_figure(columns * side + 1.2, rows * side + 0.2, layout="compressed")
    panels = style.panel_grid(drawing, len(told), columns)
    for axes, (label, run_data) in zip(panels, told.items(), strict=True):
        _fill_confusion(axes, label, run_data)
    image, label = panels[0].images[0], "share of the true class"
    drawing.colorbar(image, ax=drawing.axes, label=label, shrink=1 / rows)
    seed = f", seed {first.seed}" if len(results.runs) > len(results.groups) else ""
    rare = "\n*: class of a smallest cluster" if first.rare else ""
    style.head(drawing, f"What the last models make of each class{seed}{rare}")
    return drawing


def _fill_confusion(axes: Axes, label: str, run_data: RunData) -> None:
    counts = np.array(run_data.summary["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(shares)
    style.heat_map(axes, shares)
    if size <= _FEW:
        for row, column in np.argwhere(shares >= 0.005):
            share = shares[row, column]
            shade = "white" if share < 0.6 else "black"
            text = f"{share:.2f}".removeprefix("0") if share < 0.995 else "1"
            axes.text(column, row, text, ha="center", va="center", size=7, color=shade)
    places = range(0, size, -(-size // 20))
    names = [f"{style.shown(run_data.classes[n])}{' *' * (n in run_data.rare)}" for n in places]
    turned = 90 if max(map(len, names)) > 4 else 0
    axes.set_xticks(places, names, rotation=turned, size=8)
    axes.set_yticks(places, names, size=8)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(f"{style.shown(label, 36)}, after round {run_data.summary['rounds']}", size=10)


def draw_clients(results: Results) -> Figure | None:
    """Draw accuracy across clients at the end: by name where there are few, else as a box."""
    told = [(group, look) for group, look in style.styled_groups(results) if _last_tests(group)]
    if not told:
        return None
    sites = list(results.runs[0].true_clusters)
    are_named = not all(str(client).isdecimal() for client in sites)
    same = all(list(run.true_clusters) == sites for run in results.runs)
    if same and are_named and len(sites) <= _MOST_SITES:
        return _draw_sites(results, told, sites)
    drawing, axes = style.new_axes(6.4, 1.0 + 0.4 * len(told))
    for row, (group, look) in enumerate(told):
        values = [v for run in group.runs for v in run.last_client_accuracy.values()]
        _plot_box(axes, row, np.array(values), look.colour)
    axes.set_yticks(range(len(told)), [style.shown(group.label) for group, _ in told])
    axes.invert_yaxis()
    axes.set(xlabel=f"accuracy of the last global model on a client's {results.own_data}")
    axes.set_xlim(-0.02, 1.02)
    axes.grid(axis="x", alpha=0.3)
    seeds = " and seeds" if max(len(group.runs) for group, _ in told) > 1 else ""
    style.head(drawing, f"Accuracy across {_tested(results)}{seeds}; box: the middle half")
    return drawing


def _plot_box(axes: Axes, row: int, values: Curve, colour: str) -> None:
    """Plot a row: a box from the worst to the best, and a point for each value."""
    box = {"color": colour, "lw": 1.3}
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
    axes.scatter(values, row + jitter, s=9, color=colour, alpha=0.5, lw=0)


def draw_client_rounds(results: Results) -> Figure | None:
    """Draw accuracy across clients over rounds: mean, and a band of their standard deviation."""
    measured = [run_data for run_data in results.runs if len(run_data.client_accuracy) > 1]
    if not measured:
        return None
    drawing, axes = style.new_axes()
    for group, look in style.styled_groups(results):
        runs = [run_data for run_data in group.runs if run_data in measured]
        if runs:
            rounds, mean, deviation = _average_clients(runs)
            line = {"color": look.colour, "ls": style.DASHES[look.dash]}
            axes.plot(rounds, mean, **line, marker=".", label=style.label_of(group))
            low, high = np.clip([mean - deviation, mean + deviation], *SHARES)
            axes.fill_between(rounds, low, high, color=look.colour, alpha=0.12, lw=0)
    dress(axes, max(len(run_data.history) for run_data in measured), "accuracy")
    style.legend_of_lines(drawing)
    title = f"Accuracy of the global model on clients' {results.own_data}"
    style.head(drawing, f"{title}\nmean and standard deviation across {_tested(results)}")
    return drawing


def _average_clients(runs: Sequence[RunData]) -> tuple[list[int], Curve, Curve]:
    """Return rounds, and mean and deviation over clients, averaged over the seeds."""
    rounds = sorted(set.intersection(*(set(run_data.client_accuracy) for run_data in runs)))
    tests = [[list(s.client_accuracy[r].values()) for r in rounds] for s in runs]
    mean = np.mean([[np.mean(values) for values in one] for one in tests], axis=0)
    return rounds, mean, np.mean([[np.std(values) for values in one] for one in tests], axis=0)


def _draw_sites(
    results: Results, told: Sequence[tuple[Group, style.Look]], sites: Sequence[ClientId]
) -> Figure:
    """Draw a row for each site: the accuracy of each method on its own data, mean over seeds."""
    drawing, axes = style.new_axes(7.2, min(16.0, 0.8 + len(sites) * max(0.5, 0.2 * len(told))))
    for number, (group, look) in enumerate(told):
        offset = 0.8 * ((number + 0.5) / len(told) - 0.5)
        _plot_sites(axes, group, sites, offset, look, is_written=len(told) <= _NUMBERS)
    names = [f"{fill(style.shown(s, _NAME), _LINE)}\n{_samples(results.runs[0], s)}" for s in sites]
    axes.set_yticks(range(len(sites)), names, size=8)
    for border in range(1, len(sites)):
        axes.axhline(border - 0.5, color="#dddddd", lw=0.8)
    axes.set_ylim(len(sites) - 0.5, -0.5)
    axes.set(xlabel=f"accuracy of the last global model on {results.own_data}")
    axes.set_xlim(-0.02, 1.12)  # there is room for the number beside a perfect one
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.grid(axis="x", alpha=0.3)
    style.legend_of_lines(drawing)
    seeds = max(len(group.runs) for group, _ in told)
    over = f", mean and range of {seeds} seeds" if seeds > 1 else ""
    style.head(drawing, f"Accuracy at each site{over}")
    return drawing


def _plot_sites(
    axes: Axes,
    group: Group,
    sites: Sequence[ClientId],
    offset: float,
    look: style.Look,
    is_written: bool,
) -> None:
    """Plot the points of one method, and a line from the worst seed to the best."""
    found, label = _last_tests(group), style.label_of(group)
    for number, site in enumerate(sites):
        if not (values := found.get(site)):
            continue
        mean, place = float(np.mean(values)), number + offset
        axes.plot([min(values), max(values)], [place, place], color=look.colour, lw=1.5)
        axes.plot([mean], [place], "o", ms=5, color=look.colour, label=label)
        if is_written:
            text = f"{mean:.2f}"
            axes.text(max(values) + 0.02, place, text, va="center", size=7, color="#333333")


def _last_tests(group: Group) -> dict[ClientId, list[float]]:
    """Return the last accuracy at each client that was tested, of each seed."""
    found: dict[ClientId, list[float]] = {}
    for run_data in group.runs:
        for client, value in run_data.last_client_accuracy.items():
            found.setdefault(client, []).append(value)
    return found


def _tested(results: Results) -> str:
    return next((s.clients_tested for s in results.runs if s.clients_tested), "clients")


def _samples(run_data: RunData, site: ClientId) -> str:
    """Return how many samples a site is tested on, where that is known."""
    (told,) = [client for client in run_data.federation["clients"] if client["id"] == site]
    samples = told.get("test_samples") if run_data.test_sizes else told["samples"]
    if samples is None:
        return ""
    return f"{sum(samples):,} sample{'s' * (sum(samples) != 1)}"
