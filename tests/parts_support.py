"""Messages and comparisons for the tests of several kinds of parts."""

from collections.abc import Mapping

import torch
from torch import Tensor

from cadis.types import Message, ModelState


def copy_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors, to check later that nothing was changed in place."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def make_message(seed: int = 0, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Message:
    """Return a message of random numbers: a model with buffers, a tensor and a scalar."""
    generator = torch.Generator().manual_seed(seed)
    model = ModelState(
        (scale * torch.randn(7, generator=generator)).to(dtype),
        (scale * torch.rand(3, generator=generator)).to(dtype),
        torch.tensor([seed + 5]),
    )
    control = (scale * torch.randn(4, generator=generator)).to(dtype)
    return Message({"model": model}, {"control": control}, {"train_loss": 0.5 + seed})


def compute_plain_changes(update: Message, received: Message) -> list[float]:
    """Return all changes of an update, computed one by one."""
    pairs: list[tuple[float, float]] = []
    for name, model in update.models.items():
        before = received.models[name]
        pairs += zip(model.parameters.tolist(), before.parameters.tolist(), strict=True)
        pairs += zip(model.buffers.tolist(), before.buffers.tolist(), strict=True)
    numbers = [after - start for after, start in pairs]
    return numbers + [number for vector in update.tensors.values() for number in vector.tolist()]


def is_same_message(first: Message, second: Message) -> bool:
    """Return whether two messages are bitwise equal."""
    vectors, others = dict(first.vectors()), dict(second.vectors())
    return (
        first.scalars == second.scalars
        and vectors.keys() == others.keys()
        and all(
            vectors[path].dtype == others[path].dtype and torch.equal(vectors[path], others[path])
            for path in vectors
        )
    )
