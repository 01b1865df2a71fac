"""Draws without replacement by unequal weights, which several samplers make."""

import torch
from torch import Tensor


def draw(log_weights: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Places drawn one after the other, each by its weight among those that are left.

    The highest of logarithm of the weight plus Gumbel noise are such a draw, and no weight is too
    small for it.

    Args:
        log_weights: logarithms of the weights, up to a constant, (n,).
        number: how many to draw; no more than there are.
        generator: the source of randomness.

    Returns:
        The places in the order in which they were drawn, (number,).
    """
    noise = torch.empty(len(log_weights), dtype=torch.float64)
    noise.exponential_(generator=generator)
    drawn: Tensor = (log_weights.double() - noise.log()).topk(number).indices
    return drawn
