"""All lines of the table, by name. To add one, write a function and an entry here."""

import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

from benchmarks.aggregation import (
    measure_flower_memory,
    measure_flower_time,
    measure_mean_of_models,
)
from benchmarks.disk import measure_saving
from benchmarks.engine import measure_overhead_on_cnn, measure_overhead_on_digits
from benchmarks.measure import Measurement, ratio
from benchmarks.memory import measure_memory
from benchmarks.methods import compare_methods
from benchmarks.peers import compare_with_flower
from benchmarks.profiles import measure_million_clients
from benchmarks.report import measure_report
from benchmarks.server import measure_large_server, measure_server
from benchmarks.startup import measure_startup
from benchmarks.steps import (
    compare_bf16,
    compare_distillation,
    compare_stacking,
    compare_with_arithmetic,
    make_cnn_case,
    make_small_cases,
)
from benchmarks.tail import measure_tail_of_many, measure_tail_on_cnn

Line: TypeAlias = Callable[[], Measurement | list[Measurement]]
"""Function that measures; raises :class:`benchmarks.measure.SkippedError` if it cannot."""


def measure_help() -> Measurement:
    """Measure ``cadis --help`` relative to importing its command-line library."""

    def python(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    value = ratio(python("-m", "cadis", "--help"), python("-c", "import click"), times=5)
    return Measurement("cadis --help / import click", value, 2, note="torch is not imported")


def measure_aggregation(method: str) -> list[Measurement]:
    """Measure time and memory of aggregation on Flower, relative to Flower's FedAvg."""
    times = [measure_flower_time(method, megabytes, times=5) for megabytes in (10, 100)]
    return [*times, measure_flower_memory(method)]


LINES: dict[str, Line] = {
    "peers/flower": lambda: compare_with_flower(rounds=5),
    "steps/arithmetic": lambda: compare_with_arithmetic(rounds=9),
    "steps/small": lambda: [compare_stacking(case, rounds=15) for case in make_small_cases()],
    "steps/cadis-small": lambda: [
        compare_distillation(case, rounds=15) for case in make_small_cases()
    ],
    "steps/cadis-cnn": lambda: compare_distillation(make_cnn_case(), rounds=7),
    "steps/bf16": lambda: compare_bf16(rounds=5),
    "methods/cnn": lambda: compare_methods(rounds=6),
    "engine/digits": lambda: measure_overhead_on_digits(rounds=40),
    "engine/cnn": lambda: measure_overhead_on_cnn(rounds=6),
    "disk/fedavg": lambda: measure_saving("fedavg", rounds=40),
    "disk/feddyn": lambda: measure_saving("feddyn", rounds=40),
    "server/100": lambda: measure_server(num_clients=100, limit=5),
    "server/1000": lambda: measure_server(num_clients=1000, limit=30),
    "server/10000": lambda: measure_large_server(limit=500),
    "server/million-10": lambda: measure_million_clients(classes=10),
    "server/million-100": lambda: measure_million_clients(classes=100),
    "aggregation/mean": lambda: measure_mean_of_models(times=7),
    "aggregation/flower-fedavg": lambda: measure_aggregation("fedavg"),
    "aggregation/flower-cadis": lambda: measure_aggregation("cadis"),
    "tail/cnn": lambda: measure_tail_on_cnn(rounds=20),
    "tail/many": lambda: measure_tail_of_many(rounds=20),
    "start/run": lambda: measure_startup(times=5),
    "memory/fedavg": lambda: measure_memory("fedavg"),
    "memory/feddyn": lambda: measure_memory("feddyn"),
    "report/large": measure_report,
    "start/help": measure_help,
}
"""Function by ``GROUP/NAME``. Each is called in a separate process."""
