"""Power is cut: what has reached the disk at some moment is all that there is."""

import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path

from torture.disks import do, mounted, obstacle
from torture.experiments import Experiment, Recovery, undisturbed
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Victim, command, reported

_METHODS = ("feddyn", "cadis")
_ROUNDS = 6
_MEGABYTES = 48
_HARD = "loop,commit=600,noauto_da_alloc"
"""Nothing but fsync brings anything to the disk, and no file system repairs what was forgotten."""


def prepare(base: Path) -> None:
    """Undisturbed runs, and an empty disk."""
    for method in _METHODS:
        undisturbed(Experiment(method, _ROUNDS), base / method / "run")
    image = base / "disk.img"
    with image.open("wb") as file:
        file.truncate(_MEGABYTES << 20)
    do("mkfs.ext4", "-q", "-F", str(image))


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Cut the power after some round, at any moment; then go on with what is on the disk."""
    random = trial.random
    method, journal = random.choice(_METHODS), random.choice(["ordered", "writeback"])
    after, late = random.randrange(_ROUNDS + 1), random.uniform(0, 0.12)
    neighbour = random.random() < 0.5
    image, left = trial.folder / "disk.img", trial.folder / "left.img"
    shutil.copyfile(trial.base / "disk.img", image)
    experiment, options = Experiment(method, _ROUNDS), f"{_HARD},data={journal}"
    with mounted(trial.folder / "disk", "-o", options, str(image)) as disk:
        work = command(experiment.begin(disk / "runs" / "run"))
        with Victim(work, trial.folder / "begun") as victim:
            _wait_for_round(victim, after)
            time.sleep(late)
            _stop(victim)
            if neighbour:
                _commit_journal(disk)
            rounds = reported(victim.said())
            shutil.copyfile(image, left)
    what = f"{method}, data={journal}, {late:.2f} s after round {after}"
    what += ", the journal committed by a neighbour" if neighbour else ""
    with mounted(trial.folder / "disk", "-o", "loop", str(left)) as disk:
        finding = _gone_on(trial, experiment, disk, max(rounds, default=0))
        if not finding.good:
            shutil.copytree(disk, trial.folder / "kept", dirs_exist_ok=True)
    return what, finding


def _gone_on(trial: Trial, experiment: Experiment, disk: Path, reported_round: int) -> Finding:
    """The round before the one that was reported last must be there."""
    return Recovery(
        experiment,
        disk / "runs" / "run",
        trial.base / experiment.method / "run",
        saved=max(reported_round - 1, 0),
        logs=trial.folder,
        resumes_first=trial.random.random() < 0.5,
    ).finding()


def _wait_for_round(victim: Victim, number: int) -> None:
    while number not in [0, *reported(victim.said())] and not victim.has_ended():
        time.sleep(0.002)


def _stop(victim: Victim) -> None:
    """Freeze a process; whatever the kernel was doing for it is done when it is frozen."""
    victim.kill(signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while not victim.has_ended() and time.monotonic() < deadline:
        status = Path(f"/proc/{victim.number}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if status in "TZ":
            return
        time.sleep(0.001)


def _commit_journal(disk: Path) -> None:
    """Another program on the same disk saves something of its own."""
    file = os.open(disk / "neighbour", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"saved")
    os.fsync(file)
    os.close(file)


ATTACK = Attack(
    name="power",
    title="power cut at any moment, on a disk that keeps only what was synced; then resumed",
    trials=20,
    quick=(0, 1, 2),
    prepare=prepare,
    attempt=attempt,
    obstacle=partial(obstacle, "losetup", "mkfs.ext4"),
    mounts=True,
)
