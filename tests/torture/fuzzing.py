"""Random and almost valid input, by hypothesis, for readers, options and commands."""

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
from cadis.report.page.content import make_page_data
from torture.experiments import Experiment, run_undisturbed
from torture.fuzzing_data import (
    draw_cifar,
    draw_expanding_file,
    draw_idx,
    draw_partition,
    draw_picture_folder,
    draw_pill_folder,
    draw_tensors,
    prepare_data,
)
from torture.fuzzing_options import (
    draw_command_line,
    draw_comparison,
    draw_option_file,
    draw_options,
    draw_prediction,
    draw_python_call,
    draw_user_files,
)
from torture.harm import Draw, damage_file, mutate_json
from torture.outcomes import NOTE, Attack, Case, Finding, LostError, SilentChangeError, Trial
from torture.victim import make_command, run_to_end

_MEMORY = 8 << 30
"""Additional address space in bytes that a trial may use."""

_SECONDS = 30
"""Time limit of one input; its process is killed after it."""

_SETTINGS = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=False,  # the trial sets the seed
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
)

_STUDY = ["compare", "--methods", "fedavg,cadis", "--seeds", "1", "--rounds", "2", "--epochs", "1"]
_STUDY += ["--batch-size", "64", "--model", "mlp", "--workers", "1"]


class HarmError(Exception):
    """An input causes a failure; hypothesis then searches for a simpler one."""


def draw_run_folder(folder: Path, base: Path, draw: Draw) -> Case:
    """Draw a run folder with one changed file."""
    return _draw_folder("run", folder, base, draw)


def draw_study_folder(folder: Path, base: Path, draw: Draw) -> Case:
    return _draw_folder("study", folder, base, draw)


def _draw_folder(name: str, folder: Path, base: Path, draw: Draw) -> Case:
    copy = shutil.copytree(base / name, folder / name, ignore=shutil.ignore_patterns("figures"))
    texts = [p for p in sorted(copy.rglob("*")) if p.suffix in (".json", ".jsonl", ".toml")]
    file, change = draw(st.sampled_from([*texts, *copy.glob("study.json")])), "other JSON in"
    if file.suffix == ".toml" or draw(st.integers(0, 4)) < 2:
        change = damage_file(file, draw(st.randoms(use_true_random=False)))
    else:
        lines = file.read_bytes().splitlines() if file.suffix == ".jsonl" else [file.read_bytes()]
        line = draw(st.integers(0, len(lines) - 1))
        lines[line] = mutate_json(lines[line], draw)
        file.write_bytes(b"\n".join(lines) + b"\n")
    what = f"{change} {file.relative_to(copy)}"
    return what, lambda: make_page_data(read_results([copy]))


_DATA_CASES = (
    draw_idx,
    draw_cifar,
    draw_picture_folder,
    draw_pill_folder,
    draw_tensors,
    draw_tensors,
    draw_partition,
    draw_expanding_file,
    draw_run_folder,
    draw_study_folder,
)
_OPTION_CASES = (
    draw_option_file,
    draw_option_file,
    draw_options,
    draw_options,
    draw_command_line,
    draw_python_call,
    draw_comparison,
    draw_prediction,
    draw_user_files,
)
_TARGETS: tuple[Callable[[Path, Path, Draw], Case], ...] = (*_DATA_CASES, *_OPTION_CASES)


def prepare(base: Path) -> None:
    prepare_data(base)
    run_undisturbed(Experiment("cadis", rounds=2), base / "run")
    ending = run_to_end(make_command([*_STUDY, "--out", base / "study"]), base / "study-log")
    if ending.code:
        raise RuntimeError(f"an undisturbed comparison fails: {ending.stderr}")


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Give many inputs to one target; report the simplest that causes a failure."""
    limit_memory()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    target = _TARGETS[trial.number % len(_TARGETS)]
    folder, findings = trial.folder / "input", list[Finding]()
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")

    @seed(f"{trial.seed} {trial.number}")
    @settings(_SETTINGS)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        what, action = target(folder, trial.base, data.draw)
        what = f"{target.__name__}: {what}".encode("utf-8", "backslashreplace").decode()
        (trial.folder / NOTE).write_text(what, encoding="utf-8")
        signal.alarm(_SECONDS)
        findings.append(judge(action))
        signal.alarm(0)
        if not findings[-1].is_good:
            raise HarmError

    with contextlib.suppress(HarmError):
        check()
    others = Counter(finding.verdict for finding in findings[:-1] if finding.is_good)
    what = (trial.folder / NOTE).read_text(encoding="utf-8")
    return what, replace(findings[-1], others=others)


def judge(action: Callable[[], object]) -> Finding:
    """Run a target with an input and return the finding."""
    try:
        action()
    except (CadisError, RunError, click.ClickException) as error:
        return Finding("reported", str(error))
    except SystemExit as stop:
        is_valid = stop.code in (None, 0, 1, 2)
        return Finding("reported" if is_valid else "wrong code", f"exit code {stop.code}")
    except SilentChangeError as error:
        return Finding("silent change", str(error))
    except LostError as error:
        return Finding("lost", str(error))
    except BaseException as error:
        return Finding("traceback", f"{type(error).__name__}: {str(error)[:200]} ({_find_frame()})")
    return Finding("accepted")


def _find_frame() -> str:
    """Return the last line of cadis in the traceback of an exception."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if f"{os.sep}cadis{os.sep}" in frame.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "not in cadis"


def limit_memory() -> None:
    """Limit the memory, so that no input uses all memory of the machine."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


ATTACK = Attack(
    name="fuzzing",
    title="random and almost valid input for readers, options, commands and cadis.run",
    trials=400,
    quick=tuple(range(len(_TARGETS))),
    prepare=prepare,
    attempt=attempt,
)
