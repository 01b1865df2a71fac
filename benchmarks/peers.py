"""Our rounds against those of Flower's own simulation, which do the same work, in turns.

The work: the FedAvg CNN, 100 clients of 290 pictures of 28 x 28, 10 a round, 5 epochs, batches of
8: 1,850 steps of SGD. Ours is ``cadis.run`` with FedAvg and two workers, all files and the test of
the global model included. Theirs is in ``benchmarks.flower_app``.
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
from benchmarks.measure import Measured, SkippedError
from cadis.algorithm.methods import FedAvg
from cadis.models import cnn
from cadis.server import RoundResult

CLIENTS, PER_ROUND, PICTURES, EPOCHS, BATCH, LR, WORKERS = 100, 10, 290, 5, 8, 0.01, 2
TEST = CLIENTS
"""The test set is what a further client would have."""

_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@cache
def pictures_of(client: int) -> tuple[Tensor, Tensor]:
    """What a client has: ten patterns under much noise, so that there is something to learn."""
    patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(-1))
    generator = torch.Generator().manual_seed(client)
    labels = torch.randint(0, 10, (PICTURES,), generator=generator)
    noise = torch.randn(PICTURES, 1, 28, 28, generator=generator)
    return 0.5 * patterns[labels] + noise, labels


def first_model() -> nn.Module:
    """What both begin with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cnn(1, 28, 28, 10)


def flower_simulation(rounds: int) -> Measured:
    """Median of (a round of Flower's simulation) / (a round of ours), one after the other."""
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
    return Measured("Flower's simulation / ours", value, 2.2, note=note, at_least=True)


def run_ours(rounds: int, on_round: Callable[[RoundResult], None]) -> None:
    """The same work by ``cadis.run``, its files included."""
    with tempfile.TemporaryDirectory() as folder:
        cadis.run(
            first_model(),
            [pictures_of(client) for client in range(CLIENTS)],
            pictures_of(TEST),
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
    """Refuse a comparison in which one has learned more than the other, or nothing was learned."""
    with torch.no_grad():
        inputs, labels = pictures_of(TEST)
        before = float(F.cross_entropy(first_model()(inputs), labels))
    own, other = losses[-1]
    if not (max(own, other) < 0.9 * before and abs(own - other) < 0.15 * before):
        raise RuntimeError(f"Not the same work: a loss of {before} became {losses}.")


class Flower:
    """Flower's simulation in a process of its own, which does a round whenever it is asked to."""

    def __init__(self, rounds: int) -> None:
        """Start it, and wait until it is about to begin its first round."""
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_simulate, args=(theirs, rounds))
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def round(self) -> tuple[float, float]:
        """Seconds that a round takes, and the loss of the global model after it."""
        self._pipe.send(None)
        taken, loss = self._pipe.recv()
        return taken, loss

    def close(self) -> None:
        """Let it end, or end it where it hangs."""
        self._pipe.close()
        self._process.join(timeout=60)
        self._process.kill()


def _simulate(pipe: Connection, rounds: int) -> None:
    os.environ.update(_OFFLINE)
    from benchmarks.flower_app import simulate  # noqa: PLC0415 - an extra, which reads these

    simulate(pipe, rounds)
