"""A model that is stored as named tensors and converted to flat vectors on request."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cadis.models.layout import Layout, flatten_parameter
from cadis.types import ModelState


class NamedState(ModelState):
    """A model that is stored as named tensors, which avoids a second copy of received models.

    Each access to a vector computes it again. Vectors are not cached, because a server holds the
    models of all participants of a round at the same time.
    """

    _tensors: Mapping[str, Tensor]
    _layout: Layout

    def __new__(cls, *_args: object, **fields: Any) -> ModelState:  # type: ignore[misc]
        """Return a plain ``ModelState`` if vectors are given, as ``dataclasses.replace`` does."""
        return ModelState(**fields) if "parameters" in fields else object.__new__(cls)

    def __init__(self, tensors: Mapping[str, Tensor], layout: Layout) -> None:
        """Wrap tensors without a copy.

        Args:
            tensors: a ``state_dict`` that matches the layout.
            layout: the layout of the global model.

        Raises:
            WrongTensorsError: if the tensors do not match the layout.
        """
        layout.check_tensors(tensors)
        converted = {
            name: tensors[name].to(dtype)  # no copy if the type is the same
            for _, names, dtype in layout.list_vectors()
            for name in names
        }
        object.__setattr__(self, "_tensors", converted)  # the class is frozen
        object.__setattr__(self, "_layout", layout)

    def __getattr__(self, name: str) -> Tensor:
        """Return one of the vectors, which are fields of a plain ``ModelState``."""
        if name not in ("parameters", "buffers", "counters"):
            raise AttributeError(name)
        return self.vectors()[name]

    def vectors(self) -> dict[str, Tensor]:
        """Compute the three vectors and return them by name."""
        state, views = self.allocate()
        for name, view in views.items():
            view.copy_(self._tensors[name])
        return state.vectors()

    def shapes(self) -> list[torch.Size]:
        """Return the shapes of the three vectors without computing them."""
        return [
            torch.Size([self._layout.count_elements(names)])
            for _, names, _ in self._layout.list_vectors()
        ]

    def get_tensors(self) -> Mapping[str, Tensor]:
        """Return the named tensors without a copy."""
        return self._tensors

    def allocate(self) -> tuple[ModelState, Mapping[str, Tensor]]:
        """Return an uninitialized flat model, and a view for each named tensor."""
        return self._layout.allocate()

    def select_parameters(self, slices: Sequence[slice]) -> Tensor:
        """Return the parameters in some slices; only the tensors in these slices are read."""
        return torch.cat([part for indices in slices for part in self._iter_parts(indices)])

    def _iter_parts(self, indices: slice) -> Iterator[Tensor]:
        """Yield the part of each parameter tensor that lies in a slice of the flat vector."""
        start, stop, _ = indices.indices(self._layout.count_elements(self._layout.parameters))
        for name in self._layout.parameters:
            tensor = self._tensors[name]
            if start < tensor.numel() and stop > 0:
                yield flatten_parameter(tensor)[max(start, 0) : stop]
            start, stop = start - tensor.numel(), stop - tensor.numel()
