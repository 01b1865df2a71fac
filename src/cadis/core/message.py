"""What travels between server and clients, in both directions: a message."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from cadis.core.errors import CadisError
from cadis.core.short_repr import short_repr
from cadis.core.state import ClientId, ModelState, TensorState


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


@dataclass(frozen=True, repr=False)
class ClientUpdate:
    """What a client has sent back. Its own memory stays with it.

    Attributes:
        client_id: who.
        num_examples: n_i, how many samples it has trained on.
        message: what it sent.
    """

    client_id: ClientId
    num_examples: int
    message: Message

    __repr__ = short_repr

    @property
    def model(self) -> ModelState:
        """The model that it trained."""
        return self.message.model

    @property
    def scalars(self) -> Mapping[str, float]:
        """The single numbers that it sent."""
        return self.message.scalars
