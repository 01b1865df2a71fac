"""What only several methods or variants show: their cost, and accuracy over parameters."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from cadis.analysis import HEADLINE, MEASURE, Comparison, Results, Spread
from cadis.report.style import OKABE_ITO, head, new_axes, new_figure, shown, styled_groups

_Cells = Mapping[tuple[str, ...], Spread]
"""What decides, by the values of the parameters."""
_LETTERS = 70  # so many letters have room along an axis


def draw_sweep(results: Results) -> Figure | None:
    """Draw accuracy over values of parameters: the paper's figure of lambda and epsilon.

    A line over one parameter, a heat map over two; bars for more.
    """
    if results.kind != "sweep":
        return None
    comparison = Comparison(results)
    found = {g.cell: s for g in results.groups if (s := comparison.spread(g, HEADLINE))}
    if not found:
        return None
    draw = {1: _draw_line, 2: _draw_map}.get(len(results.parameters), _draw_bars)
    drawing = draw(found, results.parameters)
    seeds = max(spread.count for spread in found.values())
    over = f", mean and standard deviation of {seeds} seeds" if seeds > 1 else ""
    head(drawing, f"Accuracy over parameters{over}")
    return drawing


def _draw_line(found: _Cells, parameters: tuple[str, ...]) -> Figure:
    drawing, axes = new_axes(6.0)
    names = [shown(values[0]) for values in found]
    means, bars = _error_bars(found)
    axes.errorbar(names, means, yerr=bars, marker="o", capsize=4, color=OKABE_ITO[0])
    axes.tick_params(axis="x", rotation=90 if len("".join(names)) > _LETTERS else 0)
    axes.set(xlabel=parameters[0], ylabel=HEADLINE.title)
    axes.grid(alpha=0.3)
    return drawing


def _draw_map(found: _Cells, parameters: tuple[str, ...]) -> Figure:
    down, across = (list(dict.fromkeys(cell[place] for cell in found)) for place in (0, 1))
    values = np.full((len(down), len(across)), np.nan)
    for (one, other), spread in found.items():
        values[down.index(one), across.index(other)] = spread.mean
    longest = max(len(shown(name)) for name in across)
    width = 2.6 + max(1.0, 0.09 * longest) * len(across)
    drawing, axes = new_axes(width, 1.6 + 0.55 * len(down))
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (one, other), spread in found.items():
        deviation = "" if spread.deviation is None else f"\n± {spread.deviation:.3f}"
        shade = "white" if spread.mean <= middle else "black"
        text, column, row = f"{spread.mean:.3f}{deviation}", across.index(other), down.index(one)
        axes.text(column, row, text, ha="center", va="center", size=8, color=shade)
    axes.set_xticks(range(len(across)), list(map(shown, across)))
    axes.set_yticks(range(len(down)), list(map(shown, down)))
    axes.set(xlabel=parameters[1], ylabel=parameters[0])
    axes.spines[:].set_visible(False)
    drawing.colorbar(image, ax=axes, label=HEADLINE.title)
    return drawing


def _draw_bars(found: _Cells, parameters: tuple[str, ...]) -> Figure:
    names = [", ".join(map("=".join, zip(parameters, cell, strict=True))) for cell in found]
    drawing, axes = new_axes(8.0, 0.8 + 0.28 * len(found))
    means, bars = _error_bars(found)
    axes.barh(range(len(found)), means, xerr=bars, color=OKABE_ITO[0], capsize=3)
    axes.set_yticks(range(len(found)), [shown(name, 60) for name in names], size=8)
    axes.invert_yaxis()
    axes.set(xlabel=HEADLINE.title)
    return drawing


def _error_bars(found: _Cells) -> tuple[list[float], list[list[float]]]:
    """Return means, and how far bars go below and above: one deviation, but not beyond 0 and 1."""
    means = [spread.mean for spread in found.values()]
    spreads = [(spread.mean, spread.deviation or 0.0) for spread in found.values()]
    below = [min(deviation, mean) for mean, deviation in spreads]
    return means, [below, [min(deviation, 1 - mean) for mean, deviation in spreads]]


def draw_time(results: Results) -> Figure | None:
    """Draw the server's milliseconds a round, and the clients' speed by the baseline's."""
    comparison = Comparison(results)
    told = [(group, look) for group, look in styled_groups(results) if not group.is_reference]
    if len(told) < 2 or comparison.baseline is None:
        return None
    names, colours = [shown(g.label) for g, _ in told], [look.colour for _, look in told]
    spreads = [comparison.spread(group, MEASURE["server_seconds"]) for group, _ in told]
    server = [0.0 if spread is None else 1000 * spread.mean for spread in spreads]
    speed = MEASURE["samples_per_second"]
    client = [
        1.0 if group is comparison.baseline else comparison.ratio(group, speed) or 0.0
        for group, _ in told
    ]
    drawing = new_figure(8.4, 1.1 + 0.32 * len(told))
    left, right = drawing.subplots(1, 2, sharey=True)
    for axes, values in ((left, server), (right, client)):
        bars = axes.barh(names, values, color=colours)
        axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize=8)
        axes.margins(x=0.18)
    left.invert_yaxis()
    left.set(xlabel="server: milliseconds a round")
    right.set(xlabel=f"client: samples a second, {shown(comparison.baseline.label)} = 1")
    head(drawing, "Cost of each method")
    return drawing
