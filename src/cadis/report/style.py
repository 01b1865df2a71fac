"""One look for all figures: colour-blind safe, the same colour for the same thing."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Colours that everybody can tell apart (Okabe and Ito)."""

METHOD_NAMES = {
    "cadis": "CADIS",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedfa": "FedFA",
    "feddyn": "FedDyn",
    "singleset": "SingleSet",
}

UNKNOWN = "#d9d9d9"
ALONE = "#777777"
_LONGEST = 20
"""Letters of a name in a figure."""

_STYLE: Any = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
}


def shown(name: object) -> str:
    """A name for a figure: its beginning and end if it is long, and no meaning but its own."""
    text = str(name)
    short = text if len(text) <= _LONGEST else f"{text[:11]}…{text[-8:]}"
    return short.replace("$", r"\$")


def listed(names: Sequence[str], limit: int = 10) -> str:
    """Names in a row; of too many, only how many there are."""
    return ", ".join(names) if len(names) <= limit else f"{len(names)} classes"


def colour_of(method: str) -> str:
    """A method's colour: the same everywhere."""
    order = list(METHOD_NAMES)
    return OKABE_ITO[order.index(method) if method in order else -1]


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure to draw on, of so many inches, saved when done. No screen is needed."""
    with mpl.rc_context(_STYLE):
        drawing = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(drawing)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # no font has all the names of the world
            yield drawing
            drawing.savefig(path)
