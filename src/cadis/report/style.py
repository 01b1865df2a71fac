"""One look for all figures: colour-blind safe, the same colour for the same thing."""

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

from cadis.algorithm.methods import METHODS
from cadis.analysis import Group, Results, RunData

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Colours that everybody can tell apart (Okabe and Ito)."""

_ABLATION_LOOKS = {
    "cadis-no-distillation": ("#882255", "dashed"),
    "cadis-no-clustering": ("#44AA99", "dashed"),
    "cadis-uniform": ("#999933", "dotted"),
    "cadis-oracle": ("#AA4499", "dotted"),
    "cadis-no-momentum": ("#332288", "dashed"),
    "cadis-plain-weights": ("#117733", "dotted"),
    "cadis-absent": ("#DDAA33", "dashed"),
}
"""Further colours that can be told from those above (Tol)."""

_MORE = ("#8E63C7", "#9A5B33", "#4C9A2A", "#CC6677", "#6699CC", "#888888")
"""Colours of further methods, seen on white and on black; their lines are dashed, too."""

_GOLDEN = 0.618034
"""The part of the colour circle from one made-up colour to the next: none comes twice."""

_BRIGHTEST = 0.6
"""How bright a made-up colour may be, so that it is seen on white: yellow and lime are not."""

DASHES: Any = {"solid": "-", "dashed": (0, (4, 1.5)), "dotted": (0, (1, 1.3))}
"""What matplotlib calls lines that are solid, dashed and dotted."""

UNKNOWN = "#d9d9d9"
ALONE = "#777777"
_LONGEST = 20  # a figure has room for so many letters of a name
_LONGEST_LABEL = 44  # a legend has room for so many
_LETTER = 0.58  # the mean width of a letter, as a part of its height
_LINE = 1.5  # the height of a line, as a part of that of its letters
_HANDLE = 44  # points that a legend takes for each entry besides its letters

_SIGNATURE, _SIGNED = "drawn by cadis", {".png": "Software"}
"""What tells our pictures from others, and where kinds of files have room for it."""

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
    "pdf.fonttype": 42,  # letters stay letters
}


def shown(name: object, longest: int = _LONGEST) -> str:
    """A name for a figure: its beginning and end if it is long, and no meaning but its own."""
    text = str(name)
    end = longest * 2 // 5
    short = text if len(text) <= longest else f"{text[: longest - 1 - end]}…{text[-end:]}"
    return short.replace("$", r"\$")


@dataclass(frozen=True)
class Look:
    """How lines and bars of one thing are drawn: a colour, and solid, dashed or dotted."""

    colour: str
    dash: str = "solid"


def styled_groups(results: Results) -> list[tuple[Group, Look]]:
    """Return all groups, each with its look."""
    return list(zip(results.groups, looks([group.name for group in results.groups]), strict=True))


def label_of(group: Group) -> str:
    """Return what a legend calls a group; it has room for the values of a sweep."""
    return shown(group.label, _LONGEST_LABEL)


def name_seed(run_data: RunData, results: Results) -> str:
    """Return the seed of a figure of one run for its title, where there are other runs too."""
    return f", seed {run_data.seed}" if len(results.runs) > 1 else ""


def looks(names: Sequence[str]) -> list[Look]:
    """A look for each of these, no two alike: methods and ablations have the same everywhere."""
    known = [_look_of(name) for name in names]
    free = (look for number in count() if (look := _further_look(number)) not in known)
    found: list[Look] = []
    for own in known:
        found.append(next(free) if own is None or own in found else own)
    return found


def method_look(number: int) -> Look:
    """The look of a method, by its place in the registry; there is one for any number of them."""
    few = len(OKABE_ITO) - 2  # yellow is hard to see on white, and black belongs to axes
    if number < few:
        return Look(OKABE_ITO[number])
    if number < few + len(_MORE):
        return Look(_MORE[number - few], "dashed")
    return Look(_made_up(number), "dotted")


def _look_of(name: str) -> Look | None:
    if name in _ABLATION_LOOKS:
        return Look(*_ABLATION_LOOKS[name])
    return method_look(list(METHODS).index(name)) if name in METHODS else None


def _further_look(number: int) -> Look:
    """One of endlessly many looks for what has none of its own."""
    dashes, colours = list(DASHES), OKABE_ITO[:7]
    if number < len(dashes) * len(colours):
        return Look(colours[number % len(colours)], dashes[number // len(colours)])
    return Look(_made_up(number), dashes[number % len(dashes)])


def _made_up(number: int) -> str:
    """A colour of another hue than those before it; its lightness differs from theirs, too."""
    rgb = hls_to_rgb(number * _GOLDEN % 1, (0.38, 0.48, 0.58)[number % 3], 0.75)
    brightness = 0.30 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2]
    seen = 255 * min(1, _BRIGHTEST / brightness)
    return "#" + "".join(f"{round(seen * part):02X}" for part in rgb)


def cluster_colour(number: int) -> str:
    """The colour of a cluster, the same in all figures; on the page the first ones are the same."""
    few = (*OKABE_ITO[:6], *_MORE)
    return few[number] if number < len(few) else _made_up(number)


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw and save in the look of all figures; no font has all the names of the world."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained"
) -> Figure:
    """Return an empty figure, in inches, that needs no screen.

    The layout "compressed" puts several panels of a fixed shape next to each other.
    """
    drawing = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(drawing)
    return drawing


def new_axes(width: float = 6.4, height: float = 3.2) -> tuple[Figure, Axes]:
    """Return an empty figure and its only plot."""
    drawing = new_figure(width, height)
    return drawing, drawing.subplots()


def panel_grid(drawing: Figure, count: int, columns: int) -> list[Axes]:
    """Return so many panels side by side in as many rows as they need."""
    panels = list(drawing.subplots(-(-count // columns), columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.set_axis_off()
    return panels[:count]


def save_figure(drawing: Figure, path: Path, pdf: bool = True) -> Path:
    """Save a figure as its suffix says; without one, as PNG and, if wanted, as PDF too."""
    suffixes = [path.suffix] if path.suffix else [".png", ".pdf"] if pdf else [".png"]
    for suffix in suffixes:
        file = path.with_suffix(suffix)
        drawing.savefig(file, metadata={_SIGNED.get(suffix, "Creator"): _SIGNATURE})
        drawing.set_layout_engine("none")  # all is in its place now
    return path.with_suffix(suffixes[0])


def is_picture(path: Path) -> bool:
    """Whether a file is a picture that was drawn here."""
    try:
        return _SIGNATURE.encode() in path.read_bytes()
    except OSError:
        return False


def head(drawing: Figure, text: str, size: float = 10) -> None:
    """Say above everything what a figure shows; it becomes higher by what that takes."""
    letters = int((72 * drawing.get_figwidth() - 12) / (_LETTER * size))
    wrapped = "\n".join(fill(line, letters) for line in text.split("\n"))
    drawing.suptitle(wrapped, x=0.01, ha="left", size=size)
    _heighten(drawing, size * _LINE * (wrapped.count("\n") + 1))


def legend_below(drawing: Figure, handles: Mapping[str, Artist], caption: str = "") -> None:
    """Put a legend and its caption below everything, in as many columns as there is room.

    The figure becomes higher by what they take, so that the legend lies on nothing.
    """
    room = 72 * drawing.get_figwidth() - 12
    widest = _HANDLE + 8 * _LETTER * max(map(len, handles))
    columns = max(1, min(int(room / widest), len(handles)))
    explained = fill(caption, int(room / (8 * _LETTER)))
    drawing.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower left",
        fontsize=8,
        ncols=columns,
        title=explained or None,
        title_fontsize=8,
        alignment="left",
    )
    lines = -(-len(handles) // columns) + (explained.count("\n") + 1 if explained else 0)
    _heighten(drawing, 8 * _LINE * lines)


def legend_of_lines(drawing: Figure) -> None:
    """Put a legend of all lines that have a label below them."""
    lines = [line for axes in drawing.axes for line in axes.get_lines()]
    handles = {str(line.get_label()): line for line in lines}
    legend_below(drawing, {text: h for text, h in handles.items() if not text.startswith("_child")})


def _heighten(drawing: Figure, points: float) -> None:
    drawing.set_figheight(drawing.get_figheight() + points / 72)


def round_axis(axes: Axes, rounds: int) -> None:
    """An axis of rounds from the first to the last, whole numbers only."""
    axes.set_xlabel("round")
    axes.set_xlim((1, rounds) if rounds > 1 else (0.5, 1.5))
    ticks = MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    axes.xaxis.set_major_locator(ticks)


def heat_map(axes: Axes, values: NDArray[np.float64]) -> AxesImage:
    """Shares from 0 to 1; grey is unknown."""
    colours = colormaps["viridis"].with_extremes(bad=UNKNOWN)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
