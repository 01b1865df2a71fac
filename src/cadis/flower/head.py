"""The classifier layer among named arrays: a server need not have the model's code."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from cadis.core import CadisError


@dataclass(frozen=True)
class HeadArrays:
    """A linear layer's arrays.

    Attributes:
        layer: its name in the model, empty if the arrays have no names of layers.
        parts: names of its weight, (classes, features), and of its bias, if it has one.
    """

    layer: str
    parts: tuple[str, ...]


def find_head_arrays(
    shapes: Mapping[str, torch.Size], layer: str | None = None
) -> HeadArrays | None:
    """The layer that the user names, else the last one with a two-dimensional weight.

    Arrays of a ``state_dict`` are named ``<layer>.weight`` and ``<layer>.bias``; those of a plain
    list are numbered, and a weight's bias is the next one.

    Args:
        shapes: of the floating arrays, in their order.
        layer: what the user calls it.
    """
    found = _numbered(shapes) if all(name.isdigit() for name in shapes) else _named(shapes)
    if layer is None:
        return found[-1] if found else None
    for head in found:
        if layer in (head.layer, head.parts[0]):
            return head
    choices = ", ".join(head.layer or head.parts[0] for head in found)
    raise CadisError(f"The model has no linear layer '{layer}'; it has: {choices or 'none'}.")


def _named(shapes: Mapping[str, torch.Size]) -> list[HeadArrays]:
    found = []
    for name, shape in shapes.items():
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and len(shape) == 2:
            bias = f"{layer}.bias" if layer else "bias"
            found.append(HeadArrays(layer, _with_bias(name, bias, shapes)))
    return found


def _numbered(shapes: Mapping[str, torch.Size]) -> list[HeadArrays]:
    return [
        HeadArrays("", _with_bias(name, str(int(name) + 1), shapes))
        for name, shape in shapes.items()
        if len(shape) == 2
    ]


def _with_bias(weight: str, bias: str, shapes: Mapping[str, torch.Size]) -> tuple[str, ...]:
    return (weight, bias) if shapes.get(bias) == shapes[weight][:1] else (weight,)
