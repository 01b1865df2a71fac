"""What was run, how long it took, and how to repeat it, for the page."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from cadis.analysis import MEASURE, Comparison, Group, Results, RunData

_NO_DIFFERENCE = ("seed", "workers", "device", "data_dir", "offline")


def title(results: Results) -> str:
    """The federation in a few words."""
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


def setup(results: Results) -> dict[str, Any]:
    """Command, options that all share, options of each, versions."""
    flat = [_flat(group.runs[0]) for group in results.groups]
    shared = {k: v for k, v in flat[0].items() if all(other.get(k) == v for other in flat)}
    seeds = sorted({run_data.seed for run_data in results.runs})
    options = [*shared.items(), ("seeds", ", ".join(map(str, seeds)))]
    methods = [
        {"method": place, "options": [[k, v] for k, v in own.items() if k not in shared]}
        for place, own in enumerate(flat)
    ]
    return {
        "command": results.command,
        "options": [list(pair) for pair in options],
        "methods": [each for each in methods if each["options"]],
        "versions": [[k, v] for k, v in results.runs[0].summary["versions"].items()],
    }


def spent(comparison: Comparison) -> dict[str, Any]:
    """Seconds a round of each group, and ratios to the baseline."""
    return {
        "methods": [
            {"method": place, **_seconds(group), **_ratios(comparison, group)}
            for place, group in enumerate(comparison.groups)
        ]
    }


def _seconds(group: Group) -> dict[str, float]:
    records = [record.seconds for run_data in group.runs for record in run_data.history]
    return {
        "train": round(fmean(seconds.train for seconds in records), 6),
        "aggregate": round(fmean(seconds.aggregate for seconds in records), 6),
        "evaluate": round(fmean(seconds.evaluate for seconds in records), 6),
        "total": round(fmean(seconds.total for seconds in records), 6),
    }


def _ratios(comparison: Comparison, group: Group) -> dict[str, float | None]:
    speed = comparison.spread(group, MEASURE["samples_per_second"])
    return {
        "samples_per_second": None if speed is None else round(speed.mean, 1),
        "server_ratio": comparison.ratio(group, MEASURE["server_seconds"]),
        "client_ratio": comparison.ratio(group, MEASURE["samples_per_second"]),
    }


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
