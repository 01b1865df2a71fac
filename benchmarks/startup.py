"""Start-up time of commands, and of a federation with 10,000 clients."""

import json
import os
import pty
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

import cadis
from benchmarks.measure import Measurement, seconds
from benchmarks.tail import make_random_clients
from cadis.models import small_cnn
from cadis.server import RoundResult

_COMMANDS = ("run", "compare", "report x", "partition")
MANY, SIZE, SIDE, PER_ROUND = 10_000, 14, 8, 100


def measure_startup(times: int) -> list[Measurement]:
    """Measure median start-up times, alternating with ``import torch`` alone."""
    turns = [(_until_training(), seconds(_torch)) for _ in range(times)]
    training, torch = (median(column) for column in zip(*turns, strict=True))
    words = f"the slowest of {', '.join(_COMMANDS)}"
    note = f"{times} times; import torch alone: {torch:.2f} s"
    return [
        Measurement("a command's first words in a terminal", _first_words(times), 0.5, "s", words),
        Measurement("cadis run on digits: first client trained", training, 2.5, "s", note),
        *_many_clients(),
    ]


def _until_training() -> float:
    """Return the seconds until the first client of ``cadis run`` is trained."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "cadis", "run", "--out"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*command, f"{folder}/run"], text=True, **pipes) as process,  # type: ignore[call-overload]
    ):
        line = ""
        while not line.startswith("training clients"):
            line = process.stdout.readline()
            assert line, "the run has ended"
        took = time.perf_counter() - started
        process.kill()
    return took


def _first_words(times: int) -> float:
    """Return the median seconds until the first output, of the slowest command."""
    return max(median(_until_a_byte(command) for _ in range(times)) for command in _COMMANDS)


def _until_a_byte(command: str) -> float:
    ours, theirs = pty.openpty()
    started = time.perf_counter()
    words = [sys.executable, "-m", "cadis", *command.split()]
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        os.read(ours, 1)
        took = time.perf_counter() - started
        process.kill()
    os.close(ours)
    return took


def _torch() -> None:
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


def _many_clients() -> list[Measurement]:
    command = [sys.executable, "-m", "benchmarks.startup"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found = json.loads(done.stdout)
    who = f"{MANY:,} clients of {SIZE} pictures, {PER_ROUND} a round"
    return [
        Measurement("10,000 clients: the first round begins", found["seconds"], 5, "s", who),
        Measurement("10,000 clients: memory / data and models", found["memory"], 2, note=who),
    ]


def many_clients() -> dict[str, float]:
    """Return the seconds until the first round, and the memory relative to data and models."""
    began, model = [0.0], small_cnn(1, SIDE, SIDE, 10)

    def on_round(result: RoundResult) -> None:
        if result.record.round == 1:
            began[0] = time.perf_counter() - result.record.seconds.total

    def run(clients: int) -> float:
        data, started = make_random_clients(clients, SIZE, SIDE), time.perf_counter()
        cadis.run(
            model,
            data,
            data[0],
            rounds=2,
            per_round=PER_ROUND,
            epochs=1,
            workers=2,
            device="cpu",
            on_round=on_round,
        )
        return began[0] - started

    run(PER_ROUND)  # warm up torch
    before = _peak()
    took = run(MANY)
    data = MANY * SIZE * (4 * SIDE**2 + 8)
    models = PER_ROUND * 4 * sum(p.numel() for p in model.parameters())
    return {"seconds": took, "memory": (_peak() - before) / (data + models)}


def _peak() -> float:
    """Return the peak memory of this process in bytes."""
    return 2**10 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(many_clients()))
