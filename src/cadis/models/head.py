"""Detection of the classifier layer, which the paper calls the "penultimate layer" W.

It is the layer that the user names. By default, if the module and a batch of inputs are available,
it is the linear layer that computes the model's output; if only the tensors are known, it is the
last linear layer. A model may have no classifier layer: only some methods need it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cadis.errors import CadisError


@dataclass(frozen=True)
class Head:
    """The names of the classifier layer and its tensors.

    Attributes:
        layer: the layer's name in the model; "" if the model is a plain list of tensors.
        parts: the names of its weight, (outputs, features), and of its bias, if it has a bias.
    """

    layer: str
    parts: tuple[str, ...]


def find_head(
    shapes: Mapping[str, torch.Size],
    layer: str | None = None,
    linear: Collection[str] | None = None,
) -> Head | None:
    """Find the classifier layer from the names and shapes of a model's tensors.

    If the tensors come from a ``state_dict``, they are named ``<layer>.weight`` and
    ``<layer>.bias``. If they come from a plain list, they are named by their positions "0", "1",
    ..., and the bias of a layer stands directly after its weight.

    Args:
        shapes: the shapes of all tensors by name.
        layer: the layer's name, or the name of its weight; by default the last linear layer.
        linear: the names of the model's linear layers, if the module is known; by default all
            layers with a two-dimensional weight count as linear.

    Returns:
        The classifier layer; None if the model has no linear layer and ``layer`` is None.
    """
    heads = _list_candidates(shapes)
    if linear is not None:
        heads = [head for head in heads if head.layer in linear]
    if layer is None:
        return heads[-1] if heads else None
    for head in heads:
        if layer in (head.layer, head.parts[0]):
            return head
    choices = ", ".join(head.layer or head.parts[0] for head in heads)
    raise CadisError(f"The model has no linear layer '{layer}'; it has: {choices or 'none'}.")


def find_output_layer(module: nn.Module, inputs: Tensor) -> tuple[str, int]:
    """Call the model to find the linear layer that computes its output.

    Of the layers with as many outputs as the model, it is the one called last. The order in which
    the layers are defined does not matter.

    Args:
        module: the model.
        inputs: a batch, (batch, ...).

    Returns:
        The layer's name, or "" if there is no such layer, and the model's number of outputs.
    """
    linear = find_linear_layers(module)
    calls: list[str] = []
    handles = [
        layer.register_forward_hook(lambda *_, name=name: calls.append(name))
        for name, layer in linear.items()
    ]
    try:
        output = module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(output, Tensor):
        kind = type(output).__name__
        raise CadisError(f"The model returns a {kind}; it must return one tensor of logits.")
    if output.dim() != 2 or len(output) != len(inputs):
        raise CadisError(
            f"The model returns shape {tuple(output.shape)} for {len(inputs)} samples; it must "
            "return one vector of logits per sample."
        )
    matches = [name for name in calls if linear[name].out_features == output.shape[1]]
    return matches[-1] if matches else "", output.shape[1]


def find_linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    """Return the model's linear layers by name."""
    return {name: m for name, m in module.named_modules() if isinstance(m, nn.Linear)}


def _list_candidates(shapes: Mapping[str, torch.Size]) -> list[Head]:
    """Return all layers with a two-dimensional weight, with the bias if there is one."""
    is_numbered = all(name.isdigit() for name in shapes)
    heads = []
    for name, shape in shapes.items():
        layer, _, kind = ("", "", "weight") if is_numbered else name.rpartition(".")
        if kind == "weight" and len(shape) == 2:
            bias = str(int(name) + 1) if is_numbered else f"{name.removesuffix('weight')}bias"
            has_bias = shapes.get(bias) == shape[:1]
            heads.append(Head(layer, (name, bias) if has_bias else (name,)))
    return heads
