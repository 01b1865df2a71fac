"""The classifier layer ("penultimate layer" W in the paper) of any model."""

from torch import nn

from cadis.core import CadisError


def find_head(module: nn.Module, name: str | None = None) -> nn.Linear:
    """The layer the user names, else the model's last ``nn.Linear``."""
    linear = {n: m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    if name is None:
        if not linear:
            raise CadisError("The model has no nn.Linear layer that could be its classifier.")
        return list(linear.values())[-1]
    if name not in linear:
        choices = ", ".join(linear) or "none"
        raise CadisError(f"The model has no nn.Linear layer '{name}'; it has: {choices}.")
    return linear[name]
