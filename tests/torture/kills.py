"""Kills of a run: at each of its file operations, during a write, or at any moment."""

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from cadis.engine import stall_watch
from torture.disturbance import kill_self, watch_operations
from torture.experiments import Experiment, Recovery, find_difference, run_undisturbed
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Ending, Victim, make_command, run_to_end

_METHODS = ("feddyn", "cadis")
_GRACE = 5.0
"""Seconds in which workers must end after their server."""
_MAX_FILE_SIZE = 250_000
"""Size of the largest file that most runs write, in bytes."""


def prepare(base: Path) -> None:
    """Prepare undisturbed runs, and count their file operations."""
    for method in _METHODS:
        experiment = Experiment(method)
        first, second = _reference(base, method), base / f"{method}-resumed" / "run"
        counts = {"begun": _count_operations(experiment.start(first), first)}
        _kill_at(experiment.start(second), second, counts["begun"] // 2, second.parent)
        counts["resumed"] = _count_operations(experiment.resume(second), second)
        (base / f"{method}.json").write_text(json.dumps(counts))


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Of ten trials, kill six runs, two resumed runs, one during a write, one at any moment.

    Of the last, one in five kills or stops only a worker, and one in five kills a long training.
    """
    kind, index = trial.number % 10, trial.number // 10
    if kind == 9 and index % 5 == 3:
        return _harm_worker(trial)
    if kind == 9:
        return _kill_with_busy_workers(trial) if index % 5 == 4 else _kill_any_moment(trial)
    if kind == 8:
        return _kill_write(trial)
    if kind >= 6:
        return _kill_resumed_run(trial, 2 * index + kind - 6)
    return _kill_run(trial, 6 * index + kind)


def _kill_run(trial: Trial, index: int) -> tuple[str, Finding]:
    """Kill a run at an operation; no operation is repeated before all were chosen."""
    method, number = _METHODS[index % 2], _choose_operation(trial, "begun", index)
    experiment, run = Experiment(method), _get_run(trial)
    ending, what = _kill_at(experiment.start(run), run, number, trial.folder)
    return f"{method}, {what}", _recover(trial, experiment, ending.rounds)


def _kill_resumed_run(trial: Trial, index: int) -> tuple[str, Finding]:
    """Kill a run in its middle, and again at an operation when it is resumed."""
    method, number = _METHODS[index % 2], _choose_operation(trial, "resumed", index)
    experiment, run = Experiment(method), _get_run(trial)
    middle = _read_counts(trial.base, method)["begun"] // 2
    first, _ = _kill_at(experiment.start(run), run, middle, trial.folder)
    second, what = _kill_at(experiment.resume(run), run, number, trial.folder, "again")
    return f"{method} resumed, {what}", _recover(trial, experiment, first.rounds + second.rounds)


def _kill_write(trial: Trial) -> tuple[str, Finding]:
    """Kill a run in the first write after an operation that exceeds a limit of the file size."""
    random = trial.random
    method, size = random.choice(_METHODS), random.randrange(_MAX_FILE_SIZE)
    number = random.randrange(_read_counts(trial.base, method)["begun"])
    experiment, run = Experiment(method), _get_run(trial)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    disturb = _act_at(run, number, limit, trial.folder / "operation")
    ending = run_to_end(make_command(experiment.start(run), disturb), trial.folder / "started")
    what = f"{method}, a write that stops at {size:,} bytes after operation {number}"
    return what, _recover(trial, experiment, ending.rounds)


def _kill_any_moment(trial: Trial) -> tuple[str, Finding]:
    """Kill a run at any moment, while two worker processes train."""
    random = trial.random
    method, seconds = random.choice(_METHODS), random.uniform(0.05, 0.9)
    experiment, run = Experiment(method, workers=2), _get_run(trial)
    with Victim(make_command(experiment.start(run)), trial.folder / "started") as victim:
        time.sleep(seconds)
        workers = _list_workers(victim.number)
        victim.kill()
        ending = victim.wait()
        left = _count_survivors(workers)
    what = f"{method}, 2 workers, after {seconds:.2f} s"
    if left:
        return what, Finding("orphans", f"{left} workers were alive after {_GRACE:g} s")
    return what, _recover(trial, experiment, ending.rounds)


def _kill_with_busy_workers(trial: Trial) -> tuple[str, Finding]:
    """Kill a run while its workers train for a long time; they must end too."""
    experiment, run = Experiment("fedavg", workers=2, epochs=2000), _get_run(trial)
    with Victim(make_command(experiment.start(run)), trial.folder / "started") as victim:
        deadline = time.monotonic() + 20
        while len(_list_workers(victim.number)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(trial.random.uniform(0.1, 0.5))
        workers = _list_workers(victim.number)
        victim.kill()
        left = _count_survivors(workers)
    if not workers:
        return "a long training", Finding("harness", "no worker was found")
    if left:
        return "a long training", Finding("orphans", f"{left} of {len(workers)} workers are alive")
    return "a long training", Finding("same", "the workers ended with their server")


def _harm_worker(trial: Trial) -> tuple[str, Finding]:
    """Kill or stop worker processes at random moments; the run must not end or change."""
    random = trial.random
    method, harm = random.choice(_METHODS), random.choice([signal.SIGKILL, signal.SIGSTOP])
    experiment, run, harmed = Experiment(method, workers=2), _get_run(trial), list[int]()
    command = make_command(experiment.start(run), _replace_stopped_workers_soon)
    with Victim(command, trial.folder / "started") as victim:
        while not victim.has_ended() and len(harmed) < 3:
            time.sleep(random.uniform(0.05, 0.3))
            for worker in _list_workers(victim.number)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, harm)
                    harmed.append(worker)
        ending = victim.wait()
        left = _count_survivors(harmed)
    what = f"{method}, {len(harmed)} times {harm.name} for a worker"
    if left:
        return what, Finding("orphans", f"{left} workers were alive after {_GRACE:g} s")
    if fault := ending.find_fault():
        return what, fault
    if ending.code:
        return what, Finding("dead end", ending.sentence)
    difference = find_difference(run, _reference(trial.base, method))
    return what, Finding("silent change", difference) if difference else Finding("same")


def _replace_stopped_workers_soon() -> None:
    stall_watch.STOPPED_LIMIT = 1.5


def _list_workers(number: int) -> list[int]:
    try:
        text = Path(f"/proc/{number}/task/{number}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def _count_survivors(workers: list[int]) -> int:
    """Return the number of workers that are alive after the grace time."""
    deadline = time.monotonic() + _GRACE
    while (left := sum(map(_is_alive, workers))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _is_alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _recover(trial: Trial, experiment: Experiment, rounds: list[int]) -> Finding:
    reference, draw_figures = _reference(trial.base, experiment.method), trial.number % 20 == 0
    if draw_figures:
        reference = run_undisturbed(
            experiment, trial.folder / "with-figures" / "run", draw_figures=True
        )
    return Recovery(
        experiment,
        _get_run(trial),
        reference,
        saved=max(rounds, default=0),
        logs=trial.folder,
        resume_first=trial.random.random() < 0.5,
        draw_figures=draw_figures,
    ).execute()


def _kill_at(
    arguments: list[str], run: Path, number: int, logs: Path, name: str = "started"
) -> tuple[Ending, str]:
    """Kill a command at an operation; return its ending and a description."""
    note = logs / f"{name}-operation"
    logs.mkdir(parents=True, exist_ok=True)
    ending = run_to_end(make_command(arguments, _act_at(run, number, kill_self, note)), logs / name)
    what = note.read_text() if note.exists() else "after its end"
    return ending, f"operation {number}, {what}"


def _act_at(run: Path, number: int, action: Callable[[], None], note: Path) -> Callable[[], None]:
    """Return a disturbance that notes the name of an operation and calls ``action``."""
    counter = count()

    def on_operation(name: str) -> None:
        if next(counter) == number:
            file = os.open(note, os.O_WRONLY | os.O_CREAT)
            os.write(file, name.encode())
            os.close(file)
            action()

    return lambda: watch_operations(run.parent, on_operation)


def _count_operations(arguments: list[str], run: Path) -> int:
    note, work, seen = run.parent.with_suffix(".count"), make_command(arguments), count()

    def run_counting() -> int:
        watch_operations(run.parent, lambda _: next(seen))
        try:
            return work()
        finally:
            note.write_text(str(next(seen)))

    run.parent.mkdir(parents=True, exist_ok=True)
    ending = run_to_end(run_counting, run.parent.with_suffix(".log"))
    if ending.code != 0:
        raise RuntimeError(f"an undisturbed run fails: {ending.stderr}")
    return int(note.read_text())


def _choose_operation(trial: Trial, phase: str, index: int) -> int:
    """Return the next operation in a random order, which repeats after all operations."""
    number = _read_counts(trial.base, _METHODS[index % 2])[phase]
    order = list(range(number))
    Random(f"{trial.seed} order of {phase} {index % 2}").shuffle(order)
    return order[index // 2 % number]


def _read_counts(base: Path, method: str) -> dict[str, int]:
    counts: dict[str, int] = json.loads((base / f"{method}.json").read_text())
    return counts


def _get_run(trial: Trial) -> Path:
    (trial.folder / "runs").mkdir(exist_ok=True)
    return trial.folder / "runs" / "run"


def _reference(base: Path, method: str) -> Path:
    """Return an undisturbed run, which is identical for any number of workers."""
    return base / method / "run"


ATTACK = Attack(
    name="kills",
    title="killed at each file operation, during a write, and at any moment, then resumed; and "
    "workers killed or stopped",
    trials=400,
    quick=(0, 1, 2, 3, 6, 7, 8, 9, 39, 49),
    prepare=prepare,
    attempt=attempt,
)
