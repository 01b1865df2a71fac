"""Power loss: only data that are on the disk at some moment remain."""

import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path

from torture.disks import find_obstacle, mount, run_command
from torture.experiments import Experiment, Recovery, run_undisturbed
from torture.outcomes import Attack, Finding, Trial
from torture.victim import Victim, make_command, parse_rounds

_METHODS = ("feddyn", "cadis")
_ROUNDS = 6
_MEGABYTES = 48
_MOUNT_OPTIONS = "loop,commit=600,noauto_da_alloc"
"""Options with which only fsync writes data to the disk."""


def prepare(base: Path) -> None:
    """Prepare undisturbed runs and an empty disk."""
    for method in _METHODS:
        run_undisturbed(Experiment(method, _ROUNDS), base / method / "run")
    image = base / "disk.img"
    with image.open("wb") as file:
        file.truncate(_MEGABYTES << 20)
    run_command("mkfs.ext4", "-q", "-F", str(image))


def attempt(trial: Trial) -> tuple[str, Finding]:
    """Cut the power at a random moment after a round, and resume from the content of the disk."""
    random = trial.random
    method, journal = random.choice(_METHODS), random.choice(["ordered", "writeback"])
    after, late = random.randrange(_ROUNDS + 1), random.uniform(0, 0.12)
    has_other_program = random.random() < 0.5
    image, remaining = trial.folder / "disk.img", trial.folder / "remaining.img"
    shutil.copyfile(trial.base / "disk.img", image)
    experiment, options = Experiment(method, _ROUNDS), f"{_MOUNT_OPTIONS},data={journal}"
    with mount(trial.folder / "disk", "-o", options, str(image)) as disk:
        work = make_command(experiment.start(disk / "runs" / "run"))
        with Victim(work, trial.folder / "started") as victim:
            _wait_for_round(victim, after)
            time.sleep(late)
            _freeze(victim)
            if has_other_program:
                _commit_journal(disk)
            rounds = parse_rounds(victim.read_output())
            shutil.copyfile(image, remaining)
    what = f"{method}, data={journal}, {late:.2f} s after round {after}"
    what += ", the journal committed by another program" if has_other_program else ""
    with mount(trial.folder / "disk", "-o", "loop", str(remaining)) as disk:
        finding = _check_recovery(trial, experiment, disk, max(rounds, default=0))
        if not finding.is_good:
            shutil.copytree(disk, trial.folder / "kept", dirs_exist_ok=True)
    return what, finding


def _check_recovery(
    trial: Trial, experiment: Experiment, disk: Path, reported_round: int
) -> Finding:
    """Check that the round before the last reported one is on the disk."""
    return Recovery(
        experiment,
        disk / "runs" / "run",
        trial.base / experiment.method / "run",
        saved=max(reported_round - 1, 0),
        logs=trial.folder,
        resume_first=trial.random.random() < 0.5,
    ).execute()


def _wait_for_round(victim: Victim, number: int) -> None:
    while number not in [0, *parse_rounds(victim.read_output())] and not victim.has_ended():
        time.sleep(0.002)


def _freeze(victim: Victim) -> None:
    """Stop a process, and wait until its system calls are finished."""
    victim.kill(signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while not victim.has_ended() and time.monotonic() < deadline:
        status = Path(f"/proc/{victim.number}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if status in "TZ":
            return
        time.sleep(0.001)


def _commit_journal(disk: Path) -> None:
    """Write and sync another file on the disk, as another program would."""
    file = os.open(disk / "other", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"saved")
    os.fsync(file)
    os.close(file)


ATTACK = Attack(
    name="power",
    title="power cut at any moment, on a disk with only synced data; then resumed",
    trials=20,
    quick=(0, 1, 2),
    prepare=prepare,
    attempt=attempt,
    find_obstacle=partial(find_obstacle, "losetup", "mkfs.ext4"),
    mounts=True,
)
