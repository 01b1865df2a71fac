"""From raw inputs to probabilities, as one module."""

from typing import Any

import torch
from torch import Tensor, nn

from cadis._io import is_user_code, load_user_code
from cadis.algorithm.tasks import TASKS
from cadis.data import PicturePreprocessing, Scaling
from cadis.errors import CadisError
from cadis.store import ModelDescription


class Pipeline(nn.Module):
    """Scaling, the model, and what makes probabilities of its outputs.

    It holds nothing but tensors and checks nothing, so that it can be exported.
    """

    def __init__(self, module: nn.Module, description: ModelDescription, task: str) -> None:
        """Put a model between what its inputs and outputs need.

        Args:
            module: the model.
            description: what it says of itself.
            task: what the outputs mean: the name of one of ours, or ``file.py:Class``.
        """
        super().__init__()
        how = None if description.inputs is None else description.inputs.preprocessing
        self.scaling = _Scaled(how.scaling) if isinstance(how, PicturePreprocessing) else None
        self.module = module
        self._task = _task(task)

    def forward(self, raw: Tensor) -> Tensor:
        """Probabilities, (n, classes), of raw inputs, (n, ...)."""
        inputs = raw if self.scaling is None else self.scaling(raw)
        outputs: Tensor = self._task.probabilities(self.module(inputs))
        return outputs


class _Scaled(nn.Module):
    """A scaling of pixels as part of a model; what it is given stays as it is."""

    factor: Tensor
    shift: Tensor

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        mean, deviation = (
            torch.tensor(numbers)[:, None, None] for numbers in (scaling.mean, scaling.deviation)
        )
        self.register_buffer("factor", 1 / (255 * deviation), persistent=False)
        self.register_buffer("shift", mean / deviation, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Scaled pixels, (n, channels, height, width)."""
        return pixels.to(self.factor.dtype) * self.factor - self.shift


def _task(name: str) -> Any:
    """What makes probabilities; one of a user's own must say how."""
    kind = load_user_code(name) if is_user_code(name) else TASKS.get(name)
    if kind is None or not hasattr(kind, "probabilities"):
        raise CadisError(
            f"The task {name} does not say what is probable; give it a function "
            "probabilities(outputs) that makes (n, classes) of (n, outputs)."
        )
    return kind()
