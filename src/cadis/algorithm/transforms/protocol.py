"""What a transform is: a function on an update before it is sent, or before it is aggregated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch

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
    side: ClassVar[Literal["client", "server"]]
    needs_bound: ClassVar[bool]

    @property
    def bound(self) -> float | None:
        """The norm that an update has at the most afterwards; None if it is not limited."""

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update, changed. Inputs are never changed in place."""


def apply_chain(
    transforms: Sequence[Transform],
    update: Message,
    received: Message,
    participants: int,
    generator_of: Callable[[str], torch.Generator],
) -> Message:
    """An update after all transforms of a side, in their order.

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
