"""Doing tasks: in this process, or in worker processes with one torch thread each."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, TypeAlias, TypeVar

import torch

from cadis.engine.allocator import keep_freed_memory
from cadis.engine.shared_memory import Context, Mailbox
from cadis.engine.worker import Worker, WorkerContext
from cadis.errors import RunError

_T = TypeVar("_T")
_R = TypeVar("_R")

OnDone: TypeAlias = Callable[[int], None]
"""Called with the number of tasks that are done."""


def choose_workers(workers: int | Literal["auto"], device: torch.device, per_round: int) -> int:
    """One process for each core, no more than clients in a round; an accelerator is not shared."""
    if device.type != "cpu":
        return 1
    if workers == "auto":
        affinity = hasattr(os, "sched_getaffinity")
        workers = len(os.sched_getaffinity(0)) if affinity else (os.cpu_count() or 1)
    return min(workers, per_round)


def open_pool(job: WorkerContext, mailbox: Mailbox, workers: int, context: Context) -> "Pool":
    """As many workers as asked for; a single one is this very process."""
    return InProcess(job, mailbox) if workers == 1 else Processes(job, mailbox, workers, context)


class InProcess:
    """The plain pool: everything in this process, easy to debug."""

    def __init__(self, job: WorkerContext, mailbox: Mailbox) -> None:
        self._worker = Worker(job, mailbox)

    def run(
        self, work: Callable[[Worker, _T], _R], tasks: Sequence[_T], on_done: OnDone
    ) -> list[_R]:
        """Do all tasks by a method of the worker, one after the other."""
        results: list[_R] = []
        for task in tasks:
            results.append(self._worker.do(work, task))
            on_done(len(results))
        return results

    def close(self) -> None:
        """There are no workers to end."""


class Processes:
    """Worker processes. Pipes carry only names of tasks; data and models lie in shared memory.

    All workers take tasks from one pipe, a few of which lie ready there, so that nobody waits
    for the server to wake up.
    """

    def __init__(
        self, job: WorkerContext, mailbox: Mailbox, workers: int, context: Context
    ) -> None:
        reader, self._tasks = context.Pipe(duplex=False)
        self._turn = context.Lock()  # kept: processes that are started anew look for it later
        inherited = self._tasks if context.get_start_method() == "fork" else None
        self._processes: list[BaseProcess] = []
        self._results: list[Connection] = []
        for _ in range(workers):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (job, mailbox, reader, self._turn, theirs, inherited)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            with _without_interrupts():
                process.start()
            theirs.close()
            self._results.append(ours)
            self._processes.append(process)
        reader.close()

    def run(
        self, work: Callable[[Worker, _T], _R], tasks: Sequence[_T], on_done: OnDone
    ) -> list[_R]:
        """Hand out tasks in order, each to whoever is free; results are in that order, too."""
        results: dict[int, _R] = {}
        todo = deque(enumerate(tasks))
        under_way = 0
        while todo or under_way:
            while todo and under_way < 2 * len(self._processes):
                self._tasks.send((work, *todo.popleft()))
                under_way += 1
            for pipe in wait(self._results):
                number, result = _receive(pipe)  # type: ignore[arg-type]
                results[number] = result
                under_way -= 1
                on_done(len(results))
        return [results[number] for number in range(len(tasks))]

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for pipe, process in zip(self._results, self._processes, strict=True):
            process.terminate()
            process.join()
            process.close()
            pipe.close()
        self._tasks.close()


Pool: TypeAlias = InProcess | Processes


def _receive(pipe: Connection) -> tuple[int, Any]:
    try:
        number, result = pipe.recv()
    except EOFError:
        raise RunError("A worker process died; was it killed, or out of memory?") from None
    if isinstance(result, RunError):
        raise result
    return number, result


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Within, Ctrl-C waits; a process that is started never hears of it, not even at first."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    job: WorkerContext,
    mailbox: Mailbox,
    tasks: Connection,
    turn: AbstractContextManager[bool],
    results: Connection,
    inherited: Connection | None,
) -> None:
    """A worker process: do tasks until there will be no more, as when the server has ended."""
    if inherited is not None:  # the server's end; if it stayed open here, the pipe never ended
        inherited.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server to handle
    threading.Thread(target=_end_with_server, daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    worker = Worker(job, mailbox)
    while True:
        try:
            with turn:
                work, number, task = tasks.recv()
            try:
                result = worker.do(work, task)
            except RunError as error:  # the server must hear of it
                result = error
            results.send((number, result))
        except (EOFError, BrokenPipeError):
            return


def _end_with_server() -> None:
    """End this process when the server's has ended, also in the middle of a long training."""
    server = multiprocessing.parent_process()
    if server is not None:
        wait([server.sentinel])
        os._exit(1)
