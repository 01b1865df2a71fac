"""Lower bound of the training time: plain SGD steps in single-threaded processes."""

from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cadis.models import to_channels_last


@dataclass(frozen=True)
class Work:
    """Model, samples and settings of the steps."""

    module: nn.Module
    inputs: Tensor  # (n, ...)
    labels: Tensor  # (n,)
    batch_size: int
    learning_rate: float


def run_plain_steps(work: Work, steps: int) -> None:
    """Run SGD steps with the fastest plain loop: channels last, fixed batches, in-place updates."""
    module = work.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(module.parameters())
    inputs = to_channels_last(work.inputs).split(work.batch_size)
    labels = work.labels.split(work.batch_size)
    for number in range(steps):
        batch = number % len(inputs)
        loss = F.cross_entropy(module(inputs[batch]), labels[batch])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient, alpha=-work.learning_rate)


class Floor:
    """Worker processes that only run training steps."""

    def __init__(self, work: Work, workers: int) -> None:
        context = get_context("fork")
        self._pipes, self._processes = [], []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, steps: int) -> None:
        """Run this number of steps, split equally among the workers."""
        share, rest = divmod(steps, len(self._pipes))
        for number, pipe in enumerate(self._pipes):
            pipe.send(share + (number < rest))
        for pipe in self._pipes:
            pipe.recv()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.join()


def _serve(work: Work, pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        run_plain_steps(work, pipe.recv())
        pipe.send(None)
