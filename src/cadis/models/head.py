"""The classifier layer ("penultimate layer" W in the paper) of any model that has one.

One rule: the layer that the user names; else, where the model can be tried, the linear layer that
makes its output, if one does; else the last linear layer, if there is any. Only methods that look
at it need one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cadis.errors import CadisError


@dataclass(frozen=True)
class Head:
    """A linear layer's tensors.

    Attributes:
        layer: its name in the model, empty if the tensors have no names of layers.
        parts: names of its weight, (outputs, features), and of its bias, if it has one.
    """

    layer: str
    parts: tuple[str, ...]


def find_head(
    shapes: Mapping[str, torch.Size],
    layer: str | None = None,
    linear: Collection[str] | None = None,
) -> Head | None:
    """The layer that the user names, else the last one with a two-dimensional weight.

    Tensors of a ``state_dict`` are named ``<layer>.weight`` and ``<layer>.bias``; those of a plain
    list are numbered, and a weight's bias is the next one. Where the model's code is at hand,
    ``linear`` has the names of its linear layers.
    """
    found = _linear_tensors(shapes)
    if linear is not None:
        found = [head for head in found if head.layer in linear]
    if layer is None:
        return found[-1] if found else None
    for head in found:
        if layer in (head.layer, head.parts[0]):
            return head
    choices = ", ".join(head.layer or head.parts[0] for head in found)
    raise CadisError(f"The model has no linear layer '{layer}'; it has: {choices or 'none'}.")


def name_head(module: nn.Module, inputs: Tensor) -> tuple[str, int]:
    """The linear layer that makes the model's output, found by trying the model.

    It is the last one in use whose output is as wide as the model's, whatever the order in
    which the layers were defined.

    Returns:
        Its name, "" if no linear layer makes the output; and how many outputs the model has.
    """
    linear = linear_layers(module)
    used: list[str] = []
    handles = [
        layer.register_forward_hook(lambda *_, name=name: used.append(name))
        for name, layer in linear.items()
    ]
    try:
        output = module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(output, Tensor):
        kind = type(output).__name__
        raise CadisError(f"The model returns a {kind}; it must return the logits, one tensor.")
    if output.dim() != 2 or len(output) != len(inputs):
        raise CadisError(
            f"The model returns {tuple(output.shape)} for {len(inputs)} samples; it must return "
            "one vector of logits for each."
        )
    fitting = [name for name in used if linear[name].out_features == output.shape[1]]
    return fitting[-1] if fitting else "", output.shape[1]


def linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    """The model's linear layers by name."""
    return {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}


def _linear_tensors(shapes: Mapping[str, torch.Size]) -> list[Head]:
    """All weights of two dimensions, each with its bias, if it has one."""
    numbered = all(name.isdigit() for name in shapes)
    found = []
    for name, shape in shapes.items():
        layer, _, kind = ("", "", "weight") if numbered else name.rpartition(".")
        if kind == "weight" and len(shape) == 2:
            bias = str(int(name) + 1) if numbered else f"{name.removesuffix('weight')}bias"
            has_bias = shapes.get(bias) == shape[:1]
            found.append(Head(layer, (name, bias) if has_bias else (name,)))
    return found
