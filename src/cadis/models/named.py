"""A model as it was received: named tensors, from which flat vectors are made on request."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cadis.models.layout import Layout, flattened
from cadis.types import ModelState


class NamedState(ModelState):
    """A model that is stored as named tensors, so that a round needs no second copy of its models.

    Each access to one of the vectors makes a new one, and none is kept: the vectors of one model
    at a time are small, those of all models of a round are not.
    """

    _held: Mapping[str, Tensor]
    _layout: Layout

    def __new__(cls, *_given: object, **fields: Any) -> ModelState:  # type: ignore[misc]
        """With a vector changed, as by ``dataclasses.replace``, it is a plain model."""
        return ModelState(**fields) if "parameters" in fields else object.__new__(cls)

    def __init__(self, tensors: Mapping[str, Tensor], layout: Layout) -> None:
        """Take tensors that must have the layout's names, shapes and kinds; none is copied."""
        layout.check(tensors)
        held = {
            name: tensors[name].to(dtype)  # the same tensor, if it is of this type
            for _, names, dtype in layout.contents()
            for name in names
        }
        object.__setattr__(self, "_held", held)  # the class is frozen
        object.__setattr__(self, "_layout", layout)

    def __getattr__(self, name: str) -> Tensor:
        """One of the vectors, which a plain model holds as attributes."""
        if name not in ("parameters", "buffers", "counters"):
            raise AttributeError(name)
        return self.vectors()[name]

    def vectors(self) -> dict[str, Tensor]:
        """The three vectors by name, made together."""
        state, places = self.blank()
        for name, place in places.items():
            place.copy_(self._held[name])
        return state.vectors()

    def shapes(self) -> list[torch.Size]:
        """Those of the three vectors, without making them."""
        return [torch.Size([self._layout.size(names)]) for _, names, _ in self._layout.contents()]

    def pieces(self) -> Mapping[str, Tensor]:
        """The tensors as they came, none of them copied."""
        return self._held

    def blank(self) -> tuple[ModelState, Mapping[str, Tensor]]:
        """Vectors to be written to, and where in them each of the tensors goes."""
        return self._layout.blank()

    def parameters_at(self, places: Sequence[slice]) -> Tensor:
        """The parameters at some places, read from the tensors that lie there alone."""
        return torch.cat([part for place in places for part in self._parts(place)])

    def _parts(self, place: slice) -> Iterator[Tensor]:
        """What of each parameter lies at a place, which is a range of whole numbers."""
        start, stop, _ = place.indices(self._layout.size(self._layout.parameters))
        for name in self._layout.parameters:
            tensor = self._held[name]
            if start < tensor.numel() and stop > 0:
                yield flattened(tensor)[max(start, 0) : stop]
            start, stop = start - tensor.numel(), stop - tensor.numel()
