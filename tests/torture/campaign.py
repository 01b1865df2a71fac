"""Doing many trials: in processes that may die, with a folder for each that is kept if it fails."""

import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from torture.devices import private_mounts
from torture.outcomes import NOTE, Attack, Finding, Outcome, Trial, Verdict

OnOutcome: TypeAlias = Callable[[Outcome], None]

_FORK = multiprocessing.get_context("fork")


@dataclass
class Job:
    """A process that does some of the trials.

    Attributes:
        numbers: those that are still to be done; the first is under way.
        process: the process.
        answers: what it sends.
        since: when it began the trial that is under way.
        ended: whether the process has.
    """

    numbers: list[int]
    process: ForkProcess
    answers: Connection
    since: float = field(default_factory=time.monotonic)
    ended: bool = False


@dataclass(frozen=True)
class Campaign:
    """An attack in a place.

    Attributes:
        attack: what is done.
        seed: of everything random.
        place: a folder for it.
    """

    attack: Attack
    seed: int
    place: Path

    @property
    def base(self) -> Path:
        """What all trials start from."""
        return self.place / self.attack.name / "base"

    def folder(self, number: int) -> Path:
        """The folder of a trial."""
        return self.place / self.attack.name / f"trial-{number}"

    def fight(self, numbers: Sequence[int], jobs: int, on_outcome: OnOutcome) -> list[Outcome]:
        """Do these trials in so many processes; the outcomes by number."""
        self._prepare()
        outcomes: list[Outcome] = []
        shares = [list(numbers[start::jobs]) for start in range(jobs)]
        working = [self._start(share) for share in shares if share]
        try:
            while working:
                ready = wait([job.answers for job in working], timeout=1)
                for job in list(working):
                    for outcome in self._heard(job, job.answers in ready):
                        outcomes.append(outcome)
                        on_outcome(outcome)
                    if job.ended:
                        working.remove(job)
                        working += [self._start(job.numbers)] if job.numbers else []
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

    def _start(self, numbers: list[int]) -> Job:
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=self._work, args=(list(numbers), theirs))
        process.start()
        theirs.close()
        return Job(numbers, process, ours)

    def _heard(self, job: Job, ready: bool) -> list[Outcome]:
        """What a process has to say; if it is dead or hangs, so it is with its trial."""
        if ready:
            try:
                outcome: Outcome = job.answers.recv()
            except EOFError:
                job.process.join()
                timed_out = job.process.exitcode == -signal.SIGALRM
                verdict: Verdict = "hang" if timed_out else "signal"
                return self._given_up(job, Finding(verdict, f"exit code {job.process.exitcode}"))
            job.numbers.remove(outcome.number)
            job.since = time.monotonic()
            return [outcome]
        if job.numbers and time.monotonic() - job.since > self.attack.patience:
            job.process.kill()
            job.process.join()
            return self._given_up(job, Finding("hang", f"{self.attack.patience:g} s and no end"))
        return []

    def _given_up(self, job: Job, finding: Finding) -> list[Outcome]:
        """The process of a job is gone: its trial failed, if there was one under way."""
        job.ended = True
        job.answers.close()
        if not job.numbers:
            return []
        number, seconds = job.numbers.pop(0), time.monotonic() - job.since
        note = self.folder(number) / NOTE
        what = note.read_text(encoding="utf-8") if note.exists() else "the process of the trial"
        return [Outcome(number, what, finding, seconds)]

    def _work(self, numbers: list[int], answers: Connection) -> None:
        """The life of a process that does trials."""
        _be_quiet()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if self.attack.mounts:
            private_mounts()
        try:
            for number in numbers:
                answers.send(self._outcome(number))
        except (KeyboardInterrupt, BrokenPipeError):
            sys.exit(1)

    def _outcome(self, number: int) -> Outcome:
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
        return Outcome(number, what, finding, time.monotonic() - started)


def _quietly(prepare: Callable[[Path], None], base: Path) -> None:
    _be_quiet()
    prepare(base)


def _be_quiet() -> None:
    """End properly when asked to; warnings of libraries are for victims to show in their logs."""
    signal.signal(signal.SIGTERM, _stop)
    warnings.simplefilter("ignore")


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Asked to end: end properly, so that everything is cleaned up."""
    sys.exit(1)
