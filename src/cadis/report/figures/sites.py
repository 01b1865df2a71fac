"""How good the last models are for each site, where clients have names and are few."""

from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes

from cadis.analysis import Group, Results
from cadis.report.figures.curves import Curve
from cadis.report.figures.labels import label_of, legend_of_lines
from cadis.report.style import Look, figure, head, looks, shown
from cadis.types import ClientId

_MOST = 12
"""Of more sites, a picture of all names would be no picture."""
_NUMBERS = 6
"""Up to so many methods have their accuracies written beside their points."""
_NAME, _LINE = 56, 28
"""Letters of a site's name, and of a line of it."""


def named_sites(results: Results) -> list[ClientId]:
    """The clients, if they are few and have names rather than numbers, the same in all runs."""
    clients = list(results.runs[0].true_clusters)
    numbers = all(str(client).isdecimal() for client in clients)
    same = all(list(run.true_clusters) == clients for run in results.runs)
    return clients if same and not numbers and len(clients) <= _MOST else []


def draw_sites(results: Results, sites: list[ClientId], path: Path) -> Path:
    """A row for each site: the accuracy of each method on its own data, mean over the seeds."""
    told = [group for group in results.groups if _last_of(group)]
    styles = looks([group.name for group in results.groups])
    height = 0.8 + len(sites) * max(0.5, 0.2 * len(told))
    with figure(path, 7.2, min(16.0, height)) as drawing:
        axes = drawing.subplots()
        for number, group in enumerate(told):
            offset = 0.8 * ((number + 0.5) / len(told) - 0.5)
            places = np.arange(len(sites), dtype=np.float64) + offset
            look = styles[results.groups.index(group)]
            _points(axes, group, sites, places, look, len(told) <= _NUMBERS)
        names = [f"{_name(site)}\n{_samples(results, site)}" for site in sites]
        axes.set_yticks(range(len(sites)), names, size=8)
        for border in range(1, len(sites)):
            axes.axhline(border - 0.5, color="#dddddd", lw=0.8)
        axes.set_ylim(len(sites) - 0.5, -0.5)
        axes.set(xlabel=f"accuracy of the last global model on {results.own_data}")
        axes.set_xlim(-0.02, 1.12)  # there is room for the number beside a perfect one
        axes.set_xticks(np.linspace(0, 1, 6))
        axes.grid(axis="x", alpha=0.3)
        legend_of_lines(drawing)
        seeds = max(len(group.runs) for group in told)
        over = f", mean and range of {seeds} seeds" if seeds > 1 else ""
        head(drawing, f"Accuracy at each site{over}")
    return path.with_suffix(".png")


def _points(
    axes: Axes,
    group: Group,
    sites: list[ClientId],
    places: Curve,
    look: Look,
    written: bool,
) -> None:
    """The points of one method, and a line from the worst seed to the best."""
    found = _last_of(group)
    label: str | None = label_of(group)
    for site, place in zip(sites, places, strict=True):
        if not (values := found.get(site)):
            continue
        mean = float(np.mean(values))
        axes.plot([min(values), max(values)], [place, place], color=look.colour, lw=1.5)
        axes.plot([mean], [place], "o", ms=5, color=look.colour, label=label)
        label = None  # it is in the legend once
        if written:
            text = f"{mean:.2f}"
            axes.text(max(values) + 0.02, place, text, va="center", size=7, color="#333333")


def _last_of(group: Group) -> dict[ClientId, list[float]]:
    """The last accuracy at each site that was tested, of each seed."""
    found: dict[ClientId, list[float]] = {}
    for run_data in group.runs:
        tests = list(run_data.client_accuracy.values())
        for site, value in (tests[-1] if tests else {}).items():
            found.setdefault(site, []).append(value)
    return found


def _name(site: ClientId) -> str:
    return fill(shown(site, _NAME), _LINE)


def _samples(results: Results, site: ClientId) -> str:
    """How many samples a site is tested on, where that is known."""
    run_data = results.runs[0]
    (told,) = [client for client in run_data.federation["clients"] if client["id"] == site]
    samples = told.get("test_samples") if run_data.test_sizes else told["samples"]
    if samples is None:
        return ""
    return f"{sum(samples):,} sample{'s' * (sum(samples) != 1)}"
