"""The tables of docs/methods.md: what methods cost, and each at its best learning rate."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from cadis.algorithm import catalogue
from cadis.algorithm.catalogue import Entry
from experiments.plans import PLANS
from experiments.running import results_of, rounds_to, score

Run = dict[str, Any]

PLAN = "methods"

_CHANCE = 0.15
"""An accuracy that a model of ten classes has without knowing anything, and a little."""


def table() -> list[str]:
    """A row a method in Markdown, by what they are about, the best of a kind first."""
    grouped = _by_method(results_of(PLAN))
    lines = [
        "| | best lr | test set | own data | rare classes | rounds to 85% | diverged |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for about, entries in catalogue().items():
        rows = [_Row(entry, grouped[entry.name]) for entry in entries if entry.name in grouped]
        if rows:
            lines.append(f"| *{about}* | | | | | | |")
            lines += [row.line for row in sorted(rows, key=lambda row: -row.decisive)]
    return lines


def costs() -> list[str]:
    """What each method and sampler sends and remembers, and where it runs, in Markdown."""
    lines = [
        "| | what it does | sent | client memory | server memory | Flower | batch norm |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for about, entries in catalogue().items():
        lines.append(f"| *{about}* | | | | | | |")
        for entry in entries:
            facts = entry.about
            name = f"`--sampler {entry.name}`" if entry.kind.key == "sampler" else f"`{entry.name}`"
            memories = facts.sends, facts.client_memory, facts.server_memory
            told = ["" if fact == "nothing" else fact for fact in memories]
            cells = [name, entry.line.replace("|", "\\|"), *told, facts.flower, facts.batch_norm]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


class _Row:
    """A method at the learning rate at which it did best with the first seed."""

    def __init__(self, entry: Entry, runs: Mapping[float, Sequence[Run]]) -> None:
        firsts = {lr: own[0] for lr, own in runs.items()}
        self._entry, self._runs = entry, runs
        self._lr = max(firsts, key=lambda lr: (score(firsts[lr]), lr))
        self.decisive = mean(map(score, runs[self._lr]))

    @property
    def line(self) -> str:
        """Its row."""
        best = [run for run in self._runs[self._lr] if not run["diverged"]]
        diverged = [
            f"{sum(map(_failed, own))} of {len(own)} at {lr:g}"
            for lr, own in self._runs.items()
            if any(map(_failed, own))
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


def _failed(run: Run) -> bool:
    """Whether numbers became infinite, or nothing was learned that chance would not know."""
    return bool(run["diverged"] or run["last_ten"] < _CHANCE)


def _by_method(runs: Sequence[Run]) -> dict[str, dict[float, list[Run]]]:
    """The runs of each method, by learning rate."""
    rates = {name: float(own["lr"]) for name, own in PLANS[PLAN].federations.items()}
    found: dict[str, dict[float, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: (rates[run["federation"]], run["seed"])):
        by_rate = found.setdefault(run["method"], {})
        by_rate.setdefault(rates[run["federation"]], []).append(run)
    return found


def _spread(runs: Sequence[Run], measure: str) -> str:
    told = [run[measure] for run in runs if run[measure] is not None]
    if not told:
        return ""
    return f"{mean(told):.3f}±{stdev(told):.3f}" if len(told) > 1 else f"{told[0]:.3f}"


def _rounds(runs: Sequence[Run]) -> str:
    firsts = [rounds_to(run, PLANS[PLAN].target_of("")) for run in runs]
    told = [first for first in firsts if first is not None]
    if len(told) < len(firsts) or not told:
        return f"{len(told)} of {len(firsts)}"
    return f"{mean(told):.1f}"
