"""Random and almost right input for everything that takes any."""

import json
import os
import resource
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import click

from cadis.analysis import read_results
from cadis.errors import CadisError, RunError
from cadis.report import page_data
from torture.experiments import Experiment, undisturbed
from torture.fuzzing_calls import own_files, python_call
from torture.fuzzing_data import cifar, draw_base, idx, partition, pictures, pills, tensors
from torture.fuzzing_options import command_line, option_file, options
from torture.harm import harm
from torture.mutation import mutated_json, to_json
from torture.outcomes import NOTE, Attack, Case, Finding, LostError, SilentChangeError, Trial
from torture.victim import command, run_to_end

_MEMORY = 8 << 30
"""Bytes of addresses that a trial may use beyond what is in use before."""

_STUDY = ["compare", "--methods", "fedavg,cadis", "--seeds", "1", "--rounds", "2", "--epochs", "1"]
_STUDY += ["--batch-size", "64", "--model", "mlp", "--workers", "1"]


def run_folder(folder: Path, base: Path, random: Random) -> Case:
    """A run's folder, of which a file says something else."""
    return _changed("run", folder, base, random)


def study_folder(folder: Path, base: Path, random: Random) -> Case:
    """The same of a comparison."""
    return _changed("study", folder, base, random)


def _changed(name: str, folder: Path, base: Path, random: Random) -> Case:
    place = shutil.copytree(base / name, folder / name, ignore=shutil.ignore_patterns("figures"))
    texts = [p for p in sorted(place.rglob("*")) if p.suffix in (".json", ".jsonl", ".toml")]
    file = random.choice([*texts, *place.glob("study.json")])
    how = "other JSON in"
    if file.suffix == ".toml" or random.random() < 0.4:
        how = harm(file, random)
    elif file.suffix == ".jsonl":
        lines = file.read_bytes().splitlines()
        line = random.randrange(len(lines))
        lines[line] = to_json(mutated_json(json.loads(lines[line]), random))
        file.write_bytes(b"\n".join(lines) + b"\n")
    else:
        file.write_bytes(to_json(mutated_json(json.loads(file.read_text()), random)))
    what = f"{how} {file.relative_to(place)}"
    return what, lambda: page_data(read_results([place]))


_TARGETS: tuple[Callable[[Path, Path, Random], Case], ...] = (
    idx,
    cifar,
    pictures,
    pills,
    tensors,
    partition,
    option_file,
    options,
    command_line,
    python_call,
    run_folder,
    study_folder,
    tensors,
    options,
    option_file,
    own_files,
)


def prepare(base: Path) -> None:
    """What inputs are made from."""
    draw_base(base)
    undisturbed(Experiment("cadis", rounds=2), base / "run")
    ending = run_to_end(command([*_STUDY, "--out", base / "study"]), base / "study-log")
    if ending.code:
        raise RuntimeError(f"an undisturbed comparison fails: {ending.complained}")


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Give one thing something."""
    _limit_memory()
    target, random = _TARGETS[trial.number % len(_TARGETS)], trial.random
    cache = os.environ.get("XDG_CACHE_HOME")
    what, action = target(trial.folder, trial.base, random)
    what = f"{target.__name__}: {what}".encode("utf-8", "backslashreplace").decode()
    (trial.folder / NOTE).write_text(what, encoding="utf-8")
    try:
        return what, _taken(action)
    finally:
        os.environ.pop("XDG_CACHE_HOME", None)
        os.environ |= {"XDG_CACHE_HOME": cache} if cache else {}


def _taken(action: Callable[[], object]) -> Finding:
    """What comes of an input."""
    try:
        action()
    except (CadisError, RunError, click.ClickException) as error:
        return Finding("told", str(error))
    except SystemExit as stop:
        good = stop.code in (None, 0, 1, 2)
        return Finding("told" if good else "wrong code", f"exit code {stop.code}")
    except SilentChangeError as error:
        return Finding("silent change", str(error))
    except LostError as error:
        return Finding("lost", str(error))
    except BaseException as error:
        return Finding("traceback", f"{type(error).__name__}: {str(error)[:200]} ({_where()})")
    return Finding("value")


def _where() -> str:
    """The last line of ours that an exception came by."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if f"{os.sep}cadis{os.sep}" in frame.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "not in cadis"


def _limit_memory() -> None:
    """So that no input takes all of the machine's."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


ATTACK = Attack(
    name="fuzzing",
    title="random and almost right input for readers, options, commands and cadis.run",
    trials=10_000,
    quick=tuple(range(160)),
    prepare=prepare,
    attempt=attempt,
    patience=30,
)
