"""Run folders without training: the records are random, all other files come from cadis."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cadis._io import to_toml
from cadis.algorithm import Algorithm, BaseMethod, to_options
from cadis.algorithm.methods import CADIS, METHODS
from cadis.algorithm.methods.cadis import cluster_by_threshold, compute_q_matrix
from cadis.analysis import Comparison, RunData, read_results
from cadis.experiment import make_grid_variants, parse_grid
from cadis.report.formats import TextTable
from cadis.report.tables import make_tables
from cadis.server import ModelRecord, Rejection, RoundRecord, Seconds, to_json_array
from cadis.store import (
    HistoryWriter,
    RunFolder,
    Study,
    StudyFolder,
    Variant,
    replace_text,
    summarize,
)
from cadis.training import Evaluation

CLASSES = ["ant", "bee", "cat", "dog", "<img src=x onerror=alert(1)>"]


def make_federation(clients: int, held_out: int = 0) -> dict[str, Any]:
    """Return a ``federation.json`` of clients in three clusters.

    Only clients of the smallest cluster have the last two classes. Each client has ``held_out``
    held-out samples of each of its classes.
    """
    sizes = [clients - clients // 3 - clients // 6, clients // 3, clients // 6]
    truth = np.repeat([0, 1, 2], sizes).tolist()
    samples = {0: [9, 9, 0, 0, 0], 1: [0, 0, 12, 0, 0], 2: [0, 0, 0, 6, 6]}
    entries: list[dict[str, Any]] = [
        {"id": number, "cluster": label, "samples": samples[label]}
        for number, label in enumerate(truth)
    ]
    for client in entries if held_out else []:
        client["test_samples"] = [held_out if count else 0 for count in client["samples"]]
    return {"classes": CLASSES, "clients": entries}


def write_run(
    path: Path,
    method: BaseMethod,
    seed: int = 0,
    rounds: int = 12,
    clients: int = 12,
    level: float = 0.8,
    finished: bool = True,
    per_round: int = 6,
    change_record: Callable[[RoundRecord], RoundRecord] = lambda record: record,
    main_metric: str = "accuracy",
    held_out: int = 0,
    change_federation: Callable[[dict[str, Any]], dict[str, Any]] = lambda content: content,
    **options: Any,
) -> RunFolder:
    """Write a run whose accuracy rises to about ``level``, with noise that depends on the seed.

    ``change_record`` and ``change_federation`` modify the records and ``federation.json``.
    """
    folder, federation = RunFolder(path), make_federation(clients, held_out)
    folder.lock_new().close()
    defaults = {"dataset": "digits", "rounds": rounds, "epochs": 2, "seed": seed}
    defaults["per_round"] = per_round
    replace_text(path / "config.toml", to_toml(to_options(Algorithm(method), defaults | options)))
    rng = np.random.default_rng([seed, sum(method.name.encode())])
    history = [
        change_record(_make_record(number, method, federation, level, rng, per_round))
        for number in range(1, rounds + 1)
    ]
    federation = change_federation(federation)
    folder.write_json("federation.json", federation)
    writer = HistoryWriter(folder.history_path)
    for record in history:
        writer.append(record)
    if finished:
        confusion = torch.tensor(rng.integers(1, 9, (5, 5))) + 20 * torch.eye(5).long()
        evaluation = Evaluation(confusion, 3.0)
        summary = summarize(method.name, history, federation, evaluation, main_metric=main_metric)
        folder.write_json("summary.json", summary)
    return folder


def add_metrics(record: RoundRecord) -> RoundRecord:
    """Add metrics of a binary task; the first is best in the round with the worst accuracy."""
    accuracy = record.accuracy or 0.0
    return replace(record, metrics={"auc": 1 - accuracy / 2, "balanced_accuracy": accuracy**2})


def add_clock(record: RoundRecord) -> RoundRecord:
    """Add a clock; every round takes 10 simulated seconds."""
    return replace(record, clock=10.0 * record.round)


def change_clusters(record: RoundRecord) -> RoundRecord:
    """Report clusters of 12 clients and the confidence: no clusters in rounds 1 to 3.

    The clients of the third cluster join in round 8; those of the second leave after round 12.
    """
    first, second, third = range(6), range(6, 10), range(10, 12)
    clients = [
        *first,
        *(second if record.round <= 12 else ()),
        *(third if record.round > 7 else ()),
    ]
    labels = [(c > 5) + (c > 9) if record.round > 3 else 0 for c in clients]
    report: dict[str, Any] = {"clusters": labels, "confidence": 0.9 if record.round > 3 else 0.2}
    weights = [1 / len(clients)] * len(clients)
    return replace(
        record, participants=clients, weights=weights, report=report, rejected=[], client_loss=[]
    )


def drop_most_tests(record: RoundRecord) -> RoundRecord:
    """Remove three of four tests on the test set, and the tests of all clients but 2 and 5."""
    accuracies = record.client_accuracy
    some = accuracies and [a if n in (2, 5) else None for n, a in enumerate(accuracies)]
    record = replace(record, client_accuracy=some)
    if record.round % 4 == 0:
        return record
    return replace(record, accuracy=None, loss=None, class_accuracy=[])


def add_models(record: RoundRecord) -> RoundRecord:
    """Add two models, which participants train in turns, and the clients' losses."""
    accuracy, size = record.accuracy or 0.0, len(record.participants)
    names = ["left" if n < record.round % (size + 1) else "right [b]" for n in range(size)]
    models = [
        ModelRecord("left", 8, accuracy / 2, 1 - accuracy / 2),
        ModelRecord("right [b]", 4, accuracy, None),
    ]
    losses = [None, *(float(n) for n in range(1, size))]
    return replace(record, models=models, client_models=names, client_loss=losses)


def write_study(
    path: Path, levels: dict[str, float], seeds: int, finished: bool = True, **run: Any
) -> StudyFolder:
    """Write a comparison of methods whose accuracies rise to these levels."""
    folder = StudyFolder(path)
    variants = tuple(
        Variant(name, METHODS[name].__name__, {"method": name, "rounds": run.get("rounds", 12)})
        for name in levels
    )
    folder.write(Study("compare", variants, tuple(range(seeds)), "cadis compare", "fedavg"))
    for variant in variants:
        for seed in range(seeds):
            path, method = folder.get_run_folder(variant, seed).path, METHODS[variant.name]()
            write_run(path, method, seed, level=levels[variant.name], finished=finished, **run)
    return folder


def write_sweep(
    path: Path, *grid: str, rounds: int = 12, levels: tuple[float, float] = (0.5, 0.05)
) -> StudyFolder:
    """Write a sweep with two seeds; each variant is better than the last by the second level."""
    folder, variants = (
        StudyFolder(path),
        make_grid_variants(parse_grid(grid), {}, {"rounds": rounds}),
    )
    parameters = tuple(parse_grid(grid))
    folder.write(Study("sweep", variants, (0, 1), "cadis sweep", parameters=parameters))
    for number, variant in enumerate(variants):
        for seed in (0, 1):
            path, level = folder.get_run_folder(variant, seed).path, levels[0] + levels[1] * number
            write_run(path, CADIS(), seed, rounds=rounds, level=level)
    return folder


def compare(path: Path, levels: dict[str, float], seeds: int = 3, **run: Any) -> Comparison:
    """Return a comparison of methods whose accuracies rise to these levels."""
    return compare_folders(write_study(path, levels, seeds, **run))


def compare_folders(*folders: RunFolder | StudyFolder) -> Comparison:
    """Return the comparison of the runs in these folders."""
    return Comparison(read_results([folder.path for folder in folders]))


def read_run(path: Path, method: BaseMethod, **run: Any) -> RunData:
    """Write a run and read it."""
    return RunData.read(write_run(path, method, **run))


def find_table(comparison: Comparison, caption: str) -> TextTable:
    """Return the only table whose caption begins with this text."""
    (table,) = [table for table in make_tables(comparison) if table.caption.startswith(caption)]
    return table


def read_csv(text: str) -> list[dict[str, str]]:
    """Return the rows of a table, by the names of the columns."""
    return list(csv.DictReader(io.StringIO(text)))


def _make_record(
    number: int,
    method: BaseMethod,
    federation: dict[str, Any],
    level: float,
    rng: np.random.Generator,
    per_round: int,
) -> RoundRecord:
    truth = np.array([client["cluster"] for client in federation["clients"]])
    participants = np.sort(rng.choice(len(truth), per_round, replace=False))
    accuracy = float(np.clip(level * (1 - 0.7**number) + 0.02 * rng.standard_normal(), 0, 1))
    report = _make_report(method, truth[participants], rng) if isinstance(method, CADIS) else {}
    by_class = np.clip(accuracy + 0.1 * rng.standard_normal(5), 0, 1).tolist()
    by_client = np.clip(accuracy + 0.1 * rng.standard_normal(len(truth)), 0, 1).tolist()
    return RoundRecord(
        round=number,
        accuracy=accuracy,
        loss=1 - accuracy,
        class_accuracy=by_class,
        participants=participants.tolist(),
        weights=[1 / per_round] * per_round,
        rejected=[Rejection(1, "made up")] if number == 3 else [],
        seconds=Seconds(train=0.5, aggregate=0.001, evaluate=0.1, total=0.4),
        client_accuracy=by_client if number % 5 == 0 else None,
        report=report,
    )


def _make_report(
    method: CADIS, clusters: NDArray[np.int64], rng: np.random.Generator
) -> dict[str, Any]:
    """Return the report of CADIS for participants with these true clusters."""
    noise = 0.1 * rng.random((len(clusters), len(clusters)))
    mean = np.where(clusters[:, None] == clusters, 0.9, 0.1)
    similarity = torch.tensor(mean + (noise + noise.T) / 2)
    similarity = similarity.float().fill_diagonal_(1)
    report = {
        "clusters": cluster_by_threshold(
            compute_q_matrix(similarity, torch.ones_like(similarity) > 0), 0.7
        ),
        "similarity": similarity,
        "threshold": torch.tensor(0.7, dtype=torch.float64),
    }
    if method.transitive != "off":
        report["gamma"] = torch.tensor(method.gamma, dtype=torch.float64)
    return {name: to_json_array(array) for name, array in report.items()}
