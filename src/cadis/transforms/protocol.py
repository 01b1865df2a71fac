"""What a transform is: a function on an update before it is sent, or before it is aggregated."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch

from cadis.core import Message


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
