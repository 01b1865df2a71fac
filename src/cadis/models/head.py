"""The classifier layer ("penultimate layer" W in the paper) of any model."""

from torch import Tensor, nn

from cadis.core import CadisError


def find_head(module: nn.Module, name: str | None = None) -> nn.Linear:
    """The layer the user names, else the model's last ``nn.Linear``."""
    linear = _linear_layers(module)
    if name is None:
        return list(linear.values())[-1]
    if name not in linear:
        choices = ", ".join(linear)
        raise CadisError(f"The model has no nn.Linear layer '{name}'; it has: {choices}.")
    return linear[name]


def name_head(module: nn.Module, inputs: Tensor) -> str:
    """The name of the linear layer that makes the model's output, found by trying the model.

    It is the last one in use whose output is as wide as the model's, whatever the order in
    which the layers were defined.
    """
    linear = _linear_layers(module)
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
    fitting = [name for name in used if output.shape[1:] == (linear[name].out_features,)]
    if not fitting:
        choices = ", ".join(f"{name} ({linear[name].out_features})" for name in linear)
        raise CadisError(
            f"The model's output has shape {tuple(output.shape[1:])}, which none of its nn.Linear "
            f"layers makes; name its classifier as head, one of: {choices}."
        )
    return fitting[-1]


def _linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    linear = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    if not linear:
        kinds = ", ".join(
            f"{n or 'itself'} ({type(m).__name__})" for n, m in module.named_children()
        )
        raise CadisError(
            "The model has no nn.Linear layer that could be its classifier; it has: "
            f"{kinds or type(module).__name__}."
        )
    return linear
