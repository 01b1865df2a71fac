"""Layers that compute the forward and backward pass of m models at once.

m is the number of *active* models, those that take part in a step: a client with few samples skips
some steps. The active models are always the first of the stack.

A value between layers has one of two forms:

- *stacked*: (m, b, ...), with dimensions for models and samples first;
- *folded*, for images: (b, m * channels, height, width), in the memory format ``channels_last``.
  This is the input of one grouped convolution with a group per model.

Each layer implements its backward pass itself, because for small models autograd takes most of the
time of a step. If the optimizer is plain SGD, the backward pass also updates the parameters in
place.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

_aten = torch.ops.aten


@dataclass
class Parameter:
    """One parameter of m models.

    Attributes:
        value: the parameter of each active model, (m, ...).
        lr: the learning rate, if gradients are applied in place.
        grad: the buffer that gradients are copied to if ``lr`` is None, (m, ...).
    """

    value: Tensor
    lr: float | None = None
    grad: Tensor | None = None

    def apply_gradient(self, grad: Tensor) -> None:
        """Take an SGD step, or store the gradient if there is no learning rate."""
        if self.lr is not None:
            self.value.sub_(grad, alpha=self.lr)
        elif self.grad is not None:
            self.grad.copy_(grad)

    def apply_product(self, first: Tensor, second: Tensor) -> None:
        """Apply the gradient ``first @ second`` without storing it; see :meth:`apply_gradient`."""
        if self.lr is not None:
            self.value.baddbmm_(first, second, alpha=-self.lr)
        elif self.grad is not None:
            torch.bmm(first, second, out=self.grad)


class Layer(Protocol):
    """A layer of m models."""

    def forward(self, value: Tensor) -> Tensor:
        """Return the output, and keep the tensors that the backward pass needs."""

    def backward(self, grad: Tensor) -> Tensor:
        """Update the parameters, and return the gradient with respect to the input.

        The first layer with parameters does not compute this gradient, because nothing needs it.
        Its result is not used.

        Args:
            grad: the gradient with respect to the output.
        """


@dataclass
class Linear:
    """``nn.Linear`` of m models; input and output are stacked."""

    weight: Parameter  # (m, out, in)
    bias: Parameter | None  # (m, out)
    is_first: bool = False  # whether it is the first layer with parameters
    inputs: Tensor = field(default_factory=lambda: torch.empty(0), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Multiply the rows of each model by its weight, (m, b, in) to (m, b, out)."""
        self.inputs = value.flatten(1, -2)
        weight = self.weight.value.mT
        if self.bias is None:
            output = torch.bmm(self.inputs, weight)
        else:
            output = torch.baddbmm(self.bias.value[:, None], self.inputs, weight)
        return output.view(*value.shape[:-1], -1)

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient with respect to the input, computed before the weight changes."""
        shape, grad = grad.shape, grad.flatten(1, -2)
        inputs_grad = grad if self.is_first else torch.bmm(grad, self.weight.value)
        self.weight.apply_product(grad.mT, self.inputs)
        if self.bias is not None:
            self.bias.apply_gradient(grad.sum(dim=1))
        return inputs_grad.view(*shape[:-1], -1)


@dataclass
class Convolution:
    """``nn.Conv2d`` of m models as one grouped convolution; input and output are folded."""

    layer: nn.Conv2d
    weight: Parameter  # (m, out, height, width, in)
    bias: Parameter | None  # (m, out)
    is_first: bool = False  # whether it is the first layer with parameters
    saved: tuple[Tensor, ...] = field(default=(), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Convolve the channels of each model with its weight."""
        weight = self.weight.value.flatten(0, 1).permute(0, 3, 1, 2)  # (m out, in, h, w)
        self.saved = value, weight
        bias = None if self.bias is None else self.bias.value.flatten()
        return torch.conv2d(value, weight, bias, *self._get_options(), groups=self._count_groups())

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient with respect to the input, and update weight and bias."""
        value, weight = self.saved
        has_bias = self.bias is not None
        value_grad, weight_grad, bias_grad = _aten.convolution_backward(
            grad,
            value,
            weight,
            [len(weight)] if has_bias else None,  # shape of the bias
            *self._get_options(),
            False,  # whether the convolution is transposed
            [0, 0],  # output padding, for transposed convolutions only
            self._count_groups(),
            [not self.is_first, True, has_bias],  # whether to compute each of the three gradients
        )
        num_models = len(self.weight.value)
        self.weight.apply_gradient(weight_grad.permute(0, 2, 3, 1).unflatten(0, (num_models, -1)))
        if self.bias is not None:
            self.bias.apply_gradient(bias_grad.view(num_models, -1))
        return grad if self.is_first else value_grad

    def _get_options(self) -> tuple[Any, Any, Any]:
        """Return stride, padding and dilation."""
        return self.layer.stride, self.layer.padding, self.layer.dilation

    def _count_groups(self) -> int:
        return len(self.weight.value) * self.layer.groups


@dataclass
class Relu:
    """``nn.ReLU``; the value may be stacked or folded."""

    output: Tensor = field(default_factory=lambda: torch.empty(0), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Apply ReLU elementwise."""
        self.output = value.relu()
        return self.output

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient, with 0 where the output is 0."""
        value_grad: Tensor = _aten.threshold_backward(grad, self.output, 0)
        return value_grad


@dataclass
class MaxPool:
    """``nn.MaxPool2d``; input and output are folded."""

    layer: nn.MaxPool2d
    saved: tuple[Tensor, ...] = field(default=(), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Return the maximum of each window, and keep its index."""
        output: Tensor
        output, indices = _aten.max_pool2d_with_indices(value, *self._get_options())
        self.saved = value, indices
        return output

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient with respect to the input, which is 0 except at the maxima."""
        value, indices = self.saved
        value_grad: Tensor = _aten.max_pool2d_with_indices_backward(
            grad, value, *self._get_options(), indices
        )
        return value_grad

    def _get_options(self) -> tuple[Any, ...]:
        layer = self.layer
        pairs = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        return *map(_to_pair, pairs), layer.ceil_mode


@dataclass
class Refold:
    """Conversion of images between the stacked and the folded form.

    Attributes:
        to_folded: whether the output is folded; otherwise it is stacked.
        num_models: m, the number of active models.
    """

    to_folded: bool
    num_models: int = 0

    def forward(self, value: Tensor) -> Tensor:
        """Convert (m, b, c, h, w) to (b, m c, h, w), or the inverse."""
        return _fold(value) if self.to_folded else _unfold(value, self.num_models)

    def backward(self, grad: Tensor) -> Tensor:
        """Apply the inverse conversion."""
        return _unfold(grad, self.num_models) if self.to_folded else _fold(grad)


@dataclass
class Flatten:
    """``nn.Flatten``; input and output are stacked."""

    shape: torch.Size = field(default_factory=lambda: torch.Size(()), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Flatten each sample, (m, b, ...) to (m, b, d)."""
        self.shape = value.shape
        return value.flatten(2)

    def backward(self, grad: Tensor) -> Tensor:
        """Restore the shape of the input."""
        return grad.view(self.shape)


@dataclass
class SamplewiseFunction:
    """A function without parameters that treats each sample separately; it uses autograd."""

    function: nn.Module
    saved: tuple[Tensor, ...] = field(default=(), init=False)

    def forward(self, value: Tensor) -> Tensor:
        """Call the function on the rows of all models as one batch, (m b, ...)."""
        rows = value.flatten(0, 1).detach().requires_grad_()
        with torch.enable_grad():
            output: Tensor = self.function(rows)
        self.saved = rows, output
        return _split_models(output.detach(), len(value))

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient with respect to the rows, computed with autograd."""
        rows, output = self.saved
        (rows_grad,) = torch.autograd.grad(output, rows, grad.flatten(0, 1))
        return _split_models(rows_grad, len(grad))


def _fold(value: Tensor) -> Tensor:
    """Convert stacked images, (m, b, c, h, w), to folded images, (b, m c, h, w)."""
    return value.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)


def _unfold(value: Tensor, num_models: int) -> Tensor:
    """Convert folded images, (b, m c, h, w), to stacked images, (m, b, c, h, w)."""
    batch, _, height, width = value.shape
    return value.reshape(batch, num_models, -1, height, width).transpose(0, 1).contiguous()


def _split_models(rows: Tensor, num_models: int) -> Tensor:
    """Split the first dimension: (m b, ...) becomes (m, b, ...)."""
    return rows.unflatten(0, (num_models, len(rows) // num_models))  # type: ignore[no-any-return]


def _to_pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, tuple | list) else [value, value]
