"""Large linear layers whose weight takes its gradient in place.

The gradient of a linear layer's weight is a product of two small matrices, the gradients by the
outputs and the inputs of a batch, and is as large as the weight. A plain SGD step adds it to the
weight and forgets it. So it is never written down: the two factors are kept while the gradients
are worked out, and their product is then added straight to the weight, in one pass over it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LARGE = 100_000
"""From so many numbers on, a weight gains more than the way around autograd's own costs."""


@dataclass
class InPlaceLinears:
    """What the linear layers of a model have yet to add to their weights.

    Attributes:
        collecting: whether a gradient that comes by is kept as its factors; else it is worked out
            as ever, as for whoever takes gradients of a part of the model.
        factors: weights, and the factors of their gradients: by the outputs, (n, out), and
            the inputs, (n, in).
    """

    collecting: bool = False
    factors: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    @contextmanager
    def of(self, module: nn.Module) -> Iterator[None]:
        """Meanwhile, large linear layers of the model, whatever its class, work this way."""
        linear = (layer for layer in module.modules() if isinstance(layer, nn.Linear))
        taken = [layer for layer in linear if _is_large(layer)]
        for layer in taken:
            vars(layer)["forward"] = partial(self._forward, layer)
        try:
            yield
        finally:
            for layer in taken:
                del vars(layer)["forward"]

    def gradients(self, loss: Tensor, leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """The gradients of a loss, None where there is none or only its factors are kept."""
        self.collecting = True
        try:
            return torch.autograd.grad(loss, leaves, allow_unused=True)
        finally:
            self.collecting = False

    def step(self, lr: float) -> None:
        """Add what was kept to the weights: w <- w - lr * gradient^T inputs."""
        for weight, gradient, inputs in self.factors:
            weight.addmm_(gradient.to(weight.dtype).T, inputs.to(weight.dtype), alpha=-lr)
        self.factors.clear()

    def _forward(self, layer: nn.Linear, inputs: Tensor) -> Tensor:
        if inputs.dim() != 2:
            return F.linear(inputs, layer.weight, layer.bias)
        return _linear(inputs, layer.weight, layer.bias, self)


def _is_large(layer: nn.Linear) -> bool:
    """Whether a layer is large, and its forward pass is torch's own."""
    if type(layer) is not nn.Linear or "forward" in vars(layer):
        return False
    weight = dict(layer.named_parameters(recurse=False)).get("weight")  # some make it of others
    return weight is not None and weight.requires_grad and weight.numel() >= _LARGE


class _Linear(torch.autograd.Function):
    """A linear layer that leaves the gradient of its weight to :class:`InPlaceLinears`."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, owner: InPlaceLinears
    ) -> Tensor:
        kind = inputs.device.type
        ctx.fast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        ctx.owner, ctx.has_bias, ctx.weight = owner, bias is not None, weight
        ctx.given = inputs
        if ctx.fast is not None:
            inputs, weight = inputs.to(ctx.fast), weight.to(ctx.fast)
            bias = None if bias is None else bias.to(ctx.fast)
        ctx.save_for_backward(inputs, weight)
        return F.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        if ctx.fast is not None and torch.is_grad_enabled():  # a gradient of this one is wanted
            inputs, weight = ctx.given.to(ctx.fast), ctx.weight.to(ctx.fast)
        by_inputs = gradient @ weight if ctx.needs_input_grad[0] else None
        by_bias = gradient.sum(dim=0) if ctx.has_bias else None
        by_weight = None
        if ctx.owner.collecting:
            ctx.owner.factors.append((ctx.weight, gradient, inputs))
        else:
            by_weight = gradient.T @ inputs
        return by_inputs, by_weight, by_bias, None


_linear: Callable[..., Tensor] = _Linear.apply
