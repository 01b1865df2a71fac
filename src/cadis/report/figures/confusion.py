"""Predictions, method by method: the paper's opening figure."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from cadis.analysis import Group, Results, RunData
from cadis.report.figures.matrices import heat_map
from cadis.report.style import Place, figure, shown

_FEW = 12
"""So many classes have their shares written into the cells."""


def draw_confusion(results: Results, place: Place) -> Path | None:
    """What the last models of the first seed made of each true class."""
    told = [
        (group, run_data) for group in results.groups if (run_data := _first(group)) is not None
    ]
    if not told:
        return None
    path, columns = place("confusion"), min(3, len(told))
    rows = -(-len(told) // columns)
    wide = 5.6 if columns == 1 else 4.4 * columns
    with figure(path, wide, 4.8 if columns == 1 else 4.1 * rows) as drawing:
        panels = list(drawing.subplots(rows, columns, squeeze=False).flat)
        for axes, (group, run_data) in zip(panels, told, strict=False):
            _panel(axes, group.label, run_data)
        for axes in panels[len(told) :]:
            axes.set_axis_off()
        image = panels[0].images[0]
        drawing.colorbar(image, ax=panels, label="share of the true class", shrink=0.7)
        if told[0][1].rare:
            drawing.suptitle("* class of a smallest cluster", x=0.01, ha="left", size=9)
    return path.with_suffix(".png")


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
            text = f"{share:.2f}".removeprefix("0") if share < 1 else "1"
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
    axes.set_title(f"{shown(label)}, after round {run_data.summary['rounds']}")
