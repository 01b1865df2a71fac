"""Table and heat maps of updates of the classifier layer."""

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

from cadis._io import escape_controls
from cadis.analysis import HeadProbe, ProbedModel
from cadis.report.formats import join_names
from cadis.report.style import figure_style, new_figure, save_figure, shorten
from cadis.report.terminal_table import TerminalTable, make_terminal_table

_COLORS = "PuOr_r"
_GREW, _SHRANK = "#b35806", "#542788"
"""Ends of the color map: orange and purple, which are safe for color-blind readers."""

_STRETCH = 20  # largest change relative to the linear part of the asinh scale
_MAX_LABELS = 25  # class names along an axis
_MIN_PIXELS = 1000  # rows and columns of an image, so that scaling does not blur it
_BIAS_PART = 16  # the bias column is drawn as wide as 1/16 of the features, to be visible


def make_layer_table(probe: HeadProbe) -> TerminalTable:
    """Return a table of models: classes trained on, classes that the update reveals, cosines."""
    empty = [[""] * len(probe.clients)] * len(probe.examples)
    cosines = [[f"{cosine:.2f}" for cosine in row] for row in probe.cosines.tolist()]
    rows = []
    for model, cells in zip(probe.models, [*empty, *cosines], strict=True):
        trained, grown = (
            escape(join_names([probe.classes[index] for index in indices]))
            for indices in (model.trained, model.grown_classes)
        )
        is_expected = set(model.trained) == set(model.grown_classes)
        revealed = grown if is_expected else f"[yellow]{grown or 'none'}[/yellow]"
        rows.append([model.title, str(model.samples), trained, revealed, *cells])
    title = escape(f"{probe.dataset}, {probe.model}: {probe.training}")
    words = ("trained on\nclasses", "classes with\npositive sum")
    clients = [f"cosine to\n{model.title}" for model in probe.clients]
    return make_terminal_table(title, ["model", "samples", *words, *clients], rows, words)


def draw_layer(probe: HeadProbe, path: Path) -> Path:
    """Draw each update as a heat map (classes in rows, features in columns), with row sums."""
    with figure_style():
        return save_figure(_fill_figure(probe), path)


def _fill_figure(probe: HeadProbe) -> Figure:
    """Draw all models with one color bar, in a figure that is wide enough for all names."""
    models, norm = probe.models, _make_norm(probe.models)
    longest = max(len(shorten(name)) for name in probe.classes)
    width = len(models) * (3.1 + 0.06 * longest) + 0.8
    drawing = new_figure(width, min(7.5, max(3.6, 2.2 + 0.2 * len(probe.classes))))
    ratios = [4.0, 1.2] * len(models)
    axes = drawing.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    max_sum = max(float(model.row_sums.abs().max()) for model in models) or 1.0
    for index, model in enumerate(models):
        heat, sums = axes[2 * index], axes[2 * index + 1]
        _draw_update(heat, probe, model, norm)
        _label_classes(heat, probe, model, all_names=index == 0)
        _draw_row_sums(sums, model, max_sum)
        heat.set_title(_make_title(probe, index), size=10)
    axes[0].set_ylabel("class (bold: trained on)")
    tick = _floor_to_one_digit(float(norm.vmax or 1))
    drawing.colorbar(
        ScalarMappable(norm, _COLORS),
        ax=axes,
        label="change of a weight",
        extend="both",
        ticks=[-tick, -tick / 10, 0, tick / 10, tick],
        format="{x:g}",
        aspect=30,
        pad=0.01,
    ).minorticks_off()
    names = f"{shorten(probe.dataset)}, {shorten(probe.model)}"
    change = f"change of the classifier layer in local training ({probe.training})"
    drawing.suptitle(f"{names}: {change}; asinh scales", x=0.01, ha="left", size=12)
    return drawing


def _make_norm(models: Sequence[ProbedModel]) -> AsinhNorm:
    """Return one color scale for all models, centered at 0, that makes small changes visible."""
    changes = np.abs(np.concatenate([model.update.numpy().ravel() for model in models]))
    high = float(np.quantile(changes, 0.995)) or 1.0
    return AsinhNorm(linear_width=high / _STRETCH, vmin=-high, vmax=high)


def _draw_update(axes: Axes, probe: HeadProbe, model: ProbedModel, norm: AsinhNorm) -> None:
    """Draw an update with classes in rows and features in columns; the bias is at the right."""
    values = model.update.numpy()
    classes, features = len(values), values.shape[1] - probe.has_bias
    ticks = MaxNLocator(3, integer=True).tick_values(0, features)
    labels = {tick: f"{tick:.0f}" for tick in ticks if tick <= 0.8 * features}
    if probe.has_bias:
        wide = max(1, features // _BIAS_PART)
        values = np.concatenate([values[:, :-1], np.repeat(values[:, -1:], wide, axis=1)], axis=1)
        axes.axvline(features - 0.5, color="black", lw=0.8)
        labels[features + (wide - 1) / 2] = "bias"
    rows, columns = (-(-_MIN_PIXELS // size) for size in values.shape)
    enlarged = values.repeat(rows, axis=0).repeat(columns, axis=1)
    extent = (-0.5, values.shape[1] - 0.5, classes - 0.5, -0.5)
    axes.imshow(enlarged, cmap=_COLORS, norm=norm, aspect="auto", extent=extent)
    axes.set_xticks(list(labels), list(labels.values()), size=8)
    axes.set_xlabel("feature")
    axes.spines[:].set_visible(False)


def _label_classes(axes: Axes, probe: HeadProbe, model: ProbedModel, all_names: bool) -> None:
    """Label the classes trained on in bold, and some of the others between them."""
    classes = len(probe.classes)
    step = -(-classes // _MAX_LABELS)
    trained = np.sort(model.trained)
    gaps = np.flatnonzero(np.diff(trained) > classes // (2 * _MAX_LABELS))
    bold = {group.mean(): group for group in np.split(trained, gaps + 1)}
    free = [n for n in range(0, classes, step) if all(abs(n - t) >= step for t in model.trained)]
    labels = bold | ({float(n): np.array([n]) for n in free} if all_names else {})
    texts = ["\n".join(shorten(probe.classes[n]) for n in group) for group in labels.values()]
    axes.set_yticks(list(labels), texts, size=8)
    for position, label in zip(labels, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if position in bold else "normal")


def _draw_row_sums(axes: Axes, model: ProbedModel, max_sum: float) -> None:
    """Draw bars on the same asinh scale as the colors, so that small bars are visible."""
    sums: NDArray[np.float32] = model.row_sums.numpy()
    axes.barh(range(len(sums)), sums, height=0.8, color=np.where(sums > 0, _GREW, _SHRANK))
    axes.axvline(0, color="black", lw=0.6)
    axes.set_xscale("asinh", linear_width=max_sum / _STRETCH)
    tick = _floor_to_one_digit(max_sum)
    axes.set_xticks([-tick, 0, tick], [f"\N{MINUS SIGN}{tick:g}", "0", f"{tick:g}"], size=8)
    axes.set(xlim=(-1.3 * max_sum, 1.3 * max_sum), ylim=(len(sums) - 0.5, -0.5), yticks=[])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("row sum")
    axes.spines["left"].set_visible(False)


def _make_title(probe: HeadProbe, index: int) -> str:
    """Return the title of a model, with its similarity to the other clients."""
    model = probe.models[index]
    letter, client = ascii_lowercase[index], index - len(probe.examples)
    if client < 0:
        return f"({letter}) trained on {escape_controls(model.title)}"
    cosines = zip(probe.clients, probe.cosines[client].tolist(), strict=True)
    lines = [f"cosine to {other.title}: {c:.2f}" for other, c in cosines if other is not model]
    return "\n".join([f"({letter}) {model.title}", *lines]).replace("-", "\N{MINUS SIGN}")


def _floor_to_one_digit(value: float) -> float:
    """Round down to one significant digit."""
    unit = 10.0 ** floor(log10(value))
    return floor(value / unit) * unit
