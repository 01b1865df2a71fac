"""What figures call groups and runs."""

from matplotlib.figure import Figure

from cadis.analysis import Group, Results, RunData
from cadis.report.style import legend_below, shown

_LONGEST_LABEL = 44
"""A legend has room for the values of a sweep."""


def label_of(group: Group) -> str:
    """What a legend calls a group; it has room for the values of a sweep."""
    return shown(group.label, _LONGEST_LABEL)


def legend_of_lines(drawing: Figure) -> None:
    """A legend of all lines that have a label, below them."""
    lines = [line for axes in drawing.axes for line in axes.get_lines()]
    handles = {str(line.get_label()): line for line in lines}
    legend_below(drawing, {text: h for text, h in handles.items() if not text.startswith("_child")})


def seed_named(run_data: RunData, results: Results) -> str:
    """The seed that a picture of one run is of, in a title, where there are other runs too."""
    return f", seed {run_data.seed}" if len(results.runs) > 1 else ""
