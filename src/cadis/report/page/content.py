"""Data of the report page, as JSON objects."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from cadis._io import natural_key
from cadis.analysis import (
    METRICS,
    RANKING_METRIC,
    Comparison,
    Results,
    RunData,
    explain_verdict,
    make_time_axis,
    write_verdict,
)
from cadis.report.exports import make_results_csv, make_runs_csv
from cadis.report.figures.curves import Curve, get_accuracy, get_rare_accuracy, get_task_metric
from cadis.report.notes import write_notes
from cadis.report.page.clusters import make_clusters_section
from cadis.report.style import get_group_styles
from cadis.report.tables import COST_CAPTION, make_main_tables
from cadis.rng import use_one_thread
from cadis.store import format_metric_name, sample_clients

_HIDDEN_OPTIONS = ("seed", "workers", "device", "data_dir", "offline", "cache")
"""Options without effect on results."""
_ON_BY_DEFAULT = ("own_tests", "stack")
"""Options that are on by default. They are shown if they are off, too: the user turned them off."""
_MAX_TITLES = 4  # comparable sets that the title of the page names
_MAX_SMOOTHING = 10  # initial number of rounds to average accuracy over; fewer for short runs
_MAX_CONFUSION_CLASSES = 30  # with more classes, only the first seed has a confusion matrix
_MAX_CLIENT_TESTS = 20  # rounds in the chart of the clients' accuracy


@use_one_thread()
def make_page_data(results: Results) -> dict[str, Any]:
    """Return the data of all sections; None for sections without data."""
    comparison = Comparison(results)
    all_comparable = comparison.all_comparable  # otherwise, clients and classes may differ
    return {
        "title": _make_title(results) if all_comparable else _make_title_of_sets(comparison),
        "kind": results.kind,
        "created": format_now(),
        "live": None,
        "methods": _make_methods(comparison),
        "verdict": _make_verdict(comparison),
        "accuracy": _make_accuracy(results),
        "federation": _make_federation(results) if all_comparable else None,
        "clusters": make_clusters_section(results),
        "confusion": _make_confusion(results) if all_comparable else None,
        "fairness": _make_fairness(results),
        "convergence": _make_convergence(results),
        "time": _make_time(comparison),
        "sweep": _make_sweep(comparison),
        "setup": _make_setup(results),
    }


def format_now() -> str:
    """Return the current time in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _make_title_of_sets(comparison: Comparison) -> str:
    """Return a title that names the sets of comparable groups."""
    labels = [comparable.label for comparable in comparison.comparable_sets]
    more = len(labels) - _MAX_TITLES
    return " | ".join(labels[:_MAX_TITLES]) + (f" | {more} more" if more > 0 else "")


def _make_methods(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "name": group.label,
            "colour": style.color,
            "dash": style.dash,
            "reference": group.is_reference,
            "baseline": group is comparison.baseline,
        }
        for group, style in get_group_styles(comparison.results)
    ]


def _make_verdict(comparison: Comparison) -> dict[str, Any]:
    # Another section of the page shows the computing time.
    tables = [asdict(t) for t in make_main_tables(comparison) if COST_CAPTION not in t.caption]
    downloads = {"results.csv": make_results_csv(comparison), "runs.csv": make_runs_csv(comparison)}
    return {
        "sentence": write_verdict(comparison),
        "details": explain_verdict(comparison),
        "notes": write_notes(comparison),
        "tables": tables,
        "downloads": [
            {"name": name, "type": "text/csv", "content": text} for name, text in downloads.items()
        ],
    }


def _make_accuracy(results: Results) -> dict[str, Any] | None:
    if all(np.isnan(get_accuracy(run_data)).all() for run_data in results.runs):
        return None
    names = results.task_metric_names
    runs = [
        {
            "method": index,
            "seed": run_data.seed,
            "all": _to_list(get_accuracy(run_data)),
            "rare": _to_list(get_rare_accuracy(run_data)) if run_data.rare else None,
            "metrics": {name: _to_list(get_task_metric(name, run_data)) for name in names},
            "clock": list(map(_round_time, run_data.round_end_times)),
        }
        for index, run_data in results.runs_by_group
    ]
    return {
        "runs": runs,
        "times": _make_times(results),
        "ranking": RANKING_METRIC.title,
        "rare": results.rare_classes_text,
        "smoothing": max(1, min(_MAX_SMOOTHING, results.max_rounds // 20)),
        "metrics": {name: format_metric_name(name) for name in names},
        "metric": results.metric,
    }


def _make_times(results: Results) -> dict[str, Any] | None:
    """Return the axis of simulated time; None if clients have no speeds."""
    if not any(run_data.round_end_times for run_data in results.runs):
        return None
    times, is_logarithmic = make_time_axis(results.runs)
    return {"at": list(map(_round_time, times)), "logarithmic": is_logarithmic}


def _round_time(time: float) -> float:
    """Round to six digits, which keeps the page small."""
    return float(f"{time:.6g}")


def _make_federation(results: Results) -> dict[str, Any] | None:
    seeds: dict[int, dict[str, Any]] = {}
    for run_data in results.runs:
        clients = run_data.federation["clients"]
        if run_data.seed not in seeds and all(client["samples"] is not None for client in clients):
            seeds[run_data.seed] = {"seed": run_data.seed, **_describe_clients(clients)}
    if not seeds:
        return None
    return {"classes": results.runs[0].classes, "seeds": list(seeds.values())}


def _describe_clients(clients: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the samples per class of each client, and totals over all clients.

    If there are many clients, only some of them are listed.
    """
    by_id = {client["id"]: client for client in clients}
    true_clusters = {client["id"]: client["cluster"] for client in clients}
    has_clusters = None not in true_clusters.values()
    sizes = [sum(client["samples"]) for client in clients]
    order = sorted(by_id, key=lambda client: true_clusters[client] or 0)
    shown = sorted(sample_clients(order, true_clusters), key=natural_key)
    return {
        "clients": [str(client) for client in shown],
        "cluster": [true_clusters[client] for client in shown] if has_clusters else None,
        "samples": [by_id[client]["samples"] for client in shown],
        "num_clients": len(clients),
        "clusters": len(set(true_clusters.values())) if has_clusters else None,
        "range": [min(sizes), max(sizes)],
        "num_test_samples": sum(sum(client.get("test_samples") or ()) for client in clients),
    }


def _make_confusion(results: Results) -> dict[str, Any] | None:
    """Return confusion matrices by seed, since the rare classes may differ between seeds."""
    available = [(n, r) for n, r in results.runs_by_group if r.summary["confusion"] is not None]
    if not available:
        return None
    first = available[0][1]
    seeds = sorted({run_data.seed for _, run_data in available})
    if len(first.classes) > _MAX_CONFUSION_CLASSES:
        seeds = seeds[:1]
    entries = []
    for seed in seeds:
        runs = [(index, run_data) for index, run_data in available if run_data.seed == seed]
        matrices = [{"method": n, "counts": run.summary["confusion"]} for n, run in runs]
        entries.append({"seed": seed, "rare": runs[0][1].rare, "matrices": matrices})
    return {"classes": first.classes, "seeds": entries}


def _make_fairness(results: Results) -> dict[str, Any] | None:
    """Return the accuracy on clients' own data: mean and deviation by round, and the last test."""
    runs = []
    for index, run_data in results.runs_by_group:
        tests = list(run_data.client_accuracy.items())
        step = -(-len(tests) // _MAX_CLIENT_TESTS) or 1
        tests = tests[::-1][::step][::-1]  # the last test is always included
        if tests:
            runs.append(
                {
                    "method": index,
                    "seed": run_data.seed,
                    "rounds": [number for number, _ in tests],
                    "mean": [round(fmean(values.values()), 6) for _, values in tests],
                    "deviation": [round(pstdev(values.values()), 6) for _, values in tests],
                    "clients": list(map(str, tests[-1][1])),
                    "last": [round(value, 4) for value in tests[-1][1].values()],
                    "sample": run_data.test_sample_text,
                }
            )
    return {"own_data": results.own_data, "runs": runs} if runs else None


def _make_convergence(results: Results) -> dict[str, Any] | None:
    runs = [
        {
            "method": index,
            "seed": run_data.seed,
            "rounds": convergence.rounds,
            "with": [round(value, 6) for value in convergence.transitive] or None,
            "without": [round(value, 6) for value in convergence.standard],
            "sample": run_data.sample_text,
        }
        for index, run_data in results.runs_by_group
        if (convergence := run_data.convergence) is not None
    ]
    return {"runs": runs} if runs else None


def _make_sweep(comparison: Comparison) -> dict[str, Any] | None:
    results = comparison.results
    if results.kind != "sweep":
        return None
    cells = [
        {
            "method": index,
            "values": list(group.cell),
            "accuracy": round(spread.mean, 5),
            "deviation": spread.deviation and round(spread.deviation, 5),
        }
        for index, group in enumerate(results.groups)
        if (spread := comparison.compute_spread(group, RANKING_METRIC)) is not None
    ]
    return {
        "parameters": list(results.parameters),
        "cells": cells,
        "metric": comparison.metric,
    }


def _to_list(values: Curve) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 4) for value in values]


def _make_title(results: Results) -> str:
    run_data = results.runs[0]
    clients = run_data.federation["clients"]
    clusters = {client["cluster"] for client in clients}
    has_clusters = None not in clusters and len(clusters) > 1
    in_clusters = f" in {len(clusters)} clusters" if has_clusters else ""
    dataset = str(run_data.options.get("dataset", "User data")).removeprefix("images:")
    participants = run_data.options.get("per_round")
    per_round = f", {participants} per round" if participants else ""
    rounds = max(run.options.get("rounds", len(run.history)) for run in results.runs)
    suffix = "" if rounds == 1 else "s"
    return f"{dataset}: {len(clients)} clients{in_clusters}{per_round}, {rounds} round{suffix}"


def _make_setup(results: Results) -> dict[str, Any]:
    """Return the command, options of all methods, options of each method, and versions."""
    flat = [_flatten_options(group.runs[0]) for group in results.groups]
    shared = {k: v for k, v in flat[0].items() if all(other.get(k) == v for other in flat)}
    seeds = ", ".join(map(str, sorted({run_data.seed for run_data in results.runs})))
    different = [[[k, v] for k, v in options.items() if k not in shared] for options in flat]
    return {
        "command": results.command,
        "options": [*map(list, shared.items()), ["seeds", seeds]],
        "methods": [{"method": n, "options": rows} for n, rows in enumerate(different) if rows],
        "versions": [[k, v] for k, v in results.runs[0].summary["versions"].items()],
    }


def _make_time(comparison: Comparison) -> dict[str, Any]:
    """Return the seconds per round of each group, and ratios to the baseline."""
    methods = []
    for index, group in enumerate(comparison.groups):
        records = [record.seconds for run_data in group.runs for record in run_data.history]
        seconds = {
            name: round(fmean(getattr(record, name) for record in records), 6)
            for name in ("train", "aggregate", "evaluate", "total")
        }
        speed = comparison.compute_spread(group, METRICS["samples_per_second"])
        ratios = {
            "samples_per_second": None if speed is None else round(speed.mean, 1),
            "server_ratio": comparison.compute_ratio(group, METRICS["server_seconds"]),
            "client_ratio": comparison.compute_ratio(group, METRICS["samples_per_second"]),
        }
        methods.append({"method": index, **seconds, **ratios})
    return {"methods": methods}


def _flatten_options(run_data: RunData) -> dict[str, str]:
    """Return the options that have an effect on the run, as a mapping without nested mappings.

    A parameter of the method keeps its name; a parameter of another part, such as the sampler, gets
    the name of the part as a prefix. Options that are empty or off are left out; so is the size of
    images, except for image folders.
    """
    has_images = str(run_data.options.get("dataset", "")).startswith("images:")
    flat: dict[str, str] = {}
    for key, value in run_data.options.items():
        if isinstance(value, Mapping):
            prefix = "" if key == run_data.name else f"{key}."
            flat |= {f"{prefix}{name}": str(content) for name, content in value.items()}
        elif key in _HIDDEN_OPTIONS or (key == "image_size" and not has_images):
            continue
        elif value or key in _ON_BY_DEFAULT:
            flat[key] = str(value)
    return flat
