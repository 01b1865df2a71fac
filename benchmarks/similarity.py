"""What the defaults of CADIS rest on: ``python -m benchmarks.similarity RUN`` (a run of CADIS).

Prints which thresholds separate the true clusters, and how far the similarity matrix is from the
one at the end of the run, with and without transitive learning.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from cadis.algorithm.methods.cadis import cluster, rescale
from cadis.analysis import error, growing
from cadis.server import RoundRecord
from cadis.store import RunFolder
from cadis.types import ClientId

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
GAMMAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.34)
ROUNDS = (5, 10, 20, 40, 60, 100)


def agreements(folder: RunFolder, thresholds: Sequence[float]) -> dict[float, float]:
    """For each threshold, how well the participants' clusters agree with the truth, on average.

    Nothing if there are no true clusters.
    """
    history = folder.read_history()
    clients = folder.read_json("federation.json")["clients"]
    truth: dict[ClientId, int | None] = {client["id"]: client["cluster"] for client in clients}
    if None in truth.values():
        return {}
    agreement = dict.fromkeys(thresholds, 0.0)
    for record, matrix in zip(history, growing(history), strict=True):
        rows = matrix.index_of(record.participants)
        complete = matrix.estimate_missing(0.2, "mean")
        q = rescale(complete.mean, complete.known)[rows[:, None], rows]
        true = [truth[client] for client in record.participants]
        for threshold in thresholds:
            found = cluster(q, threshold).tolist()
            agreement[threshold] += adjusted_rand_score(true, found) / len(history)
    return agreement


def separation(folder: RunFolder) -> Table:
    """The agreement of many thresholds."""
    found = agreements(folder, THRESHOLDS)
    table = Table(title="Adjusted Rand index, mean over rounds, by threshold")
    for threshold in found:
        table.add_column(f"{threshold}")
    table.add_row(*(f"{value:.3f}" for value in found.values()))
    return table


def convergence(history: list[RoundRecord]) -> Table:
    """The error after some rounds, without transitive learning and by gamma."""
    matrices = list(growing(history))
    rounds = [number for number in ROUNDS if number <= len(history)]
    table = Table(title="Mean squared error of the similarity matrix, by round")
    for title in ("gamma", *map(str, rounds)):
        table.add_column(title)
    for gamma in (None, *GAMMAS):
        completed = (
            matrices[number - 1].estimate_missing(gamma or 1, "mean" if gamma else "off")
            for number in rounds
        )
        errors = (f"{error(matrix, matrices[-1]):.4f}" for matrix in completed)
        table.add_row("off" if gamma is None else f"{gamma}", *errors)
    return table


def main(path: str) -> None:
    """Read a run and print."""
    folder = RunFolder(Path(path))
    console = Console(width=100)
    console.print(separation(folder))
    console.print(convergence(folder.read_history()))


if __name__ == "__main__":
    main(sys.argv[1])
