"""Transforms: functions on an update before it is sent, or before it is aggregated."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Annotated, ClassVar, Literal, Protocol

import torch
from annotated_types import Gt, Le
from torch import Tensor

from cadis._io import in_chunks, squared_distance
from cadis.errors import CadisError
from cadis.types import Message


@dataclass(frozen=True)
class TransformRound:
    """What a transform knows besides the update.

    Attributes:
        received: what the client was sent; a model's update is its difference from the received
            model of the same name.
        participants: k, how many clients were asked in this round.
        bound: the norm that the transform before this one has limited the update to, None if it
            has not.
        generator: the source of randomness of this client, round and transform.
    """

    received: Message
    participants: int
    bound: float | None
    generator: torch.Generator


class Transform(Protocol):
    """Changes an update. Transforms are chained, in the order in which they are given.

    Attributes:
        name: as users type it.
        side: where it is applied: by the client before it sends, or by the server before it
            aggregates.
        needs_bound: whether the transform right before it must limit the norm of updates.
    """

    name: ClassVar[str]
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False

    @property
    def bound(self) -> float | None:
        """The norm that an update has at the most afterwards; None if it is not limited."""
        return None

    @abstractmethod
    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """Return the update, changed. Inputs are never changed in place."""


@dataclass(frozen=True)
class TopK(Transform):
    """Keeps the numbers of an update that are largest in magnitude; the others do not change.

    This is top-k sparsification (Aji and Heafield, 2017). Numbers are chosen among all floating
    ones of the update together, and what is kept is kept bit for bit. What is dropped is lost:
    clients do not remember it for their next round. Integer counters and scalars are sent as they
    are. Messages do not become shorter, as vectors travel whole: this tells what sparse updates
    would do to the accuracy.

    Attributes:
        keep: the part of the numbers of an update that is kept.
    """

    name: ClassVar[str] = "top-k"
    keep: Annotated[float, Gt(0), Le(1)] = 0.1

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update with zeros for all but its ceil(keep * n) largest numbers of n."""
        numbers = differences(update, server_round.received)
        if not numbers:
            return update
        magnitudes = torch.cat([vector.abs() for vector in numbers.values()])  # (n,)
        kept = torch.zeros_like(magnitudes, dtype=torch.bool)
        kept[magnitudes.topk(ceil(self.keep * len(magnitudes))).indices] = True
        masks = kept.split([len(vector) for vector in numbers.values()])
        both = _pairs(update, server_round.received)
        return replaced(
            update,
            {
                path: torch.where(mask, vector, start.to(vector.dtype))
                for mask, (path, (vector, start)) in zip(masks, both.items(), strict=True)
            },
        )


@dataclass(frozen=True)
class Clip(Transform):
    """Scales an update that is longer than the limit down to it, before it is sent.

    An update is everything floating that the client changed: the parameters and buffers of its
    models minus those received, and the further tensors that it sends, as one vector with one
    norm. Integer counters, scalars and the number of samples are sent as they are: nothing limits
    what they tell.

    Attributes:
        clip: the largest norm that an update may have.
    """

    name: ClassVar[str] = "clip"
    clip: Annotated[float, Gt(0)] = 1.0

    @property
    def bound(self) -> float:
        """The largest norm of an update afterwards."""
        return self.clip

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update times min(1, clip / its norm)."""
        return _limit_norm(update, server_round.received, self.clip)


@dataclass(frozen=True)
class Noise(Transform):
    """Every one of k participants adds noise of deviation z * bound / sqrt(k) to its update.

    The sum of a round's updates then carries noise of deviation z * bound on every number
    (DP-FedAvg; McMahan et al., 2018), the bound being the norm that updates are clipped to.

    What this does not do: z is a noise multiplier and no epsilon, and nothing here accounts for
    the privacy that rounds use up. A single update carries only its share of the noise, so the
    server, which sees it, must be trusted with it. If participants fail, the sum carries less
    noise. Weights that differ between clients make the largest of them less protected than z
    says. Scalars, integer counters and the number of samples are sent as they are.
    Batch norm's statistics are noised as parameters are, and a variance may become negative:
    choose a model without batch norm.

    Attributes:
        noise: the noise multiplier z: how large the noise on the sum of a round's updates is,
            as a multiple of the limit of a single update.
    """

    name: ClassVar[str] = "noise"
    needs_bound: ClassVar[bool] = True
    noise: Annotated[float, Gt(0)] = 0.1

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update with noise on each of its numbers."""
        if server_round.bound is None:
            raise CadisError("Noise needs updates of limited norm; put clip right before it.")
        deviation = self.noise * server_round.bound / server_round.participants**0.5
        generator, noisy = server_round.generator, {}
        for path, (vector, _) in _pairs(update, server_round.received).items():
            draw = torch.randn(vector.shape, generator=generator, dtype=torch.float64)
            noisy[path] = draw.to(vector.device).mul_(deviation).add_(vector).to(vector.dtype)
        return replaced(update, noisy)


@dataclass(frozen=True)
class NormBound(Transform):
    """The server's own guard: what :class:`Clip` does, for clients that cannot be trusted to.

    No single client can then move the model by more than its weight times the limit. It says
    nothing about the direction, nor about scalars and the number of samples, which the weights are
    made from.

    Attributes:
        max_norm: the largest norm that an update has when it is aggregated.
    """

    name: ClassVar[str] = "norm-bound"
    side: ClassVar[Literal["client", "server"]] = "server"
    max_norm: Annotated[float, Gt(0)] = 1.0

    @property
    def bound(self) -> float:
        """The largest norm of an update afterwards."""
        return self.max_norm

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update times min(1, max_norm / its norm)."""
        return _limit_norm(update, server_round.received, self.max_norm)


_OURS: tuple[type[Transform], ...] = (TopK, Clip, Noise, NormBound)

TRANSFORMS: dict[str, type[Transform]] = {kind.name: kind for kind in _OURS}
"""By name, in the order in which they are applied when a user names several."""


def apply_chain(
    transforms: Sequence[Transform],
    update: Message,
    received: Message,
    participants: int,
    generator_of: Callable[[str], torch.Generator],
) -> Message:
    """Return an update after all transforms of a side, in their order.

    Args:
        transforms: of the client's or of the server's side.
        update: what a client is about to send, or has sent; it is never changed in place.
        received: what that client was sent.
        participants: k, how many clients were asked in this round.
        generator_of: the source of randomness of a transform, by its name.
    """
    bound = None
    for transform in transforms:
        server_round = TransformRound(received, participants, bound, generator_of(transform.name))
        update = transform.apply(update, server_round)
        bound = transform.bound
    return update


def check_chain(transforms: Sequence[Transform]) -> None:
    """Refuse a transform that needs updates of limited norm where they are not."""
    for side in ("client", "server"):
        bound = None
        for transform in transforms:
            if transform.side != side:
                continue
            if transform.needs_bound and bound is None:
                raise CadisError(
                    f"The transform '{transform.name}' needs updates of limited norm; put one "
                    f"that limits them on the {side}, such as clip, right before it."
                )
            bound = transform.bound


def differences(update: Message, received: Message) -> dict[str, Tensor]:
    """Return the numbers of an update in float64, by the paths of :meth:`Message.vectors`.

    Of a model these are the floating parameters and buffers minus those of the received model of
    the same name; of further floating tensors, the tensors as they are. Integers, such as batch
    norm's counters, and scalars are no part of it.
    """
    return {
        path: vector.double() - start.double()
        for path, (vector, start) in _pairs(update, received).items()
    }


def replaced(update: Message, vectors: Mapping[str, Tensor]) -> Message:
    """Return the message with some of its vectors replaced, by path; all else as it is."""
    return Message.of_vectors({**dict(update.vectors()), **vectors}, update.scalars)


def _pairs(update: Message, received: Message) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each floating vector of an update, and what it is the change of, by path."""
    known = dict(received.vectors())
    found = {}
    for path, vector in update.vectors():
        if not vector.is_floating_point():
            continue
        if path.startswith("tensors/"):
            found[path] = (vector, vector.new_zeros(()).expand_as(vector))
        elif path in known:
            found[path] = (vector, known[path])
        else:
            name = path.split("/", 1)[1].rpartition("/")[0]
            raise CadisError(
                f"The update of the model '{name}' cannot be told: no such model was received."
            )
    return found


def _limit_norm(update: Message, received: Message, largest: float) -> Message:
    """Scale an update down to a norm; one that is no longer than that comes back as it is.

    Scaled numbers are rounded towards what was received, so that the norm holds also of the
    numbers that are sent.
    """
    both = _pairs(update, received)
    norm = sqrt(sum(squared_distance(vector, start) for vector, start in both.values()))
    if not norm > largest:  # nor if it is not a number, which is refused when it arrives
        return update

    def scale(vector: Tensor, start: Tensor) -> tuple[Tensor]:
        change = (vector.double() - start.double()) * (largest / norm)
        start = start.to(vector)
        new = (start.double() + change).to(start.dtype)
        too_far = (new.double() - start.double()).abs() > change.abs()
        return (torch.where(too_far, torch.nextafter(new, start), new),)

    return replaced(
        update,
        {
            path: in_chunks(scale, vector.flatten(), start.flatten())[0].view(vector.shape)
            for path, (vector, start) in both.items()
        },
    )
