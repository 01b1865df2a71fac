"""Federations that change in the middle of a run: classes change, a cluster leaves, clients join.

All clients have the digits of two classes, in five clusters at 3:3:2:1:1. After 40 of 80 rounds the
federation is replaced by another one, and training continues with the same state of the server.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, mode
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cadis.algorithm.methods.cadis.cluster_participants import assign_by_profiles
from cadis.engine import Engine, Federation
from cadis.experiment import Experiment, make_experiment, resolve
from cadis.rng import use_one_thread
from cadis.server import RoundResult
from cadis.store import adjusted_rand_index, compute_mean_accuracy
from cadis.types import ClientId
from experiments.plans import TEST_SEED
from experiments.running import RESULTS

FILE = RESULTS / "drift.jsonl"
CHANGES = ("classes change", "a cluster leaves", "clients join")
METHODS = ("fedavg", "fedavgm", "cadis")
_ROUNDS = 40  # before the change, and after it
_WINDOW = 10
_TOLERANCE = 0.02  # the accuracy has recovered if it is only this much below that without a change
_MIN_AGREEMENT = 0.95  # adjusted Rand index from which reported clusters are right
_SEEDS = range(TEST_SEED, TEST_SEED + 5)
_OPTIONS: dict[str, Any] = {"partition": "mc", "clients": 50, "per_round": 10, "test_clients": 0}


def run(seeds: Sequence[int] = _SEEDS, at_once: int = 2) -> None:
    """Run the missing runs."""
    finished = {(r["change"], r["method"], r["seed"]) for r in read_results()}
    tasks = [task for task in product(CHANGES, METHODS, seeds) if task not in finished]
    with (
        ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool,
        FILE.open("a") as file,
    ):
        for result in pool.map(measure, *zip(*tasks, strict=True)) if tasks else ():
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(*(f"{name} {value}" for name, value in result.items()), sep=", ", flush=True)


def read_results() -> list[dict[str, Any]]:
    """Read the stored results."""
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def measure(change: str, method: str, seed: int) -> dict[str, Any]:
    """Train before and after a change, and the federation after the change from the start.

    Returns:
        - ``before`` and ``last_ten``: accuracy in the last ten rounds before the change and of the
          run; ``lowest``: the lowest accuracy after the change; ``unchanged``: accuracy in the last
          ten rounds of the federation that did not change. All are the mean accuracy of the classes
          of the new federation.
        - ``recovery``: rounds after the change until the accuracy is near that of ``unchanged``, or
          None.
        - ``clusters``: rounds after the change until the reported clusters of all clients that took
          part agree with the true ones, or None.
        - ``placed``: fraction of new clients of a known cluster that are assigned to it after their
          first update.
    """
    config = resolve({**_OPTIONS, "method": method, "seed": seed}, {})
    experiment = make_experiment(config)
    old, new = _change(change, experiment.federation)
    changed = list(_train(experiment, [old, new]))
    unchanged = list(_train(experiment, [new, new]))
    classes = sorted({int(n) for samples in new.clients for n in samples.labels.unique()})
    accuracy, goal = (
        [compute_mean_accuracy(result.record, classes) or 0.0 for result in results]
        for results in (changed, unchanged)
    )
    after, required = accuracy[_ROUNDS:], mean(goal[-_WINDOW:]) - _TOLERANCE
    found = {
        "before": mean(accuracy[_ROUNDS - _WINDOW : _ROUNDS]),
        "lowest": min(after),
        "last_ten": mean(after[-_WINDOW:]),
        "unchanged": mean(goal[-_WINDOW:]),
    }
    return {
        "change": change,
        "method": method,
        "seed": seed,
        **{name: round(value, 4) for name, value in found.items()},
        "recovery": next((n for n, value in enumerate(after, 1) if value >= required), None),
        **(_measure_clusters(changed[_ROUNDS:], old, new) if method == "cadis" else {}),
    }


def _train(experiment: Experiment, federations: Sequence[Federation]) -> Iterator[RoundResult]:
    """Train on one federation after another, with the same model and the same state."""
    config, state = experiment.config, None
    with TemporaryDirectory() as folder, use_one_thread():
        for number, federation in enumerate(federations, 1):
            settings = replace(config.settings, rounds=number * _ROUNDS).to_engine_settings()
            engine = Engine(experiment.model, federation, config.algorithm, settings, Path(folder))
            with closing(engine.rounds(state or engine.start)) as rounds:
                for result in rounds:
                    state = result.state
                    yield result


def _measure_clusters(
    results: Sequence[RoundResult], old: Federation, new: Federation
) -> dict[str, float | None]:
    truth, known = _get_clusters(new), _get_clusters(old)
    seen = [client for client in truth if client in known]
    recovery, placed = None, []
    for number, result in enumerate(results, 1):
        tensors = result.state.server.tensors
        joined = [client for client in result.record.participants if client not in seen]
        seen += joined
        labels = dict(zip(seen, assign_by_profiles(seen, tensors).tolist(), strict=True))
        for client in joined:
            others = [labels[n] for n in known if n in truth and truth[n] == truth[client]]
            if others:
                placed.append(labels[client] == mode(others))
        agreement = adjusted_rand_index([truth[n] for n in labels], list(labels.values()))
        if recovery is None and agreement >= _MIN_AGREEMENT:
            recovery = number
    return {"clusters": recovery, "placed": mean(map(float, placed)) if placed else None}


def _get_clusters(federation: Federation) -> dict[ClientId, int]:
    assert federation.true_clusters is not None
    return dict(zip(federation.client_ids, federation.true_clusters.tolist(), strict=True))


def _change(change: str, federation: Federation) -> tuple[Federation, Federation]:
    """Return the federation before and after a change."""
    clusters = _get_clusters(federation)
    members = [[n for n, own in enumerate(clusters.values()) if own == c] for c in range(5)]
    everyone = list(range(len(federation.clients)))
    if change == "classes change":  # the smallest cluster and a part of the largest exchange data
        pairs = list(zip(members[0], members[4], strict=False))
        order = dict(pairs) | {second: first for first, second in pairs}
        return federation, _select(federation, everyone, [order.get(n, n) for n in everyone])
    if change == "a cluster leaves":
        remaining = [n for n in everyone if n not in members[1]]
        return federation, _select(federation, remaining, remaining)
    joining = {*members[4], *members[0][:5]}
    first = [n for n in everyone if n not in joining]
    return _select(federation, first, first), federation


def _select(federation: Federation, ids: Sequence[int], data: Sequence[int]) -> Federation:
    """Return a federation of these clients, with the data and true clusters of other clients."""
    assert federation.true_clusters is not None
    return replace(
        federation,
        clients=[federation.clients[n] for n in data],
        client_ids=tuple(federation.client_ids[n] for n in ids),
        true_clusters=federation.true_clusters[torch.tensor(data)],
    )
