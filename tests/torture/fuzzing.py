"""Random and almost right input, by hypothesis, for everything that takes any."""

import contextlib
import os
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from cadis.analysis import read_results
from cadis.errors import CadisError, RunError
from cadis.report.page.content import page_data
from torture.experiments import Experiment, undisturbed
from torture.fuzzing_data import cifar, draw_base, idx, partition, pictures, pills, tensors
from torture.fuzzing_options import command_line, option_file, options, own_files, python_call
from torture.harm import Draw, harm, mutate_json
from torture.outcomes import NOTE, Attack, Case, Finding, LostError, SilentChangeError, Trial
from torture.victim import command, run_to_end

_MEMORY = 8 << 30
"""Bytes of addresses that a trial may use beyond what is in use before."""

_SECONDS = 30
"""How long an input may take; then its process is ended."""

_SETTINGS = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=False,  # the seed is that of the trial
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
)

_STUDY = ["compare", "--methods", "fedavg,cadis", "--seeds", "1", "--rounds", "2", "--epochs", "1"]
_STUDY += ["--batch-size", "64", "--model", "mlp", "--workers", "1"]


class HarmError(Exception):
    """An input does harm; hypothesis then looks for a simpler one."""


def run_folder(folder: Path, base: Path, draw: Draw) -> Case:
    """A run's folder, of which a file says something else."""
    return _change_folder("run", folder, base, draw)


def study_folder(folder: Path, base: Path, draw: Draw) -> Case:
    return _change_folder("study", folder, base, draw)


def _change_folder(name: str, folder: Path, base: Path, draw: Draw) -> Case:
    place = shutil.copytree(base / name, folder / name, ignore=shutil.ignore_patterns("figures"))
    texts = [p for p in sorted(place.rglob("*")) if p.suffix in (".json", ".jsonl", ".toml")]
    file, how = draw(st.sampled_from([*texts, *place.glob("study.json")])), "other JSON in"
    if file.suffix == ".toml" or draw(st.integers(0, 4)) < 2:
        how = harm(file, draw(st.randoms(use_true_random=False)))
    else:
        lines = file.read_bytes().splitlines() if file.suffix == ".jsonl" else [file.read_bytes()]
        line = draw(st.integers(0, len(lines) - 1))
        lines[line] = mutate_json(lines[line], draw)
        file.write_bytes(b"\n".join(lines) + b"\n")
    what = f"{how} {file.relative_to(place)}"
    return what, lambda: page_data(read_results([place]))


_READERS = (idx, cifar, pictures, pills, tensors, tensors, partition, run_folder, study_folder)
_TAKERS = (option_file, option_file, options, options, command_line, python_call, own_files)
_TARGETS: tuple[Callable[[Path, Path, Draw], Case], ...] = (*_READERS, *_TAKERS)


def prepare(base: Path) -> None:
    draw_base(base)
    undisturbed(Experiment("cadis", rounds=2), base / "run")
    ending = run_to_end(command([*_STUDY, "--out", base / "study"]), base / "study-log")
    if ending.code:
        raise RuntimeError(f"an undisturbed comparison fails: {ending.complained}")


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Give one thing many inputs; of those that do harm, report the simplest."""
    _limit_memory()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    target = _TARGETS[trial.number % len(_TARGETS)]
    folder, found = trial.folder / "input", list[Finding]()
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")

    @seed(f"{trial.seed} {trial.number}")
    @settings(_SETTINGS)
    @given(st.data())
    def examine(data: st.DataObject) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        what, action = target(folder, trial.base, data.draw)
        what = f"{target.__name__}: {what}".encode("utf-8", "backslashreplace").decode()
        (trial.folder / NOTE).write_text(what, encoding="utf-8")
        signal.alarm(_SECONDS)
        found.append(_judge(action))
        signal.alarm(0)
        if not found[-1].good:
            raise HarmError

    with contextlib.suppress(HarmError):
        examine()
    others = Counter(finding.verdict for finding in found[:-1] if finding.good)
    what = (trial.folder / NOTE).read_text(encoding="utf-8")
    return what, replace(found[-1], others=others)


def _judge(action: Callable[[], object]) -> Finding:
    """Give an input to what takes it, and judge what comes of it."""
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
    trials=400,
    quick=tuple(range(len(_TARGETS))),
    prepare=prepare,
    attempt=attempt,
)
