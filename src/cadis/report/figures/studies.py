"""What only several methods or variants show: their cost, and accuracy over parameters."""

from pathlib import Path

import numpy as np

from cadis.analysis import HEADLINE, MEASURE, Comparison, Results, Spread
from cadis.report.style import OKABE_ITO, Place, figure, head, looks, shown

_LETTERS = 70
"""So many letters have room along an axis."""


def draw_sweep(results: Results, place: Place) -> Path | None:
    """Accuracy over values of parameters: the paper's figure of lambda and epsilon.

    A line over one parameter, a heat map over two; bars for more.
    """
    if results.kind != "sweep":
        return None
    comparison, path = Comparison(results), place("sweep")
    found = {g.cell: s for g in results.groups if (s := comparison.spread(g, HEADLINE))}
    if not found:
        return None
    draw = {1: _line, 2: _map}.get(len(results.parameters), _bars)
    draw(found, results.parameters, path)
    return path.with_suffix(".png")


def _line(found: dict[tuple[str, ...], Spread], parameters: tuple[str, ...], path: Path) -> None:
    with figure(path, 6.0, 3.2) as drawing:
        axes = drawing.subplots()
        names = [shown(values[0]) for values in found]
        means = [spread.mean for spread in found.values()]
        bars = _deviations(found)
        axes.errorbar(names, means, yerr=bars, marker="o", capsize=4, color=OKABE_ITO[0])
        axes.tick_params(axis="x", rotation=90 if len("".join(names)) > _LETTERS else 0)
        axes.set(xlabel=parameters[0], ylabel=HEADLINE.title)
        axes.grid(alpha=0.3)
        head(drawing, _title(found))


def _map(found: dict[tuple[str, ...], Spread], parameters: tuple[str, ...], path: Path) -> None:
    down, across = (list(dict.fromkeys(cell[place] for cell in found)) for place in (0, 1))
    values = np.full((len(down), len(across)), np.nan)
    for (one, other), spread in found.items():
        values[down.index(one), across.index(other)] = spread.mean
    longest = max(len(shown(name)) for name in across)
    width = 2.6 + max(1.0, 0.09 * longest) * len(across)
    with figure(path, width, 1.6 + 0.55 * len(down)) as drawing:
        axes = drawing.subplots()
        image = axes.imshow(values, cmap="viridis", aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                middle = (np.nanmin(values) + np.nanmax(values)) / 2
                shade = "white" if value <= middle else "black"
                text = _cell(found[down[row], across[column]])
                axes.text(column, row, text, ha="center", va="center", size=8, color=shade)
        axes.set_xticks(range(len(across)), list(map(shown, across)))
        axes.set_yticks(range(len(down)), list(map(shown, down)))
        axes.set(xlabel=parameters[1], ylabel=parameters[0])
        axes.spines[:].set_visible(False)
        drawing.colorbar(image, ax=axes, label=HEADLINE.title)
        head(drawing, _title(found))


def _bars(found: dict[tuple[str, ...], Spread], parameters: tuple[str, ...], path: Path) -> None:
    names = [", ".join(map("=".join, zip(parameters, cell, strict=True))) for cell in found]
    with figure(path, 8.0, 0.8 + 0.28 * len(found)) as drawing:
        axes = drawing.subplots()
        means, rows = [spread.mean for spread in found.values()], range(len(found))
        axes.barh(rows, means, xerr=_deviations(found), color=OKABE_ITO[0], capsize=3)
        axes.set_yticks(rows, [shown(name, 60) for name in names], size=8)
        axes.invert_yaxis()
        axes.set(xlabel=HEADLINE.title)
        head(drawing, _title(found))


def _deviations(found: dict[tuple[str, ...], Spread]) -> list[list[float]]:
    """How far bars go below and above the means: one deviation, but no accuracy is above 1."""
    spreads = [(spread.mean, spread.deviation or 0.0) for spread in found.values()]
    below = [min(deviation, mean) for mean, deviation in spreads]
    return [below, [min(deviation, 1 - mean) for mean, deviation in spreads]]


def _cell(spread: Spread) -> str:
    deviation = "" if spread.deviation is None else f"\n± {spread.deviation:.3f}"
    return f"{spread.mean:.3f}{deviation}"


def _title(found: dict[tuple[str, ...], Spread]) -> str:
    seeds = max(spread.count for spread in found.values())
    over = f", mean and standard deviation of {seeds} seeds" if seeds > 1 else ""
    return f"Accuracy over parameters{over}"


def draw_time(results: Results, place: Place) -> Path | None:
    """The server's milliseconds a round, and the clients' speed by the baseline's."""
    comparison, path = Comparison(results), place("time")
    groups = [group for group in results.groups if not group.is_reference]
    if len(groups) < 2 or comparison.baseline is None:
        return None
    styles = looks([group.name for group in results.groups])
    colours = [styles[results.groups.index(group)].colour for group in groups]
    spreads = [comparison.spread(group, MEASURE["server_seconds"]) for group in groups]
    server = [0.0 if spread is None else 1000 * spread.mean for spread in spreads]
    ratios = [comparison.ratio(group, MEASURE["samples_per_second"]) for group in groups]
    client = [
        1.0 if group is comparison.baseline else (ratio or 0.0)
        for group, ratio in zip(groups, ratios, strict=True)
    ]
    with figure(path, 8.4, 1.1 + 0.32 * len(groups)) as drawing:
        left, right = drawing.subplots(1, 2, sharey=True)
        names = [shown(group.label) for group in groups]
        for axes, values, form in ((left, server, "{:.2f}"), (right, client, "{:.2f}")):
            bars = axes.barh(names, values, color=colours)
            axes.bar_label(bars, fmt=form, padding=3, fontsize=8)
            axes.margins(x=0.18)
        left.invert_yaxis()
        left.set(xlabel="server: milliseconds a round")
        right.set(xlabel=f"client: samples a second, {shown(comparison.baseline.label)} = 1")
        head(drawing, "Cost of each method")
    return path.with_suffix(".png")
