"""A file of a run is damaged; whoever then reads it gets what was there, or is told."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cadis.analysis import read_results
from cadis.cli.guard import guarded
from cadis.report.page.content import page_data
from cadis.report.page.watching import Watched
from torture.disturbance import kill_myself, when_shown
from torture.experiments import Experiment, judge_end, undisturbed
from torture.harm import copy_run, harm
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Ending, command, run_to_end

_METHODS = ("feddyn", "cadis")
_ROUNDS = 4
_BEST = "best.safetensors"
_STOPPED_AFTER = 2
_PAGES = ("report", "watch")
_WORDS_OF_DAMAGE = ("damage", "missing", "differs", "changed", "broken", "does not match")


def prepare(base: Path) -> None:
    """Runs that were stopped between rounds, and runs that are finished and may be prolonged."""
    for method in _METHODS:
        experiment, stopped = Experiment(method, _ROUNDS), base / f"{method}-stopped" / "run"
        undisturbed(experiment, _reference(base, method))
        undisturbed(Experiment(method, _ROUNDS - 1), base / f"{method}-finished" / "run")
        stopped.parent.mkdir()
        disturb = when_shown(f"round {_STOPPED_AFTER}/", kill_myself)
        run_to_end(command(experiment.begin(stopped), disturb), base / f"{method}-log")
        for state, finished in (("stopped", False), ("finished", True)):
            _check_undamaged(base, method, state)
            _keep_pages(base / f"{method}-{state}" / "run", finished)


def attempt(trial: Trial) -> tuple[str, Finding]:
    random = trial.random
    method, state = random.choice(_METHODS), random.choice(["stopped", "finished"])
    run = copy_run(trial.base / f"{method}-{state}" / "run", trial.folder / "runs" / "run")
    file = random.choice(_files(run))
    what = f"{method}, {state}, {harm(file, random)} {file.relative_to(run)}"
    finding = _shown(trial, run, trial.base / f"{method}-{state}")
    if not finding.good:
        return what, finding
    return what, _resumed(trial, method, run, trial.base / f"{method}-{state}" / "run")


def _shown(trial: Trial, run: Path, base: Path) -> Finding:
    """What report and watch make of it: a page with the true numbers, or a sentence."""
    copy = copy_run(run, trial.folder / "shown" / "run")
    for name in _PAGES:
        page = trial.folder / f"{name}.json"
        ending = run_to_end(partial(_show, copy, page, name), trial.folder / name)
        expected = [path.read_text() for path in sorted(base.glob(f"{name}-*.json"))]
        if finding := _judge_page(name, ending, page, expected):
            return finding
    if trial.number % 10 == 0:
        shown = trial.folder / "page"
        ending = run_to_end(command(["report", copy, "--out", shown]), trial.folder / "command")
        return ending.fault() or Finding("told")
    return Finding("told")


def _judge_page(name: str, ending: Ending, page: Path, expected: list[str]) -> Finding | None:
    """What is wrong with a page, or with its absence."""
    if fault := ending.fault():
        return Finding(fault.verdict, f"{name}: {fault.why}")
    if ending.code:
        return None
    text = page.read_text()
    if list(_numbers(json.loads(text))) in [list(_numbers(json.loads(good))) for good in expected]:
        return None
    said = text + ending.complained
    if any(word in said and word not in expected[-1] for word in _WORDS_OF_DAMAGE):
        return None
    return Finding("silent change", f"{name} shows other numbers and says nothing")


def _show(run: Path, page: Path, name: str) -> int:
    """Make what a page shows, without the name of the folder."""

    def work() -> int:
        report = name == "report"
        data = page_data(read_results([run])) if report else json.loads(Watched(run).data())
        page.write_text(json.dumps(data).replace(str(run), "RUN"))
        return 0

    return guarded(work)


def _resumed(trial: Trial, method: str, run: Path, original: Path) -> Finding:
    """Resume it: the end is the same, or it was told and putting the file back helps."""
    experiment, before = Experiment(method, _ROUNDS), _contents(run)
    ending = run_to_end(command(experiment.resume(run)), trial.folder / "resumed")
    found = judge_end(ending, run, _reference(trial.base, method))
    if found.why == f"there is no {_BEST}" and f"{_BEST} is missing" in ending.said:
        return Finding("told", f"{_BEST} is missing")  # nothing else has it, and all else is right
    if found.verdict != "told" or _contents(run) == before:
        return found
    gone = before.keys() - _contents(run).keys()
    if missing := sorted(name for name in gone if not name.startswith("checkpoint/")):
        return Finding("lost", f"{missing[0]} is gone after: {found.why}")
    _put_back(run, before, _contents(original))
    ending = run_to_end(command(experiment.resume(run)), trial.folder / "repaired")
    again = judge_end(ending, run, _reference(trial.base, method))
    if again.verdict in ("same", "left over"):
        return found
    return Finding("lost", f"a file put back does not help: {again.why}; told: {found.why}")


def _put_back(run: Path, damaged: dict[str, bytes], whole: dict[str, bytes]) -> None:
    """As a user does who has a copy of the file that is damaged."""
    for name, content in whole.items():
        if damaged.get(name) != content:
            if (run / name).is_dir():
                shutil.rmtree(run / name)
            (run / name).write_bytes(content)


def _check_undamaged(base: Path, method: str, state: str) -> None:
    """The harness must be able to succeed."""
    copy = copy_run(base / f"{method}-{state}" / "run", base / f"{method}-{state}-copy" / "run")
    ending = run_to_end(
        command(Experiment(method, _ROUNDS).resume(copy)), copy.parent.with_suffix(".log")
    )
    found = judge_end(ending, copy, _reference(base, method))
    if found.verdict != "same":
        raise RuntimeError(f"{method}, {state}: without damage it is {found}")


def _keep_pages(run: Path, finished: bool) -> None:
    """What may be shown: the whole run; of one that is not finished also less, as before."""
    whole = (run / "history.jsonl").read_bytes().splitlines(True)
    for rounds in [len(whole)] if finished else range(len(whole) + 1):
        copy = copy_run(run, run.parent / f"copy-{rounds}" / "run")
        (copy / "history.jsonl").write_bytes(b"".join(whole[:rounds]))
        for name in _PAGES:
            page = run.parent / f"{name}-{rounds}.json"
            run_to_end(partial(_show, copy, page, name), run.parent / "log")


def _numbers(part: object) -> Iterator[float]:
    """All numbers of a page but those that tell the time."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key not in ("created", "live", "seconds", "title"):
                yield from _numbers(value)
    elif isinstance(part, list):
        for value in part:
            yield from _numbers(value)
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield part


def _files(run: Path) -> list[Path]:
    """What can be damaged; of the pictures, only one, as there are so many."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    pictures = [path for path in files if path.parent.name == "figures"]
    return [path for path in files if path not in pictures[1:]]


def _contents(folder: Path) -> dict[str, bytes]:
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
