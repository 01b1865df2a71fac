"""Pools of workers: one worker in this process, or processes with one torch thread each.

The engine's transport opens a pool and gives it work items.
"""

import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Literal, TypeAlias, TypeVar

import torch

from cadis.engine.shared_memory import Mailbox, MpContext
from cadis.engine.stall_watch import INTERVAL, STOPPED_LIMIT
from cadis.engine.worker import Worker, WorkerContext
from cadis.engine.worker_process import WorkerDiedError, WorkerProcess
from cadis.errors import RunError

_T = TypeVar("_T")
_R = TypeVar("_R")

OnDone: TypeAlias = Callable[[int], None]
"""A function that is called with the number of finished work items."""

_MAX_REPEATS = 3
"""Number of times that an item is repeated because its worker process has died."""


def choose_workers(workers: int | Literal["auto"], device: torch.device, per_round: int) -> int:
    """Return the number of workers: at most one per participant, and only one on an accelerator.

    Args:
        workers: maximum number of workers, or "auto" for one per CPU core.
        device: device of the models.
        per_round: number of participants in a round.
    """
    if device.type != "cpu":
        return 1
    if workers == "auto":
        has_affinity = hasattr(os, "sched_getaffinity")
        workers = len(os.sched_getaffinity(0)) if has_affinity else (os.cpu_count() or 1)
    return min(workers, per_round)


def create_pool(
    context: WorkerContext,
    mailbox: Mailbox,
    workers: int,
    mp_context: MpContext,
    say: Callable[[str], None],
) -> "Pool":
    """Create a pool; a single worker runs in this process.

    Args:
        context: constant data of the run.
        mailbox: shared memory for messages.
        workers: number of workers.
        mp_context: starts processes.
        say: called with a sentence about each process that dies, is stopped or seems to hang.
    """
    if workers == 1:
        return InProcessPool(context, mailbox)
    return ProcessPool(context, mailbox, workers, mp_context, say)


class InProcessPool:
    """A pool with one worker in this process, which makes debugging easy."""

    def __init__(self, context: WorkerContext, mailbox: Mailbox) -> None:
        self._worker = Worker(context, mailbox)

    def run(
        self,
        work: Callable[[Worker, _T], _R],
        items: Sequence[_T],
        on_done: OnDone,
        describe: Callable[[_T], str],  # noqa: ARG002 - as in ProcessPool
    ) -> list[_R]:
        """Call a method of the worker with each item; return the results."""
        results: list[_R] = []
        for item in items:
            results.append(self._worker.run(work, item))
            on_done(len(results))
        return results

    def close(self) -> None:
        """Do nothing, since there are no processes."""


class ProcessPool:
    """A pool of worker processes. An item is repeated in a new process if its process dies.

    The result is the same as without the death: workers keep no state between items, random
    numbers depend only on the item, and a repeated item overwrites what it wrote before.
    """

    def __init__(
        self,
        context: WorkerContext,
        mailbox: Mailbox,
        workers: int,
        mp_context: MpContext,
        say: Callable[[str], None],
    ) -> None:
        self._start = partial(WorkerProcess, context, mailbox, mp_context)
        self._say = say
        self._workers = [self._start() for _ in range(workers)]

    def run(
        self,
        work: Callable[[Worker, _T], _R],
        items: Sequence[_T],
        on_done: OnDone,
        describe: Callable[[_T], str],
    ) -> list[_R]:
        """Call a method of the worker with each item; return the results in the same order."""
        results: dict[int, _R] = {}
        deaths, pending = Counter[int](), deque(range(len(items)))
        while len(results) < len(items):
            for worker in self._list_idle()[: len(pending)]:
                first = pending.popleft()
                worker.send(first, work, items[first], describe(items[first]))
            for worker, index in self._wait():
                try:
                    results[index] = worker.receive()
                    on_done(len(results))
                except WorkerDiedError:
                    deaths[index] += 1
                    self._replace(worker, deaths[index])
                    pending.appendleft(index)
        return [results[index] for index in range(len(items))]

    def close(self) -> None:
        """Kill the workers, even if they are working or stopped."""
        for worker in self._workers:
            worker.close()

    def _list_idle(self) -> list[WorkerProcess]:
        """Return the idle workers; replace those that have died."""
        for worker in [*self._workers]:
            if worker.index is None and not worker.is_alive():
                self._replace(worker)
        return [worker for worker in self._workers if worker.index is None]

    def _wait(self) -> list[tuple[WorkerProcess, int]]:
        """Wait for workers that have a result or have died; return them with their items."""
        busy = [(worker, worker.index) for worker in self._workers if worker.index is not None]
        ready = wait([worker.pipe for worker, _ in busy], timeout=INTERVAL)
        for worker, _ in busy:
            if worker.pipe not in ready:
                self._check_stall(worker)
        return [pair for pair in busy if pair[0].pipe in ready or not pair[0].is_alive()]

    def _replace(self, worker: WorkerProcess, deaths: int = 0) -> None:
        """Start a new process in place of one that has died.

        Args:
            worker: the process that has died.
            deaths: number of processes that died with its item; 0 if it was idle.
        """
        self._workers.remove(worker)
        ending = worker.close()
        if deaths > _MAX_REPEATS:
            raise RunError(
                f"{deaths} worker processes ended while each {worker.activity} (the last one "
                f"{ending}), {_guess_cause(ending)}, then continue the run with --resume."
            )
        activity, again = "was idle", ""
        if deaths:
            activity = worker.activity
            again = f", which is repeated (attempt {deaths + 1} of {_MAX_REPEATS + 1})"
        self._say(f"Worker process {worker.pid} {ending} while it {activity}{again}.")
        self._workers.append(self._start())

    def _check_stall(self, worker: WorkerProcess) -> None:
        """Report a worker that is stopped or seems to hang; kill it if it is stopped too long."""
        stall, pid = worker.stalls.check(), worker.pid
        if stall == "stopped":
            self._say(
                f"Worker process {pid} is stopped; it {worker.activity}. Continue it with "
                f"kill -CONT {pid}, or it is replaced after {STOPPED_LIMIT:g} seconds."
            )
        elif stall == "stopped too long":
            worker.kill()
        elif stall == "quiet":
            self._say(
                f"Worker process {pid} has used no CPU time for a minute and may hang; it "
                f"{worker.activity}. With kill -9 {pid}, this is repeated in another process."
            )


Pool: TypeAlias = InProcessPool | ProcessPool


def _guess_cause(ending: str) -> str:
    """Return the likely cause of a death with advice, as the middle of an error message."""
    if signal.Signals.SIGKILL.name in ending:
        return "probably for lack of memory; use fewer workers, smaller batches or a smaller model"
    return "probably because of the code of the model, the data or a library; correct it"
