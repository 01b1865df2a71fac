"""Memory that worker processes share, so that models are never sent through pipes."""

import mmap
import multiprocessing
import sys
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from cadis.core import ModelState

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

Context: TypeAlias = "ForkContext | SpawnContext"


def process_context() -> Context:
    """How workers are started: forked on Linux, where they inherit models, data and closures.

    Elsewhere forking is not safe, and workers are started anew; there the model's class must be
    importable, and a script needs the usual ``if __name__ == "__main__":``.
    """
    linux = sys.platform == "linux"
    return multiprocessing.get_context("fork") if linux else multiprocessing.get_context("spawn")


def shared_copy(state: ModelState, context: Context) -> ModelState:
    """A copy in memory that all workers started afterwards read and write."""
    forked = context.get_start_method() == "fork"
    share = _anonymous if forked else lambda tensor: tensor.clone().share_memory_()
    return ModelState(*(share(tensor) for tensor in vars(state).values()))


def overwrite(target: ModelState, source: ModelState) -> None:
    """Copy one state's numbers over another's."""
    for mine, theirs in zip(vars(target).values(), vars(source).values(), strict=True):
        mine.copy_(theirs)


def _anonymous(tensor: Tensor) -> Tensor:
    """A copy in anonymous shared memory; unlike /dev/shm, containers do not limit it."""
    if not tensor.numel():
        return tensor.clone()
    memory = mmap.mmap(-1, tensor.numel() * tensor.element_size())
    shared = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel())
    return shared.copy_(tensor)
