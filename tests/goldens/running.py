"""Runs of a case: through ``cadis.compare``, ``cadis.run`` or the command ``cadis``."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from click.testing import CliRunner

import cadis
from cadis.cli.command_line import commands
from goldens.hashing import Hashes, hash_bytes, hash_run
from goldens.inputs import build_model, make_clients, make_test_set
from processes import processes

Compute: TypeAlias = Callable[[Path], Hashes]
"""Function that computes the hashes of a case in an empty folder."""

TINY: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp",
    "clients": 10,
    "per_round": 6,
    "rounds": 3,
    "epochs": 1,
    "batch_size": 32,
    "test_clients": 2,
    "workers": 1,
}
"""Options of a run of half a second."""

_SPLIT_OPTIONS = {"clients", "per_round", "model"}
"""Options that do not apply to a dataset that names its clients."""


@dataclass(frozen=True)
class Case:
    """A computation whose results are hashed; its name has parts separated by slashes."""

    name: str
    compute: Compute

    def matches(self, word: str) -> bool:
        """Return whether a word is the name, or one of its parts."""
        return word == self.name or word in self.name.split("/")


def run_method(method: str, folder: Path, **options: Any) -> Hashes:
    """Run a method or a variant once, and return the hashes of the run.

    ``cadis.compare`` is used, since it knows all variants and draws no figures, which would take
    ten times as long as the run.
    """
    result = cadis.compare([method], seeds=1, out=folder, progress=False, **{**TINY, **options})
    if result.failures:
        raise RuntimeError(result.failures[0])
    runs = sorted(folder.glob("*/seed-*"))
    if len(runs) != 1:
        raise RuntimeError(f"there are {len(runs)} runs, not 1")
    return hash_run(runs[0])


def make_case(name: str, method: str = "fedavg", **options: Any) -> Case:
    """Return the case of a method with some options of the command, by their Python names."""
    return Case(name, lambda folder: run_method(method, folder, **options))


def make_data_case(
    name: str,
    write: Callable[[Path], Path],
    dataset: str,
    predict: bool = False,
    **options: Any,
) -> Case:
    """Return the case of a dataset that a function writes to a folder; ``{}`` is its path."""
    tiny = {key: value for key, value in TINY.items() if key not in _SPLIT_OPTIONS}

    def compute(folder: Path) -> Hashes:
        path = write(folder)
        given = tiny | {"dataset": dataset} | options
        given = {k: v.format(path) if isinstance(v, str) else v for k, v in given.items()}
        cadis.compare(["cadis"], seeds=1, out=folder / "runs", progress=False, **given)
        run = folder / "runs" / "cadis" / "seed-0"
        hashes = hash_run(run)
        if predict:
            run_command("predict", run, path, "--out", run / "predictions.csv")
            hashes["predictions"] = hash_bytes((run / "predictions.csv").read_bytes())
        return hashes

    return Case(name, compute)


def run_tensors(folder: Path, **options: Any) -> Path:
    """Run ``cadis.run`` with a module and tensors in this process, and return the run folder."""
    given = {"rounds": 3, "epochs": 1, "lr": 0.05, "workers": 1, "test_clients": 1} | options
    own = {"model": build_model(), "clients": make_clients(), "test": make_test_set()}
    cadis.run(**{**own, **given}, out=folder / "run", progress=False)
    return folder / "run"


def command_options(**options: Any) -> list[str]:
    """Return the options of a tiny run as a user types them."""
    return [f"--{key.replace('_', '-')}={value}" for key, value in {**TINY, **options}.items()]


def run_command(*arguments: str | Path) -> str:
    """Run the command ``cadis`` in this process, and return what it prints.

    This is the only function that knows how the command is called from Python.
    """
    result = CliRunner().invoke(commands, [str(argument) for argument in arguments])
    if result.exit_code != 0:
        raise RuntimeError(f"{result.output.strip()[-500:]} {result.exception!r}")
    return result.output


def run_simulation(folder: Path) -> None:
    """Run ``goldens.simulation`` in a process of its own: Ray leaves threads and processes."""
    command: list[str | Path] = [sys.executable, "-m", "goldens.simulation", folder]
    tests = str(Path(__file__).parents[1])
    environment = {"PYTHONPATH": tests, "CADIS_STATE": str(folder / "state")}
    with processes(folder) as started:
        if started.finish("simulation", command, environment) != 0:
            raise RuntimeError(started.read_log("simulation")[-500:])
