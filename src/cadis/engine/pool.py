"""Pools of workers: one worker in this process, or processes with one torch thread each.

The engine's transport opens a pool and gives it work items.
"""

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
from cadis.engine.shared_memory import Mailbox, MpContext
from cadis.engine.worker import Worker, WorkerContext
from cadis.errors import RunError

_T = TypeVar("_T")
_R = TypeVar("_R")

OnDone: TypeAlias = Callable[[int], None]
"""A function that is called with the number of finished work items."""


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
    context: WorkerContext, mailbox: Mailbox, workers: int, mp_context: MpContext
) -> "Pool":
    """Create a pool; a single worker runs in this process."""
    if workers == 1:
        return InProcessPool(context, mailbox)
    return ProcessPool(context, mailbox, workers, mp_context)


class InProcessPool:
    """A pool with one worker in this process, which makes debugging easy."""

    def __init__(self, context: WorkerContext, mailbox: Mailbox) -> None:
        self._worker = Worker(context, mailbox)

    def run(
        self, work: Callable[[Worker, _T], _R], items: Sequence[_T], on_done: OnDone
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
    """A pool of worker processes. Pipes carry small objects; tensors are in shared memory.

    All workers read items from one pipe. The pool keeps a few items there in advance, so that no
    worker waits for the main process.
    """

    def __init__(
        self, context: WorkerContext, mailbox: Mailbox, workers: int, mp_context: MpContext
    ) -> None:
        reader, self._items = mp_context.Pipe(duplex=False)
        self._lock = mp_context.Lock()  # keep a reference: spawned processes open it by name later
        # A forked worker inherits the main process's end of the pipe, and has to close it.
        inherited_end = self._items if mp_context.get_start_method() == "fork" else None
        self._processes: list[BaseProcess] = []
        self._results: list[Connection] = []
        for _ in range(workers):
            main_end, worker_end = mp_context.Pipe(duplex=False)
            arguments = (context, mailbox, reader, self._lock, worker_end, inherited_end)
            process = mp_context.Process(target=_serve, args=arguments, daemon=True)
            with _block_interrupts():
                process.start()
            worker_end.close()
            self._results.append(main_end)
            self._processes.append(process)
        reader.close()

    def run(
        self, work: Callable[[Worker, _T], _R], items: Sequence[_T], on_done: OnDone
    ) -> list[_R]:
        """Call a method of the worker with each item; return the results in the same order."""
        results: dict[int, _R] = {}
        pending = deque(enumerate(items))
        num_running = 0
        while pending or num_running:
            while pending and num_running < 2 * len(self._processes):
                self._items.send((work, *pending.popleft()))
                num_running += 1
            for pipe in wait(self._results):
                index, result = _receive(pipe)  # type: ignore[arg-type]
                results[index] = result
                num_running -= 1
                on_done(len(results))
        return [results[index] for index in range(len(items))]

    def close(self) -> None:
        """Terminate the workers, even if they are working."""
        for pipe, process in zip(self._results, self._processes, strict=True):
            process.terminate()
            process.join()
            process.close()
            pipe.close()
        self._items.close()


Pool: TypeAlias = InProcessPool | ProcessPool


def _receive(pipe: Connection) -> tuple[int, Any]:
    try:
        index, result = pipe.recv()
    except EOFError:
        raise RunError("A worker process died; was it killed, or out of memory?") from None
    if isinstance(result, RunError):
        raise result
    return index, result


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block the signal of Ctrl-C, so that a process started in this context never receives it."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    context: WorkerContext,
    mailbox: Mailbox,
    items: Connection,
    lock: AbstractContextManager[bool],
    results: Connection,
    inherited_end: Connection | None,
) -> None:
    """Run work items in a worker process until the main process closes the pipe.

    Args:
        context: constant data of the run.
        mailbox: shared memory for messages.
        items: pipe from which all workers read work items.
        lock: lock that a worker holds while it reads from the pipe.
        results: pipe to the main process for results.
        inherited_end: the main process's end of the pipe of work items, if the worker inherited it.
    """
    if inherited_end is not None:  # if it stayed open, the pipe would never close
        inherited_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    threading.Thread(target=_exit_with_main_process, daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    worker = Worker(context, mailbox)
    while True:
        try:
            with lock:
                work, index, item = items.recv()
            try:
                result = worker.run(work, item)
            except RunError as error:  # the main process raises it
                result = error
            results.send((index, result))
        except (EOFError, BrokenPipeError):
            return


def _exit_with_main_process() -> None:
    """Exit this worker process when the main process has ended, even during training."""
    main = multiprocessing.parent_process()
    if main is not None:
        wait([main.sentinel])
        os._exit(1)
