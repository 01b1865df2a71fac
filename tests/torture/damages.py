"""Damaged files of runs: a reader gets the true content, or an error."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cadis.analysis import read_results
from cadis.cli.guard import run_with_exit_code
from cadis.report.page.content import make_page_data
from cadis.report.page.watching import WatchedFolder
from torture.disturbance import disturb_on_output, kill_self
from torture.experiments import Experiment, judge_ending, run_undisturbed
from torture.harm import copy_run, damage_file
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Ending, make_command, run_to_end

_METHODS = ("feddyn", "cadis")
_ROUNDS = 4
_BEST = "best.safetensors"
_STOPPED_AFTER = 2
_PAGES = ("report", "watch")
_DAMAGE_WORDS = ("damage", "missing", "differs", "changed", "broken", "does not match")


def prepare(base: Path) -> None:
    """Prepare stopped runs, and finished runs that can get more rounds."""
    for method in _METHODS:
        experiment, stopped = Experiment(method, _ROUNDS), base / f"{method}-stopped" / "run"
        run_undisturbed(experiment, _reference(base, method))
        run_undisturbed(Experiment(method, _ROUNDS - 1), base / f"{method}-finished" / "run")
        stopped.parent.mkdir()
        disturb = disturb_on_output(f"round {_STOPPED_AFTER}/", kill_self)
        run_to_end(make_command(experiment.start(stopped), disturb), base / f"{method}-log")
        for state, finished in (("stopped", False), ("finished", True)):
            _check_undamaged(base, method, state)
            _save_pages(base / f"{method}-{state}" / "run", finished)


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Damage a file of a run, then report, watch and resume the run."""
    random = trial.random
    method, state = random.choice(_METHODS), random.choice(["stopped", "finished"])
    run = copy_run(trial.base / f"{method}-{state}" / "run", trial.folder / "runs" / "run")
    file = random.choice(_files(run))
    what = f"{method}, {state}, {damage_file(file, random)} {file.relative_to(run)}"
    finding = _check_pages(trial, run, trial.base / f"{method}-{state}")
    if not finding.is_good:
        return what, finding
    return what, _check_resume(trial, method, run, trial.base / f"{method}-{state}" / "run")


def _check_pages(trial: Trial, run: Path, base: Path) -> Finding:
    """Check that report and watch show the true numbers or an error."""
    copy = copy_run(run, trial.folder / "shown" / "run")
    for name in _PAGES:
        page = trial.folder / f"{name}.json"
        ending = run_to_end(partial(_write_page, copy, page, name), trial.folder / name)
        expected = [path.read_text() for path in sorted(base.glob(f"{name}-*.json"))]
        if finding := _judge_page(name, ending, page, expected):
            return finding
    if trial.number % 10 == 0:
        out = trial.folder / "page"
        ending = run_to_end(make_command(["report", copy, "--out", out]), trial.folder / "command")
        return ending.find_fault() or Finding("reported")
    return Finding("reported")


def _judge_page(name: str, ending: Ending, page: Path, expected: list[str]) -> Finding | None:
    """Return what is wrong with a page; None if it is correct, or if there is an error message."""
    if fault := ending.find_fault():
        return Finding(fault.verdict, f"{name}: {fault.reason}")
    if ending.code:
        return None
    text = page.read_text()
    numbers = list(_iter_numbers(json.loads(text)))
    if numbers in [list(_iter_numbers(json.loads(valid))) for valid in expected]:
        return None
    output = text + ending.stderr
    if any(word in output and word not in expected[-1] for word in _DAMAGE_WORDS):
        return None
    return Finding("silent change", f"{name} shows other numbers without an error")


def _write_page(run: Path, page: Path, name: str) -> int:
    """Write the data of a page, without the name of the folder."""

    def work() -> int:
        if name == "report":
            data = make_page_data(read_results([run]))
        else:
            data = json.loads(WatchedFolder(run).get_data())
        page.write_text(json.dumps(data).replace(str(run), "RUN"))
        return 0

    return run_with_exit_code(work)


def _check_resume(trial: Trial, method: str, run: Path, original: Path) -> Finding:
    """Resume a damaged run: the result is the same, or there is an error and a copy helps."""
    experiment, before = Experiment(method, _ROUNDS), _read_files(run)
    ending = run_to_end(make_command(experiment.resume(run)), trial.folder / "resumed")
    finding = judge_ending(ending, run, _reference(trial.base, method))
    if finding.reason == f"there is no {_BEST}" and f"{_BEST} is missing" in ending.stdout:
        return Finding(
            "reported", f"{_BEST} is missing"
        )  # it cannot be restored, and all other files are correct
    if finding.verdict != "reported" or _read_files(run) == before:
        return finding
    deleted = before.keys() - _read_files(run).keys()
    if missing := sorted(name for name in deleted if not name.startswith("checkpoint/")):
        return Finding("lost", f"{missing[0]} is deleted after: {finding.reason}")
    _restore_files(run, before, _read_files(original))
    ending = run_to_end(make_command(experiment.resume(run)), trial.folder / "repaired")
    again = judge_ending(ending, run, _reference(trial.base, method))
    if again.verdict in ("same", "left over"):
        return finding
    reason = f"a restored file does not help: {again.reason}; error: {finding.reason}"
    return Finding("lost", reason)


def _restore_files(run: Path, damaged: dict[str, bytes], original: dict[str, bytes]) -> None:
    """Restore the damaged files from copies, as a user would."""
    for name, content in original.items():
        if damaged.get(name) != content:
            if (run / name).is_dir():
                shutil.rmtree(run / name)
            (run / name).write_bytes(content)


def _check_undamaged(base: Path, method: str, state: str) -> None:
    """Check that an undamaged run can be resumed; otherwise the trials mean nothing."""
    copy = copy_run(base / f"{method}-{state}" / "run", base / f"{method}-{state}-copy" / "run")
    ending = run_to_end(
        make_command(Experiment(method, _ROUNDS).resume(copy)), copy.parent.with_suffix(".log")
    )
    finding = judge_ending(ending, copy, _reference(base, method))
    if finding.verdict != "same":
        raise RuntimeError(f"{method}, {state}: the result without damage is {finding}")


def _save_pages(run: Path, finished: bool) -> None:
    """Write the valid pages: of the whole run, and of fewer rounds if it is not finished."""
    lines = (run / "history.jsonl").read_bytes().splitlines(True)
    for rounds in [len(lines)] if finished else range(len(lines) + 1):
        copy = copy_run(run, run.parent / f"copy-{rounds}" / "run")
        (copy / "history.jsonl").write_bytes(b"".join(lines[:rounds]))
        for name in _PAGES:
            page = run.parent / f"{name}-{rounds}.json"
            run_to_end(partial(_write_page, copy, page, name), run.parent / "log")


def _iter_numbers(part: object) -> Iterator[float]:
    """Yield all numbers of a page except times."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key not in ("created", "live", "seconds", "title"):
                yield from _iter_numbers(value)
    elif isinstance(part, list):
        for value in part:
            yield from _iter_numbers(value)
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield part


def _files(run: Path) -> list[Path]:
    """Return the files to damage; only one of the many figures."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    pictures = [path for path in files if path.parent.name == "figures"]
    return [path for path in files if path not in pictures[1:]]


def _read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def _reference(base: Path, method: str) -> Path:
    return base / f"{method}-reference" / "run"


ATTACK = Attack(
    name="damages",
    title="a file of a stopped or finished run damaged; then resumed, reported and watched",
    trials=1000,
    quick=tuple(range(12)),
    prepare=prepare,
    attempt=attempt,
)
