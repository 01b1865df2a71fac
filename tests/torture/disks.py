"""A disk that fills up, and a folder that vanishes, while a run works."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from support import draw_picture
from torture.disturbance import when_shown
from torture.experiments import Experiment, Recovery, judge_end, undisturbed
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Ending, command, run_to_end

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_METHODS = ("feddyn", "cadis", "pictures")
_SIZES = 30
_PAGE = 4096
_ENOUGH = "256m"
_MOST = 2
"""How many times what is left in the end the largest disk has: drafts need room, too."""


def obstacle(*programs: str) -> str | None:
    """Why file systems cannot be mounted here, None if they can."""
    if os.geteuid() != 0:
        return "only root can mount file systems"
    if missing := [name for name in ("mount", "umount", *programs) if shutil.which(name) is None]:
        return f"there is no {missing[0]}"
    return None


def private_mounts() -> None:
    """Whatever this process mounts from now on, it alone sees, and it vanishes with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "mounts cannot be made private")
    do("mount", "--make-rprivate", "/")


@contextmanager
def mounted(place: Path, *arguments: str) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    do("mount", *arguments, str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def do(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def prepare(base: Path) -> None:
    """Pictures, undisturbed runs, and how much room those need."""
    for number in range(24):
        name = f"{'abcd'[number % 4]}/{'xyz'[number // 4 % 3]}/{number}.png"
        draw_picture(base / "pictures" / name, number, number)
    for method in _METHODS:
        run = undisturbed_disk(base, method) / "runs" / "run"
        cache = undisturbed_disk(base, method) / "cache"
        undisturbed(_experiment(base, method, cache), run)


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Of six trials, five are full disks of rising size, and one is a folder that vanishes."""
    if trial.number % 6 == 5:
        return _vanished(trial)
    number = trial.number - trial.number // 6
    method = _METHODS[number % len(_METHODS)]
    size = _size(trial, method, number)
    limits = [f"size={size}"]
    if number % 10 == 9:  # a disk is full, too, if it has no room for another file
        limits = ["size=256m", f"nr_inodes={4 + trial.random.randrange(20)}"]
    what = f"{method}, a disk of {','.join(limits)}"
    with mounted(trial.folder / "disk", "-t", "tmpfs", "-o", ",".join(limits), "disk") as disk:
        finding = _filled(trial, disk, method)
        if not finding.good:
            shutil.copytree(disk, trial.folder / "kept", dirs_exist_ok=True)
    return what, finding


def _filled(trial: Trial, disk: Path, method: str) -> Finding:
    """Run on a disk that is too small, make it larger, and go on."""
    run, reference = disk / "runs" / "run", undisturbed_disk(trial.base, method) / "runs" / "run"
    experiment = _experiment(trial.base, method, disk / "cache")
    ending = run_to_end(command(experiment.begin(run)), trial.folder / "begun")
    found = judge_end(ending, run, reference)
    if found.verdict != "told":
        return found
    if ending.rounds and ending.code != 1:
        return Finding("wrong code", f"{ending.code} in mid-run: {found.why}")
    do("mount", "-o", f"remount,size={_ENOUGH},nr_inodes=10000", str(disk))
    recovered = Recovery(
        experiment,
        run,
        reference,
        saved=max(ending.rounds, default=0),
        logs=trial.folder,
        resumes_first=trial.random.random() < 0.5,
    ).finding()
    return found if recovered.good else recovered


def _vanished(trial: Trial) -> tuple[str, Finding]:
    """The folder is deleted by somebody else while the run works."""
    run = trial.folder / "runs" / "run"
    method, number = trial.random.choice(_METHODS[:2]), trial.random.choice([1, 2, 3])
    what = f"{method}, its folder deleted after round {number}"
    disturb = when_shown(f"round {number}/", partial(shutil.rmtree, run))
    arguments = Experiment(method).begin(run)
    ending = run_to_end(command(arguments, disturb), trial.folder / "begun")
    return what, _judge_vanished(ending)


def _judge_vanished(ending: Ending) -> Finding:
    if fault := ending.fault():
        return fault
    if ending.code == 0:
        return Finding("lost", "it ended as if nothing had happened")
    if ending.code != 1:
        return Finding("wrong code", f"{ending.code} in mid-run: {ending.sentence}")
    return Finding("told", ending.sentence)


def undisturbed_disk(base: Path, method: str) -> Path:
    """The folder of an undisturbed run and its cache."""
    return base / f"disk-{method}"


def _experiment(base: Path, method: str, cache: Path) -> Experiment:
    """What is run; decoded pictures are kept on the same disk."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    if method == "pictures":
        return Experiment("feddyn", pictures=base / "pictures")
    return Experiment(method)


def _size(trial: Trial, method: str, number: int) -> int:
    """From next to nothing to more than is needed, with some chance; many small ones."""
    disk = undisturbed_disk(trial.base, method)
    files = [path for path in disk.rglob("*") if path.is_file()]
    needed = sum(-(-path.stat().st_size // _PAGE) * _PAGE + _PAGE for path in files)
    share = (number % _SIZES + trial.random.random()) / _SIZES
    return max(_PAGE, int(_MOST * share**3 * needed) // _PAGE * _PAGE)


ATTACK = Attack(
    name="disks",
    title="disks of 30 sizes that fill up, later enlarged; run folders that vanish",
    trials=36,
    quick=(1, 5, 7, 14, 21),
    prepare=prepare,
    attempt=attempt,
    obstacle=obstacle,
    mounts=True,
)
