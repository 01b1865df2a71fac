"""How the classifier layer behaves: heat maps of its updates, and a table."""

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.markup import escape

from cadis.analysis import HeadProbe, Panel
from cadis.report.formats import listed
from cadis.report.style import figure_style, new_figure, save_figure, shown
from cadis.report.terminal_table import Fitting, fitting_table

_COLOURS = "PuOr_r"
_GREW, _SHRANK = "#b35806", "#542788"
"""The ends of the colour map: orange and purple, which everybody can tell apart."""

_STRETCH = 20  # how many times as large as what is drawn to scale the largest change is

_LABELS = 25
_FINE = 1000  # rows and columns of a heat map, at least: what is only made smaller stays sharp

_BIAS_PART = 16
"""The bias is drawn as wide as this part of the features: one column in 500 would not be seen."""


def layer_table(probe: HeadProbe) -> Fitting:
    """A row for each model: what it was trained on, what its layer betrays, and the cosines."""
    alone = [[""] * len(probe.clients)] * len(probe.examples)
    told = [[f"{cosine:.2f}" for cosine in row] for row in probe.cosines.tolist()]
    rows = []
    for panel, cosines in zip(probe.panels, [*alone, *told], strict=True):
        true, found = (
            escape(listed([probe.classes[number] for number in numbers]))
            for numbers in (panel.trained, panel.grown)
        )
        as_expected = set(panel.trained) == set(panel.grown)
        betrayed = found if as_expected else f"[yellow]{found or 'none'}[/yellow]"
        rows.append([panel.title, str(panel.samples), true, betrayed, *cosines])
    title = escape(f"{probe.dataset}, {probe.model}: {probe.training}")
    words = ("trained\non", "rows that\ngrew")
    clients = [f"cosine,\n{panel.title}" for panel in probe.clients]
    return fitting_table(title, ["model", "samples", *words, *clients], rows, words)


def draw_layer(probe: HeadProbe, path: Path) -> Path:
    """A heat map of each update, classes by features, beside the sums of its rows."""
    with figure_style():
        return save_figure(_fill_figure(probe), path)


def _fill_figure(probe: HeadProbe) -> Figure:
    """Draw all panels with one colour bar, so large that all names have room."""
    panels, norm = probe.panels, _norm(probe.panels)
    longest = max(len(shown(name)) for name in probe.classes)
    width = len(panels) * (3.1 + 0.06 * longest) + 0.8
    drawing = new_figure(width, min(7.5, max(3.6, 2.2 + 0.2 * len(probe.classes))))
    ratios = [4.0, 1.2] * len(panels)
    axes = drawing.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    widest = max(float(panel.row_sums.abs().max()) for panel in panels) or 1.0
    for place, panel in enumerate(panels):
        heat, sums = axes[2 * place], axes[2 * place + 1]
        _heat_map(heat, probe, panel, norm)
        _mark_classes(heat, probe, panel, all_names=place == 0)
        _row_sums(sums, panel, widest)
        heat.set_title(_title(probe, place), size=10)
    axes[0].set_ylabel("class (bold: trained on)")
    tick = _one_digit(float(norm.vmax or 1))
    drawing.colorbar(
        ScalarMappable(norm, _COLOURS),
        ax=axes,
        label="change of the weight",
        extend="both",
        ticks=[-tick, -tick / 10, 0, tick / 10, tick],
        format="{x:g}",
        aspect=30,
        pad=0.01,
    ).minorticks_off()
    names = f"{shown(probe.dataset)}, {shown(probe.model)}"
    what = f"change of the classifier layer in local training ({probe.training})"
    drawing.suptitle(f"{names}: {what}; asinh scales", x=0.01, ha="left", size=12)
    return drawing


def _norm(panels: Sequence[Panel]) -> AsinhNorm:
    """One scale for all, centred at 0; small changes are stretched so that they are seen."""
    changes = np.abs(np.concatenate([panel.update.numpy().ravel() for panel in panels]))
    high = float(np.quantile(changes, 0.995)) or 1.0
    return AsinhNorm(linear_width=high / _STRETCH, vmin=-high, vmax=high)


def _heat_map(axes: Axes, probe: HeadProbe, panel: Panel, norm: AsinhNorm) -> None:
    """Classes by features; the bias at the right."""
    values = panel.update.numpy()
    classes, features = len(values), values.shape[1] - probe.has_bias
    ticks = MaxNLocator(3, integer=True).tick_values(0, features)
    marks = {tick: f"{tick:.0f}" for tick in ticks if tick <= 0.8 * features}
    if probe.has_bias:
        wide = max(1, features // _BIAS_PART)
        values = np.concatenate([values[:, :-1], np.repeat(values[:, -1:], wide, axis=1)], axis=1)
        axes.axvline(features - 0.5, color="black", lw=0.8)
        marks[features + (wide - 1) / 2] = "bias"
    rows, columns = (-(-_FINE // size) for size in values.shape)
    enlarged = values.repeat(rows, axis=0).repeat(columns, axis=1)
    extent = (-0.5, values.shape[1] - 0.5, classes - 0.5, -0.5)
    axes.imshow(enlarged, cmap=_COLOURS, norm=norm, aspect="auto", extent=extent)
    axes.set_xticks(list(marks), list(marks.values()), size=8)
    axes.set_xlabel("feature")
    axes.spines[:].set_visible(False)


def _mark_classes(axes: Axes, probe: HeadProbe, panel: Panel, all_names: bool) -> None:
    """The classes trained on in bold, close ones together; some of the others in between."""
    classes = len(probe.classes)
    step = -(-classes // _LABELS)
    trained = np.sort(panel.trained)
    gaps = np.flatnonzero(np.diff(trained) > classes // (2 * _LABELS))
    bold = {group.mean(): group for group in np.split(trained, gaps + 1)}
    free = [n for n in range(0, classes, step) if all(abs(n - t) >= step for t in panel.trained)]
    marks = bold | ({float(n): np.array([n]) for n in free} if all_names else {})
    texts = ["\n".join(shown(probe.classes[n]) for n in group) for group in marks.values()]
    axes.set_yticks(list(marks), texts, size=8)
    for place, label in zip(marks, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if place in bold else "normal")


def _row_sums(axes: Axes, panel: Panel, widest: float) -> None:
    """Bars on a scale like that of the colours, so that small ones are seen."""
    sums: NDArray[np.float32] = panel.row_sums.numpy()
    axes.barh(range(len(sums)), sums, height=0.8, color=np.where(sums > 0, _GREW, _SHRANK))
    axes.axvline(0, color="black", lw=0.6)
    axes.set_xscale("asinh", linear_width=widest / _STRETCH)
    tick = _one_digit(widest)
    axes.set_xticks([-tick, 0, tick], [f"\N{MINUS SIGN}{tick:g}", "0", f"{tick:g}"], size=8)
    axes.set(xlim=(-1.3 * widest, 1.3 * widest), ylim=(len(sums) - 0.5, -0.5), yticks=[])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("row sum")
    axes.spines["left"].set_visible(False)


def _title(probe: HeadProbe, place: int) -> str:
    """Who it is, and how alike it is to the other clients."""
    panel = probe.panels[place]
    letter, client = ascii_lowercase[place], place - len(probe.examples)
    if client < 0:
        return f"({letter}) trained on {panel.title}"
    cosines = zip(probe.clients, probe.cosines[client].tolist(), strict=True)
    told = [f"cosine to {who.title}: {c:.2f}" for who, c in cosines if who is not panel]
    return "\n".join([f"({letter}) {panel.title}", *told]).replace("-", "\N{MINUS SIGN}")


def _one_digit(value: float) -> float:
    """The largest number of one digit that is not above."""
    unit = 10.0 ** floor(log10(value))
    return floor(value / unit) * unit
