"""Layers that do the work of several models at once, forward and backward, each with its own part.

A value between layers has one of two forms: *stacked*, (m, n, ...), a dimension of models and one
of samples before every other; or, of pictures, *folded*, (n, m * channels, height, width) with the
channels last in memory, as a convolution with a group for each model wants it.

Gradients are written out. A parameter takes its gradient in place where a step is plain SGD, and
no operation is recorded: of a small model's step, that is the greater part.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

_aten = torch.ops.aten


@dataclass
class Parameter:
    """One parameter of several models.

    Attributes:
        value: of the models in use, (m, ...).
        lr: the learning rate, if it takes its gradient in place.
        gradient: where it is gathered otherwise, (m, ...).
    """

    value: Tensor
    lr: float | None = None
    gradient: Tensor | None = None

    def take(self, gradient: Tensor) -> None:
        """Step along a gradient, or keep it."""
        if self.lr is not None:
            self.value.sub_(gradient, alpha=self.lr)
        elif self.gradient is not None:
            self.gradient.copy_(gradient)

    def take_product(self, first: Tensor, second: Tensor) -> None:
        """Likewise, a gradient that is the product of matrices, which is not written down."""
        if self.lr is not None:
            self.value.baddbmm_(first, second, alpha=-self.lr)
        elif self.gradient is not None:
            torch.bmm(first, second, out=self.gradient)


class Layer(Protocol):
    """A step on the way from inputs to logits."""

    def forward(self, value: Tensor) -> Tensor:
        """What becomes of a value; what the way back needs is remembered."""

    def backward(self, slope: Tensor) -> Tensor:
        """The gradient by what was given, from that by what came out; parameters take theirs."""


@dataclass
class Linear:
    """``nn.Linear``, from stacked to stacked."""

    weight: Parameter  # (m, out, in)
    bias: Parameter | None  # (m, out)
    is_first: bool = False  # where the gradient by the inputs is not needed
    inputs: Tensor = field(default_factory=lambda: torch.empty(0), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Each model's rows with its own weight."""
        self.inputs = value.flatten(1, -2)
        weight = self.weight.value.mT
        if self.bias is None:
            output = torch.bmm(self.inputs, weight)
        else:
            output = torch.baddbmm(self.bias.value[:, None], self.inputs, weight)
        return output.view(*value.shape[:-1], -1)

    def backward(self, slope: Tensor) -> Tensor:
        """By the inputs first, since the weight changes then."""
        shape, slope = slope.shape, slope.flatten(1, -2)
        found = slope if self.is_first else torch.bmm(slope, self.weight.value)
        self.weight.take_product(slope.mT, self.inputs)
        if self.bias is not None:
            self.bias.take(slope.sum(dim=1))
        return found.view(*shape[:-1], -1)


@dataclass
class Convolution:
    """``nn.Conv2d``, from folded to folded: one convolution with a group for each model."""

    layer: nn.Conv2d
    weight: Parameter  # (m, out, height, width, in)
    bias: Parameter | None  # (m, out)
    is_first: bool = False
    saved: tuple[Tensor, ...] = field(default=(), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Each model's channels with its own weight."""
        weight = self.weight.value.flatten(0, 1).permute(0, 3, 1, 2)  # (m out, in, h, w)
        self.saved = value, weight
        bias = None if self.bias is None else self.bias.value.flatten()
        return torch.conv2d(value, weight, bias, *self._how(), groups=self._groups())

    def backward(self, slope: Tensor) -> Tensor:
        """As torch's own."""
        value, weight = self.saved
        has_bias = self.bias is not None
        by_value, by_weight, by_bias = _aten.convolution_backward(
            slope,
            value,
            weight,
            [len(weight)] if has_bias else None,
            *self._how(),
            False,
            [0, 0],
            self._groups(),
            [not self.is_first, True, has_bias],
        )
        models = len(self.weight.value)
        self.weight.take(by_weight.permute(0, 2, 3, 1).unflatten(0, (models, -1)))
        if self.bias is not None:
            self.bias.take(by_bias.view(models, -1))
        return slope if self.is_first else by_value

    def _how(self) -> tuple[Any, Any, Any]:
        return self.layer.stride, self.layer.padding, self.layer.dilation

    def _groups(self) -> int:
        return len(self.weight.value) * self.layer.groups


@dataclass
class Relu:
    """The rectifier."""

    output: Tensor = field(default_factory=lambda: torch.empty(0), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """What is positive."""
        self.output = value.relu()
        return self.output

    def backward(self, slope: Tensor) -> Tensor:
        """Where it was positive."""
        found: Tensor = _aten.threshold_backward(slope, self.output, 0)
        return found


@dataclass
class MaxPool:
    """``nn.MaxPool2d``, from folded to folded."""

    layer: nn.MaxPool2d
    saved: tuple[Tensor, ...] = field(default=(), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """The largest of each window, and where it was."""
        output: Tensor
        output, places = _aten.max_pool2d_with_indices(value, *self._how())
        self.saved = value, places
        return output

    def backward(self, slope: Tensor) -> Tensor:
        """To where it was."""
        value, places = self.saved
        found: Tensor = _aten.max_pool2d_with_indices_backward(slope, value, *self._how(), places)
        return found

    def _how(self) -> tuple[Any, ...]:
        layer = self.layer
        pairs = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        return *map(_pair, pairs), layer.ceil_mode


@dataclass
class Refold:
    """Pictures from stacked to folded, or from folded to stacked.

    Attributes:
        folds: which of the two.
        models: how many there are.
    """

    folds: bool
    models: int = 0

    def forward(self, value: Tensor) -> Tensor:
        """(m, n, c, h, w) to (n, m c, h, w), or the inverse."""
        return _folded(value) if self.folds else _unfolded(value, self.models)

    def backward(self, slope: Tensor) -> Tensor:
        """The inverse."""
        return _unfolded(slope, self.models) if self.folds else _folded(slope)


@dataclass
class Flatten:
    """``nn.Flatten``, from stacked to stacked: each sample as one vector."""

    shape: torch.Size = field(default_factory=lambda: torch.Size(()), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """(m, n, ...) to (m, n, d)."""
        self.shape = value.shape
        return value.flatten(2)

    def backward(self, slope: Tensor) -> Tensor:
        """The inverse."""
        return slope.view(self.shape)


@dataclass
class Rows:
    """Anything without parameters, which must take each row for itself; torch differentiates it."""

    function: nn.Module
    saved: tuple[Tensor, ...] = field(default=(), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Everybody's rows, one model's after the other."""
        rows = value.flatten(0, 1).detach().requires_grad_()
        with torch.enable_grad():
            output: Tensor = self.function(rows)
        self.saved = rows, output
        return _apart(output.detach(), len(value))

    def backward(self, slope: Tensor) -> Tensor:
        """By what torch has recorded."""
        rows, output = self.saved
        (found,) = torch.autograd.grad(output, rows, slope.flatten(0, 1))
        return _apart(found, len(slope))


def _folded(value: Tensor) -> Tensor:
    """Stacked pictures as folded ones, (n, m c, h, w)."""
    return value.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)


def _unfolded(value: Tensor, models: int) -> Tensor:
    """Folded pictures as stacked ones, (m, n, c, h, w)."""
    samples, _, height, width = value.shape
    return value.reshape(samples, models, -1, height, width).transpose(0, 1).contiguous()


def _apart(rows: Tensor, models: int) -> Tensor:
    """Rows of several models, one after the other, as stacked ones."""
    return rows.unflatten(0, (models, len(rows) // models))  # type: ignore[no-any-return]


def _pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, tuple | list) else [value, value]
