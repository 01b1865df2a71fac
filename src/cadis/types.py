"""The types that every package shares: client ids, models, messages and client updates."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from numbers import Integral
from typing import TypeAlias

import torch
from torch import Tensor

from cadis._io import all_finite, fresh, short_repr
from cadis.errors import CadisError

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
    plain = isinstance(client, str | float | bool | None)
    text = ascii(client) if plain else f"a {type(client).__name__}"
    cut = text if len(text) <= _LONGEST_ID else f"{text[:_LONGEST_ID]}..."
    raise CadisError(
        f"A client's id is a whole number of 64 bits, or a name of 1 to {_LONGEST_ID} "
        f"printable letters, not {cut}."
    )


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


def client_keys(clients: Sequence[ClientId]) -> Tensor:
    """A number for each client, by which tables are sorted: its own, or 64 bits of its name's hash.

    (n,), int64. That two of a million names have the same has a chance of one in 30 million.
    """
    return torch.tensor(
        [client if isinstance(client, int) else _hashed(client) for client in clients],
        dtype=torch.int64,
    )


def _hashed(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, repr=False)
class Message:
    """Named models, further named tensors, and scalars.

    Attributes:
        models: by name; most methods have one, called "model".
        tensors: flat vectors besides the models, e.g. SCAFFOLD's control variate.
        scalars: single numbers, e.g. an accuracy.
    """

    models: Mapping[str, ModelState] = field(default_factory=dict)
    tensors: TensorState = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)

    __repr__ = short_repr

    @property
    def model_name(self) -> str:
        """The name of the only model."""
        if len(self.models) != 1:
            raise CadisError(f"The message holds {len(self.models)} models, not one.")
        return next(iter(self.models))

    @property
    def model(self) -> ModelState:
        """The only model."""
        return self.models[self.model_name]

    def vectors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors with a path each, such as ``models/model/parameters``."""
        for name, model in self.models.items():
            for part, vector in model.vectors().items():
                yield f"models/{name}/{part}", vector
        for name, vector in self.tensors.items():
            yield f"tensors/{name}", vector

    def pieces(self) -> Iterator[Tensor]:
        """All tensors as they lie in memory, without a copy."""
        for model in self.models.values():
            yield from model.pieces().values()
        yield from self.tensors.values()

    @classmethod
    def of_vectors(cls, vectors: Mapping[str, Tensor], scalars: Mapping[str, float]) -> "Message":
        """The inverse of :meth:`vectors`."""
        models: dict[str, dict[str, Tensor]] = {}
        tensors = {}
        for path, vector in vectors.items():
            kind, _, name = path.partition("/")
            if kind == "models":
                name, _, part = name.rpartition("/")
                models.setdefault(name, {})[part] = vector
            else:
                tensors[name] = vector
        return cls({name: ModelState(**parts) for name, parts in models.items()}, tensors, scalars)


@dataclass(frozen=True)
class StoredFile:
    """A file, and what it must hold.

    Attributes:
        name: its name within the folder that it is kept in.
        sha256: the digest of its content.
    """

    name: str
    sha256: str


@dataclass(frozen=True, repr=False)
class ClientUpdate:
    """What a client has sent back. Its own state stays with it.

    Attributes:
        client_id: who.
        num_examples: n_i, how many samples it has trained on.
        message: what it sent.
        state_file: the file that holds the client's own state, where the server keeps that.
        seconds: how long it has trained; None if it did not say.
    """

    client_id: ClientId
    num_examples: int
    message: Message
    state_file: StoredFile | None = None
    seconds: float | None = None

    __repr__ = short_repr

    @property
    def model(self) -> ModelState:
        """The model that it trained."""
        return self.message.model

    @property
    def scalars(self) -> Mapping[str, float]:
        """The single numbers that it sent."""
        return self.message.scalars
