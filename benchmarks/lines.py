"""All lines of the table, by name. A new line is a function that measures, and an entry here."""

import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

from benchmarks.aggregation import flower_memory, flower_time, mean_of_models
from benchmarks.disk import keeping
from benchmarks.engine import overhead_on_cnn, overhead_on_digits
from benchmarks.measure import Measured, ratio
from benchmarks.memory import memory
from benchmarks.methods import rounds_of_all
from benchmarks.peers import flower_simulation
from benchmarks.profiles import million_clients
from benchmarks.report import report
from benchmarks.server import large_server, server
from benchmarks.startup import startup
from benchmarks.steps import (
    arithmetic,
    at_once,
    distillation,
    fedavg_cnn,
    half_precision,
    small_cases,
)
from benchmarks.tail import tail_of_many, tail_on_cnn

Line: TypeAlias = Callable[[], Measured | list[Measured]]
"""Measures; raises :class:`benchmarks.measure.SkippedError` where that cannot be done."""


def help_page() -> Measured:
    """``cadis --help`` / an empty Python that imports the same command-line library."""

    def python(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    value = ratio(python("-m", "cadis", "--help"), python("-c", "import click"), times=5)
    return Measured("cadis --help / import click", value, 2, note="torch is not imported")


def aggregation(method: str) -> list[Measured]:
    """Aggregating on Flower against Flower's own FedAvg: time of small and large, and memory."""
    times = [flower_time(method, megabytes, times=5) for megabytes in (10, 100)]
    return [*times, flower_memory(method)]


LINES: dict[str, Line] = {
    "peers/flower": lambda: flower_simulation(rounds=5),
    "steps/arithmetic": lambda: arithmetic(rounds=9),
    "steps/small": lambda: [at_once(case, rounds=15) for case in small_cases()],
    "steps/cadis-small": lambda: [distillation(case, rounds=15) for case in small_cases()],
    "steps/cadis-cnn": lambda: distillation(fedavg_cnn(), rounds=7),
    "steps/bf16": lambda: half_precision(rounds=5),
    "methods/cnn": lambda: rounds_of_all(rounds=6),
    "engine/digits": lambda: overhead_on_digits(rounds=40),
    "engine/cnn": lambda: overhead_on_cnn(rounds=6),
    "disk/fedavg": lambda: keeping("fedavg", rounds=40),
    "disk/feddyn": lambda: keeping("feddyn", rounds=40),
    "server/100": lambda: server(num_clients=100, limit=5),
    "server/1000": lambda: server(num_clients=1000, limit=30),
    "server/10000": lambda: large_server(limit=500),
    "server/million-10": lambda: million_clients(classes=10),
    "server/million-100": lambda: million_clients(classes=100),
    "aggregation/mean": lambda: mean_of_models(times=7),
    "aggregation/flower-fedavg": lambda: aggregation("fedavg"),
    "aggregation/flower-cadis": lambda: aggregation("cadis"),
    "tail/cnn": lambda: tail_on_cnn(rounds=20),
    "tail/many": lambda: tail_of_many(rounds=20),
    "start/run": lambda: startup(times=5),
    "memory/fedavg": lambda: memory("fedavg"),
    "memory/feddyn": lambda: memory("feddyn"),
    "report/large": report,
    "start/help": help_page,
}
"""``GROUP/NAME`` and what measures it. Each is called in a process of its own."""
