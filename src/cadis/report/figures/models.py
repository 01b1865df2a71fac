"""The global models of a method that has several."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from cadis.analysis import Results, RunData
from cadis.report.figures.curves import Curve, dress
from cadis.report.figures.labels import seed_named
from cadis.report.style import DASHES, Place, figure, head, legend_below, looks, round_axis, shown

_HATCHES = {"solid": None, "dashed": "////", "dotted": "...."}
"""Of bars, where a line of the same look is dashed or dotted."""


def draw_models(results: Results, place: Place) -> Path | None:
    """Accuracy of each model over rounds, and how many participants trained it."""
    run_data = next((run for run in results.runs if model_names(run)), None)
    if run_data is None:
        return None
    path, rounds = place("models"), len(run_data.history)
    with figure(path, 8.4, 3.2) as drawing:
        left, right = drawing.subplots(1, 2)
        _accuracies(left, run_data)
        dress(left, rounds, "test accuracy")
        left.set_title("Accuracy of each model", fontsize=10)
        _participants(right, run_data)
        round_axis(right, rounds)
        right.set(ylabel="participants", xlim=(0.5, rounds + 0.5))
        right.yaxis.set_major_locator(MaxNLocator(integer=True))
        right.set_title("Who trained which model", fontsize=10)
        handles, names = right.get_legend_handles_labels()
        legend_below(drawing, dict(zip(names, handles, strict=True)))
        head(drawing, f"The models of {shown(run_data.label)}{seed_named(run_data, results)}")
    return path.with_suffix(".png")


def model_names(run_data: RunData) -> list[str]:
    """The names of all models that a run has had; none if there was but one."""
    told = (model.name for record in run_data.history for model in record.models)
    return list(dict.fromkeys(told))


def model_accuracy(run_data: RunData, name: str) -> Curve:
    """Accuracy of one of the models after each round, NaN where nobody tested or uses it.

    While there was but one model, it was the first.
    """
    first = model_names(run_data)[0]
    told = [
        {model.name: model.accuracy for model in record.models if model.clients}
        if record.models
        else {first: record.accuracy}
        for record in run_data.history
    ]
    return np.array([accuracies.get(name) for accuracies in told], float)


def model_participants(run_data: RunData, name: str) -> list[int]:
    """How many participants trained one of the models in each round."""
    first = model_names(run_data)[0]
    return [
        (record.client_models or [first] * len(record.participants)).count(name)
        for record in run_data.history
    ]


def _accuracies(axes: Axes, run_data: RunData) -> None:
    names, rounds = model_names(run_data), np.arange(1, len(run_data.history) + 1)
    for name, look in zip(names, looks(names), strict=True):
        values = model_accuracy(run_data, name)
        known = ~np.isnan(values)
        marker = "." if known.sum() < 10 else None
        line = {"color": look.colour, "ls": DASHES[look.dash], "marker": marker}
        axes.plot(rounds[known], values[known], **line)


def _participants(axes: Axes, run_data: RunData) -> None:
    """Stacked bars; where a colour comes again, they are hatched."""
    names, rounds = model_names(run_data), np.arange(1, len(run_data.history) + 1)
    below = np.zeros(len(rounds))
    for name, look in zip(names, looks(names), strict=True):
        counts = np.array(model_participants(run_data, name), float)
        hatch, where = _HATCHES[look.dash], (rounds, counts, 1.0, below)
        look_of_bars = {"color": look.colour, "edgecolor": "white", "lw": 0, "hatch": hatch}
        axes.bar(*where, label=shown(name), **look_of_bars)  # type: ignore[arg-type]
        below = below + counts
