"""Overhead of the engine: time of a round relative to its training steps alone."""

import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import cadis
from benchmarks.floor import Floor, Work
from benchmarks.measure import Measurement, seconds
from benchmarks.pictures import Pair, make_random_images
from cadis.algorithm.methods import FedAvg
from cadis.experiment import make_experiment, resolve
from cadis.models import cnn, small_cnn
from cadis.server import RoundResult
from cadis.training import compute_batch_sizes

WORKERS = 2


def measure_overhead_on_digits(rounds: int) -> Measurement:
    """Measure the default federation of ``cadis run``."""
    built = make_experiment(resolve({}, {}))
    federation, settings = built.federation, built.config.settings.to_engine_settings()
    clients = [(client.inputs, client.labels) for client in federation.clients]
    work = Work(small_cnn(1, 8, 8, 10), *clients[0], settings.local.batch_size, settings.local.lr)
    test = federation.test.inputs, federation.test.labels
    value = _overhead(work, clients, test, settings.per_round or len(clients), rounds)
    return Measurement(
        "engine / floor, default digits", value, 1.15, note=f"{rounds} rounds of FedAvg"
    )


def measure_overhead_on_cnn(rounds: int) -> Measurement:
    """Measure the FedAvg CNN with 100 clients of 290 images, 10 per round."""
    clients = [make_random_images(290, seed) for seed in range(100)]
    work = Work(cnn(1, 28, 28, 10), *clients[0], batch_size=8, learning_rate=0.001)
    value = _overhead(work, clients, make_random_images(1000, 1000), 10, rounds)
    return Measurement("engine / floor, FedAvg CNN", value, 1.15, note=f"{rounds} rounds of FedAvg")


def _overhead(work: Work, clients: list[Pair], test: Pair, per_round: int, rounds: int) -> float:
    """Return the median of (round of ``cadis.run``, including files) / (its steps alone)."""
    sizes = [compute_batch_sizes(len(labels), work.batch_size) for _, labels in clients]
    ratios: list[float] = []
    with closing(Floor(work, WORKERS)) as floor, tempfile.TemporaryDirectory() as folder:
        ended = time.perf_counter()

        def on_round(result: RoundResult) -> None:
            nonlocal ended
            took = time.perf_counter() - ended
            steps = 5 * sum(len(sizes[int(client)]) for client in result.record.participants)
            ratios.append(took / seconds(lambda: floor.run(steps)))
            ended = time.perf_counter()

        cadis.run(
            work.module,
            clients,
            test,
            rounds=rounds + 1,
            method=FedAvg(),
            per_round=per_round,
            batch_size=work.batch_size,
            lr=work.learning_rate,
            workers=WORKERS,
            device="cpu",
            out=Path(folder) / "run",
            on_round=on_round,
        )
    return median(ratios[1:])  # the first round starts the workers
