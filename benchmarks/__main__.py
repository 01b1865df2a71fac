"""All measurements, one table."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.disk import keeping
from benchmarks.engine import distillation, overhead_on_cnn, overhead_on_digits
from benchmarks.measure import Measured, ratio
from benchmarks.memory import memory
from benchmarks.report import report
from benchmarks.server import server
from benchmarks.startup import startup
from benchmarks.tail import tail_of_many, tail_on_cnn


def help_page() -> Measured:
    """``cadis --help`` / an empty Python that imports the same command-line library."""

    def python(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    value = ratio(python("-m", "cadis", "--help"), python("-c", "import click"), times=5)
    return Measured("cadis --help / import click", value, 2, note="torch is not imported")


MEASUREMENTS: list[Callable[[], Measured | list[Measured]]] = [
    lambda: overhead_on_digits(rounds=40),
    lambda: overhead_on_cnn(rounds=6),
    lambda: distillation(times=5),
    lambda: tail_on_cnn(rounds=20),
    lambda: tail_of_many(rounds=20),
    lambda: startup(times=5),
    lambda: keeping("fedavg", rounds=40),
    lambda: keeping("feddyn", rounds=40),
    lambda: server(num_clients=100, rounds=100, limit=5, times=30),
    lambda: server(num_clients=1000, rounds=1000, limit=50, times=30),
    lambda: server(num_clients=1000, rounds=6000, limit=50, times=30),
    lambda: memory("fedavg"),
    lambda: memory("feddyn"),
    report,
    help_page,
]


def machine() -> str:
    """What this was measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{processor}, {os.cpu_count()} cores, {versions}"


def main() -> None:
    """Measure and print."""
    console = Console(width=110)
    table = Table(title=machine(), title_justify="left")
    for column in ("measured", "value", "at most", "", "how"):
        table.add_column(column)
    for measurement in MEASUREMENTS:
        measured = measurement()
        for row in measured if isinstance(measured, list) else [measured]:
            console.print(f"{row.name}: {row.value:.3g} {row.unit}")
            verdict = "ok" if row.value <= row.limit else "missed"
            unit = f" {row.unit}" if row.unit else ""
            value, limit = f"{row.value:.3g}{unit}", f"{row.limit:g}{unit}"
            table.add_row(row.name, value, limit, verdict, row.note)
    console.print(table)


main()
