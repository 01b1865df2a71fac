"""Types that all packages share: client ids, models, messages and client updates."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from numbers import Integral
from typing import TypeAlias

import torch
from torch import Tensor

from cadis._io import all_finite, allocate_vector, short_repr
from cadis.errors import CadisError

ClientId: TypeAlias = int | str
"""The identity of a client. It must be the same in all rounds."""

TensorState: TypeAlias = Mapping[str, Tensor]
"""The state of a method, a client or an optimizer as named tensors; empty before round 1.

A checkpoint stores the tensors without conversion.
"""

_MAX_ID_LENGTH = 100


def validate_client_id(client: object) -> ClientId:
    """Return a client id as a plain ``int`` or ``str``.

    Raises:
        CadisError: if it is neither a 64-bit integer nor a short printable name.
    """
    if isinstance(client, str):
        if 0 < len(client) <= _MAX_ID_LENGTH and client.isprintable():
            return str(client)  # converts numpy.str_
    elif not isinstance(client, bool) and isinstance(client, Integral) and abs(int(client)) < 2**63:
        return int(client)
    is_plain = isinstance(client, str | float | bool | None)
    text = ascii(client) if is_plain else f"a {type(client).__name__}"
    short = text if len(text) <= _MAX_ID_LENGTH else f"{text[:_MAX_ID_LENGTH]}..."
    raise CadisError(
        f"A client's id must be a 64-bit integer, or a name of 1 to {_MAX_ID_LENGTH} printable "
        f"characters, not {short}."
    )


@dataclass(frozen=True, repr=False)
class ModelState:
    """All tensors of a model as three flat vectors.

    ``cadis.models.Layout`` converts between these vectors and a ``state_dict``.

    Attributes:
        parameters: the trainable parameters, (P,).
        buffers: the other floating-point tensors, e.g. batch norm's running statistics, (B,).
        counters: integer tensors, e.g. batch norm's ``num_batches_tracked``, (C,), int64.

    Example:
        >>> import torch
        >>> empty = torch.zeros(0)
        >>> model = ModelState(torch.tensor([1.0, 2.0]), empty, empty.long())
        >>> model.select_parameters([slice(1, 2)])
        tensor([2.])
    """

    parameters: Tensor
    buffers: Tensor
    counters: Tensor

    __repr__ = short_repr

    def vectors(self) -> dict[str, Tensor]:
        """Return the three vectors by name."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "counters": self.counters,
        }

    def shapes(self) -> list[torch.Size]:
        """Return the shapes of the three vectors."""
        return [vector.shape for vector in self.vectors().values()]

    def get_tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors by name in the form in which they are stored, without a copy.

        For this class they are the three vectors; a subclass may store a ``state_dict``. Use them
        where the order of the elements does not matter, e.g. to average or validate models.
        """
        return self.vectors()

    def allocate(self) -> "tuple[ModelState, Mapping[str, Tensor]]":
        """Return an uninitialized model of the same size, and a view for each stored tensor.

        The views have the same names as the tensors of :meth:`get_tensors`; write to them.
        """
        vectors = {name: allocate_vector(len(v), v.dtype) for name, v in self.vectors().items()}
        return ModelState(**vectors), vectors

    def select_parameters(self, slices: Sequence[slice]) -> Tensor:
        """Return the parameters in some slices of the vector, concatenated."""
        parts = [self.parameters[part] for part in slices]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def is_finite(self) -> bool:
        """Return whether no element is NaN or infinite."""
        return all(all_finite(tensor) for tensor in self.get_tensors().values())


def ids_to_tensor(client_ids: Sequence[ClientId]) -> Tensor:
    """Encode client ids as a uint8 tensor (JSON in UTF-8), since checkpoints hold only tensors."""
    return torch.frombuffer(bytearray(json.dumps(list(client_ids)).encode()), dtype=torch.uint8)


def ids_from_tensor(tensor: Tensor) -> tuple[ClientId, ...]:
    """Decode the tensor of :func:`ids_to_tensor`."""
    return tuple(json.loads(tensor.numpy().tobytes()))


def compute_client_keys(clients: Sequence[ClientId]) -> Tensor:
    """Return an integer key for each client, (n,), int64.

    Tensors with one row per client are sorted by these keys.

    The key of an integer id is the id itself, and the key of a name is its 64-bit hash. The
    probability that two of a million names have the same key is one in 30 million.
    """
    return torch.tensor(
        [client if isinstance(client, int) else _hash(client) for client in clients],
        dtype=torch.int64,
    )


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, repr=False)
class Message:
    """A message between server and client: named models, tensors and scalars.

    Attributes:
        models: the models by name; most methods have one, called "model".
        tensors: flat vectors in addition to the models, e.g. SCAFFOLD's control variate.
        scalars: numbers by name, e.g. an accuracy.
    """

    models: Mapping[str, ModelState] = field(default_factory=dict)
    tensors: TensorState = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)

    __repr__ = short_repr

    @property
    def model_name(self) -> str:
        """The name of the only model; an error if the message has no model or several."""
        if len(self.models) != 1:
            raise CadisError(f"The message has {len(self.models)} models, not one.")
        return next(iter(self.models))

    @property
    def model(self) -> ModelState:
        """The only model; an error if the message has no model or several."""
        return self.models[self.model_name]

    def vectors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all tensors, each with its path, such as ``models/model/parameters``."""
        for name, model in self.models.items():
            for part, vector in model.vectors().items():
                yield f"models/{name}/{part}", vector
        for name, vector in self.tensors.items():
            yield f"tensors/{name}", vector

    def iter_tensors(self) -> Iterator[Tensor]:
        """Yield all tensors in the form in which they are stored, without a copy."""
        for model in self.models.values():
            yield from model.get_tensors().values()
        yield from self.tensors.values()

    @classmethod
    def from_vectors(cls, vectors: Mapping[str, Tensor], scalars: Mapping[str, float]) -> "Message":
        """Build a message from the tensors and paths of :meth:`vectors`, and its scalars."""
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
    """The name and checksum of a file.

    Attributes:
        name: the file's name within its folder.
        sha256: the SHA-256 digest of its content, in hexadecimal.
    """

    name: str
    sha256: str


@dataclass(frozen=True, repr=False)
class ClientUpdate:
    """The update that a client sends to the server after local training.

    Attributes:
        client_id: the client.
        num_samples: the number of samples that it trained on, n_i in the papers.
        message: the trained model with further tensors and scalars.
        state_file: the file with the client's state, if the server stores it.
        seconds: the duration of its training in seconds; None if unknown.
    """

    client_id: ClientId
    num_samples: int
    message: Message
    state_file: StoredFile | None = None
    seconds: float | None = None

    __repr__ = short_repr

    @property
    def model(self) -> ModelState:
        """The model that the client trained."""
        return self.message.model

    @property
    def scalars(self) -> Mapping[str, float]:
        """The scalars that the client sent."""
        return self.message.scalars
