"""Flower's named arrays as flat vectors, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from cadis.core import CadisError, ModelState
from cadis.flower.head import find_head_arrays

_STATISTICS = (".running_mean", ".running_var")
"""Floating numbers that SGD does not train; their names are all that a server sees of them."""


class WrongArraysError(ValueError):
    """Arrays that do not fit; the end of a sentence about who sent them."""


@dataclass(frozen=True)
class ArrayLayout:
    """Where each named array lies in a :class:`ModelState`; integers are never made floats.

    Attributes:
        shapes: of all arrays, in their order.
        dtypes: the same.
        parameters: names of the floating arrays, but for batch norm's statistics.
        buffers: names of those.
        counters: names of the integer arrays.
        head: where the classifier layer lies among the parameters; empty if none was found.
        head_name: the layer's name, empty if it has none.
        num_classes: what the classifier tells apart, 0 if none was found.
    """

    shapes: Mapping[str, torch.Size]
    dtypes: Mapping[str, torch.dtype]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    counters: tuple[str, ...]
    head: tuple[slice, ...]
    head_name: str
    num_classes: int

    @classmethod
    def of(cls, arrays: ArrayRecord, head: str | None = None) -> "ArrayLayout":
        """Read the layout; ``head`` names the classifier layer, by default the last one."""
        tensors = {name: _tensor(name, array) for name, array in arrays.items()}
        floating = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
        parameters = tuple(name for name in floating if not name.endswith(_STATISTICS))
        if not parameters:
            raise CadisError("The initial arrays hold no floating numbers that could be trained.")
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        found = find_head_arrays({name: shapes[name] for name in parameters}, head)
        parts = found.parts if found else ()
        return cls(
            shapes=shapes,
            dtypes={name: tensor.dtype for name, tensor in tensors.items()},
            parameters=parameters,
            buffers=tuple(name for name in floating if name.endswith(_STATISTICS)),
            counters=tuple(name for name in tensors if name not in floating),
            head=tuple(_place(name, parameters, shapes) for name in parts),
            head_name=found.layer if found else "",
            num_classes=shapes[parts[0]][0] if parts else 0,
        )

    def to_state(self, arrays: ArrayRecord) -> ModelState:
        """The flat vectors of arrays that must have the same names, shapes and kinds."""
        self._check_names(arrays)
        tensors = {name: _tensor(name, array) for name, array in arrays.items()}
        for name, tensor in tensors.items():
            if tensor.shape != self.shapes[name]:
                raise WrongArraysError(
                    f"its {name} has shape {tuple(tensor.shape)}, not {tuple(self.shapes[name])}"
                )
            if tensor.is_floating_point() != self.dtypes[name].is_floating_point:
                raise WrongArraysError(
                    f"its {name} has type {tensor.dtype}, not {self.dtypes[name]}"
                )
        return ModelState(
            _joined([tensors[name] for name in self.parameters], self._common(self.parameters)),
            _joined([tensors[name] for name in self.buffers], self._common(self.buffers)),
            _joined([tensors[name] for name in self.counters], torch.int64),
        )

    def to_tensors(self, state: ModelState) -> dict[str, Tensor]:
        """The named tensors of flat vectors, each of its own type again."""
        found: dict[str, Tensor] = {}
        for names, vector in (
            (self.parameters, state.parameters),
            (self.buffers, state.buffers),
            (self.counters, state.counters),
        ):
            parts = vector.split([self.shapes[name].numel() for name in names])
            for name, part in zip(names, parts, strict=True):
                found[name] = part.view(self.shapes[name]).to(self.dtypes[name])
        return {name: found[name] for name in self.shapes}

    def to_arrays(self, state: ModelState) -> ArrayRecord:
        """The named arrays of flat vectors."""
        return ArrayRecord(self.to_tensors(state))

    def _check_names(self, arrays: ArrayRecord) -> None:
        if missing := [name for name in self.shapes if name not in arrays]:
            raise WrongArraysError(f"its model lacks {missing[0]}")
        if unknown := [name for name in arrays if name not in self.shapes]:
            raise WrongArraysError(f"its model has {unknown[0]}, which the global model has not")

    def _common(self, names: tuple[str, ...]) -> torch.dtype:
        """The type that holds all of them exactly."""
        return reduce(torch.promote_types, (self.dtypes[name] for name in names), torch.float16)


def _tensor(name: str, array: Array) -> Tensor:
    try:
        return torch.from_numpy(array.numpy())
    except Exception as error:  # whatever foreign bytes may raise
        raise WrongArraysError(f"its {name} cannot be read ({error})") from None


def _joined(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=dtype), *(t.flatten().to(dtype) for t in tensors)])


def _place(name: str, parameters: tuple[str, ...], shapes: Mapping[str, torch.Size]) -> slice:
    before = parameters[: parameters.index(name)]
    start = sum(shapes[other].numel() for other in before)
    return slice(start, start + shapes[name].numel())
