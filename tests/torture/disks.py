"""Disks that fill up, and folders that are deleted, during a run."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from support import draw_picture
from torture.disturbance import disturb_on_output
from torture.experiments import Experiment, Recovery, judge_ending, run_undisturbed
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Ending, make_command, run_to_end

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_METHODS = ("feddyn", "cadis", "pictures")
_SIZES = 30
_PAGE = 4096
_LARGE_SIZE = "256m"
_MAX_FACTOR = 2
"""Size of the largest disk divided by the size of a finished run; drafts need space too."""


def find_obstacle(*programs: str) -> str | None:
    """Return the reason why file systems cannot be mounted; None if they can."""
    if os.geteuid() != 0:
        return "only root can mount file systems"
    if missing := [name for name in ("mount", "umount", *programs) if shutil.which(name) is None]:
        return f"there is no {missing[0]}"
    return None


def make_mounts_private() -> None:
    """Hide later mounts of this process from others; they end with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "mounts cannot be made private")
    run_command("mount", "--make-rprivate", "/")


@contextmanager
def mount(folder: Path, *arguments: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    run_command("mount", *arguments, str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def run_command(*command: str) -> None:
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise OSError(f"{' '.join(command)}: {result.stderr.strip()}")


def prepare(base: Path) -> None:
    """Prepare pictures and undisturbed runs, whose size decides the sizes of the disks."""
    for number in range(24):
        name = f"{'abcd'[number % 4]}/{'xyz'[number // 4 % 3]}/{number}.png"
        draw_picture(base / "pictures" / name, number, number)
    for method in _METHODS:
        run = get_disk(base, method) / "runs" / "run"
        cache = get_disk(base, method) / "cache"
        run_undisturbed(_make_experiment(base, method, cache), run)


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Fill a disk in five of six trials, with rising sizes; delete a folder in the sixth."""
    if trial.number % 6 == 5:
        return _delete_folder(trial)
    number = trial.number - trial.number // 6
    method = _METHODS[number % len(_METHODS)]
    size = _draw_size(trial, method, number)
    limits = [f"size={size}"]
    if number % 10 == 9:  # a disk without free inodes is full too
        limits = ["size=256m", f"nr_inodes={4 + trial.random.randrange(20)}"]
    what = f"{method}, a disk of {','.join(limits)}"
    with mount(trial.folder / "disk", "-t", "tmpfs", "-o", ",".join(limits), "disk") as disk:
        finding = _fill_disk(trial, disk, method)
        if not finding.is_good:
            shutil.copytree(disk, trial.folder / "kept", dirs_exist_ok=True)
    return what, finding


def _fill_disk(trial: Trial, disk: Path, method: str) -> Finding:
    """Run on a disk that is too small, enlarge the disk, and resume."""
    run, reference = disk / "runs" / "run", get_disk(trial.base, method) / "runs" / "run"
    experiment = _make_experiment(trial.base, method, disk / "cache")
    ending = run_to_end(make_command(experiment.start(run)), trial.folder / "started")
    finding = judge_ending(ending, run, reference)
    if finding.verdict != "reported":
        return finding
    if ending.rounds and ending.code != 1:
        return Finding("wrong code", f"{ending.code} during a run: {finding.reason}")
    run_command("mount", "-o", f"remount,size={_LARGE_SIZE},nr_inodes=10000", str(disk))
    recovered = Recovery(
        experiment,
        run,
        reference,
        saved=max(ending.rounds, default=0),
        logs=trial.folder,
        resume_first=trial.random.random() < 0.5,
    ).execute()
    return finding if recovered.is_good else recovered


def _delete_folder(trial: Trial) -> tuple[str, Finding]:
    """Delete the folder of a run while it trains."""
    run = trial.folder / "runs" / "run"
    method, number = trial.random.choice(_METHODS[:2]), trial.random.choice([1, 2, 3])
    what = f"{method}, its folder deleted after round {number}"
    disturb = disturb_on_output(f"round {number}/", partial(shutil.rmtree, run))
    arguments = Experiment(method).start(run)
    ending = run_to_end(make_command(arguments, disturb), trial.folder / "started")
    return what, _judge_deletion(ending)


def _judge_deletion(ending: Ending) -> Finding:
    if fault := ending.find_fault():
        return fault
    if ending.code == 0:
        return Finding("lost", "it ended without an error")
    if ending.code != 1:
        return Finding("wrong code", f"{ending.code} during a run: {ending.sentence}")
    return Finding("reported", ending.sentence)


def get_disk(base: Path, method: str) -> Path:
    """Return the folder of an undisturbed run and its cache."""
    return base / f"disk-{method}"


def _make_experiment(base: Path, method: str, cache: Path) -> Experiment:
    """Return the experiment; its cache of pictures is on the same disk."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    if method == "pictures":
        return Experiment("feddyn", pictures=base / "pictures")
    return Experiment(method)


def _draw_size(trial: Trial, method: str, number: int) -> int:
    """Draw the size of a disk, from almost nothing to more than enough; most are small."""
    disk = get_disk(trial.base, method)
    files = [path for path in disk.rglob("*") if path.is_file()]
    needed = sum(-(-path.stat().st_size // _PAGE) * _PAGE + _PAGE for path in files)
    share = (number % _SIZES + trial.random.random()) / _SIZES
    return max(_PAGE, int(_MAX_FACTOR * share**3 * needed) // _PAGE * _PAGE)


ATTACK = Attack(
    name="disks",
    title="disks of 30 sizes that fill up and are enlarged; run folders that are deleted",
    trials=36,
    quick=(1, 5, 7, 14, 21),
    prepare=prepare,
    attempt=attempt,
    find_obstacle=find_obstacle,
    mounts=True,
)
