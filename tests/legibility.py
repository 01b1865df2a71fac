"""Check that figures are legible: no text is cut or covered, and axes make sense."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.5  # pixels


@contextmanager
def collect_figures() -> Iterator[dict[str, Figure]]:
    """Collect the figures that the code in this context saves, by file name."""
    found: dict[str, Figure] = {}
    save: Callable[..., Any] = Figure.savefig

    def keep(self: Figure, path: Path, **options: Any) -> None:
        found[path.name.split(".")[1]] = self  # the draft of accuracy.png is .accuracy.png.draft
        save(self, path, **options)

    with patch.object(Figure, "savefig", keep):
        yield found


def find_flaws(drawing: Figure) -> list[str]:
    """Return a sentence for each flaw that makes a figure hard to read."""
    canvas = drawing.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()  # type: ignore[no-untyped-call]
    return [
        *_find_cut_texts(drawing),
        *_find_covering_legends(drawing),
        *_find_overlaps(drawing),
        *(flaw for axes in drawing.axes for flaw in _find_fractional_rounds(axes)),
        *(flaw for axes in drawing.axes for flaw in _find_impossible_bands(axes)),
    ]


def list_texts(drawing: Figure) -> list[str]:
    """Return all visible texts of a figure."""
    return [text.get_text() for text in _find_visible_texts(drawing)]


def _find_visible_texts(drawing: Figure) -> list[Text]:
    """Return the visible texts; ticks beyond the ends of an axis are not visible."""
    hidden: set[int] = set()
    for axes in drawing.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks = [*axis.majorTicks, *axis.minorTicks]
            hidden |= {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
            if axes.axison:
                hidden -= {id(label) for label in _get_tick_labels(axis)}
    found = drawing.findobj(Text)
    return [t for t in found if t.get_visible() and t.get_text().strip() and id(t) not in hidden]


def _get_tick_labels(axis: Axis) -> list[Text]:
    ticks = axis._update_ticks()  # type: ignore[attr-defined]  # those that are drawn
    labels = [label for tick in ticks for label in (tick.label1, tick.label2)]
    return [label for label in labels if label.get_visible() and label.get_text().strip()]


def _find_cut_texts(drawing: Figure) -> Iterator[str]:
    whole = drawing.bbox
    for text in _find_visible_texts(drawing):
        box = text.get_window_extent()
        inside = box.x0 >= whole.x0 - SLACK and box.x1 <= whole.x1 + SLACK
        if not inside or box.y0 < whole.y0 - SLACK or box.y1 > whole.y1 + SLACK:
            yield f"{text.get_text()!r} is cut"


def _find_covering_legends(drawing: Figure) -> Iterator[str]:
    for axes in drawing.axes:
        if axes.get_legend() is not None:
            yield "a legend is within a plot, where it may lie on something"
        for legend in drawing.legends:
            if _do_overlap(legend.get_window_extent(), axes.get_tightbbox()):
                yield f"the legend lies on the plot {axes.get_title(loc='left')!r}"


def _find_overlaps(drawing: Figure) -> Iterator[str]:
    boxes = [(text.get_text(), text.get_window_extent()) for text in _find_visible_texts(drawing)]
    for (one, one_box), (other, other_box) in combinations(boxes, 2):
        if _do_overlap(one_box, other_box):
            yield f"{one!r} and {other!r} lie on each other"


def _do_overlap(one: Bbox, other: Bbox | None) -> bool:
    if other is None:
        return False
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(wide > SLACK and high > SLACK)


def _find_fractional_rounds(axes: Axes) -> Iterator[str]:
    if axes.get_xlabel().startswith("round"):
        for label in _get_tick_labels(axes.xaxis):
            if not label.get_text().split("\n")[0].isdecimal():
                yield f"there is a round {label.get_text()}"


def _find_impossible_bands(axes: Axes) -> Iterator[str]:
    """Find bands of accuracy outside 0 and 1, and bands before the first measurement."""
    lines = [np.asarray(line.get_xdata(), float) for line in axes.get_lines()]
    first = min((x.min() for x in lines if len(x)), default=0.0)
    for band in axes.collections:
        if not isinstance(band, PolyCollection):
            continue
        corners = np.concatenate([np.asarray(path.vertices) for path in band.get_paths()])
        if "accuracy" in axes.get_ylabel() and not (corners[:, 1] >= 0).all():
            yield "a band goes below 0"
        if "accuracy" in axes.get_ylabel() and not (corners[:, 1] <= 1).all():
            yield "a band goes above 1"
        if corners[:, 0].min() < first:
            yield "a band begins before the first measurement"
