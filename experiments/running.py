"""Running plans: each run that is not there yet, some at a time, kept as soon as it ends."""

import json
import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cadis.algorithm import catalogue
from cadis.errors import RunError
from cadis.experiment import method_variants, resolve, run_experiment
from cadis.server import OnRound, RoundRecord
from cadis.store import RunFolder, agreement, mean_accuracy, rare_classes
from cadis.store.observations import clusters_of, confidence_of
from experiments.plans import PLANS, Plan

RESULTS = Path(__file__).parent / "results"

_KNOWN = ("mc", "bc", "uc", "iid")
"""Partitions whose true clusters are known, which an oracle needs."""


@dataclass(frozen=True)
class Task:
    """One run.

    Attributes:
        plan: its name.
        federation: the name of the federation.
        method: that of the method or variant.
        seed: with which seed.
        options: all options but the seed, as files hold them.
    """

    plan: str
    federation: str
    method: str
    seed: int
    options: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the other runs of its plan."""
        return self.federation, self.method, self.seed


def tasks_of(name: str, seeds: int | None = None) -> Iterator[Task]:
    """All runs of a plan, seed by seed, so that what is there early is even."""
    plan = PLANS[name]
    for seed in range(seeds or plan.seeds):
        best = best_federations(name) if plan.tuned and seed else None
        for federation, own in plan.federations.items():
            for method, options in _options(plan, {**plan.common, **own}).items():
                if method == "cadis-oracle" and own["partition"] not in _KNOWN:
                    continue
                if best is None or best.get(method) == federation:
                    yield Task(name, federation, method, seed, options)


def best_federations(name: str) -> dict[str, str]:
    """Of each method, where it did best with the first seed; of equals the last."""
    order = list(PLANS[name].federations)
    runs = [run for run in results_of(name) if run["seed"] == 0]
    runs.sort(key=lambda run: (score(run), order.index(run["federation"])))
    return {run["method"]: run["federation"] for run in runs}  # the last one wins


def score(run: Mapping[str, Any]) -> float:
    """What decides: the test set; of a method with several models, what each client gets."""
    several = run["method"] in {entry.name for entry in catalogue()["one model per cluster"]}
    return 0.0 if run["diverged"] else float(run["own" if several else "last_ten"])


def _options(plan: Plan, common: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The options of each method and variant."""
    found: dict[str, Mapping[str, Any]] = {}
    for method in plan.methods:
        (variant,) = method_variants([method], {}, common)
        found[method] = variant.options
    for name, (method, own) in plan.variants.items():
        (variant,) = method_variants([method], {}, {**common, **own})
        found[name] = variant.options
    return found


def results_of(name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """Return the stored results of a plan, from the repository's folder if none is given."""
    path = (folder or RESULTS) / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounds_to(run: Mapping[str, Any], target: float) -> int | None:
    """The first round with this accuracy; None if there is none."""
    reached = (n for n, accuracy in enumerate(run["accuracy"], 1) if accuracy >= target)
    return next(reached, None)


def run_plan(name: str, data_dir: str = "", seeds: int | None = None, at_once: int = 2) -> None:
    """Run what is missing of a plan; what was interrupted goes on with the same command."""
    if PLANS[name].tuned and seeds != 1:
        run_plan(name, data_dir, 1, at_once)  # which tells what is best
    done = {(r["federation"], r["method"], r["seed"]) for r in results_of(name)}
    missing = [task for task in tasks_of(name, seeds) if task.key not in done]
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
                told = "diverged" if result["diverged"] else f"{result['last_ten']:.3f}"
                key = futures[future].key
                print(f"{name} {number}/{len(missing)}: {key}: {told}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def run_task(
    task: Task,
    data_dir: str,
    folder: Path | None = None,
    workers: int | str = 1,
    on_round: OnRound | None = None,
) -> dict[str, Any]:
    """Run a task, or resume it if the folder has an interrupted run, and summarise it.

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
        **_summary(history, run.read_json("federation.json")),
    }


def _summary(history: list[RoundRecord], described: dict[str, Any]) -> dict[str, Any]:
    """Accuracy by round, and what the last ten rounds and the clusters come to."""
    accuracy = [round(record.accuracy or 0.0, 4) for record in history]
    last, rare = history[-10:], rare_classes(described)
    common = [n for n in range(len(described["classes"])) if n not in rare]
    truth = {client["id"]: client["cluster"] for client in described["clients"]}
    found = [(record, clusters_of(record)) for record in history[4:]]
    agreements = [
        agreement([truth[client] for client in record.participants], labels)
        for record, labels in found
        if labels is not None and None not in truth.values()
    ]
    confidences = [c for record in history if (c := confidence_of(record)) is not None]
    tested = [record.client_accuracy for record in history if record.client_accuracy is not None]
    return {
        "accuracy": accuracy,
        "last_ten": _mean([record.accuracy for record in last]),
        "rare": _mean([mean_accuracy(record, rare) for record in last]) if rare else None,
        "common": _mean([mean_accuracy(record, common) for record in last]) if rare else None,
        "own": _mean(tested[-1]) if tested else None,
        "agreement": _mean(agreements),
        "clusters": _mean([float(len(set(labels))) for _, labels in found if labels is not None]),
        "confidence": _mean(confidences[4:]),
    }


def _mean(values: list[Any]) -> float | None:
    told = [value for value in values if value is not None]
    return round(sum(told) / len(told), 4) if told else None
