"""One look for all figures: colour-blind safe, the same colour for the same thing."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from colorsys import hls_to_rgb
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from cadis.methods import METHODS

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

DASHES: Any = {"solid": "-", "dashed": (0, (4, 1.5)), "dotted": (0, (1, 1.3))}
"""What matplotlib calls lines that are solid, dashed and dotted."""

UNKNOWN = "#d9d9d9"
ALONE = "#777777"
_LONGEST = 20
"""A figure has room for so many letters of a name."""

_STYLE: Any = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters
}


def shown(name: object) -> str:
    """A name for a figure: its beginning and end if it is long, and no meaning but its own."""
    text = str(name)
    short = text if len(text) <= _LONGEST else f"{text[:11]}…{text[-8:]}"
    return shown_text(short)


def shown_text(text: str) -> str:
    """A text for a figure that means nothing but itself."""
    return text.replace("$", r"\$")


@dataclass(frozen=True)
class Look:
    """How lines and bars of one thing are drawn: a colour, and solid, dashed or dotted."""

    colour: str
    dash: str = "solid"


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
    return "#" + "".join(f"{round(255 * part):02X}" for part in rgb)


Place: TypeAlias = Callable[[str], Path]
"""Where the figure of a name goes, for :func:`figure`."""


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure to draw on, of so many inches, saved when done. No screen is needed.

    Without a suffix in its name it is saved both as PNG and as PDF.
    """
    with mpl.rc_context(_STYLE):
        drawing = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(drawing)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # no font has all the names of the world
            yield drawing
            for suffix in [path.suffix] if path.suffix else [".png", ".pdf"]:
                drawing.savefig(path.with_suffix(suffix))
                drawing.set_layout_engine("none")  # all is in its place now


def heat_map(axes: Axes, values: NDArray[np.float64]) -> AxesImage:
    """Shares from 0 to 1; grey is unknown."""
    colours = colormaps["viridis"].with_extremes(bad=UNKNOWN)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
