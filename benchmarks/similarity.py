"""Basis of the defaults of CADIS: ``python -m benchmarks.similarity RUN`` (a run of CADIS).

Prints which thresholds recover the true clusters, and the error of the similarity matrix relative
to the end of the run, with and without transitive estimates.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from cadis.algorithm.methods.cadis import cluster_by_threshold, compute_q_matrix
from cadis.analysis import compute_matrix_error, replay_matrices
from cadis.server import RoundRecord
from cadis.store import RunFolder
from cadis.types import ClientId

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
GAMMAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.34)
ROUNDS = (5, 10, 20, 40, 60, 100)


def compute_agreements(folder: RunFolder, thresholds: Sequence[float]) -> dict[float, float]:
    """Return the mean agreement of the found clusters with the true ones, by threshold.

    Return {} if the run has no true clusters.
    """
    history = folder.read_history()
    clients = folder.read_json("federation.json")["clients"]
    truth: dict[ClientId, int | None] = {client["id"]: client["cluster"] for client in clients}
    if None in truth.values():
        return {}
    agreement = dict.fromkeys(thresholds, 0.0)
    for record, matrix in zip(history, replay_matrices(history), strict=True):
        rows = matrix.find_rows(record.participants)
        complete = matrix.estimate_missing(0.2, "mean")
        q = compute_q_matrix(complete.mean, complete.known)[rows[:, None], rows]
        true = [truth[client] for client in record.participants]
        for threshold in thresholds:
            found = cluster_by_threshold(q, threshold).tolist()
            agreement[threshold] += adjusted_rand_score(true, found) / len(history)
    return agreement


def separation(folder: RunFolder) -> Table:
    """Return a table of the agreement for many thresholds."""
    found = compute_agreements(folder, THRESHOLDS)
    table = Table(title="Adjusted Rand index, mean over rounds, by threshold")
    for threshold in found:
        table.add_column(f"{threshold}")
    table.add_row(*(f"{value:.3f}" for value in found.values()))
    return table


def convergence(history: list[RoundRecord]) -> Table:
    """Return a table of the error after some rounds, without transitive estimates and by gamma."""
    matrices = list(replay_matrices(history))
    rounds = [number for number in ROUNDS if number <= len(history)]
    table = Table(title="Mean squared error of the similarity matrix, by round")
    for title in ("gamma", *map(str, rounds)):
        table.add_column(title)
    for gamma in (None, *GAMMAS):
        completed = (
            matrices[number - 1].estimate_missing(gamma or 1, "mean" if gamma else "off")
            for number in rounds
        )
        errors = (f"{compute_matrix_error(matrix, matrices[-1]):.4f}" for matrix in completed)
        table.add_row("off" if gamma is None else f"{gamma}", *errors)
    return table


def main(path: str) -> None:
    """Read a run and print the tables."""
    folder = RunFolder(Path(path))
    console = Console(width=100)
    console.print(separation(folder))
    console.print(convergence(folder.read_history()))


if __name__ == "__main__":
    main(sys.argv[1])
