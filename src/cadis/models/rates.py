"""The learning rate that a model is trained at if nobody says: the one place that knows it.

Larger models diverge where small ones do best. ResNets on CIFAR hide their clusters at 0.01
(adjusted Rand index 0.2 and less after a round) and show them at 0.001 (1.0).
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeAlias

from torch import nn

Builder: TypeAlias = Callable[[int, int, int, int], nn.Module]
"""Makes a model from channels, height, width and number of classes."""

_OTHERS = 0.01
"""For models that nothing is known of."""


def trains_at(lr: float) -> Callable[[Builder], Builder]:
    """Note the rate that trains what a builder makes fast and safely."""

    def noting(build: Builder) -> Builder:
        @wraps(build)
        def building(channels: int, height: int, width: int, num_classes: int) -> nn.Module:
            model = build(channels, height, width, num_classes)
            model.auto_lr = lr  # type: ignore[assignment]  # no tensor, but a note
            return model

        building.auto_lr = lr  # type: ignore[attr-defined]
        return building

    return noting


def auto_lr(model: nn.Module | Builder | None) -> float:
    """The learning rate of one of our models or its builder; 0.01 for all others."""
    lr: float = getattr(model, "auto_lr", _OTHERS)
    return lr
