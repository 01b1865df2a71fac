"""Doing many trials: each in a process that may die, in a folder that is kept if it fails."""

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

from torture import damages, disks, fuzzing, kills, power
from torture.outcomes import NOTE, Attack, Finding, Outcome, Trial, Verdict

OnOutcome: TypeAlias = Callable[[Outcome], None]

_FORK = multiprocessing.get_context("fork")

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (kills.ATTACK, damages.ATTACK, fuzzing.ATTACK, disks.ATTACK, power.ATTACK)
}


def obstacle(attack: Attack) -> str | None:
    """Why an attack cannot be made here, None if it can."""
    if platform.system() != "Linux":
        return "only Linux tells enough of processes and file systems"
    return attack.obstacle()


@dataclass(frozen=True)
class Job:
    number: int
    process: ForkProcess
    answer: Connection
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Campaign:
    """An attack in a place, which is a folder."""

    attack: Attack
    seed: int
    place: Path

    @property
    def base(self) -> Path:
        """What all trials start from."""
        return self.place / self.attack.name / "base"

    def folder(self, number: int) -> Path:
        return self.place / self.attack.name / f"trial-{number}"

    def fight(self, numbers: Sequence[int], jobs: int, on_outcome: OnOutcome) -> list[Outcome]:
        """Do these trials, so many at a time; the outcomes by number."""
        self._prepare()
        outcomes: list[Outcome] = []
        todo, working = deque(numbers), list[Job]()
        try:
            while todo or working:
                while todo and len(working) < jobs:
                    working.append(self._start(todo.popleft()))
                wait([job.answer for job in working], timeout=1)
                for job in list(working):
                    if (outcome := self._outcome_of(job)) is not None:
                        working.remove(job)
                        outcomes.append(outcome)
                        on_outcome(outcome)
        finally:
            for job in working:
                job.process.terminate()
                job.process.join()
        return sorted(outcomes, key=lambda outcome: outcome.number)

    def _prepare(self) -> None:
        """Make what all trials start from; in a process, so that nothing of it stays here."""
        shutil.rmtree(self.base, ignore_errors=True)
        self.base.mkdir(parents=True)
        process = _FORK.Process(target=_quietly, args=(self.attack.prepare, self.base))
        process.start()
        try:
            process.join()
        finally:
            process.terminate()
            process.join()
        if process.exitcode:
            raise RuntimeError(f"{self.attack.name} cannot be prepared; see above")

    def _start(self, number: int) -> Job:
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_quietly, args=(self._work, number, theirs))
        process.start()
        theirs.close()
        return Job(number, process, ours)

    def _outcome_of(self, job: Job) -> Outcome | None:
        """What came of a trial, None if it is under way; a process that died or hangs failed."""
        seconds = time.monotonic() - job.since
        if job.answer.poll():
            try:
                outcome: Outcome = job.answer.recv()
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
            finding = Finding("hang", f"{self.attack.patience:g} s and no end")
        else:
            return None
        note = self.folder(job.number) / NOTE
        what = note.read_text(encoding="utf-8") if note.exists() else "the process of the trial"
        return Outcome(job.number, what, finding, seconds)

    def _work(self, number: int, answer: Connection) -> None:
        """All that the process of a trial does."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if self.attack.mounts:
            disks.private_mounts()
        folder, started = self.folder(number), time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        trial = Trial(self.attack.name, number, self.seed, folder, self.base)
        try:
            what, finding = self.attack.attempt(trial)
        except Exception:
            what, finding = "the harness itself", Finding("harness", traceback.format_exc())
        if finding.good:
            shutil.rmtree(folder, ignore_errors=True)
        answer.send(Outcome(number, what, finding, time.monotonic() - started))


def _quietly(work: Callable[..., None], *arguments: Any) -> None:
    """Work in a new process: warnings of libraries are for victims to show in their logs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is cleaned up
    warnings.simplefilter("ignore")
    work(*arguments)
