"""From kept results to the tables of the pages in docs, between their marks."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import ttest_rel

from experiments import method_table, signatures
from experiments.plans import PLANS
from experiments.running import results_of, rounds_to

_DOCS = Path(__file__).parents[1] / "docs"
PAGES = (_DOCS / "results.md", _DOCS / "methods.md")
"""What is made of results."""

_MARK = re.compile(r"(<!-- table: (\w[\w-]*) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LABELS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedfa": "FedFA",
    "feddyn": "FedDyn",
    "fedavgm": "FedAvg, momentum 0.5",
    "cadis-paper": "CADIS (paper)",
    "cadis": "**CADIS now**",
    "cadis-oracle": "CADIS, true clusters given",
    "singleset": "SingleSet (all data in one place)",
    "cadis-plain-weights": "weights of FedAvg",
    "cadis-uniform": "participants drawn uniformly",
    "cadis-absent": "drawn uniformly, absent clusters remembered",
    "cadis-no-momentum": "no server momentum",
    "cadis-no-distillation": "no distillation",
    "cadis-no-clustering": "no clustering",
}

Run = dict[str, Any]


def rewrite() -> None:
    """Put today's tables into the pages."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """A page with the tables between its marks made anew."""

    def one(match: re.Match[str]) -> str:
        begin, plan, kind, end = match.groups()
        lines = "\n".join(table(kind, plan))
        return f"{begin}{lines}\n{end}"

    return _MARK.sub(one, text)


def table(kind: str, plan: str) -> list[str]:
    """The lines of a table in Markdown, and how many seeds it is of."""
    lines = _KINDS[kind](plan)
    seeds = {len(runs) for runs in _grouped(plan).values()} if plan in PLANS else set()
    if not seeds:
        return lines
    many = str(*seeds) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    if PLANS[plan].tuned:
        many = f"{max(seeds)} at the best learning rate, {min(seeds)} at the others"
    return [*lines, "", f"Seeds: {many}."]


def _grouped(plan: str) -> dict[tuple[str, str], list[Run]]:
    """The runs of each federation and method."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(results_of(plan), key=lambda run: run["seed"]):
        found.setdefault((run["federation"], run["method"]), []).append(run)
    return found


def _names(plan: str) -> list[str]:
    return [*PLANS[plan].methods, *PLANS[plan].variants]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _deviating(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    return f"{mean(values):.3f}±{stdev(values):.3f}"


def _mean_rounds(runs: Sequence[Run], target: float) -> str:
    rounds = [rounds_to(run, target) for run in runs]
    told = [number for number in rounds if number is not None]
    if len(told) < len(rounds):
        return f"{len(told)} of {len(rounds)} reach it"
    return f"{mean(told):.1f}"


def _sound(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run["diverged"]]


def _full(plan: str) -> list[str]:
    """One federation, all measures."""
    groups, rows = _grouped(plan), []
    federations = list(PLANS[plan].federations)
    for federation in federations:
        target = PLANS[plan].target_of(federation)
        for method in _names(plan):
            runs = groups.get((federation, method), [])
            sound = _sound(runs)
            if not runs:
                continue
            cells = [federation] if len(federations) > 1 else []
            cells += [_LABELS.get(method, method)]
            if not sound:
                rows.append([*cells, "diverged", "", "", "", "", ""])
                continue
            gone = f" ({len(runs) - len(sound)} of {len(runs)} diverged)"
            cells += [
                _deviating([run["last_ten"] for run in sound]) + gone * (len(sound) < len(runs)),
                f"{mean(min(run['accuracy'][-10:]) for run in sound):.3f}",
                _mean_rounds(runs, target),
                _optional(sound, "rare"),
                _optional(sound, "common"),
                _optional(sound, "agreement"),
            ]
            rows.append(cells)
    first = ["federation"] if len(federations) > 1 else []
    shown = {PLANS[plan].target_of(federation) for federation in federations}
    goal = f"rounds to {shown.pop():.0%}" if len(shown) == 1 else "rounds to target"
    header = [*first, "", "last ten rounds", "their minimum", goal]
    return _markdown([*header, "rare classes", "other classes", "clusters (ARI)"], rows)


def _optional(runs: Sequence[Run], measure: str) -> str:
    told = [run[measure] for run in runs if run[measure] is not None]
    return f"{mean(told):.3f}" if told else ""


def _by_federation(plan: str, cell: Callable[[Sequence[Run], str], str]) -> list[str]:
    groups, rows = _grouped(plan), []
    federations = list(PLANS[plan].federations)
    for method in _names(plan):
        found = [groups.get((federation, method), []) for federation in federations]
        if any(found):
            cells = [
                cell(runs, name) if runs else ""
                for runs, name in zip(found, federations, strict=True)
            ]
            rows.append([_LABELS.get(method, method), *cells])
    return _markdown(["", *federations], rows)


def _last_ten(plan: str) -> list[str]:
    """Accuracy of the last ten rounds by federation; stars where it differs from FedAvg's."""
    groups = _grouped(plan)

    def cell(runs: Sequence[Run], federation: str) -> str:
        sound = _sound(runs)
        if not sound:
            return "diverged"
        text = _deviating([run["last_ten"] for run in sound])
        if len(sound) < len(runs):
            text += f" ({len(runs) - len(sound)} of {len(runs)} diverged)"
        return text + _significance(sound, groups.get((federation, "fedavg"), []))

    return _by_federation(plan, cell)


def _significance(runs: Sequence[Run], baseline: Sequence[Run]) -> str:
    """Whether the last ten rounds differ from the baseline's in a paired t-test at 5%."""
    of_seed = {run["seed"]: run["last_ten"] for run in _sound(baseline)}
    pairs = [(run["last_ten"], of_seed[run["seed"]]) for run in runs if run["seed"] in of_seed]
    ours, theirs = zip(*pairs, strict=True) if pairs else ((), ())
    if len(pairs) < 3 or ours == theirs:
        return ""
    p = float(ttest_rel(ours, theirs).pvalue)
    if not p < 0.05:
        return ""
    return " ▲" if mean(ours) > mean(theirs) else " ▼"


def _to_target(plan: str) -> list[str]:
    """Rounds to the target by federation."""
    targets = PLANS[plan]

    def cell(runs: Sequence[Run], federation: str) -> str:
        return _mean_rounds(runs, targets.target_of(federation))

    lines = _by_federation(plan, cell)
    federations = list(targets.federations)
    header = [f"{name}, to {targets.target_of(name):.0%}" for name in federations]
    return [f"| | {' | '.join(header)} |", *lines[1:]]


def _clusters(plan: str) -> list[str]:
    """Agreement with the true clusters: mean and the lowest of the seeds; of iid, how many."""

    def cell(runs: Sequence[Run], federation: str) -> str:
        sound = [run for run in _sound(runs) if run["clusters"] is not None]
        if not sound:
            return ""
        if federation.startswith(("iid", "dirichlet", "pa")):
            most = max(run["clusters"] for run in sound)
            return "none" if most == 1 else f"{mean(run['clusters'] for run in sound):.1f} clusters"
        told = [run["agreement"] for run in sound if run["agreement"] is not None]
        return f"{mean(told):.3f} ({min(told):.3f})" if told else ""

    return _by_federation(plan, cell)


_KINDS: dict[str, Callable[[str], list[str]]] = {
    "full": _full,
    "last": _last_ten,
    "rounds": _to_target,
    "clusters": _clusters,
    "signatures": lambda _: signatures.table(),
    "costs": lambda _: method_table.costs(),
    "best": lambda _: method_table.table(),
}
