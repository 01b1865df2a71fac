"""Tables of docs/explanation/methods.md: costs of methods, results at the best learning rate."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from cadis.algorithm import Paper, build_catalogue
from cadis.algorithm.catalogue import Entry
from experiments.plans import PLANS
from experiments.running import find_first_round, read_results, score

Run = dict[str, Any]

PLAN = "methods"

_RANDOM_GUESS = 0.15
"""Accuracy slightly above that of a random guess among ten classes."""


def table() -> list[str]:
    """Return a Markdown table of methods by topic, the best of each topic first."""
    runs_by_method = _by_method(read_results(PLAN))
    lines = [
        "| | best lr | test set | own data | rare classes | rounds to 85% | diverged |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for about, entries in build_catalogue().items():
        rows = [
            _Row(entry, runs_by_method[entry.name])
            for entry in entries
            if entry.name in runs_by_method
        ]
        if rows:
            lines.append(f"| *{about}* | | | | | | |")
            lines += [row.line for row in sorted(rows, key=lambda row: -row.mean_score)]
    return lines


def costs() -> list[str]:
    """Return a Markdown table of the paper, communication and state of each built-in part."""
    lines = [
        "| | summary | paper | sent | client state | server state | Flower | batch norm |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for topic, entries in build_catalogue().items():
        lines.append(f"| *{topic}* | | | | | | | |")
        for entry in entries:
            about = entry.about
            name = entry.name if entry.kind.key == "method" else entry.option
            costs = [about.sends, about.client_state, about.server_state]
            cells = [f"`{name}`", entry.summary.replace("|", "\\|"), _cite(about.paper)]
            cells += ["" if cost == "nothing" else cost for cost in costs]
            lines.append(f"| {' | '.join([*cells, about.flower, about.batch_norm])} |")
    return lines


def _cite(paper: Paper | None) -> str:
    if paper is None:
        return ""
    return f"[{paper.citation}]({paper.link})" if paper.link else paper.citation


class _Row:
    """Row of a method at its best learning rate with the first seed."""

    def __init__(self, entry: Entry, runs: Mapping[float, Sequence[Run]]) -> None:
        first_runs = {lr: own[0] for lr, own in runs.items()}
        self._entry, self._runs = entry, runs
        self._lr = max(first_runs, key=lambda lr: (score(first_runs[lr]), lr))
        self.mean_score = mean(map(score, runs[self._lr]))

    @property
    def line(self) -> str:
        """Return the Markdown row."""
        best = [run for run in self._runs[self._lr] if not run["diverged"]]
        diverged = [
            f"{sum(map(_has_failed, own))} of {len(own)} at {lr:g}"
            for lr, own in self._runs.items()
            if any(map(_has_failed, own))
        ]
        cells = [
            f"`{self._entry.name}`",
            f"{self._lr:g}",
            _spread(best, "last_ten"),
            _spread(best, "own"),
            _spread(best, "rare"),
            _rounds(best),
            ", ".join(diverged),
        ]
        return f"| {' | '.join(cells)} |"


def _has_failed(run: Run) -> bool:
    """Return whether the run diverged or is not better than a random guess."""
    return bool(run["diverged"] or run["last_ten"] < _RANDOM_GUESS)


def _by_method(runs: Sequence[Run]) -> dict[str, dict[float, list[Run]]]:
    """Return the runs of each method, by learning rate."""
    rates = {name: float(own["lr"]) for name, own in PLANS[PLAN].federations.items()}
    runs_by_rate: dict[str, dict[float, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: (rates[run["federation"]], run["seed"])):
        by_rate = runs_by_rate.setdefault(run["method"], {})
        by_rate.setdefault(rates[run["federation"]], []).append(run)
    return runs_by_rate


def _spread(runs: Sequence[Run], metric: str) -> str:
    values = [run[metric] for run in runs if run[metric] is not None]
    if not values:
        return ""
    return f"{mean(values):.3f}±{stdev(values):.3f}" if len(values) > 1 else f"{values[0]:.3f}"


def _rounds(runs: Sequence[Run]) -> str:
    first_rounds = [find_first_round(run, PLANS[PLAN].get_target("")) for run in runs]
    values = [first for first in first_rounds if first is not None]
    if len(values) < len(first_rounds) or not values:
        return f"{len(values)} of {len(first_rounds)}"
    return f"{mean(values):.1f}"
