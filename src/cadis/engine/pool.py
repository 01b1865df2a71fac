"""Doing tasks: in this process, or in worker processes with one torch thread each."""

import signal
import traceback
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

import torch

from cadis.engine.errors import EngineError
from cadis.engine.sharing import Context
from cadis.engine.worker import Job, Result, Task, Worker


class Pool(Protocol):
    """Something that does tasks."""

    def run(self, tasks: Sequence[Task]) -> list[Result]:
        """Do all tasks, begun in the order given; results are in that order too."""

    def close(self) -> None:
        """End the workers."""


def open_pool(job: Job, workers: int, context: Context) -> Pool:
    """As many workers as asked for; a single one is this very process."""
    return InProcess(job) if workers == 1 else Processes(job, workers, context)


class InProcess:
    """The plain pool: everything in this process, easy to debug."""

    def __init__(self, job: Job) -> None:
        self._worker = Worker(job)

    def run(self, tasks: Sequence[Task]) -> list[Result]:
        """One task after the other."""
        return [self._worker.do(task) for task in tasks]

    def close(self) -> None:
        """Nothing to end."""


class Processes:
    """Worker processes. Pipes carry only names of tasks; data and models lie in shared memory."""

    def __init__(self, job: Job, workers: int, context: Context) -> None:
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        forked = context.get_start_method() == "fork"
        for number in range(workers):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            inherited = list(self._pipes) if forked else []
            process = context.Process(
                target=_serve, args=(job, theirs, inherited), name=f"cadis-{number}", daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)

    def run(self, tasks: Sequence[Task]) -> list[Result]:
        """Hand out tasks in order, each to whoever is free."""
        results: dict[int, Result] = {}
        todo = deque(enumerate(tasks))
        doing: dict[Connection, int] = {}
        idle = list(self._pipes)
        while todo or doing:
            while idle and todo:
                pipe = idle.pop()
                doing[pipe], task = todo.popleft()
                pipe.send(task)
            for pipe in [pipe for pipe in wait(doing) if isinstance(pipe, Connection)]:
                results[doing.pop(pipe)] = self._receive(pipe)
                idle.append(pipe)
        return [results[number] for number in range(len(tasks))]

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            process.terminate()
            process.join()
            process.close()
            pipe.close()

    def _receive(self, pipe: Connection) -> Result:
        try:
            answer = pipe.recv()
        except EOFError:
            raise EngineError("A worker process died; was it killed, or out of memory?") from None
        if isinstance(answer, EngineError):
            raise answer
        return answer  # type: ignore[no-any-return]


def _serve(job: Job, pipe: Connection, inherited: list[Connection]) -> None:
    """A worker process: do tasks until the pipe is closed, which the server's end also does."""
    for theirs in inherited:  # else this process would keep them open when the server ends
        theirs.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server to handle
    torch.set_num_threads(1)
    worker = Worker(job)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(worker.do(task))
        except Exception:  # whatever it was, the server must hear of it
            pipe.send(EngineError(traceback.format_exc()))
