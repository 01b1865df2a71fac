"""What the page shows, as plain lists and numbers."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from cadis._io import natural
from cadis.analysis import (
    HEADLINE,
    MEASURE,
    Comparison,
    Results,
    RunData,
    answer,
    details,
    time_axis,
)
from cadis.report.exports import results_csv, runs_csv
from cadis.report.figures.curves import Curve, all_classes, measured, rare_classes
from cadis.report.page.grouping import grouping
from cadis.report.style import styled_groups
from cadis.report.tables import main_sheets, notes
from cadis.rng import one_thread
from cadis.store import sample

_NO_DIFFERENCE = ("seed", "workers", "device", "data_dir", "offline")
_FEW = 4  # comparisons that a title names
_SMOOTHING = 10
_MANY_CLASSES = 30
_CLIENT_TESTS = 20  # rounds with a test on clients' data that are shown, at most


@one_thread()
def page_data(results: Results) -> dict[str, Any]:
    """Everything; a section is None if there is nothing to show."""
    comparison = Comparison(results)
    alike = comparison.rivals  # else each has its own clients and classes
    return {
        "title": _title(results) if alike else _side_by_side(comparison),
        "kind": results.kind,
        "created": now(),
        "live": None,
        "methods": _methods(comparison),
        "answer": _answer(comparison),
        "accuracy": _accuracy(results),
        "federation": _federation(results) if alike else None,
        "grouping": grouping(results),
        "confusion": _confusion(results) if alike else None,
        "fairness": _fairness(results),
        "convergence": _convergence(results),
        "time": _spent(comparison),
        "sweep": _sweep(comparison),
        "setup": _setup(results),
    }


def now() -> str:
    """The time in UTC, as the page shows it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _side_by_side(comparison: Comparison) -> str:
    """What is shown together, where not all of it learns the same."""
    labels = [cell.label for cell in comparison.cells]
    more = len(labels) - _FEW
    return " | ".join(labels[:_FEW]) + (f" | {more} more" if more > 0 else "")


def _methods(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "name": group.label,
            "colour": look.colour,
            "dash": look.dash,
            "reference": group.is_reference,
            "baseline": group is comparison.baseline,
        }
        for group, look in styled_groups(comparison.results)
    ]


def _answer(comparison: Comparison) -> dict[str, Any]:
    # The page has a section of its own about the cost.
    tables = [asdict(sheet) for sheet in main_sheets(comparison) if sheet.caption != "Cost"]
    downloads = {"results.csv": results_csv(comparison), "runs.csv": runs_csv(comparison)}
    return {
        "sentence": answer(comparison),
        "details": details(comparison),
        "notes": notes(comparison),
        "tables": tables,
        "downloads": [
            {"name": name, "type": "text/csv", "content": text} for name, text in downloads.items()
        ],
    }


def _accuracy(results: Results) -> dict[str, Any] | None:
    if all(np.isnan(all_classes(run_data)).all() for run_data in results.runs):
        return None
    names = results.further_measures
    runs = [
        {
            "method": place,
            "seed": run_data.seed,
            "all": _listed(all_classes(run_data)),
            "rare": _listed(rare_classes(run_data)) if run_data.rare else None,
            "measures": {name: _listed(measured(name, run_data)) for name in names},
            "clock": list(map(_significant, run_data.clocks)),
        }
        for place, run_data in results.numbered_runs
    ]
    return {
        "runs": runs,
        "times": _times(results),
        "decides": HEADLINE.title,
        "rare": results.rare_in_words,
        "smoothing": _SMOOTHING,
        "measures": names,
        "metric": results.metric,
    }


def _times(results: Results) -> dict[str, Any] | None:
    """When accuracies over simulated time are looked at; None where clients have no speeds."""
    if not any(run_data.clocks for run_data in results.runs):
        return None
    times, far_apart = time_axis(results.runs)
    return {"at": list(map(_significant, times)), "logarithmic": far_apart}


def _significant(time: float) -> float:
    """With as many digits as anybody sees."""
    return float(f"{time:.6g}")


def _federation(results: Results) -> dict[str, Any] | None:
    seeds: dict[int, dict[str, Any]] = {}
    for run_data in results.runs:
        clients = run_data.federation["clients"]
        if run_data.seed not in seeds and all(client["samples"] is not None for client in clients):
            seeds[run_data.seed] = {"seed": run_data.seed, **_owned(clients)}
    if not seeds:
        return None
    return {"classes": results.runs[0].classes, "seeds": list(seeds.values())}


def _owned(clients: list[dict[str, Any]]) -> dict[str, Any]:
    """Who has what: all clients, or some of very many; the numbers in words are those of all."""
    by_id = {client["id"]: client for client in clients}
    true_clusters = {client["id"]: client["cluster"] for client in clients}
    known = None not in true_clusters.values()
    sizes = [sum(client["samples"]) for client in clients]
    together = sorted(by_id, key=lambda client: true_clusters[client] or 0)
    shown = sorted(sample(together, true_clusters), key=natural)
    return {
        "clients": [str(client) for client in shown],
        "cluster": [true_clusters[client] for client in shown] if known else None,
        "samples": [by_id[client]["samples"] for client in shown],
        "of": len(clients),
        "clusters": len(set(true_clusters.values())) if known else None,
        "range": [min(sizes), max(sizes)],
        "held": sum(sum(client.get("test_samples") or ()) for client in clients),
    }


def _confusion(results: Results) -> dict[str, Any] | None:
    """Seed by seed: the rare classes may be others. Of many classes, only the first seed."""
    told = [(p, s) for p, s in results.numbered_runs if s.summary["confusion"] is not None]
    if not told:
        return None
    first = told[0][1]
    seeds = sorted({run_data.seed for _, run_data in told})
    kept = seeds if len(first.classes) <= _MANY_CLASSES else seeds[:1]
    found = []
    for seed in kept:
        runs = [(place, run_data) for place, run_data in told if run_data.seed == seed]
        matrices = [{"method": place, "counts": s.summary["confusion"]} for place, s in runs]
        found.append({"seed": seed, "rare": runs[0][1].rare, "matrices": matrices})
    return {"classes": first.classes, "seeds": found}


def _fairness(results: Results) -> dict[str, Any] | None:
    """Means and deviations over the clients tested by round, and of the last test each of them."""
    runs = []
    for place, run_data in results.numbered_runs:
        tests = list(run_data.client_accuracy.items())
        step = -(-len(tests) // _CLIENT_TESTS) or 1
        kept = tests[::-1][::step][::-1]  # the last one is
        if kept:
            runs.append(
                {
                    "method": place,
                    "seed": run_data.seed,
                    "rounds": [number for number, _ in kept],
                    "mean": [round(fmean(tested.values()), 6) for _, tested in kept],
                    "deviation": [round(pstdev(tested.values()), 6) for _, tested in kept],
                    "clients": list(map(str, kept[-1][1])),
                    "last": [round(value, 4) for value in kept[-1][1].values()],
                    "tested": run_data.clients_tested,
                }
            )
    return {"own": results.own_data, "runs": runs} if runs else None


def _convergence(results: Results) -> dict[str, Any] | None:
    runs = [
        {
            "method": place,
            "seed": run_data.seed,
            "rounds": found.rounds,
            "with": [round(value, 6) for value in found.transitive] or None,
            "without": [round(value, 6) for value in found.standard],
            "choice": run_data.choice,
        }
        for place, run_data in results.numbered_runs
        if (found := run_data.convergence) is not None
    ]
    return {"runs": runs} if runs else None


def _sweep(comparison: Comparison) -> dict[str, Any] | None:
    results = comparison.results
    if results.kind != "sweep":
        return None
    cells = [
        {
            "method": place,
            "values": list(group.cell),
            "accuracy": round(spread.mean, 5),
            "deviation": spread.deviation and round(spread.deviation, 5),
        }
        for place, group in enumerate(results.groups)
        if (spread := comparison.spread(group, HEADLINE)) is not None
    ]
    return {"parameters": list(results.parameters), "cells": cells}


def _listed(values: Curve) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 4) for value in values]


def _title(results: Results) -> str:
    run_data = results.runs[0]
    clients = run_data.federation["clients"]
    clusters = {client["cluster"] for client in clients}
    groups = f" in {len(clusters)} clusters" if None not in clusters and len(clusters) > 1 else ""
    what = str(run_data.options.get("dataset", "Own data")).removeprefix("images:")
    each = run_data.options.get("per_round")
    per_round = f", {each} a round" if each else ""
    rounds = max(s.options.get("rounds", len(s.history)) for s in results.runs)
    ending = "" if rounds == 1 else "s"
    return f"{what}: {len(clients)} clients{groups}{per_round}, {rounds} round{ending}"


def _setup(results: Results) -> dict[str, Any]:
    """Command, options that all share, options of each, versions."""
    flat = [_flat(group.runs[0]) for group in results.groups]
    shared = {k: v for k, v in flat[0].items() if all(other.get(k) == v for other in flat)}
    seeds = ", ".join(map(str, sorted({run_data.seed for run_data in results.runs})))
    own = [[[k, v] for k, v in options.items() if k not in shared] for options in flat]
    return {
        "command": results.command,
        "options": [*map(list, shared.items()), ["seeds", seeds]],
        "methods": [{"method": n, "options": told} for n, told in enumerate(own) if told],
        "versions": [[k, v] for k, v in results.runs[0].summary["versions"].items()],
    }


def _spent(comparison: Comparison) -> dict[str, Any]:
    """Seconds a round of each group, and ratios to the baseline."""
    methods = []
    for number, group in enumerate(comparison.groups):
        records = [record.seconds for run_data in group.runs for record in run_data.history]
        seconds = {
            name: round(fmean(getattr(record, name) for record in records), 6)
            for name in ("train", "aggregate", "evaluate", "total")
        }
        speed = comparison.spread(group, MEASURE["samples_per_second"])
        ratios = {
            "samples_per_second": None if speed is None else round(speed.mean, 1),
            "server_ratio": comparison.ratio(group, MEASURE["server_seconds"]),
            "client_ratio": comparison.ratio(group, MEASURE["samples_per_second"]),
        }
        methods.append({"method": number, **seconds, **ratios})
    return {"methods": methods}


def _flat(run_data: RunData) -> dict[str, str]:
    """Options side by side; parameters of the other parts than the method under their names."""
    flat: dict[str, str] = {}
    for key, value in run_data.options.items():
        if isinstance(value, Mapping):
            inner = "" if key == run_data.name else f"{key}."
            flat |= {f"{inner}{name}": str(content) for name, content in value.items()}
        elif key not in _NO_DIFFERENCE and value != "":
            flat[key] = str(value)
    return flat
