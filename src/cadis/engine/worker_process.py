"""A worker process, its pipe to the main process, and the item that it works on."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from cadis.engine.allocator import keep_freed_memory
from cadis.engine.shared_memory import Mailbox, MpContext
from cadis.engine.stall_watch import StallWatch
from cadis.engine.worker import Worker, WorkerContext
from cadis.errors import RunError

_PARENT_CHECK = 5.0
"""Seconds between two checks whether the main process still runs."""


class WorkerDiedError(Exception):
    """The worker process has ended without a result."""


class WorkerProcess:
    """A worker process. The pipe carries small objects; tensors are in shared memory.

    Attributes:
        pid: id of the process.
        pipe: end of the pipe in this process.
        index: index of the item that the worker works on; None if it is idle.
        activity: description of this item, such as "trained client 3 in round 7".
        stalls: observes whether the process is stopped or hangs.
    """

    def __init__(self, context: WorkerContext, mailbox: Mailbox, mp_context: MpContext) -> None:
        self.pipe, worker_end = mp_context.Pipe()
        arguments = (context, mailbox, worker_end, os.getpid())
        self._process = mp_context.Process(target=_serve, args=arguments, daemon=True)
        with _block_interrupts():
            self._process.start()
        worker_end.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.index: int | None = None
        self.activity = ""
        self.stalls = StallWatch(self.pid)

    def send(self, index: int, work: object, item: object, activity: str) -> None:
        """Give the worker an item; if it has died, :meth:`receive` says so."""
        self.index, self.activity = index, activity
        self.stalls.begin()
        try:
            self.pipe.send((work, item))
        except OSError:  # the pipe is closed
            self._process.kill()

    def receive(self) -> Any:
        """Return the result of the item.

        Raises:
            WorkerDiedError: if the process has ended before it sent all of the result.
            RunError: if the work failed.
        """
        try:
            if not self.pipe.poll():  # a process that the worker has started may keep it open
                raise EOFError
            result = self.pipe.recv()
        except (EOFError, OSError):
            raise WorkerDiedError from None
        if isinstance(result, RunError):
            raise result
        self.index = None
        return result

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill the process, even if it is stopped."""
        self._process.kill()

    def close(self) -> str:
        """Kill the process if it is alive; return how it ended, as the predicate of a sentence."""
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        self.pipe.close()
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


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


def _serve(context: WorkerContext, mailbox: Mailbox, pipe: Connection, main_pid: int) -> None:
    """Run work items in a worker process until the main process closes the pipe.

    Args:
        context: constant data of the run.
        mailbox: shared memory for messages.
        pipe: pipe to the main process for items and results.
        main_pid: id of the main process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    threading.Thread(target=_exit_with_main_process, args=(main_pid,), daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    worker = Worker(context, mailbox)
    while True:
        try:
            work, item = pipe.recv()
            try:
                result = worker.run(work, item)
            except RunError as error:  # the main process raises it
                result = error
            pipe.send(result)
        except (EOFError, OSError):
            return


def _exit_with_main_process(main_pid: int) -> None:
    """Exit this worker process when the main process has ended, even during training.

    A worker that started later may keep the sentinel open, for example if it is stopped.
    """
    main = multiprocessing.parent_process()
    while main is not None and os.getppid() == main_pid:
        if wait([main.sentinel], timeout=_PARENT_CHECK):
            break
    os._exit(1)
