"""Run plans: start the missing runs, a few at a time, and store each result when it ends."""

import json
import multiprocessing
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cadis.algorithm import build_catalogue
from cadis.errors import RunError
from cadis.experiment import make_method_variants, resolve, run_experiment
from cadis.server import OnRound, RoundRecord
from cadis.store import RunFolder, adjusted_rand_index, compute_mean_accuracy, find_rare_classes
from cadis.store.observations import get_clusters, get_confidence
from experiments.plans import PLANS, Plan
from experiments.reported_clusters import measure_reported_clusters

RESULTS = Path(__file__).parent / "results"

_WITH_CLUSTERS = ("mc", "bc", "uc", "overlap", "soft", "iid")
"""Partitions with true clusters, which the oracle needs."""


@dataclass(frozen=True)
class Task:
    """One run of a plan.

    Attributes:
        plan: the name of the plan.
        federation: the name of the federation.
        method: the name of the method or variant.
        seed: the seed.
        options: all options except the seed.
    """

    plan: str
    federation: str
    method: str
    seed: int
    options: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the identity of the run within its plan."""
        return self.federation, self.method, self.seed


def list_tasks(name: str, seeds: int | None = None) -> Iterator[Task]:
    """Yield all runs of a plan, seed by seed, so that early results are balanced."""
    plan = PLANS[name]
    for number in range(seeds or plan.seeds):
        seed = plan.first_seed + number
        best = find_best_federations(name) if plan.tuned and number else None
        for federation, own in plan.federations.items():
            for method, options in _list_options(plan, {**plan.common, **own}).items():
                if method == "cadis-oracle" and options["partition"] not in _WITH_CLUSTERS:
                    continue
                if best is None or best.get(method) == federation:
                    yield Task(name, federation, method, seed, options)


def find_best_federations(name: str) -> dict[str, str]:
    """Return the federation in which each method is best with the first seed."""
    order = list(PLANS[name].federations)
    runs = [run for run in read_results(name) if run["seed"] == 0]
    runs.sort(key=lambda run: (score(run), order.index(run["federation"])))
    return {run["method"]: run["federation"] for run in runs}  # the last entry wins


def score(run: Mapping[str, Any]) -> float:
    """Return the accuracy that ranks a run; with several models, that on the clients' own data."""
    several = run["method"] in {entry.name for entry in build_catalogue()["one model per cluster"]}
    return 0.0 if run["diverged"] else float(run["own" if several else "last_ten"])


def _list_options(plan: Plan, common: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the options of each method and variant."""
    found: dict[str, Mapping[str, Any]] = {}
    for method in plan.methods:
        (variant,) = make_method_variants([method], {}, common)
        found[method] = variant.options
    for name, (method, own) in plan.variants.items():
        (variant,) = make_method_variants([method], {}, {**common, **own})
        found[name] = variant.options
    return found


def read_results(name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """Read the stored results of a plan, by default from the repository."""
    path = (folder or RESULTS) / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def find_first_round(run: Mapping[str, Any], target: float) -> int | None:
    """Return the first round with this accuracy, or None."""
    matching_rounds = (n for n, accuracy in enumerate(run["accuracy"], 1) if accuracy >= target)
    return next(matching_rounds, None)


def run_plan(
    name: str,
    data_dir: str = "",
    seeds: int | None = None,
    at_once: int = 2,
    methods: Collection[str] = (),
) -> None:
    """Run the missing runs of a plan; the same command continues after an interruption.

    Args:
        name: the name of the plan.
        data_dir: folder of the datasets; empty for the default.
        seeds: number of seeds; None for that of the plan.
        at_once: number of runs at a time.
        methods: only runs of these methods or variants; empty for all.
    """
    if PLANS[name].tuned and seeds != 1:
        run_plan(name, data_dir, 1, at_once)  # to find the best learning rates
    done = {(r["federation"], r["method"], r["seed"]) for r in read_results(name)}
    missing = [
        task
        for task in list_tasks(name, seeds)
        if task.key not in done and (not methods or task.method in methods)
    ]
    RESULTS.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(at_once, mp_context=context) as pool,
        (RESULTS / f"{name}.jsonl").open("a") as file,
    ):
        futures = {pool.submit(run_task, task, data_dir): task for task in missing}
        try:
            for number, future in enumerate(as_completed(futures), 1):
                result = future.result()
                file.write(json.dumps(result) + "\n")
                file.flush()
                known = "diverged" if result["diverged"] else f"{result['last_ten']:.3f}"
                key = futures[future].key
                print(f"{name} {number}/{len(missing)}: {key}: {known}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def run_task(
    task: Task,
    data_dir: str,
    folder: Path | None = None,
    workers: int | str = 1,
    on_round: OnRound | None = None,
) -> dict[str, Any]:
    """Run a task, or resume it if the folder has an interrupted run, and summarize it.

    Args:
        task: the run.
        data_dir: folder of the datasets; empty for the default.
        folder: where the run and its checkpoint are stored; None for a temporary folder.
        workers: number of processes, or "auto" for one per core.
        on_round: called with the result of each round.
    """
    if folder is None:
        with TemporaryDirectory() as temporary:
            return run_task(task, data_dir, Path(temporary) / "run", workers, on_round)
    options = {**task.options, "seed": task.seed, "workers": workers}
    config = resolve(options, {"data_dir": data_dir} if data_dir else {})
    run = RunFolder(folder)
    try:
        run_experiment(config, folder, resume=run.has_rounds(), on_round=on_round)
        diverged = False
    except RunError:
        diverged = True
    history = run.read_history()
    return {
        "federation": task.federation,
        "method": task.method,
        "seed": task.seed,
        "diverged": diverged,
        **_summarize(history, run.read_json("federation.json")),
    }


def _summarize(history: list[RoundRecord], description: dict[str, Any]) -> dict[str, Any]:
    """Return the accuracy by round, and means of the last ten rounds and of the clusters."""
    accuracy = [round(record.accuracy or 0.0, 4) for record in history]
    last, rare = history[-10:], find_rare_classes(description)
    common = [n for n in range(len(description["classes"])) if n not in rare]
    truth = {client["id"]: client["cluster"] for client in description["clients"]}
    found = [(record, get_clusters(record)) for record in history[4:]]
    agreements = [
        adjusted_rand_index([truth[client] for client in record.participants], labels)
        for record, labels in found
        if labels is not None and None not in truth.values()
    ]
    confidences = [c for record in history if (c := get_confidence(record)) is not None]
    tested = [record.client_accuracy for record in history if record.client_accuracy is not None]
    return {
        "accuracy": accuracy,
        "last_ten": _mean([record.accuracy for record in last]),
        "rare": _mean([compute_mean_accuracy(record, rare) for record in last]) if rare else None,
        "common": _mean([compute_mean_accuracy(record, common) for record in last])
        if rare
        else None,
        "own": _mean(tested[-1]) if tested else None,
        "worst": min(
            (a for record in last for a in record.class_accuracy if a is not None), default=None
        ),
        "agreement": _mean(agreements),
        "clusters": _mean([float(len(set(labels))) for _, labels in found if labels is not None]),
        "confidence": _mean(confidences[4:]),
        **measure_reported_clusters(history, truth),
    }


def _mean(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None
