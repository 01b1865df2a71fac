"""What is moved between server and clients: a model's numbers, and who sent them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

ClientId: TypeAlias = int | str
"""A client's identity. It must stay the same over all rounds."""


@dataclass(frozen=True)
class ModelState:
    """All numbers of a model as three flat vectors; ``cadis.models.Layout`` knows what is where.

    Attributes:
        parameters: what SGD trains, (P,).
        buffers: floating numbers that SGD does not train, e.g. batch norm's statistics, (B,).
        counters: integer buffers, e.g. batch norm's number of batches, (C,), int64.
    """

    parameters: Tensor
    buffers: Tensor
    counters: Tensor

    def is_finite(self) -> bool:
        """Whether no number is NaN or infinite."""
        return bool(self.parameters.isfinite().all() and self.buffers.isfinite().all())


def ids_to_tensor(client_ids: Sequence[ClientId]) -> Tensor:
    """Client ids as bytes (JSON in UTF-8), so that a checkpoint is made of tensors alone."""
    return torch.frombuffer(bytearray(json.dumps(list(client_ids)).encode()), dtype=torch.uint8)


def ids_from_tensor(tensor: Tensor) -> tuple[ClientId, ...]:
    """The inverse of :func:`ids_to_tensor`."""
    return tuple(json.loads(bytes(tensor.tolist()).decode()))
