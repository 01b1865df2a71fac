"""A run is killed at its file operations in turn, in the middle of a write, or at any moment."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from torture.disturbance import kill_myself, watch_operations
from torture.experiments import Experiment, Recovery, undisturbed
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Ending, Victim, command, run_to_end

_METHODS = ("feddyn", "cadis")
_GRACE = 5.0
"""Seconds that workers may outlive their server."""
_LARGEST = 250_000
"""Bytes of the largest file that most runs write."""


def prepare(base: Path) -> None:
    """Undisturbed runs, and how many operations there are to be killed at."""
    for method in _METHODS:
        experiment = Experiment(method)
        first, second = _reference(base, method), base / f"{method}-resumed" / "run"
        counts = {"begun": _counted(experiment.begin(first), first)}
        _killed_at(experiment.begin(second), second, counts["begun"] // 2, second.parent)
        counts["resumed"] = _counted(experiment.resume(second), second)
        (base / f"{method}.json").write_text(json.dumps(counts))


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Of ten trials: six kills of a run, two of a resumed one, a torn write, one at any moment."""
    kind, place = trial.number % 10, trial.number // 10
    if kind == 9:
        return _orphans(trial) if place % 5 == 4 else _any_moment(trial)
    if kind == 8:
        return _torn(trial)
    if kind >= 6:
        return _resumed(trial, 2 * place + kind - 6)
    return _begun(trial, 6 * place + kind)


def _begun(trial: Trial, place: int) -> tuple[str, Finding]:
    """Killed at an operation; all of them come before one comes again."""
    method, number = _METHODS[place % 2], _turn(trial, "begun", place)
    experiment, run = Experiment(method), _run(trial)
    ending, what = _killed_at(experiment.begin(run), run, number, trial.folder)
    return f"{method}, {what}", _recovered(trial, experiment, ending.rounds)


def _resumed(trial: Trial, place: int) -> tuple[str, Finding]:
    """Killed in its middle, and again at an operation when it is resumed."""
    method, number = _METHODS[place % 2], _turn(trial, "resumed", place)
    experiment, run = Experiment(method), _run(trial)
    middle = _counts(trial.base, method)["begun"] // 2
    first, _ = _killed_at(experiment.begin(run), run, middle, trial.folder)
    second, what = _killed_at(experiment.resume(run), run, number, trial.folder, "again")
    return f"{method} resumed, {what}", _recovered(trial, experiment, first.rounds + second.rounds)


def _torn(trial: Trial) -> tuple[str, Finding]:
    """Killed in the middle of the first write, after an operation, that makes a file too large."""
    random = trial.random
    method, size = random.choice(_METHODS), random.randrange(_LARGEST)
    number = random.randrange(_counts(trial.base, method)["begun"])
    experiment, run = Experiment(method), _run(trial)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    disturb = _at(run, number, limit, trial.folder / "operation")
    ending = run_to_end(command(experiment.begin(run), disturb), trial.folder / "begun")
    what = f"{method}, a write cut at {size:,} bytes after operation {number}"
    return what, _recovered(trial, experiment, ending.rounds)


def _any_moment(trial: Trial) -> tuple[str, Finding]:
    """Killed at any moment, while two worker processes train."""
    random = trial.random
    method, seconds = random.choice(_METHODS), random.uniform(0.05, 0.9)
    experiment, run = Experiment(method, workers=2), _run(trial)
    with Victim(command(experiment.begin(run)), trial.folder / "begun") as victim:
        time.sleep(seconds)
        workers = _workers_of(victim.number)
        victim.kill()
        ending = victim.wait()
        left = _outlived(workers)
    what = f"{method}, 2 workers, after {seconds:.2f} s"
    if left:
        return what, Finding("orphans", f"{left} workers still lived after {_GRACE:g} s")
    return what, _recovered(trial, experiment, ending.rounds)


def _orphans(trial: Trial) -> tuple[str, Finding]:
    """Killed while its workers are busy for a long time: they must go, too."""
    experiment, run = Experiment("fedavg", workers=2, epochs=2000), _run(trial)
    with Victim(command(experiment.begin(run)), trial.folder / "begun") as victim:
        deadline = time.monotonic() + 20
        while len(_workers_of(victim.number)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(trial.random.uniform(0.1, 0.5))
        workers = _workers_of(victim.number)
        victim.kill()
        left = _outlived(workers)
    if not workers:
        return "a long training", Finding("harness", "no worker was found")
    if left:
        return "a long training", Finding("orphans", f"{left} of {len(workers)} workers live on")
    return "a long training", Finding("same", "the workers went with their server")


def _workers_of(number: int) -> list[int]:
    try:
        text = Path(f"/proc/{number}/task/{number}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def _outlived(workers: list[int]) -> int:
    """How many workers live after the time that they are given."""
    deadline = time.monotonic() + _GRACE
    while (left := sum(map(_lives, workers))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _recovered(trial: Trial, experiment: Experiment, rounds: list[int]) -> Finding:
    reference, draws = _reference(trial.base, experiment.method), trial.number % 20 == 0
    if draws:
        reference = undisturbed(experiment, trial.folder / "drawn" / "run", draws=True)
    return Recovery(
        experiment,
        _run(trial),
        reference,
        saved=max(rounds, default=0),
        logs=trial.folder,
        resumes_first=trial.random.random() < 0.5,
        draws=draws,
    ).finding()


def _killed_at(
    arguments: list[str], run: Path, number: int, logs: Path, name: str = "begun"
) -> tuple[Ending, str]:
    """Do a command until its operation of that number; says what that was."""
    note = logs / f"{name}-operation"
    logs.mkdir(parents=True, exist_ok=True)
    ending = run_to_end(command(arguments, _at(run, number, kill_myself, note)), logs / name)
    what = note.read_text() if note.exists() else "after its end"
    return ending, f"operation {number}, {what}"


def _at(run: Path, number: int, happens: Callable[[], None], note: Path) -> Callable[[], None]:
    """A disturbance: something happens at an operation, whose name is noted."""
    seen = count()

    def on_operation(name: str) -> None:
        if next(seen) == number:
            file = os.open(note, os.O_WRONLY | os.O_CREAT)
            os.write(file, name.encode())
            os.close(file)
            happens()

    return lambda: watch_operations(run.parent, on_operation)


def _counted(arguments: list[str], run: Path) -> int:
    note, work, seen = run.parent.with_suffix(".count"), command(arguments), count()

    def counting() -> int:
        watch_operations(run.parent, lambda _: next(seen))
        try:
            return work()
        finally:
            note.write_text(str(next(seen)))

    run.parent.mkdir(parents=True, exist_ok=True)
    ending = run_to_end(counting, run.parent.with_suffix(".log"))
    if ending.code != 0:
        raise RuntimeError(f"an undisturbed run fails: {ending.complained}")
    return int(note.read_text())


def _turn(trial: Trial, which: str, place: int) -> int:
    """The operation whose turn it is: in an order of chance, none twice before all were."""
    number = _counts(trial.base, _METHODS[place % 2])[which]
    order = list(range(number))
    Random(f"{trial.seed} order of {which} {place % 2}").shuffle(order)
    return order[place // 2 % number]


def _counts(base: Path, method: str) -> dict[str, int]:
    counts: dict[str, int] = json.loads((base / f"{method}.json").read_text())
    return counts


def _run(trial: Trial) -> Path:
    (trial.folder / "runs").mkdir(exist_ok=True)
    return trial.folder / "runs" / "run"


def _reference(base: Path, method: str) -> Path:
    """An undisturbed run; however many workers there are, they give the same bits."""
    return base / method / "run"


ATTACK = Attack(
    name="kills",
    title="killed at its file operations in turn, in mid-write, and at any moment; then resumed",
    trials=400,
    quick=(0, 1, 2, 3, 6, 7, 8, 9, 49),
    prepare=prepare,
    attempt=attempt,
)
