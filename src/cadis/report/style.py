"""Style of all figures: colors that are safe for color-blind readers, line styles, legends."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from colorsys import hls_to_rgb
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cadis._io import escape_controls, read_regular, write_draft
from cadis.algorithm.methods import METHODS
from cadis.analysis import Group, Results, RunData

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Color-blind safe palette of Okabe and Ito, https://jfly.uni-koeln.de/color/."""

_ABLATION_STYLES = {
    "cadis-no-distillation": ("#882255", "dashed"),
    "cadis-no-clustering": ("#44AA99", "dashed"),
    "cadis-uniform": ("#999933", "dotted"),
    "cadis-oracle": ("#AA4499", "dotted"),
    "cadis-no-momentum": ("#332288", "dashed"),
    "cadis-plain-weights": ("#117733", "dotted"),
    "cadis-absent": ("#DDAA33", "dashed"),
}
"""Colors and dashes of ablations, from the palettes of Paul Tol."""

_MORE = ("#8E63C7", "#9A5B33", "#4C9A2A", "#CC6677", "#6699CC", "#888888")
"""Colors of further methods, visible on white and on black."""

_METHOD_DASHES = ("solid", "solid", "dashed", "dotted", "dashed", "dotted")
"""Dashes of the first methods: lines that often coincide, such as FedAvg and FedProx, differ."""

_MARKERS = ("o", "s", "^", "D", "v", "P")
_NUM_MARKERS = 8  # on a line, so that they do not hide it

_GOLDEN_RATIO = 0.618034  # hue steps by this part of the circle never repeat
_MAX_BRIGHTNESS = 0.6  # brighter colors, such as yellow and lime, are hard to see on white

DASHES: Any = {"solid": "-", "dashed": (0, (4, 2.5)), "dotted": (0, (1, 1.6))}
"""Line styles of matplotlib by the names used here and on the page."""

UNKNOWN = "#d9d9d9"
ALONE = "#777777"
_MAX_NAME = 20  # characters of a name in a figure
_MAX_LABEL = 44  # characters of a name in a legend
_CHAR_WIDTH = 0.58  # mean width of a character relative to the font size
_LINE_HEIGHT = 1.5  # relative to the font size
_HANDLE_WIDTH = 44  # points of a legend entry without its text

_SIGNATURE, _SIGNATURE_FIELD = "drawn by cadis", {".png": "Software"}
"""Text in the metadata of our figures, and the metadata field by file type."""

_STYLE: Any = {
    "figure.dpi": 150,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
    "text.parse_math": False,  # a name with two $ is no formula
    "pdf.fonttype": 42,  # embed fonts, so that text stays text
}


def shorten(name: object, limit: int = _MAX_NAME) -> str:
    """Return a name for a figure: long names are cut in the middle, and controls are escaped."""
    text = escape_controls(name)
    end = limit * 2 // 5
    return text if len(text) <= limit else f"{text[: limit - 1 - end]}…{text[-end:]}"


@dataclass(frozen=True)
class LineStyle:
    """Style of the lines and bars of one group.

    Attributes:
        color: color as #rrggbb.
        dash: "solid", "dashed" or "dotted".
        marker: marker of matplotlib.
    """

    color: str
    dash: str = "solid"
    marker: str = "o"

    def make_line_options(self, num_points: int, index: int = 0) -> dict[str, Any]:
        """Return options of ``Axes.plot``.

        Markers are shifted by the index of the line, so that lines that coincide stay visible.
        """
        step = max(2 if num_points > _NUM_MARKERS else 1, num_points // _NUM_MARKERS)
        return {
            "color": self.color,
            "ls": DASHES[self.dash],
            "lw": 1.6,
            "marker": self.marker,
            "ms": 4,
            "markevery": (index % step, step),
            "alpha": 0.9,
        }


def get_group_styles(results: Results) -> list[tuple[Group, LineStyle]]:
    """Return all groups, each with its style."""
    return list(
        zip(results.groups, assign_styles([group.name for group in results.groups]), strict=True)
    )


def get_legend_label(group: Group) -> str:
    """Return the label of a group in a legend, long enough for the values of a sweep."""
    return shorten(group.label, _MAX_LABEL)


def format_seed(run_data: RunData, results: Results) -> str:
    """Return the seed of a run for the title of a figure; empty if there is only one run."""
    return f", seed {run_data.seed}" if len(results.runs) > 1 else ""


def assign_styles(names: Sequence[str]) -> list[LineStyle]:
    """Return distinct styles; a method or ablation has the same style in all figures."""
    known = [_get_style(name) for name in names]
    free = (style for number in count() if (style := _make_free_style(number)) not in known)
    styles: list[LineStyle] = []
    for fixed in known:
        styles.append(next(free) if fixed is None or fixed in styles else fixed)
    return styles


def get_method_style(number: int) -> LineStyle:
    """Return the style of a method by its index in the registry; any index has a style."""
    marker = _MARKERS[number % len(_MARKERS)]
    few = len(OKABE_ITO) - 2  # without yellow, hard to see on white, and black, used for axes
    if number < few:
        return LineStyle(OKABE_ITO[number], _METHOD_DASHES[number], marker)
    if number < few + len(_MORE):
        return LineStyle(_MORE[number - few], "dashed", marker)
    return LineStyle(_make_color(number), "dotted", marker)


def _get_style(name: str) -> LineStyle | None:
    if name in _ABLATION_STYLES:
        return LineStyle(*_ABLATION_STYLES[name])
    return get_method_style(list(METHODS).index(name)) if name in METHODS else None


def _make_free_style(number: int) -> LineStyle:
    """Return a style for a name without a fixed one; any number has a style."""
    dashes, colors = list(DASHES), OKABE_ITO[:7]
    marker = _MARKERS[number % len(_MARKERS)]
    if number < len(dashes) * len(colors):
        # Neighbors have different dashes, so that lines that coincide stay visible.
        dash = dashes[(number + number // len(colors)) % len(dashes)]
        return LineStyle(colors[number % len(colors)], dash, marker)
    return LineStyle(_make_color(number), dashes[number % len(dashes)], marker)


def _make_color(number: int) -> str:
    """Return a color whose hue and lightness differ from those of smaller numbers."""
    rgb = hls_to_rgb(number * _GOLDEN_RATIO % 1, (0.38, 0.48, 0.58)[number % 3], 0.75)
    brightness = 0.30 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2]
    scale = 255 * min(1, _MAX_BRIGHTNESS / brightness)
    return "#" + "".join(f"{round(scale * channel):02X}" for channel in rgb)


def get_cluster_color(number: int) -> str:
    """Return the color of a cluster; the first ones are the same on the page (theme.js)."""
    few = (*OKABE_ITO[:6], *_MORE)
    return few[number] if number < len(few) else _make_color(number)


@contextmanager
def figure_style() -> Iterator[None]:
    """Use the common style; warnings about characters that the font lacks are ignored."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained"
) -> Figure:
    """Return an empty figure that needs no screen.

    Args:
        width: width in inches.
        height: height in inches.
        layout: "compressed" removes the gaps between panels of a fixed aspect ratio.
    """
    drawing = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(drawing)
    return drawing


def new_axes(width: float = 6.4, height: float = 3.2) -> tuple[Figure, Axes]:
    """Return an empty figure and its only axes."""
    drawing = new_figure(width, height)
    return drawing, drawing.subplots()


def make_panels(drawing: Figure, count: int, columns: int) -> list[Axes]:
    """Return a number of axes in rows of ``columns``."""
    panels = list(drawing.subplots(-(-count // columns), columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.set_axis_off()
    return panels[:count]


def save_figure(drawing: Figure, path: Path, pdf: bool = True) -> Path:
    """Save a figure in the format of the suffix; without a suffix, as PNG and optionally PDF."""
    suffixes = [path.suffix] if path.suffix else [".png", ".pdf"] if pdf else [".png"]
    for suffix in suffixes:
        file = path.with_suffix(suffix)
        draft = write_draft(file, b"")
        metadata = {_SIGNATURE_FIELD.get(suffix, "Creator"): _SIGNATURE}
        drawing.savefig(draft, format=suffix[1:], metadata=metadata)
        draft.replace(file)
        drawing.set_layout_engine("none")  # the layout is the same for all formats
    return path.with_suffix(suffixes[0])


def is_cadis_figure(path: Path) -> bool:
    """Return whether a file is a figure that cadis has drawn, which may be overwritten."""
    try:
        return _SIGNATURE.encode() in read_regular(path)
    except OSError:
        return False


def add_title(drawing: Figure, text: str, size: float = 10) -> None:
    """Add a title above all axes; the figure grows by the height of the title."""
    num_chars = int((72 * drawing.get_figwidth() - 12) / (_CHAR_WIDTH * size))
    lines = escape_controls(text, keep="\n").split("\n")
    wrapped = "\n".join(fill(line, num_chars) for line in lines)
    drawing.suptitle(wrapped, x=0.01, ha="left", size=size)
    _grow(drawing, size * _LINE_HEIGHT * (wrapped.count("\n") + 1))


def add_legend(drawing: Figure, handles: Mapping[str, Artist], caption: str = "") -> None:
    """Add a legend and a caption below all axes, in as many columns as fit.

    The figure grows by their height, so that the legend covers nothing.
    """
    width = 72 * drawing.get_figwidth() - 12
    entry_width = _HANDLE_WIDTH + 8 * _CHAR_WIDTH * max(map(len, handles))
    columns = max(1, min(int(width / entry_width), len(handles)))
    wrapped = fill(escape_controls(caption), int(width / (8 * _CHAR_WIDTH)))
    drawing.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower left",
        fontsize=8,
        ncols=columns,
        title=wrapped or None,
        title_fontsize=8,
        alignment="left",
        handlelength=3,  # long enough to show dashes
    )
    lines = -(-len(handles) // columns) + (wrapped.count("\n") + 1 if wrapped else 0)
    _grow(drawing, 8 * _LINE_HEIGHT * lines)


def add_line_legend(drawing: Figure) -> None:
    """Add a legend of all lines that have a label."""
    lines = [line for axes in drawing.axes for line in axes.get_lines()]
    handles = {str(line.get_label()): line for line in lines}
    add_legend(drawing, {text: h for text, h in handles.items() if not text.startswith("_child")})


def _grow(drawing: Figure, points: float) -> None:
    drawing.set_figheight(drawing.get_figheight() + points / 72)


def set_round_axis(axes: Axes, last: int, first: int = 1) -> None:
    """Set up an axis of rounds with integer ticks, and some space for markers at both ends."""
    axes.set_xlabel("round")
    margin = 0.02 * (last - first) or 0.5
    axes.set_xlim(first - margin, last + margin)
    ticks = MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    axes.xaxis.set_major_locator(ticks)


def draw_heat_map(axes: Axes, values: NDArray[np.float64]) -> AxesImage:
    """Draw fractions from 0 to 1; unknown values are gray."""
    colors = colormaps["viridis"].with_extremes(bad=UNKNOWN)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colors, vmin=0, vmax=1, interpolation="nearest")
