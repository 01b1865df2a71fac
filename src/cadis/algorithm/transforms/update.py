"""A message as an update: by how much it changes what was received."""

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor

from cadis._io import in_chunks, squared_distance
from cadis.errors import CadisError
from cadis.types import Message


def differences(update: Message, received: Message) -> dict[str, Tensor]:
    """The numbers of an update in float64, by the paths of :meth:`Message.vectors`.

    Of a model these are the floating parameters and buffers minus those of the received model of
    the same name; of further floating tensors, the tensors as they are. Integers, such as batch
    norm's counters, and scalars are no part of it.
    """
    return {
        path: vector.double() - start.double()
        for path, (vector, start) in pairs(update, received).items()
    }


def pairs(update: Message, received: Message) -> dict[str, tuple[Tensor, Tensor]]:
    """Each floating vector of an update, and what it is the change of, by path."""
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


def replaced(update: Message, vectors: Mapping[str, Tensor]) -> Message:
    """The message with some of its vectors replaced, by path; all else as it is."""
    return Message.of_vectors({**dict(update.vectors()), **vectors}, update.scalars)


def limited(update: Message, received: Message, largest: float) -> Message:
    """An update scaled down to a norm; one that is no longer than that comes back as it is.

    Scaled numbers are rounded towards what was received, so that the norm holds also of the
    numbers that are sent.
    """
    both = pairs(update, received)
    norm = sqrt(sum(squared_distance(vector, start) for vector, start in both.values()))
    if not norm > largest:  # nor if it is not a number, which is refused when it arrives
        return update
    scale = largest / norm

    def scaled(vector: Tensor, start: Tensor) -> tuple[Tensor]:
        return (_added(start.to(vector), (vector.double() - start.double()) * scale),)

    return replaced(
        update,
        {
            path: in_chunks(scaled, vector.flatten(), start.flatten())[0].view(vector.shape)
            for path, (vector, start) in both.items()
        },
    )


def _added(start: Tensor, change: Tensor) -> Tensor:
    """Start + change in the type of the start, and no farther from it than the change is long."""
    new = (start.double() + change).to(start.dtype)
    too_far = (new.double() - start.double()).abs() > change.abs()
    return torch.where(too_far, torch.nextafter(new, start), new)
