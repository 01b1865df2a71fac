"""What makes a figure legible, as things that can be asserted of it."""

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
def saved_figures() -> Iterator[dict[str, Figure]]:
    """Collect the figures that the code in this context saves, by file name."""
    found: dict[str, Figure] = {}
    save: Callable[..., Any] = Figure.savefig

    def keep(self: Figure, path: Path, **options: Any) -> None:
        found[Path(path).stem] = self
        save(self, path, **options)

    with patch.object(Figure, "savefig", keep):
        yield found


def flaws(drawing: Figure) -> list[str]:
    """All that makes a figure hard to read, in words."""
    canvas = drawing.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()  # type: ignore[no-untyped-call]
    return [
        *_outside(drawing),
        *_legends_on_plots(drawing),
        *_overlapping(drawing),
        *(flaw for axes in drawing.axes for flaw in _fractional_rounds(axes)),
        *(flaw for axes in drawing.axes for flaw in _impossible_bands(axes)),
    ]


def texts(drawing: Figure) -> list[str]:
    """All that is written on a figure."""
    return [text.get_text() for text in _drawn_texts(drawing)]


def _drawn_texts(drawing: Figure) -> list[Text]:
    """The texts that are seen: ticks beyond the ends of an axis are not."""
    hidden: set[int] = set()
    for axes in drawing.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks = [*axis.majorTicks, *axis.minorTicks]
            hidden |= {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
            if axes.axison:
                hidden -= {id(label) for label in _tick_labels(axis)}
    found = drawing.findobj(Text)
    return [t for t in found if t.get_visible() and t.get_text().strip() and id(t) not in hidden]


def _tick_labels(axis: Axis) -> list[Text]:
    ticks = axis._update_ticks()  # type: ignore[attr-defined]  # those that are drawn
    labels = [label for tick in ticks for label in (tick.label1, tick.label2)]
    return [label for label in labels if label.get_visible() and label.get_text().strip()]


def _outside(drawing: Figure) -> Iterator[str]:
    whole = drawing.bbox
    for text in _drawn_texts(drawing):
        box = text.get_window_extent()
        inside = box.x0 >= whole.x0 - SLACK and box.x1 <= whole.x1 + SLACK
        if not inside or box.y0 < whole.y0 - SLACK or box.y1 > whole.y1 + SLACK:
            yield f"{text.get_text()!r} is cut"


def _legends_on_plots(drawing: Figure) -> Iterator[str]:
    for axes in drawing.axes:
        if axes.get_legend() is not None:
            yield "a legend is within a plot, where it may lie on something"
        for legend in drawing.legends:
            if _overlap(legend.get_window_extent(), axes.get_tightbbox()):
                yield f"the legend lies on the plot {axes.get_title(loc='left')!r}"


def _overlapping(drawing: Figure) -> Iterator[str]:
    boxes = [(text.get_text(), text.get_window_extent()) for text in _drawn_texts(drawing)]
    for (one, one_box), (other, other_box) in combinations(boxes, 2):
        if _overlap(one_box, other_box):
            yield f"{one!r} and {other!r} lie on each other"


def _overlap(one: Bbox, other: Bbox | None) -> bool:
    if other is None:
        return False
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(wide > SLACK and high > SLACK)


def _fractional_rounds(axes: Axes) -> Iterator[str]:
    if axes.get_xlabel().startswith("round"):
        for label in _tick_labels(axes.xaxis):
            if not label.get_text().split("\n")[0].isdecimal():
                yield f"there is a round {label.get_text()}"


def _impossible_bands(axes: Axes) -> Iterator[str]:
    """Accuracies that cannot be, and such of rounds before the first that has one."""
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
