"""The global models of a method that has several."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cadis.analysis import Results, RunData
from cadis.report import style
from cadis.report.figures.curves import Curve, dress

_HATCHES = {"solid": None, "dashed": "////", "dotted": "...."}
"""Of bars, where a line of the same look is dashed or dotted."""


def draw_models(results: Results) -> Figure | None:
    """Draw the accuracy of each model over rounds, and how many participants trained it."""
    run_data = next((run for run in results.runs if model_names(run)), None)
    if run_data is None:
        return None
    names, rounds = model_names(run_data), np.arange(1, len(run_data.history) + 1)
    drawing = style.new_figure(8.4, 3.2)
    left, right = drawing.subplots(1, 2)
    below = np.zeros(len(rounds))
    for name, look in zip(names, style.looks(names), strict=True):
        values = model_accuracy(run_data, name)
        known = ~np.isnan(values)
        marker = "." if known.sum() < 10 else None
        line = {"color": look.colour, "ls": style.DASHES[look.dash], "marker": marker}
        left.plot(rounds[known], values[known], **line)
        counts = np.array(model_participants(run_data, name), float)
        bars = {"color": look.colour, "edgecolor": "white", "hatch": _HATCHES[look.dash]}
        right.bar(rounds, counts, 1.0, below, label=style.shown(name), lw=0, **bars)
        below += counts
    dress(left, len(rounds), "test accuracy")
    left.set_title("Accuracy of each model", fontsize=10)
    style.round_axis(right, len(rounds))
    right.set(ylabel="participants", xlim=(0.5, len(rounds) + 0.5))
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_title("Who trained which model", fontsize=10)
    handles, labels = right.get_legend_handles_labels()
    style.legend_below(drawing, dict(zip(labels, handles, strict=True)))
    style.head(
        drawing, f"The models of {style.shown(run_data.label)}{style.name_seed(run_data, results)}"
    )
    return drawing


def model_names(run_data: RunData) -> list[str]:
    """Return the names of all models that a run has had; none if there was but one."""
    told = (model.name for record in run_data.history for model in record.models)
    return list(dict.fromkeys(told))


def model_accuracy(run_data: RunData, name: str) -> Curve:
    """Return the accuracy of a model after each round, NaN where nobody tested or uses it.

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
    """Return how many participants trained a model in each round."""
    first = model_names(run_data)[0]
    return [
        (record.client_models or [first] * len(record.participants)).count(name)
        for record in run_data.history
    ]
