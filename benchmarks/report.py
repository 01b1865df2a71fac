"""Cost of the report of a large run, relative to the server's work on all pairs."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Measurement, seconds
from cadis._io import to_toml
from cadis.algorithm import Algorithm, to_options
from cadis.algorithm.methods import CADISPaper
from cadis.algorithm.methods.cadis import SimilarityMatrix
from cadis.analysis import Comparison, read_results
from cadis.report import draw_figures, write_report, write_results
from cadis.rng import use_one_thread
from cadis.server import RoundRecord, Seconds, to_json_array
from cadis.store import HistoryWriter, RunFolder, replace_text, summarize
from cadis.training import Evaluation

CLIENTS, PER_ROUND, ROUNDS, CLUSTERS, CLASSES = 2000, 100, 60, 5, 10


def record(number: int, random: np.random.Generator) -> RoundRecord:
    """Return an artificial round in which clients of one cluster are similar."""
    present = random.choice(CLIENTS, PER_ROUND, replace=False)
    cluster = present % CLUSTERS
    noise = 0.1 * random.random((PER_ROUND, PER_ROUND))
    similarity = np.where(cluster[:, None] == cluster, 0.85, 0.1) + (noise + noise.T) / 2
    np.fill_diagonal(similarity, 1)
    return RoundRecord(
        round=number,
        accuracy=0.9,
        loss=0.1,
        class_accuracy=[0.9] * CLASSES,
        participants=present.tolist(),
        weights=[1 / PER_ROUND] * PER_ROUND,
        rejected=[],
        seconds=Seconds(1.0, 0.1, 0.1, 1.0),
        report={
            "clusters": cluster.tolist(),
            "similarity": to_json_array(torch.tensor(similarity).float()),
            "threshold": 0.7,
            "gamma": CADISPaper().gamma,
        },
        client_accuracy=random.random(CLIENTS).tolist() if number % 10 == 0 else None,
    )


def write_run(path: Path, history: list[RoundRecord]) -> None:
    """Write the folder of a run with these rounds."""
    folder, method = RunFolder(path), CADISPaper()
    folder.lock_new().close()
    options = {"dataset": "made up", "rounds": ROUNDS, "epochs": 1, "seed": 0}
    replace_text(path / "config.toml", to_toml(to_options(Algorithm(method), options)))
    clients = [
        {
            "id": n,
            "cluster": n % CLUSTERS,
            "samples": [int(c % CLUSTERS == n % CLUSTERS) for c in range(CLASSES)],
        }
        for n in range(CLIENTS)
    ]
    described = {"classes": [str(number) for number in range(CLASSES)], "clients": clients}
    folder.write_json("federation.json", described)
    writer = HistoryWriter(folder.history_path)
    for each in history:
        writer.append(each)
    evaluation = Evaluation(torch.eye(CLASSES, dtype=torch.int64), 1.0)
    folder.write_json("summary.json", summarize(method.name, history, described, evaluation))


@use_one_thread()
def serve(history: list[RoundRecord]) -> None:
    """Update the similarity matrix round by round, as with ``scope = "federation"``."""
    matrix = SimilarityMatrix()
    for each in history:
        matrix = matrix.observe(each.participants, torch.tensor(each.array("similarity")))
        matrix = matrix.estimate_missing(CADISPaper().gamma, "mean")


def show(path: Path) -> None:
    """Do the work of ``cadis report``."""
    results = read_results([path])
    write_report(results, path / "report.html")
    write_results(Comparison(results), path)
    draw_figures(results, path / "figures")


def measure_report() -> list[Measurement]:
    """Measure the time of the report relative to the similarities, and its peak memory."""
    random = np.random.default_rng(0)
    history = [record(number, random) for number in range(1, ROUNDS + 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        summary = seconds(lambda: write_run(path, history))
        server = seconds(lambda: serve(history))
        command = [sys.executable, "-m", "benchmarks.report", str(path)]
        output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    taken, megabytes = map(float, output.split())
    note = f"{CLIENTS:,} clients, {PER_ROUND} a round, {ROUNDS} rounds"
    return [
        Measurement("report / similarities of all pairs", taken / server, 1, note=note),
        Measurement("end of a run / the same", summary / server, 1, note="summary of 300 clients"),
        Measurement("memory of the report", megabytes, 1000, "MB", note=note),
    ]


if __name__ == "__main__":
    taken = seconds(lambda: show(Path(sys.argv[1])))
    print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
