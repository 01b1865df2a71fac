"""Whom the global models serve: every class, and clients' own data."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from cadis.analysis import Group, Results, RunData
from cadis.report.figures.curves import Curve, dress
from cadis.report.figures.labels import label_of, legend_of_lines
from cadis.report.figures.sites import draw_sites, named_sites
from cadis.report.style import DASHES, Place, figure, head, heat_map, looks, shown

_FEW = 12
"""So many classes have their shares written into the cells."""
_PANEL = 4.1
_LETTERS = 0.075
"""Inches: the side of a panel but for names, and how far a letter of a name moves it."""


def draw_confusion(results: Results, place: Place) -> Path | None:
    """What the last models of the first seed made of each true class: the paper's first figure."""
    told = [
        (group, run_data) for group in results.groups if (run_data := _first(group)) is not None
    ]
    if not told:
        return None
    path, columns = place("confusion"), _columns(len(told))
    rows = -(-len(told) // columns)
    longest = max(len(shown(name)) for name in told[0][1].classes)
    side = _PANEL + _LETTERS * max(0, longest - 4)
    with figure(path, columns * side + 1.2, rows * side + 0.2, layout="compressed") as drawing:
        panels = list(drawing.subplots(rows, columns, squeeze=False).flat)
        for axes, (group, run_data) in zip(panels, told, strict=False):
            _panel(axes, group.label, run_data)
        for axes in panels[len(told) :]:
            axes.set_axis_off()
        image = panels[0].images[0]
        drawing.colorbar(image, ax=panels, label="share of the true class", shrink=1 / rows)
        head(drawing, _confusion_title(results, told[0][1]))
    return path.with_suffix(".png")


def _columns(panels: int) -> int:
    """Three side by side, but no row of a single one where two rows of two hold as many."""
    return 2 if panels == 4 else min(3, panels)


def _confusion_title(results: Results, run_data: RunData) -> str:
    seed = f", seed {run_data.seed}" if len(results.runs) > len(results.groups) else ""
    rare = "\n*: class of a smallest cluster" if run_data.rare else ""
    return f"What the last models make of each class{seed}{rare}"


def _first(group: Group) -> RunData | None:
    """The first run whose last model was tested by class."""
    return next((s for s in group.runs if s.summary["confusion"] is not None), None)


def _panel(axes: Axes, label: str, run_data: RunData) -> None:
    counts = np.array(run_data.summary["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(shares)
    heat_map(axes, shares)
    if size <= _FEW:
        for row, column in np.argwhere(shares >= 0.005):
            share = shares[row, column]
            shade = "white" if share < 0.6 else "black"
            text = f"{share:.2f}".removeprefix("0") if share < 0.995 else "1"
            axes.text(column, row, text, ha="center", va="center", size=7, color=shade)
    step = -(-size // 20)
    places = range(0, size, step)
    names = [
        f"{shown(name)} *" if place in run_data.rare else shown(name)
        for place, name in zip(places, run_data.names(places), strict=True)
    ]
    turned = 90 if max(map(len, names)) > 4 else 0
    axes.set_xticks(places, names, rotation=turned, size=8)
    axes.set_yticks(places, names, size=8)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(f"{shown(label, 36)}, after round {run_data.summary['rounds']}", size=10)


def draw_clients(results: Results, place: Place) -> Path | None:
    """Accuracy across clients at the end: by name where there are few, else a point and a box."""
    told = [(group, values) for group in results.groups if len(values := _last(group))]
    if not told:
        return None
    if sites := named_sites(results):
        return draw_sites(results, sites, place("clients"))
    path, styles = place("clients"), looks([group.name for group in results.groups])
    with figure(path, 6.4, 1.0 + 0.4 * len(told)) as drawing:
        axes = drawing.subplots()
        for row, (group, values) in enumerate(told):
            _box(axes, row, values, styles[results.groups.index(group)].colour)
        axes.set_yticks(range(len(told)), [shown(group.label) for group, _ in told])
        axes.invert_yaxis()
        axes.set(xlabel=f"accuracy of the last global model on a client's {results.own_data}")
        axes.set_xlim(-0.02, 1.02)
        axes.grid(axis="x", alpha=0.3)
        seeds = " and seeds" if max(len(group.runs) for group, _ in told) > 1 else ""
        head(drawing, f"Accuracy across {_tested(results)}{seeds}; box: the middle half")
    return path.with_suffix(".png")


def _box(axes: Axes, row: int, values: Curve, colour: str) -> None:
    """A row: a box from the worst to the best, and a point for each value."""
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


def draw_client_rounds(results: Results, place: Place) -> Path | None:
    """Accuracy across clients over rounds: mean, and a band of their standard deviation."""
    measured = [s for s in results.runs if len(s.client_accuracy) > 1]
    if not measured:
        return None
    path, styles = place("clients-rounds"), looks([group.name for group in results.groups])
    with figure(path, 6.4, 3.2) as drawing:
        axes = drawing.subplots()
        for group, look in zip(results.groups, styles, strict=True):
            runs = [run_data for run_data in group.runs if run_data in measured]
            if runs:
                rounds, mean, deviation = _over_seeds(runs)
                line = {"color": look.colour, "ls": DASHES[look.dash]}
                axes.plot(rounds, mean, **line, marker=".", label=label_of(group))
                low, high = np.clip([mean - deviation, mean + deviation], 0, 1)
                axes.fill_between(rounds, low, high, color=look.colour, alpha=0.12, lw=0)
        longest = max(len(s.history) for s in measured)
        dress(axes, longest, "accuracy")
        legend_of_lines(drawing)
        title = f"Accuracy of the global model on clients' {results.own_data}"
        head(drawing, f"{title}\nmean and standard deviation across {_tested(results)}")
    return path.with_suffix(".png")


def _tested(results: Results) -> str:
    """The clients that were tested, in words."""
    return next((s.clients_tested for s in results.runs if s.clients_tested), "clients")


def _last(group: Group) -> Curve:
    """The last accuracy of every client that was tested, all seeds together."""
    found = [list(s.client_accuracy.values())[-1] for s in group.runs if s.client_accuracy]
    return np.array([value for tested in found for value in tested.values()], float)


def _over_seeds(runs: list[RunData]) -> tuple[list[int], Curve, Curve]:
    """Rounds, and mean and deviation over clients, averaged over the seeds."""
    rounds = sorted(set.intersection(*(set(run_data.client_accuracy) for run_data in runs)))
    tests = [[list(s.client_accuracy[r].values()) for r in rounds] for s in runs]
    mean = np.mean([[np.mean(values) for values in one] for one in tests], axis=0)
    return rounds, mean, np.mean([[np.std(values) for values in one] for one in tests], axis=0)
