"""In-place SGD steps of large linear layers, without storing the gradient of the weight.

The gradient of a linear layer's weight is as large as the weight. It is the product of two small
matrices: the transposed gradient with respect to the layer's outputs, and the layer's inputs. A
plain SGD step uses the product only once. So the backward pass keeps the two factors, and the step
adds their product directly to the weight (``addmm_``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_MIN_ELEMENTS = 100_000
"""Minimum number of elements of a weight; the usual backward pass is faster for smaller ones."""


@dataclass
class InPlaceLinears:
    """The pending weight gradients of a model's large linear layers, stored as factors.

    Attributes:
        is_collecting: whether a backward pass stores the factors instead of the gradient. It is
            False outside :meth:`compute_gradients`, so that methods can call autograd as usual.
        factors: for each call of a layer: the weight, (out, in), the gradient with respect to the
            outputs, (n, out), and the inputs, (n, in).
    """

    is_collecting: bool = False
    factors: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    @contextmanager
    def patch(self, module: nn.Module) -> Iterator[None]:
        """Replace the forward pass of the module's large linear layers within a ``with`` block."""
        linears = (layer for layer in module.modules() if isinstance(layer, nn.Linear))
        layers = [layer for layer in linears if _can_patch(layer)]
        for layer in layers:
            vars(layer)["forward"] = partial(self._forward, layer)
        try:
            yield
        finally:
            for layer in layers:
                del vars(layer)["forward"]

    def compute_gradients(self, loss: Tensor, leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Return the gradients of a loss with respect to the leaves.

        The gradient is None for leaves that the loss does not depend on, and for weights whose
        gradient is stored as factors.
        """
        self.is_collecting = True
        try:
            return torch.autograd.grad(loss, leaves, allow_unused=True)
        finally:
            self.is_collecting = False

    def step(self, lr: float) -> None:
        """Take an SGD step with the stored factors: weight <- weight - lr * grad^T inputs."""
        for weight, grad, inputs in self.factors:
            weight.addmm_(grad.to(weight.dtype).T, inputs.to(weight.dtype), alpha=-lr)
        self.factors.clear()

    def _forward(self, layer: nn.Linear, inputs: Tensor) -> Tensor:
        if inputs.dim() != 2:
            return F.linear(inputs, layer.weight, layer.bias)
        return _apply_linear(inputs, layer.weight, layer.bias, self)


def _can_patch(layer: nn.Linear) -> bool:
    """Return whether a layer is large, and its forward pass is that of ``nn.Linear``."""
    if type(layer) is not nn.Linear or "forward" in vars(layer):
        return False
    weight = dict(layer.named_parameters(recurse=False)).get("weight")  # None if parametrized
    return weight is not None and weight.requires_grad and weight.numel() >= _MIN_ELEMENTS


class _Linear(torch.autograd.Function):
    """A linear layer whose backward pass gives the factors of the weight's gradient to an owner."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, owner: InPlaceLinears
    ) -> Tensor:
        device = inputs.device.type
        is_autocast = torch.is_autocast_enabled(device)
        ctx.autocast_dtype = torch.get_autocast_dtype(device) if is_autocast else None
        ctx.owner, ctx.has_bias, ctx.weight = owner, bias is not None, weight
        ctx.inputs = inputs
        if ctx.autocast_dtype is not None:
            inputs, weight = inputs.to(ctx.autocast_dtype), weight.to(ctx.autocast_dtype)
            bias = None if bias is None else bias.to(ctx.autocast_dtype)
        ctx.save_for_backward(inputs, weight)
        return F.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        if ctx.autocast_dtype is not None and torch.is_grad_enabled():
            # The gradient itself will be differentiated. The saved tensors are converted copies
            # that autograd does not know, so convert the original tensors again.
            inputs, weight = ctx.inputs.to(ctx.autocast_dtype), ctx.weight.to(ctx.autocast_dtype)
        inputs_grad = grad @ weight if ctx.needs_input_grad[0] else None
        bias_grad = grad.sum(dim=0) if ctx.has_bias else None
        weight_grad = None
        if ctx.owner.is_collecting:
            ctx.owner.factors.append((ctx.weight, grad, inputs))
        else:
            weight_grad = grad.T @ inputs
        return inputs_grad, weight_grad, bias_grad, None


_apply_linear: Callable[..., Tensor] = _Linear.apply
