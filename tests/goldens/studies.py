"""Cases of several runs, of the command, of ``cadis.run`` and of Flower's simulation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cadis
from goldens.hashing import (
    Hashes,
    hash_bytes,
    hash_csv,
    hash_json,
    hash_numbers,
    hash_run,
    hash_runs_in,
    hash_study,
)
from goldens.inputs import build_model, make_clients, make_test_set
from goldens.running import TINY, Case, command_options, run_command, run_simulation, run_tensors


class StopRunError(Exception):
    """Ends a run between two rounds."""


RESUMABLE = command_options(method="cadis", test_clients=1)
"""Options of a run that tests clients after every round, as a prolonged run does."""


def command_run(folder: Path) -> Hashes:
    """Run ``cadis run`` to its end."""
    run_command("run", *RESUMABLE, "--rounds", "3", "--out", folder / "run")
    return hash_run(folder / "run")


def command_resume(folder: Path) -> Hashes:
    """Run ``cadis run`` for one round, and two more with ``--resume``."""
    run_command("run", *RESUMABLE, "--rounds", "1", "--out", folder / "run")
    run_command("run", "--resume", "--rounds", "3", "--out", folder / "run")
    return hash_run(folder / "run")


def command_partition(folder: Path) -> Hashes:
    """Write the sample indices of a partition of each kind."""
    hashes = {}
    for name in ("mc", "bc", "uc", "pa", "iid", "dirichlet"):
        out = folder / f"{name}.json"
        options = ("--partition", name, "--clients", "10", "--figure", folder / f"{name}.png")
        run_command("partition", *options, "--out", out)
        hashes[name] = hash_bytes(out.read_bytes())
    return hashes


def command_compare(folder: Path) -> Hashes:
    """Run ``cadis compare``, and hash its tables and runs."""
    options = command_options(client_test=0.2, speeds="10:1000", targets="0.3,0.5")
    methods = ("--methods", "fedavg,cadis,ifca,singleset", "--seeds", "2")
    run_command("compare", *methods, *options, "--out", folder / "study")
    return hash_study(folder / "study")


def command_sweep(folder: Path) -> Hashes:
    """Run ``cadis sweep`` over two options."""
    grid = ("--grid", "distillation=0,1", "--grid", "lr=0.05,0.1")
    run_command("sweep", *grid, *command_options(method="cadis"), "--out", folder / "study")
    study = folder / "study"
    tables = {name: hash_csv((study / name).read_text()) for name in ("results.csv", "runs.csv")}
    return tables | hash_runs_in(study)


def python_compare(folder: Path) -> Hashes:
    """Call ``cadis.compare`` with methods that are given as objects."""
    methods = (cadis.FedAvg(), cadis.FedProx(mu=0.1), "cadis-oracle")
    result = cadis.compare(methods, seeds=2, out=folder / "study", progress=False, **TINY)
    return {"tables": hash_numbers(result.to_markdown())} | hash_runs_in(folder / "study")


def python_resume(folder: Path) -> Hashes:
    """Stop ``cadis.run`` after the first round, and resume it."""

    def stop(_result: object) -> None:
        raise StopRunError

    try:
        run_tensors(folder, method="feddyn", on_round=stop)
    except StopRunError:
        return hash_run(run_tensors(folder, method="feddyn", resume=True))
    raise RuntimeError("the run was not stopped")


def python_load(folder: Path) -> Hashes:
    """Predict with the model of a run."""
    predictor = cadis.load(run_tensors(folder), model=build_model())
    probabilities = predictor(make_test_set()[0]).detach().contiguous()
    description = [str(probabilities.dtype), list(probabilities.shape)]
    return {"probabilities": hash_bytes(probabilities.numpy().tobytes()) + hash_json(description)}


def python_float64(folder: Path) -> Hashes:
    """Train a model in double precision."""
    data = [(inputs.double(), labels) for inputs, labels in make_clients()]
    inputs, labels = make_test_set()
    options: dict[str, Any] = {"clients": data, "test": (inputs.double(), labels)}
    return hash_run(run_tensors(folder, model=build_model().double(), **options))


def simulate(folder: Path) -> Hashes:
    """Run federations in Flower's simulation."""
    run_simulation(folder)
    runs = sorted(path.parent for path in folder.glob("*/history.jsonl"))
    return {f"{run.name} {name}": value for run in runs for name, value in hash_run(run).items()}


def tensors_case(name: str, **options: Any) -> Case:
    """Return the case of a module and tensors."""
    return Case(name, lambda folder: hash_run(run_tensors(folder, **options)))


_COMPUTED: dict[str, Callable[[Path], Hashes]] = {
    "command/run": command_run,
    "command/resume": command_resume,
    "command/partition": command_partition,
    "command/compare": command_compare,
    "command/sweep": command_sweep,
    "python/compare": python_compare,
    "python/resume": python_resume,
    "python/load": python_load,
    "python/float64": python_float64,
    "flower/simulation": simulate,
}

STUDIES: tuple[Case, ...] = (
    tensors_case("python/run"),
    tensors_case("python/run/one-by-one", stack=False),
    tensors_case("python/run/workers-2", workers=2),
    tensors_case("python/uninterrupted", method="feddyn"),
    *(Case(name, compute) for name, compute in _COMPUTED.items()),
)
