"""What the tests of several kinds of parts use."""

from collections.abc import Mapping

import torch
from torch import Tensor

from cadis.types import Message, ModelState


def snapshot(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies, to see afterwards that nothing was changed in place."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def message(seed: int = 0, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Message:
    """A model with buffers and a counter, a further tensor, and a scalar; its numbers random."""
    generator = torch.Generator().manual_seed(seed)
    model = ModelState(
        (scale * torch.randn(7, generator=generator)).to(dtype),
        (scale * torch.rand(3, generator=generator)).to(dtype),
        torch.tensor([seed + 5]),
    )
    control = (scale * torch.randn(4, generator=generator)).to(dtype)
    return Message({"model": model}, {"control": control}, {"train_loss": 0.5 + seed})


def plain_update(update: Message, received: Message) -> list[float]:
    """The numbers of an update, worked out one by one."""
    pairs: list[tuple[float, float]] = []
    for name, model in update.models.items():
        before = received.models[name]
        pairs += zip(model.parameters.tolist(), before.parameters.tolist(), strict=True)
        pairs += zip(model.buffers.tolist(), before.buffers.tolist(), strict=True)
    numbers = [after - start for after, start in pairs]
    return numbers + [number for vector in update.tensors.values() for number in vector.tolist()]


def same_message(first: Message, second: Message) -> bool:
    """Bit for bit."""
    vectors, others = dict(first.vectors()), dict(second.vectors())
    return (
        first.scalars == second.scalars
        and vectors.keys() == others.keys()
        and all(
            vectors[path].dtype == others[path].dtype and torch.equal(vectors[path], others[path])
            for path in vectors
        )
    )
