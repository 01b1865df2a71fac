"""Where the time goes: seconds on the server, samples a second on a client."""

from pathlib import Path

from cadis.analysis import MEASURE, Comparison, Results
from cadis.report.style import Place, figure, looks, shown


def draw_time(results: Results, place: Place) -> Path | None:
    """The server's milliseconds a round, and the clients' speed by the baseline's."""
    comparison, path = Comparison(results), place("time")
    groups = [group for group in results.groups if not group.is_reference]
    if len(groups) < 2 or comparison.baseline is None:
        return None
    styles = looks([group.name for group in results.groups])
    colours = [styles[results.groups.index(group)].colour for group in groups]
    spreads = [comparison.spread(group, MEASURE["server_seconds"]) for group in groups]
    server = [0.0 if spread is None else 1000 * spread.mean for spread in spreads]
    ratios = [comparison.ratio(group, MEASURE["samples_per_second"]) for group in groups]
    client = [
        1.0 if group is comparison.baseline else (ratio or 0.0)
        for group, ratio in zip(groups, ratios, strict=True)
    ]
    with figure(path, 8.4, 1.5 + 0.32 * len(groups)) as drawing:
        left, right = drawing.subplots(1, 2, sharey=True)
        names = [shown(group.label) for group in groups]
        for axes, values, form in ((left, server, "{:.2f}"), (right, client, "{:.2f}")):
            bars = axes.barh(names, values, color=colours)
            axes.bar_label(bars, fmt=form, padding=3, fontsize=8)
            axes.margins(x=0.18)
        left.invert_yaxis()
        left.set(xlabel="server: milliseconds a round")
        right.set(xlabel=f"client: samples a second, {comparison.baseline.label} = 1")
        drawing.suptitle("Cost of each method", x=0.01, ha="left", size=10)
    return path.with_suffix(".png")
