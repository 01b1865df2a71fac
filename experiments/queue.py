"""The queue: experiments that take hours, run one at a time in the background.

``python -m experiments queue`` may be killed at any time and started again: an interrupted run
resumes from its checkpoint, and a finished run is never repeated. The runs use a separate worktree
and virtual environment in the user's cache, at the commit in ``queue_commit``, so that edits of the
checkout cannot change results.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from filelock import FileLock, Timeout
from platformdirs import user_cache_path
from rich.console import Console
from rich.table import Table

from cadis.errors import CadisError
from cadis.server import RoundResult
from cadis.store import replace_text
from experiments.plans import PLANS, QUEUE
from experiments.running import RESULTS, Task, list_tasks, read_results, run_task

ROOT = Path(__file__).parents[1]
HOME = user_cache_path("cadis") / "experiments"
"""Worktree, virtual environment, checkpoints and progress of the queue."""

_COMMIT_FILE = Path(__file__).parent / "queue_commit"


@dataclass(frozen=True)
class Progress:
    """State of the current run.

    Attributes:
        plan: the name of its plan.
        federation: the name of the federation.
        method: the name of the method or variant.
        seed: the seed.
        round: number of finished rounds.
        rounds: number of rounds of the run.
        seconds: seconds per round since the queue started this run or resumed it.
    """

    plan: str
    federation: str
    method: str
    seed: int
    round: int
    rounds: int
    seconds: float


def start(data_dir: str) -> None:
    """Work through the queue in the worktree of the fixed commit, at the lowest priority."""
    _call_in_worktree(["--data-dir", str(Path(data_dir).resolve())] if data_dir else [])


def show_status() -> None:
    """Print the status, with the code of the fixed commit."""
    _call_in_worktree(["--status"])


def _call_in_worktree(arguments: list[str]) -> None:
    python = prepare_worktree()
    command = [str(python), "-m", "experiments", "queue", "--here", *arguments]
    command += ["--home", str(HOME), "--results", str(RESULTS)]
    sys.exit(call_at_lowest_priority(command, HOME / "tree"))


def call_at_lowest_priority(command: list[str], folder: Path) -> int:
    """Run a command in a new session of the lowest priority; return its exit code.

    Linux divides processor time among sessions first and applies ``nice`` within each session, so
    the session itself needs a low priority too.
    """
    process = subprocess.Popen(["nice", "-n", "19", *command], cwd=folder, start_new_session=True)
    with suppress(OSError):  # a kernel without autogroups
        Path(f"/proc/{process.pid}/autogroup").write_text("19")
    try:
        return process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        return 130


def prepare_worktree() -> Path:
    """Create the worktree and its virtual environment if they are missing; return its Python."""
    commit = _COMMIT_FILE.read_text().strip()
    tree, venv = HOME / "tree", HOME / "venv"
    ready = venv / f"ready-{commit}"
    if not ready.exists() or _read_commit(tree) != commit:
        print(f"Preparing {tree} at commit {commit[:10]} ...", flush=True)
        shutil.rmtree(tree, ignore_errors=True)  # it may belong to a deleted clone
        _git("worktree", "prune")
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        constraints = ["--constraint", str(tree / "constraints.txt")]
        subprocess.run([*pip, *constraints, "--editable", str(tree)], check=True)
        ready.touch()
    return venv / "bin" / "python"


def _read_commit(tree: Path) -> str | None:
    """Return the commit of a worktree; None if it is missing or belongs to a deleted clone."""
    try:
        return _git("-C", str(tree), "rev-parse", "HEAD")
    except CadisError:
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CadisError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def work(data_dir: str, home: Path, results: Path) -> None:
    """Run the missing runs one at a time, and store each result immediately."""
    home.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(home / "lock", timeout=0):
            for task in _iterate_missing(results):
                _run(task, data_dir, home, results)
    except Timeout:
        raise CadisError("The queue is running already; --status shows its progress.") from None
    print("The queue is empty.", flush=True)


def _iterate_missing(results: Path) -> Iterator[Task]:
    for name in QUEUE:
        for task in list_tasks(name):
            if task.key not in _read_finished(name, results):
                yield task


def _read_finished(name: str, results: Path) -> set[tuple[str, str, int]]:
    return {(run["federation"], run["method"], run["seed"]) for run in read_results(name, results)}


def _run(task: Task, data_dir: str, home: Path, results: Path) -> None:
    """Run or resume a task, store its result, then delete its checkpoint."""
    name = "-".join(map(str, (task.plan, *task.key))).replace(" ", "-").replace(",", "")
    folder, progress = home / "runs" / name, home / "progress.json"
    folder.parent.mkdir(exist_ok=True)
    rounds = int(task.options["rounds"])
    times = [time.monotonic()]

    def record_progress(result: RoundResult) -> None:
        times.append(time.monotonic())
        now = Progress(
            task.plan, *task.key, result.record.round, rounds, _seconds_per_round(times) or 0.0
        )
        replace_text(progress, json.dumps(asdict(now)))

    print(f"{time.strftime('%H:%M')} {task.plan}: {task.key}", flush=True)
    result = run_task(task, data_dir, folder, "auto", record_progress)
    result |= {"commit": _git("rev-parse", "HEAD"), "seconds_per_round": _seconds_per_round(times)}
    file = results / f"{task.plan}.jsonl"
    before = file.read_text() if file.exists() else ""
    replace_text(file, before + json.dumps(result) + "\n")
    shutil.rmtree(folder)
    progress.unlink(missing_ok=True)
    outcome = "diverged" if result["diverged"] else f"{result['last_ten']:.3f}"
    print(f"{time.strftime('%H:%M')} {task.plan}: {task.key}: {outcome}", flush=True)


def _seconds_per_round(times: list[float]) -> float | None:
    """Return seconds per round; None if a resumed run had no round left."""
    return round((times[-1] - times[0]) / (len(times) - 1), 3) if len(times) > 1 else None


def print_status(home: Path, results: Path) -> None:
    """Print finished, running and remaining runs, with an estimate in hours."""
    current = _read_progress(home)
    table = Table(title="Queue of experiments")
    for column in ("plan", "finished", "left", "hours left"):
        table.add_column(column, justify="left" if column == "plan" else "right")
    total = 0.0
    for name in QUEUE:
        tasks, finished = list(list_tasks(name)), _read_finished(name, results)
        left = [task for task in tasks if task.key not in finished]
        hours = sum(_estimate_minutes(task, results, current) for task in left) / 60
        total += hours
        done = len(tasks) - len(left)
        table.add_row(name, f"{done} of {len(tasks)}", str(len(left)), f"{hours:.1f}")
    table.add_row("all", "", "", f"{total:.1f}")
    console = Console()
    console.print(table)
    state = "Running" if _is_running(home) else "Not running; the next start resumes"
    if current is None:
        console.print("Running." if _is_running(home) else "Not running.")
        return
    console.print(
        f"{state}: {current.plan}, {current.federation}, {current.method}, seed {current.seed}: "
        f"round {current.round} of {current.rounds}, {current.seconds:.1f} s per round."
    )


def _is_running(home: Path) -> bool:
    home.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(home / "lock", timeout=0):
            return False
    except Timeout:
        return True


def _read_progress(home: Path) -> Progress | None:
    path = home / "progress.json"
    return Progress(**json.loads(path.read_text())) if path.exists() else None


def _estimate_minutes(task: Task, results: Path, current: Progress | None) -> float:
    """Estimate the remaining minutes of a task, from finished runs of its plan if any."""
    rounds = int(task.options["rounds"])
    runs = [run for run in read_results(task.plan, results) if run.get("seconds_per_round")]
    same_method = [run for run in runs if run["method"] == task.method]
    paces = [run["seconds_per_round"] for run in same_method or runs if task.method != "singleset"]
    minutes = mean(paces) * rounds / 60 if paces else PLANS[task.plan].minutes
    if current and (current.plan, current.federation, current.method, current.seed) == (
        task.plan,
        *task.key,
    ):
        return (current.rounds - current.round) * current.seconds / 60
    return minutes
