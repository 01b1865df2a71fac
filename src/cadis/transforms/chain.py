"""Transforms one after another."""

from collections.abc import Callable, Sequence

import torch

from cadis.core import CadisError, Message
from cadis.transforms.protocol import Transform, TransformRound


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
                    "that limits them, such as clip, right before it."
                )
            bound = transform.bound
