"""What is moved between server and clients: a model's numbers, and who sent them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

import torch
from torch import Tensor

from cadis.core.bandwidth import all_finite, fresh
from cadis.core.errors import CadisError
from cadis.core.short_repr import short_repr

ClientId: TypeAlias = int | str
"""A client's identity. It must stay the same over all rounds."""

TensorState: TypeAlias = Mapping[str, Tensor]
"""A part's memory, as named tensors that a checkpoint stores as they are. Empty at first."""

_LONGEST_ID = 100


def checked_client_id(client: object) -> ClientId:
    """An identity as files can hold it, or one sentence."""
    if isinstance(client, str):
        if 0 < len(client) <= _LONGEST_ID and client.isprintable():
            return str(client)  # of numpy's kind it becomes a plain one
    elif not isinstance(client, bool) and isinstance(client, Integral) and abs(int(client)) < 2**63:
        return int(client)
    raise CadisError(
        f"A client's id is a whole number of 64 bits, or a name of 1 to {_LONGEST_ID} "
        f"printable letters, not {_cut(client)}."
    )


def _cut(client: object) -> str:
    kind = type(client).__name__
    text = ascii(client) if isinstance(client, str | float | bool | None) else f"a {kind}"
    return text if len(text) <= _LONGEST_ID else f"{text[:_LONGEST_ID]}..."


@dataclass(frozen=True, repr=False)
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

    __repr__ = short_repr

    def vectors(self) -> dict[str, Tensor]:
        """The three vectors by name."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "counters": self.counters,
        }

    def shapes(self) -> list[torch.Size]:
        """Those of the three vectors."""
        return [vector.shape for vector in self.vectors().values()]

    def pieces(self) -> Mapping[str, Tensor]:
        """All numbers by name, as they lie in memory; here these are the vectors.

        What only looks at the numbers, or averages them, does so piece by piece, and costs no
        copy of models that are held in another form.
        """
        return self.vectors()

    def blank(self) -> "tuple[ModelState, Mapping[str, Tensor]]":
        """Vectors like these to be written to, and where in them each of the pieces goes."""
        vectors = {name: fresh(len(v), v.dtype) for name, v in self.vectors().items()}
        return ModelState(**vectors), vectors

    def parameters_at(self, places: Sequence[slice]) -> Tensor:
        """The parameters at some places, one place after the other."""
        parts = [self.parameters[place] for place in places]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def is_finite(self) -> bool:
        """Whether no number is NaN or infinite."""
        return all(all_finite(piece) for piece in self.pieces().values())


def ids_to_tensor(client_ids: Sequence[ClientId]) -> Tensor:
    """Client ids as bytes (JSON in UTF-8), so that a checkpoint is made of tensors alone."""
    return torch.frombuffer(bytearray(json.dumps(list(client_ids)).encode()), dtype=torch.uint8)


def ids_from_tensor(tensor: Tensor) -> tuple[ClientId, ...]:
    """The inverse of :func:`ids_to_tensor`."""
    return tuple(json.loads(tensor.numpy().tobytes()))
