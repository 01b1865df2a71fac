"""Figures of studies: computing time of methods, and the main metric over parameters."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from cadis.analysis import METRICS, RANKING_METRIC, Comparison, Results, Spread
from cadis.report.style import OKABE_ITO, add_title, get_group_styles, new_axes, new_figure, shorten

_Cells = Mapping[tuple[str, ...], Spread]
"""Spread of the main metric by the values of the parameters."""
_MAX_CHARS = 70  # characters that fit along an axis


def draw_sweep(results: Results) -> Figure | None:
    """Draw the main metric over parameters, as the paper does for lambda and epsilon.

    One parameter gives a line, two give a heat map, and more give bars.
    """
    if results.kind != "sweep":
        return None
    comparison = Comparison(results)
    cells = {
        g.cell: s for g in results.groups if (s := comparison.compute_spread(g, RANKING_METRIC))
    }
    if not cells:
        return None
    draw = {1: _draw_line, 2: _draw_map}.get(len(results.parameters), _draw_bars)
    drawing = draw(cells, results.parameters, comparison.metric)
    seeds = max(spread.count for spread in cells.values())
    key = f"\nmean ± one standard deviation of {seeds} seeds" if seeds > 1 else ""
    title = f"{comparison.metric_title} for each setting, mean of the {RANKING_METRIC.title}"
    add_title(drawing, f"{title}{key}")
    return drawing


def _draw_line(cells: _Cells, parameters: tuple[str, ...], metric: str) -> Figure:
    drawing, axes = new_axes(6.0)
    names = [shorten(values[0]) for values in cells]
    means, bars = _compute_error_bars(cells)
    axes.errorbar(names, means, yerr=bars, marker="o", capsize=4, color=OKABE_ITO[0])
    axes.tick_params(axis="x", rotation=90 if len("".join(names)) > _MAX_CHARS else 0)
    axes.set(xlabel=parameters[0], ylabel=metric)
    axes.grid(alpha=0.3)
    return drawing


def _draw_map(cells: _Cells, parameters: tuple[str, ...], metric: str) -> Figure:
    down, across = (list(dict.fromkeys(cell[index] for cell in cells)) for index in (0, 1))
    values = np.full((len(down), len(across)), np.nan)
    for (one, other), spread in cells.items():
        values[down.index(one), across.index(other)] = spread.mean
    longest = max(len(shorten(name)) for name in across)
    width = 2.6 + max(1.0, 0.09 * longest) * len(across)
    drawing, axes = new_axes(width, 1.6 + 0.55 * len(down))
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (one, other), spread in cells.items():
        deviation = "" if spread.deviation is None else f"\n± {spread.deviation:.3f}"
        shade = "white" if spread.mean <= middle else "black"
        text, column, row = f"{spread.mean:.3f}{deviation}", across.index(other), down.index(one)
        axes.text(column, row, text, ha="center", va="center", size=8, color=shade)
    axes.set_xticks(range(len(across)), list(map(shorten, across)))
    axes.set_yticks(range(len(down)), list(map(shorten, down)))
    axes.set(xlabel=parameters[1], ylabel=parameters[0])
    axes.spines[:].set_visible(False)
    drawing.colorbar(image, ax=axes, label=metric)
    return drawing


def _draw_bars(cells: _Cells, parameters: tuple[str, ...], metric: str) -> Figure:
    names = [", ".join(map("=".join, zip(parameters, cell, strict=True))) for cell in cells]
    drawing, axes = new_axes(8.0, 0.8 + 0.28 * len(cells))
    means, bars = _compute_error_bars(cells)
    axes.barh(range(len(cells)), means, xerr=bars, color=OKABE_ITO[0], capsize=3)
    axes.set_yticks(range(len(cells)), [shorten(name, 60) for name in names], size=8)
    axes.invert_yaxis()
    axes.set(xlabel=metric)
    return drawing


def _compute_error_bars(cells: _Cells) -> tuple[list[float], list[list[float]]]:
    """Return means, and the lengths of error bars: one deviation, but not beyond 0 and 1."""
    means = [spread.mean for spread in cells.values()]
    spreads = [(spread.mean, spread.deviation or 0.0) for spread in cells.values()]
    below = [min(deviation, mean) for mean, deviation in spreads]
    return means, [below, [min(deviation, 1 - mean) for mean, deviation in spreads]]


def draw_time(results: Results) -> Figure | None:
    """Draw the server's time per round, and the clients' speed relative to the baseline."""
    comparison = Comparison(results)
    pairs = [(g, line_style) for g, line_style in get_group_styles(results) if not g.is_reference]
    if len(pairs) < 2 or comparison.baseline is None:
        return None
    names, colors = [shorten(g.label) for g, _ in pairs], [style.color for _, style in pairs]
    spreads = [comparison.compute_spread(group, METRICS["server_seconds"]) for group, _ in pairs]
    server = [0.0 if spread is None else 1000 * spread.mean for spread in spreads]
    speed = METRICS["samples_per_second"]
    client = [
        1.0 if group is comparison.baseline else comparison.compute_ratio(group, speed) or 0.0
        for group, _ in pairs
    ]
    drawing = new_figure(8.4, 1.1 + 0.32 * len(pairs))
    left, right = drawing.subplots(1, 2, sharey=True)
    for axes, values in ((left, server), (right, client)):
        bars = axes.barh(names, values, color=colors)
        axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize=8)
        axes.margins(x=0.18)
    left.invert_yaxis()
    left.set(xlabel="server: milliseconds per round")
    baseline = shorten(comparison.baseline.label)
    right.set(xlabel=f"clients: samples per second relative to {baseline}")
    add_title(drawing, "Computing time of each method")
    return drawing
