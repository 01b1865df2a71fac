"""Running many trials: each in its own process and folder, which is kept if the trial fails."""

import multiprocessing
import os
import platform
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, TypeAlias

from torture import damages, disks, fuzzing, kills, links, power, replies, strangers
from torture.outcomes import NOTE, Attack, Finding, Outcome, Trial, Verdict

OnOutcome: TypeAlias = Callable[[Outcome], None]

_FORK = multiprocessing.get_context("fork")

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        kills.ATTACK,
        damages.ATTACK,
        links.ATTACK,
        fuzzing.ATTACK,
        disks.ATTACK,
        power.ATTACK,
        strangers.ATTACK,
        replies.ATTACK,
    )
}


def find_obstacle(attack: Attack) -> str | None:
    """Return the reason why an attack cannot run on this machine; None if it can."""
    if platform.system() != "Linux":
        return "it needs process and file system features of Linux"
    return attack.find_obstacle()


@dataclass(frozen=True)
class Job:
    """A trial that is running."""

    number: int
    process: ForkProcess
    connection: Connection
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Campaign:
    """Trials of one attack, in a folder."""

    attack: Attack
    seed: int
    root: Path

    @property
    def base(self) -> Path:
        """Folder with the files that all trials start from."""
        return self.root / self.attack.name / "base"

    def folder(self, number: int) -> Path:
        return self.root / self.attack.name / f"trial-{number}"

    def run(self, numbers: Sequence[int], jobs: int, on_outcome: OnOutcome) -> list[Outcome]:
        """Run trials, ``jobs`` at a time; return the outcomes in the order of their numbers."""
        self._prepare()
        outcomes: list[Outcome] = []
        pending, running = deque(numbers), list[Job]()
        try:
            while pending or running:
                while pending and len(running) < jobs:
                    running.append(self._start(pending.popleft()))
                wait([job.connection for job in running], timeout=1)
                for job in list(running):
                    if (outcome := self._collect(job)) is not None:
                        running.remove(job)
                        outcomes.append(outcome)
                        on_outcome(outcome)
        finally:
            for job in running:
                job.process.terminate()
                job.process.join()
        return sorted(outcomes, key=lambda outcome: outcome.number)

    def _prepare(self) -> None:
        """Prepare the base folder, in a separate process, so that its memory is freed."""
        shutil.rmtree(self.base, ignore_errors=True)
        self.base.mkdir(parents=True)
        process = _FORK.Process(target=_run_quietly, args=(self.attack.prepare, self.base))
        process.start()
        try:
            process.join()
        finally:
            process.terminate()
            process.join()
        if process.exitcode:
            raise RuntimeError(f"{self.attack.name} cannot be prepared; see the messages above")

    def _start(self, number: int) -> Job:
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_run_quietly, args=(self._run_trial, number, theirs))
        process.start()
        theirs.close()
        return Job(number, process, ours)

    def _collect(self, job: Job) -> Outcome | None:
        """Return the outcome of a trial, which fails if it dies or hangs; None while it runs."""
        seconds = time.monotonic() - job.started
        if job.connection.poll():
            try:
                outcome: Outcome = job.connection.recv()
                job.process.join()
                return outcome
            except EOFError:
                job.process.join()
                hung = job.process.exitcode == -signal.SIGALRM
                verdict: Verdict = "hang" if hung else "signal"
                finding = Finding(verdict, f"exit code {job.process.exitcode}")
        elif seconds > self.attack.patience:
            job.process.kill()
            job.process.join()
            finding = Finding("hang", f"{self.attack.patience:g} s without an end")
        else:
            return None
        note = self.folder(job.number) / NOTE
        what = note.read_text(encoding="utf-8") if note.exists() else "the process of the trial"
        return Outcome(job.number, what, finding, seconds)

    def _run_trial(self, number: int, connection: Connection) -> None:
        """Run a trial in its own process."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if self.attack.mounts:
            disks.make_mounts_private()
        folder, started = self.folder(number), time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        trial = Trial(self.attack.name, number, self.seed, folder, self.base)
        try:
            what, finding = self.attack.attempt(trial)
        except Exception:
            what, finding = "the harness itself", Finding("harness", traceback.format_exc())
        if finding.is_good:
            shutil.rmtree(folder, ignore_errors=True)
        connection.send(Outcome(number, what, finding, time.monotonic() - started))


def _run_quietly(work: Callable[..., None], *arguments: Any) -> None:
    """Call ``work`` in a new process without warnings, which victims write to their logs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that context managers clean up
    warnings.simplefilter("ignore")
    work(*arguments)
