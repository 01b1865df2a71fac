"""Memory that worker processes share, so that models are never sent through pipes."""

import mmap
import multiprocessing
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from cadis.types import Message

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

Context: TypeAlias = "ForkContext | SpawnContext"

_ALIGNED = 64
"""Bytes that tensors begin at multiples of: a line of the cache."""


def process_context() -> Context:
    """How workers are started: forked on Linux, where they inherit models, data and closures.

    Elsewhere forking is not safe, and workers are started anew; there the model's class must be
    importable, and a script needs the usual ``if __name__ == "__main__":``.
    """
    linux = sys.platform == "linux"
    return multiprocessing.get_context("fork") if linux else multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class TensorRef:
    """Where a tensor lies in shared memory."""

    offset: int
    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class SharedMessage:
    """A message whose tensors lie in shared memory: all of it that goes through a pipe."""

    places: Mapping[str, TensorRef]
    scalars: Mapping[str, float]


class SharedMemory:
    """Bytes that all workers started afterwards read and write."""

    def __init__(self, size: int, context: Context) -> None:
        if context.get_start_method() == "fork":  # /dev/shm would be limited in containers
            self._bytes = torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=torch.uint8)
        else:
            self._bytes = torch.zeros(max(size, 1), dtype=torch.uint8).share_memory_()

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return len(self._bytes)

    def put(self, messages: Iterable[Message]) -> list[SharedMessage]:
        """Copy messages here, over what was here before; what they share is copied once."""
        placed, places, end = [], dict[int, TensorRef](), 0
        kept = list(messages)  # while they are, no two tensors have the same id
        for message in kept:
            own = {}
            for path, tensor in message.vectors():
                if id(tensor) not in places:
                    place = TensorRef(end, tensor.shape, tensor.dtype)
                    self._at(place).copy_(tensor)
                    places[id(tensor)], end = place, end + _room(tensor)
                own[path] = places[id(tensor)]
            placed.append(SharedMessage(own, message.scalars))
        return placed

    def get(self, placed: SharedMessage) -> Message:
        """A message that lies here; its tensors are views, not copies."""
        vectors = {path: self._at(place) for path, place in placed.places.items()}
        return Message.of_vectors(vectors, placed.scalars)

    def _at(self, place: TensorRef) -> Tensor:
        size = place.shape.numel() * place.dtype.itemsize
        part = self._bytes[place.offset : place.offset + size]
        return part.view(place.dtype).view(place.shape)


@dataclass(frozen=True)
class Mailbox:
    """The memory that the server and its workers share.

    Attributes:
        sent: what the server sends, written by it between tasks.
        slots: where clients put what they send back, one for each participant.
    """

    sent: SharedMemory
    slots: tuple[SharedMemory, ...]

    @classmethod
    def new(cls, sent: int, slot: int, slots: int, context: Context) -> "Mailbox":
        """Make room for messages of so many bytes."""
        each = tuple(SharedMemory(slot, context) for _ in range(slots))
        return cls(SharedMemory(sent, context), each)


def nbytes_of(messages: Iterable[Message]) -> int:
    """How many bytes messages take, what they share counted once."""
    tensors = {id(tensor): tensor for message in messages for _, tensor in message.vectors()}
    return sum(_room(tensor) for tensor in tensors.values())


def _room(tensor: Tensor) -> int:
    size = tensor.numel() * tensor.element_size()
    return -(-size // _ALIGNED) * _ALIGNED
