"""Write tables of stored results into pages of docs, between comment markers."""

import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import ttest_rel

from experiments import drift, method_table, signatures
from experiments.plans import PLANS
from experiments.running import find_first_round, read_results

_DOCS = Path(__file__).parents[1] / "docs"
PAGES = (_DOCS / "explanation" / "results.md", _DOCS / "explanation" / "methods.md")
"""Pages with generated tables."""

_MARK = re.compile(r"(<!-- table: (\w[\w-]*) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LABELS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedfa": "FedFA",
    "feddyn": "FedDyn",
    "fedavgm": "FedAvg, momentum 0.5",
    "fedadam": "FedAdam",
    "cadis-paper": "CADIS (paper)",
    "cadis": "**CADIS now**",
    "cadis-oracle": "CADIS, true clusters",
    "cadis-hard-weights": "CADIS, weights by clusters",
    "fedyogi": "FedYogi",
    "fedavg-damped": "FedAvg, server optimizer of CADIS",
    "cadis-newest": "CADIS without averaging",
    "singleset": "SingleSet (all data in one place)",
    "cadis-plain-weights": "FedAvg weights",
    "cadis-uniform": "uniform sampling",
    "cadis-absent": "uniform sampling, old updates reused",
    "cadis-no-momentum": "no server momentum",
    "cadis-no-distillation": "no distillation",
    "cadis-no-clustering": "no clustering",
}

Run = dict[str, Any]

_NOW = (
    "clusters-digits",
    "clusters-fashion",
    "clusters-mnist",
    "clusters-cifar10",
    "clusters-rates",
    "clusters-models",
    "clusters-thousand",
    "quickstart",
    "hundred",
    "samplers",
    "shifted",
    "drift",
)
"""Plans with results of the present default of CADIS.

The other stored results are of the default before, which had weights and sampling by
clusters and constant server momentum. To replace them, delete their files and run the plans.
"""

_RIVALS = ("fedavg", "fedavgm", "fedadam", "fedyogi", "cadis-paper")
"""Methods with which the table "margin" compares CADIS."""

_MAX_COLUMNS = 8
"""Tables of more federations have one row per federation, not one column."""


def _get_label(plan: str, method: str) -> str:
    if method == "cadis" and plan not in _NOW:
        return "**CADIS before**"
    return _LABELS.get(method, method.replace("now", "CADIS before"))


def rewrite() -> None:
    """Rewrite the tables of all pages."""
    for page in PAGES:
        page.write_text(fill_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


def fill_tables(text: str) -> str:
    """Return the text of a page with its tables rewritten."""

    def replace_table(match: re.Match[str]) -> str:
        begin, plan, kind, end = match.groups()
        lines = "\n".join(table(kind, plan))
        return f"{begin}{lines}\n{end}"

    return _MARK.sub(replace_table, text)


def table(kind: str, plan: str) -> list[str]:
    """Return the lines of a Markdown table, and the number of seeds."""
    lines = _TABLES[kind](plan)
    seeds = {len(runs) for runs in _group_runs(plan).values()} if plan in PLANS else set()
    if not seeds:
        return lines
    seeds_text = str(*seeds) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    if PLANS[plan].tuned:
        seeds_text = f"{max(seeds)} at the best learning rate, {min(seeds)} at the others"
    return [*lines, "", f"Seeds: {seeds_text}."]


def _group_runs(plan: str) -> dict[tuple[str, str], list[Run]]:
    """Return the runs by federation and method."""
    groups_of_method: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(read_results(plan), key=lambda run: run["seed"]):
        groups_of_method.setdefault((run["federation"], run["method"]), []).append(run)
    return groups_of_method


def _list_methods(plan: str) -> list[str]:
    return [*PLANS[plan].methods, *PLANS[plan].variants]


def _format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _format_mean(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    return f"{mean(values):.3f}±{stdev(values):.3f}"


def _format_rounds(runs: Sequence[Run], target: float) -> str:
    rounds = [find_first_round(run, target) for run in runs]
    values = [number for number in rounds if number is not None]
    if len(values) < len(rounds):
        return f"{len(values)} of {len(rounds)} reach it"
    return f"{mean(values):.1f}"


def _keep_finite(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run["diverged"]]


def _make_full_table(plan: str) -> list[str]:
    """Return a table of all metrics, by federation and method."""
    groups, rows = _group_runs(plan), []
    federations = list(PLANS[plan].federations)
    for federation in federations:
        target = PLANS[plan].get_target(federation)
        for method in _list_methods(plan):
            runs = groups.get((federation, method), [])
            finite_runs = _keep_finite(runs)
            if not runs:
                continue
            cells = [federation] if len(federations) > 1 else []
            cells += [_get_label(plan, method)]
            if not finite_runs:
                rows.append([*cells, "diverged", "", "", "", "", ""])
                continue
            diverged = f" ({len(runs) - len(finite_runs)} of {len(runs)} diverged)"
            cells += [
                _format_mean([run["last_ten"] for run in finite_runs])
                + diverged * (len(finite_runs) < len(runs)),
                f"{mean(min(run['accuracy'][-10:]) for run in finite_runs):.3f}",
                _format_rounds(runs, target),
                _format_optional(finite_runs, "rare"),
                _format_optional(finite_runs, "common"),
                _format_optional(finite_runs, "agreement"),
            ]
            rows.append(cells)
    first = ["federation"] if len(federations) > 1 else []
    targets = {PLANS[plan].get_target(federation) for federation in federations}
    goal = f"rounds to {targets.pop():.0%}" if len(targets) == 1 else "rounds to target"
    header = [*first, "", "last ten rounds", "their minimum", goal]
    return _format_table([*header, "rare classes", "other classes", "clusters (ARI)"], rows)


def _format_optional(runs: Sequence[Run], metric: str) -> str:
    values = [run[metric] for run in runs if run[metric] is not None]
    return f"{mean(values):.3f}" if values else ""


def _make_federation_table(plan: str, cell: Callable[[Sequence[Run], str], str]) -> list[str]:
    groups, rows = _group_runs(plan), []
    federations = list(PLANS[plan].federations)
    for method in _list_methods(plan):
        groups_of_method = [groups.get((federation, method), []) for federation in federations]
        if any(groups_of_method):
            cells = [
                cell(runs, name) if runs else ""
                for runs, name in zip(groups_of_method, federations, strict=True)
            ]
            rows.append([_get_label(plan, method), *cells])
    header = ["", *federations]
    if len(header) > _MAX_COLUMNS:
        header, *rows = (list(column) for column in zip(header, *rows, strict=True))
    return _format_table(header, rows)


def _make_last_ten_table(plan: str) -> list[str]:
    """Return a table of the accuracy of the last ten rounds, with signs of significance."""
    groups = _group_runs(plan)

    def cell(runs: Sequence[Run], federation: str) -> str:
        finite_runs = _keep_finite(runs)
        if not finite_runs:
            return "diverged"
        text = _format_mean([run["last_ten"] for run in finite_runs])
        if len(finite_runs) < len(runs):
            text += f" ({len(runs) - len(finite_runs)} of {len(runs)} diverged)"
        return text + _format_significance(finite_runs, groups.get((federation, "fedavg"), []))

    return _make_federation_table(plan, cell)


def _make_own_table(plan: str) -> list[str]:
    """Return a table of the mean accuracy of the clients on their own data in the last round."""

    def cell(runs: Sequence[Run], federation: str) -> str:
        del federation
        finite_runs = _keep_finite(runs)
        return _format_mean([run["own"] for run in finite_runs]) if finite_runs else "diverged"

    return _make_federation_table(plan, cell)


def _make_drift_table() -> list[str]:
    """Return a table of the recovery of accuracy and clusters after a change."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in drift.read_results():
        groups.setdefault((run["change"], run["method"]), []).append(run)
    rows = []
    for change, method in product(drift.CHANGES, drift.METHODS):
        runs = groups.get((change, method), [])
        if runs:
            names = ("before", "lowest", "last_ten", "unchanged")
            cells = [f"{mean(run[name] for run in runs):.3f}" for name in names]
            cells += [_format_recovery(runs, name) for name in ("recovery", "clusters")]
            placed = [run["placed"] for run in runs if run.get("placed") is not None]
            cells += [f"{mean(placed):.0%}" if placed else ""]
            rows.append([change, _get_label("drift", method), *cells])
    header = ["change", "", "before", "lowest", "last ten", "no change"]
    return _format_table([*header, "rounds to recover", "clusters", "placed"], rows)


def _format_recovery(runs: Sequence[Run], name: str) -> str:
    values = [run[name] for run in runs if run.get(name) is not None]
    if name not in runs[0]:
        return ""
    text = f"{mean(values):.1f}" if values else ""
    return text if len(values) == len(runs) else f"{text} ({len(values)} of {len(runs)})".strip()


def _format_significance(runs: Sequence[Run], baseline: Sequence[Run]) -> str:
    """Return a sign if a paired t-test with the baseline is significant at 5%, else ""."""
    baseline_by_seed = {run["seed"]: run["last_ten"] for run in _keep_finite(baseline)}
    pairs = [
        (run["last_ten"], baseline_by_seed[run["seed"]])
        for run in runs
        if run["seed"] in baseline_by_seed
    ]
    values_a, values_b = zip(*pairs, strict=True) if pairs else ((), ())
    if len(pairs) < 3 or values_a == values_b:
        return ""
    p = float(ttest_rel(values_a, values_b).pvalue)
    if not p < 0.05:
        return ""
    return " ▲" if mean(values_a) > mean(values_b) else " ▼"


def _make_margin_table(plan: str) -> list[str]:
    """Return a table of the accuracy of the last ten rounds, with CADIS compared to its rivals."""
    groups = _group_runs(plan)

    def cell(runs: Sequence[Run], federation: str) -> str:
        finite_runs = _keep_finite(runs)
        text = _format_mean([run["last_ten"] for run in finite_runs]) if finite_runs else "diverged"
        if len(finite_runs) < len(runs):
            text += f" ({len(runs) - len(finite_runs)} of {len(runs)} diverged)"
        if runs[0]["method"] != "cadis":
            return text
        rivals = [groups.get((federation, name), []) for name in _RIVALS]
        return text + _format_margin(runs, [group for group in rivals if group])

    return _make_federation_table(plan, cell)


def _format_margin(runs: Sequence[Run], rivals: Sequence[Sequence[Run]]) -> str:
    """Return ▲ if runs are significantly above all rivals, ▼ if significantly below the best."""
    signs = [_format_significance(runs, rival) for rival in rivals]
    if signs and all(sign == " ▲" for sign in signs):
        return " ▲"
    best = max(range(len(rivals)), key=lambda n: mean(run["last_ten"] for run in rivals[n]))
    return signs[best].replace("▲", "").rstrip()


def _make_reported_table(plan: str) -> list[str]:
    """Return a table of the clusters that CADIS reports, and of its speed and worst class."""
    groups, rows = _group_runs(plan), []
    for federation in PLANS[plan].federations:
        runs = _keep_finite(groups.get((federation, "cadis"), []))
        target = PLANS[plan].get_target(federation)
        measured = [run for run in runs if "none" in run]
        if not measured:
            continue
        known = [run for run in measured if "reported" in run]
        cells = [_format_mean_of(known, name) for name in ("reported", "reference")]
        shares = [f"{mean(run[name] for run in measured):.1%}" for name in ("none", "changes")]
        worst = f"{min(run['worst'] for run in runs):.2f}"
        speeds = [
            _format_rounds(groups.get((federation, method), runs), target)
            for method in ("fedavg", "cadis")
        ]
        rows.append([federation, *cells, *shares, worst, *speeds])
    goals = {f"{PLANS[plan].get_target(name):.0%}" for name in PLANS[plan].federations}
    goal = f"rounds to {goals.pop()}" if len(goals) == 1 else "rounds to target"
    header = ["", "reported", "possible", "no clusters", "changes", "worst class"]
    return _format_table([*header, f"{goal}, FedAvg", "CADIS"], rows)


def _format_mean_of(runs: Sequence[Run], name: str) -> str:
    return f"{mean(run[name] for run in runs):.2f}" if runs else ""


def _make_target_table(plan: str) -> list[str]:
    """Return a table of the rounds to the target, by federation."""
    targets = PLANS[plan]

    def cell(runs: Sequence[Run], federation: str) -> str:
        return _format_rounds(runs, targets.get_target(federation))

    lines = _make_federation_table(plan, cell)
    federations = list(targets.federations)
    header = [f"{name}, to {targets.get_target(name):.0%}" for name in federations]
    return [f"| | {' | '.join(header)} |", *lines[1:]]


def _make_cluster_table(plan: str) -> list[str]:
    """Return a table of the agreement with the true clusters: mean and minimum over seeds."""

    def cell(runs: Sequence[Run], federation: str) -> str:
        finite_runs = [run for run in _keep_finite(runs) if run["clusters"] is not None]
        if not finite_runs:
            return ""
        if federation.startswith(("iid", "dirichlet", "pa", "power")):
            max_clusters = max(run["clusters"] for run in finite_runs)
            return (
                "none"
                if max_clusters == 1
                else f"{mean(run['clusters'] for run in finite_runs):.1f} clusters"
            )
        values = [run["agreement"] for run in finite_runs if run["agreement"] is not None]
        return f"{mean(values):.3f} ({min(values):.3f})" if values else ""

    return _make_federation_table(plan, cell)


_TABLES: dict[str, Callable[[str], list[str]]] = {
    "full": _make_full_table,
    "last": _make_last_ten_table,
    "own": _make_own_table,
    "margin": _make_margin_table,
    "reported": _make_reported_table,
    "rounds": _make_target_table,
    "clusters": _make_cluster_table,
    "signatures": lambda _: signatures.table(),
    "recovery": lambda _: _make_drift_table(),
    "costs": lambda _: method_table.costs(),
    "best": lambda _: method_table.table(),
}
