"""Figure of methods with several models: accuracy and participants of each model."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cadis.analysis import Results, RunData
from cadis.report import style
from cadis.report.figures.curves import Curve, format_axes

_HATCHES = {"solid": None, "dashed": "////", "dotted": "...."}
"""Hatches of bars by the dash of the line in the same style."""


def draw_models(results: Results) -> Figure | None:
    """Draw the accuracy of each model, and the number of participants that train it."""
    run_data = next((run for run in results.runs if list_models(run)), None)
    if run_data is None:
        return None
    names, rounds = list_models(run_data), np.arange(1, len(run_data.history) + 1)
    drawing = style.new_figure(8.4, 3.2)
    left, right = drawing.subplots(1, 2)
    below = np.zeros(len(rounds))
    for index, (name, line_style) in enumerate(zip(names, style.assign_styles(names), strict=True)):
        values = get_model_accuracy(run_data, name)
        known = ~np.isnan(values)
        line = line_style.make_line_options(int(known.sum()), index)
        left.plot(rounds[known], values[known], **line)
        counts = np.array(count_model_participants(run_data, name), float)
        hatch = _HATCHES[line_style.dash]
        bars = {"color": line_style.color, "edgecolor": "white", "hatch": hatch}
        right.bar(rounds, counts, 1.0, below, label=style.shorten(name), lw=0, **bars)
        below += counts
    format_axes(left, len(rounds), "test accuracy")
    left.set_title("Accuracy of each model", fontsize=10)
    style.set_round_axis(right, len(rounds))
    right.set(ylabel="participants", xlim=(0.5, len(rounds) + 0.5))
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_title("Participants that train each model", fontsize=10)
    handles, labels = right.get_legend_handles_labels()
    style.add_legend(drawing, dict(zip(labels, handles, strict=True)))
    style.add_title(
        drawing,
        f"Models of {style.shorten(run_data.label)}{style.format_seed(run_data, results)}",
    )
    return drawing


def list_models(run_data: RunData) -> list[str]:
    """Return the names of all models of a run; empty if it has a single model."""
    names = (model.name for record in run_data.history for model in record.models)
    return list(dict.fromkeys(names))


def get_model_accuracy(run_data: RunData, name: str) -> Curve:
    """Return the accuracy of a model after each round, NaN if it is not tested or not used.

    Rounds with a single model count for the first model.
    """
    first = list_models(run_data)[0]
    rounds = [
        {model.name: model.accuracy for model in record.models if model.clients}
        if record.models
        else {first: record.accuracy}
        for record in run_data.history
    ]
    return np.array([accuracies.get(name) for accuracies in rounds], float)


def count_model_participants(run_data: RunData, name: str) -> list[int]:
    """Return the number of participants that train a model in each round."""
    first = list_models(run_data)[0]
    return [
        (record.client_models or [first] * len(record.participants)).count(name)
        for record in run_data.history
    ]
