"""Memory that the server and its worker processes share.

The engine's transport writes messages to it, so that no tensors go through pipes.
"""

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

MpContext: TypeAlias = "ForkContext | SpawnContext"
"""A context of :mod:`multiprocessing`, which starts processes."""

_ALIGNMENT = 64
"""Alignment of tensors in bytes: the size of a cache line."""


def get_mp_context() -> MpContext:
    """Return the multiprocessing context: "fork" on Linux, else "spawn".

    Forked workers inherit models, data and closures. Fork is not safe on other systems. With spawn,
    the model's class must be importable, and a script needs ``if __name__ == "__main__":``.
    """
    is_linux = sys.platform == "linux"
    return multiprocessing.get_context("fork") if is_linux else multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class TensorRef:
    """Position, shape and dtype of a tensor in shared memory."""

    offset: int
    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class SharedMessage:
    """A message whose tensors are in shared memory; it is small enough for a pipe.

    Attributes:
        refs: reference to each tensor, by its path in the message.
        scalars: scalars of the message.
    """

    refs: Mapping[str, TensorRef]
    scalars: Mapping[str, float]


class SharedMemory:
    """A buffer that this process and workers that it starts later can read and write."""

    def __init__(self, size: int, mp_context: MpContext) -> None:
        if mp_context.get_start_method() == "fork":  # containers limit the size of /dev/shm
            self._bytes = torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=torch.uint8)
        else:
            self._bytes = torch.zeros(max(size, 1), dtype=torch.uint8).share_memory_()

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._bytes)

    def write(self, messages: Iterable[Message]) -> list[SharedMessage]:
        """Overwrite the buffer with messages; a tensor in several messages is copied once."""
        shared_messages, refs_by_id, end = [], dict[int, TensorRef](), 0
        messages = list(messages)  # keeps all tensors alive, so that their ids are unique
        for message in messages:
            refs = {}
            for path, tensor in message.vectors():
                if id(tensor) not in refs_by_id:
                    ref = TensorRef(end, tensor.shape, tensor.dtype)
                    self._view(ref).copy_(tensor)
                    refs_by_id[id(tensor)], end = ref, end + _count_aligned_bytes(tensor)
                refs[path] = refs_by_id[id(tensor)]
            shared_messages.append(SharedMessage(refs, message.scalars))
        return shared_messages

    def read(self, shared: SharedMessage) -> Message:
        """Return a message in the buffer; its tensors are views, not copies."""
        vectors = {path: self._view(ref) for path, ref in shared.refs.items()}
        return Message.from_vectors(vectors, shared.scalars)

    def _view(self, ref: TensorRef) -> Tensor:
        size = ref.shape.numel() * ref.dtype.itemsize
        part = self._bytes[ref.offset : ref.offset + size]
        return part.view(ref.dtype).view(ref.shape)


@dataclass(frozen=True)
class Mailbox:
    """All memory that the server and its workers share.

    Attributes:
        broadcast: messages from the server; it writes them only while no worker is running.
        slots: messages from the clients, one slot per participant.
    """

    broadcast: SharedMemory
    slots: tuple[SharedMemory, ...]

    @classmethod
    def allocate(
        cls, broadcast_size: int, slot_size: int, num_slots: int, mp_context: MpContext
    ) -> "Mailbox":
        """Allocate memory; sizes are in bytes."""
        slots = tuple(SharedMemory(slot_size, mp_context) for _ in range(num_slots))
        return cls(SharedMemory(broadcast_size, mp_context), slots)


def count_bytes(messages: Iterable[Message]) -> int:
    """Return the number of bytes of messages; a tensor in several messages counts once."""
    tensors = {id(tensor): tensor for message in messages for _, tensor in message.vectors()}
    return sum(_count_aligned_bytes(tensor) for tensor in tensors.values())


def _count_aligned_bytes(tensor: Tensor) -> int:
    size = tensor.numel() * tensor.element_size()
    return -(-size // _ALIGNMENT) * _ALIGNMENT
