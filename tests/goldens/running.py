"""Runs of a case: through ``cadis.compare``, ``cadis.run`` or the command ``cadis``."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from click.testing import CliRunner

import cadis
from cadis.cli import commands
from goldens.hashing import Hashes, hash_bytes, hash_run
from goldens.inputs import clients_of_tensors, own_model, tensors_to_test
from processes import processes

Compute: TypeAlias = Callable[[Path], Hashes]
"""Computes the hashes of a case in an empty folder."""

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

_OF_DIGITS = {"clients", "per_round", "model"}
"""Options that a dataset with clients of its own does without."""


@dataclass(frozen=True)
class Case:
    """Something that is run, and whose results are hashed.

    Attributes:
        name: what it is, from the general to the particular, with slashes.
        compute: returns its hashes.
    """

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
    found = sorted(folder.glob("*/seed-*"))
    if len(found) != 1:
        raise RuntimeError(f"there are {len(found)} runs, not 1")
    return hash_run(found[0])


def case_of(name: str, method: str = "fedavg", **options: Any) -> Case:
    """Return the case of a method with some options of the command, by their Python names."""
    return Case(name, lambda folder: run_method(method, folder, **options))


def case_of_data(
    name: str,
    write: Callable[[Path], Path],
    dataset: str,
    predict: bool = False,
    **options: Any,
) -> Case:
    """Return the case of a dataset that a function writes.

    Args:
        name: of the case.
        write: writes the data to a folder, and returns their path.
        dataset: the option, in which ``{}`` stands for that path.
        predict: whether ``cadis predict`` is run on the same data.
        options: further ones.
    """
    tiny = {key: value for key, value in TINY.items() if key not in _OF_DIGITS}

    def compute(folder: Path) -> Hashes:
        path = write(folder)
        texts = {key: _filled(value, path) for key, value in options.items()}
        given = tiny | {"dataset": dataset.format(path)} | texts
        cadis.compare(["cadis"], seeds=1, out=folder / "runs", progress=False, **given)
        run = folder / "runs" / "cadis" / "seed-0"
        return hash_run(run) | (hash_predictions(run, path) if predict else {})

    return Case(name, compute)


def _filled(value: Any, path: Path) -> Any:
    return value.format(path) if isinstance(value, str) else value


def hash_predictions(run: Path, inputs: Path) -> Hashes:
    """Return the hash of what the model of a run predicts."""
    run_command("predict", run, inputs, "--out", run / "predictions.csv")
    return {"predictions": hash_bytes((run / "predictions.csv").read_bytes())}


def run_tensors(folder: Path, **options: Any) -> Path:
    """Run ``cadis.run`` with a module and tensors in this process, and return the run folder."""
    given = {"rounds": 3, "epochs": 1, "lr": 0.05, "workers": 1, "test_clients": 1} | options
    model = given.pop("model", None) or own_model()
    clients = given.pop("clients", None) or clients_of_tensors()
    test = given.pop("test", None) or tensors_to_test()
    cadis.run(model, clients, test, out=folder / "run", progress=False, **given)
    return folder / "run"


def command_options(**options: Any) -> list[str]:
    """Return the options of a tiny run as a user types them."""
    given = {**TINY, **options}
    return [part for key, value in given.items() for part in (_typed(key), str(value))]


def _typed(key: str) -> str:
    return f"--{key.replace('_', '-')}"


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
    environment = {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "CADIS_STATE": str(folder / "state"),
    }
    with processes(folder) as started:
        if started.finish("simulation", command, environment) != 0:
            raise RuntimeError(started.said("simulation")[-500:])
