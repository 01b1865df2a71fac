"""Run folders that nobody trained: records made up, everything else by the real code."""

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
from cadis.algorithm import Algorithm, BaseMethod, options_of
from cadis.algorithm.methods import CADIS, METHODS
from cadis.algorithm.methods.cadis import cluster, rescale
from cadis.analysis import Comparison, RunData, read_results
from cadis.experiment import grid_variants, parse_grid
from cadis.report.formats import Sheet
from cadis.report.tables import sheets
from cadis.server import ModelRecord, Rejection, RoundRecord, Seconds, numbers
from cadis.store import (
    HistoryWriter,
    RunFolder,
    Study,
    StudyFolder,
    Variant,
    replace_text,
    summarise,
)
from cadis.training import Evaluation

CLASSES = ["ant", "bee", "cat", "dog", "<img src=x onerror=alert(1)>"]


def federation(clients: int, held_out: int = 0) -> dict[str, Any]:
    """Clients in three clusters; the last two classes are those of the smallest one.

    Of each class that it has, each client has held out so many samples.
    """
    sizes = [clients - clients // 3 - clients // 6, clients // 3, clients // 6]
    truth = np.repeat([0, 1, 2], sizes).tolist()
    owned = {0: [9, 9, 0, 0, 0], 1: [0, 0, 12, 0, 0], 2: [0, 0, 0, 6, 6]}
    described: list[dict[str, Any]] = [
        {"id": number, "cluster": label, "samples": owned[label]}
        for number, label in enumerate(truth)
    ]
    for client in described if held_out else []:
        client["test_samples"] = [held_out if count else 0 for count in client["samples"]]
    return {"classes": CLASSES, "clients": described}


def write_run(
    path: Path,
    method: BaseMethod,
    seed: int = 0,
    rounds: int = 12,
    clients: int = 12,
    level: float = 0.8,
    finished: bool = True,
    per_round: int = 6,
    further: Callable[[RoundRecord], RoundRecord] = lambda record: record,
    headline: str = "accuracy",
    held_out: int = 0,
    describe: Callable[[dict[str, Any]], dict[str, Any]] = lambda described: described,
    **changed: Any,
) -> RunFolder:
    """A run whose accuracy rises to about ``level``, with some noise that depends on the seed.

    What else there is to tell of a round is added by ``further``; the federation is what
    ``describe`` makes of it.
    """
    folder, described = RunFolder(path), federation(clients, held_out)
    folder.claim().close()
    options = {"dataset": "digits", "rounds": rounds, "epochs": 2, "seed": seed}
    options["per_round"] = per_round
    replace_text(path / "config.toml", to_toml(options_of(Algorithm(method), options | changed)))
    random = np.random.default_rng([seed, sum(method.name.encode())])
    history = [
        further(_record(number, method, described, level, random, per_round))
        for number in range(1, rounds + 1)
    ]
    described = describe(described)
    folder.write_json("federation.json", described)
    writer = HistoryWriter(folder.history_path)
    for record in history:
        writer.append(record)
    if finished:
        confusion = torch.tensor(random.integers(1, 9, (5, 5))) + 20 * torch.eye(5).long()
        tested = Evaluation(confusion, 3.0)
        summary = summarise(method.name, history, described, tested, headline=headline)
        folder.write_json("summary.json", summary)
    return folder


def with_measures(record: RoundRecord) -> RoundRecord:
    """Measures of a binary task, of which the first is best when accuracy is worst."""
    accuracy = record.accuracy or 0.0
    return replace(record, measures={"auc": 1 - accuracy / 2, "balanced_accuracy": accuracy**2})


def with_clock(record: RoundRecord) -> RoundRecord:
    """Rounds that last 10 simulated seconds."""
    return replace(record, clock=10.0 * record.round)


def with_few_tests(record: RoundRecord) -> RoundRecord:
    """The test set is used in every fourth round, and only clients 2 and 5 are tested."""
    told = record.client_accuracy
    some = told and [accuracy if n in (2, 5) else None for n, accuracy in enumerate(told)]
    record = replace(record, client_accuracy=some)
    if record.round % 4 == 0:
        return record
    return replace(record, accuracy=None, loss=None, class_accuracy=[])


def with_models(record: RoundRecord) -> RoundRecord:
    """Two models, of which participants train now this, now that one; they tell their losses."""
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
    """A comparison of methods that reach these levels."""
    folder = StudyFolder(path)
    variants = tuple(
        Variant(name, METHODS[name].__name__, {"method": name, "rounds": run.get("rounds", 12)})
        for name in levels
    )
    folder.write(Study("compare", variants, tuple(range(seeds)), "cadis compare", "fedavg"))
    for variant in variants:
        for seed in range(seeds):
            place, method = folder.run_folder(variant, seed).path, METHODS[variant.name]()
            write_run(place, method, seed, level=levels[variant.name], finished=finished, **run)
    return folder


def write_sweep(
    path: Path, *grid: str, rounds: int = 12, levels: tuple[float, float] = (0.5, 0.05)
) -> StudyFolder:
    """A sweep over some parameters, of two seeds; each variant is better by the second level."""
    folder, variants = StudyFolder(path), grid_variants(parse_grid(grid), {}, {"rounds": rounds})
    parameters = tuple(parse_grid(grid))
    folder.write(Study("sweep", variants, (0, 1), "cadis sweep", parameters=parameters))
    for number, variant in enumerate(variants):
        for seed in (0, 1):
            place, level = folder.run_folder(variant, seed).path, levels[0] + levels[1] * number
            write_run(place, CADIS(), seed, rounds=rounds, level=level)
    return folder


def compare(path: Path, levels: dict[str, float], seeds: int = 3, **run: Any) -> Comparison:
    """The comparison of methods that reach these levels."""
    return together(write_study(path, levels, seeds, **run))


def together(*folders: RunFolder | StudyFolder) -> Comparison:
    """The comparison of what is in these folders."""
    return Comparison(read_results([folder.path for folder in folders]))


def read_run(path: Path, method: BaseMethod, **run: Any) -> RunData:
    """A made-up run, read again."""
    return RunData.read(write_run(path, method, **run))


def sheet_of(comparison: Comparison, begins: str) -> Sheet:
    """The only table whose caption begins so."""
    (sheet,) = [sheet for sheet in sheets(comparison) if sheet.caption.startswith(begins)]
    return sheet


def read_csv(text: str) -> list[dict[str, str]]:
    """The lines of a table, by the names of the columns."""
    return list(csv.DictReader(io.StringIO(text)))


def _record(
    number: int,
    method: BaseMethod,
    described: dict[str, Any],
    level: float,
    random: np.random.Generator,
    per_round: int,
) -> RoundRecord:
    truth = np.array([client["cluster"] for client in described["clients"]])
    present = np.sort(random.choice(len(truth), per_round, replace=False))
    accuracy = float(np.clip(level * (1 - 0.7**number) + 0.02 * random.standard_normal(), 0, 1))
    report = _report(method, truth[present], random) if isinstance(method, CADIS) else {}
    by_class = np.clip(accuracy + 0.1 * random.standard_normal(5), 0, 1).tolist()
    owners = np.clip(accuracy + 0.1 * random.standard_normal(len(truth)), 0, 1).tolist()
    return RoundRecord(
        round=number,
        accuracy=accuracy,
        loss=1 - accuracy,
        class_accuracy=by_class,
        participants=present.tolist(),
        weights=[1 / per_round] * per_round,
        rejected=[Rejection(1, "made up")] if number == 3 else [],
        seconds=Seconds(train=0.5, aggregate=0.001, evaluate=0.1, total=0.4),
        client_accuracy=owners if number % 5 == 0 else None,
        report=report,
    )


def _report(method: CADIS, own: NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """What CADIS tells of participants, by their true clusters."""
    noise = 0.1 * random.random((len(own), len(own)))
    similarity = torch.tensor(np.where(own[:, None] == own, 0.9, 0.1) + (noise + noise.T) / 2)
    similarity = similarity.float().fill_diagonal_(1)
    told = {
        "clusters": cluster(rescale(similarity, torch.ones_like(similarity) > 0), 0.7),
        "similarity": similarity,
        "threshold": torch.tensor(0.7, dtype=torch.float64),
    }
    if method.transitive != "off":
        told["gamma"] = torch.tensor(method.gamma, dtype=torch.float64)
    return {name: numbers(array) for name, array in told.items()}
