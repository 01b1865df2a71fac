"""Rounds of cadis compared with rounds of Flower's simulation on the same work, alternating.

The work: the FedAvg CNN, 100 clients with 290 images of 28 x 28, 10 per round, 5 epochs, batch size
8: 1,850 steps of SGD. cadis runs ``cadis.run`` with FedAvg and two workers, including all files and
the test of the global model. The Flower side is in ``benchmarks.flower_app``.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import cadis
from benchmarks.measure import Measurement, SkippedError
from cadis.algorithm.methods import FedAvg
from cadis.models import cnn
from cadis.server import RoundResult

CLIENTS, PER_ROUND, PICTURES, EPOCHS, BATCH, LR, WORKERS = 100, 10, 290, 5, 8, 0.01, 2
TEST = CLIENTS
"""Index of one more client, whose images are the test set."""

_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@cache
def make_client_images(client: int) -> tuple[Tensor, Tensor]:
    """Return the images of a client: ten patterns with strong noise, so that there is a signal."""
    patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(-1))
    generator = torch.Generator().manual_seed(client)
    labels = torch.randint(0, 10, (PICTURES,), generator=generator)
    noise = torch.randn(PICTURES, 1, 28, 28, generator=generator)
    return 0.5 * patterns[labels] + noise, labels


def build_initial_model() -> nn.Module:
    """Return the initial model of both sides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cnn(1, 28, 28, 10)


def compare_with_flower(rounds: int) -> Measurement:
    """Measure the median of (round of Flower's simulation) / (round of cadis), alternating."""
    if find_spec("ray") is None or find_spec("flwr") is None:
        raise SkippedError("It needs pip install 'cadis[simulation]'.")
    ours, theirs = list[float](), list[float]()
    losses = list[tuple[float, float]]()
    with closing(Flower(rounds + 1)) as flower:
        ended = time.perf_counter()

        def on_round(result: RoundResult) -> None:
            nonlocal ended
            ours.append(time.perf_counter() - ended)
            taken, loss = flower.round()
            theirs.append(taken)
            losses.append((float(result.record.loss or 0), loss))
            ended = time.perf_counter()

        run_ours(rounds + 1, on_round)
    check_same_work(losses)
    value = median(other / own for own, other in zip(ours[1:], theirs[1:], strict=True))
    note = f"{rounds} rounds each in turns: {median(theirs[1:]):.1f} s, {median(ours[1:]):.1f} s"
    return Measurement("Flower's simulation / ours", value, 2.2, note=note, at_least=True)


def run_ours(rounds: int, on_round: Callable[[RoundResult], None]) -> None:
    """Do the work with ``cadis.run``, including its files."""
    with tempfile.TemporaryDirectory() as folder:
        cadis.run(
            build_initial_model(),
            [make_client_images(client) for client in range(CLIENTS)],
            make_client_images(TEST),
            rounds=rounds,
            method=FedAvg(),
            per_round=PER_ROUND,
            epochs=EPOCHS,
            batch_size=BATCH,
            lr=LR,
            workers=WORKERS,
            device="cpu",
            test_clients=0,
            out=Path(folder) / "run",
            on_round=on_round,
        )


def check_same_work(losses: list[tuple[float, float]]) -> None:
    """Refuse a comparison in which the losses differ, or in which nothing was learned."""
    with torch.no_grad():
        inputs, labels = make_client_images(TEST)
        before = float(F.cross_entropy(build_initial_model()(inputs), labels))
    own, other = losses[-1]
    if not (max(own, other) < 0.9 * before and abs(own - other) < 0.15 * before):
        raise RuntimeError(f"Not the same work: a loss of {before} became {losses}.")


class Flower:
    """Flower's simulation in a separate process, which runs one round per request."""

    def __init__(self, rounds: int) -> None:
        """Start the process, and wait until it is ready for the first round."""
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_simulate, args=(theirs, rounds))
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def round(self) -> tuple[float, float]:
        """Run a round; return its seconds and the loss of the global model."""
        self._pipe.send(None)
        taken, loss = self._pipe.recv()
        return taken, loss

    def close(self) -> None:
        """End the process; kill it if it does not respond."""
        self._pipe.close()
        self._process.join(timeout=60)
        self._process.kill()


def _simulate(pipe: Connection, rounds: int) -> None:
    os.environ.update(_OFFLINE)
    from benchmarks.flower_app import simulate  # noqa: PLC0415 - optional, and reads the variables above

    simulate(pipe, rounds)
