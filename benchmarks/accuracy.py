"""All methods on the default federation, several seeds: ``python -m benchmarks.accuracy``.

Takes a few minutes a method on two cores.
"""

import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from cadis.experiment import resolve, run_experiment
from cadis.methods import METHODS

SEEDS = range(5)


def runs(method: str) -> list[dict[str, float]]:
    """A run for each seed; the same federation, initial model and samples for all methods."""
    summaries = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            config = resolve({}, {"method": method, "seed": seed})
            result = run_experiment(config, Path(folder) / "run")
        last = result.history[-10:]
        ten = {"ten_rounds": mean(record.accuracy or 0 for record in last)}
        summaries.append(result.summary | ten)
        print(method, seed, f"{result.accuracy:.3f}", file=sys.stderr)
    return summaries


def main(methods: list[str]) -> None:
    """Run and print."""
    table = Table(title=f"Default federation, {len(SEEDS)} seeds: mean (standard deviation)")
    columns = {
        "accuracy": "accuracy",
        "ten_rounds": "mean of the last 10 rounds",
        "rare_accuracy": "rare classes",
        "cluster_agreement": "adjusted Rand index",
    }
    table.add_column("method")
    for title in columns.values():
        table.add_column(title)
    for method in methods:
        summaries = runs(method)
        cells = [
            f"{mean(values):.3f} ({stdev(values):.3f})" if len(values) > 1 else ""
            for values in ([s[name] for s in summaries if name in s] for name in columns)
        ]
        table.add_row(method, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main(sys.argv[1:] or list(METHODS))
