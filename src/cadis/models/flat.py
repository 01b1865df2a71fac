"""A module whose parameters are views of one flat vector, for fast copies, norms and averages."""

import torch
from torch import Tensor, nn

from cadis.models.head import find_linear_layers
from cadis.models.layout import Layout, flatten_parameter
from cadis.types import ModelState


class FlatModel:
    """A module whose trainable parameters are views of one vector.

    Attributes:
        module: the module. Its parameters become views of ``vector``; use it as usual.
        layout: the positions of all tensors in the flat vectors.
        num_outputs: the number of outputs per sample; 0 while it is unknown, because the module has
            no classifier layer and was not called yet.
        parameters: the trainable parameters, in the order of ``vector``.
        vector: all trainable parameters, (P,). It shares memory with ``parameters``, but is a
            separate leaf for autograd, so that a penalty on all parameters is one expression.

    Example:
        >>> import torch
        >>> flat = FlatModel(torch.nn.Linear(3, 2))
        >>> flat.vector.shape
        torch.Size([8])
        >>> logits, representation = flat.forward(torch.zeros(4, 3))
        >>> logits.shape
        torch.Size([4, 2])
    """

    def __init__(self, module: nn.Module, head: str | None = None, num_outputs: int = 0) -> None:
        """Move the parameters of a module into one vector, in place.

        Args:
            module: the module, which is changed.
            head: the name of the classifier layer. By default it is the last linear layer, if there
                is one. If it is "" and the module itself is a linear layer, the module is the
                classifier layer; for any other module, "" means that there is none.
            num_outputs: the number of outputs of the module; by default, the number of outputs of
                the classifier layer.
        """
        self.module = module
        self.layout = Layout.from_module(module, head)
        self.num_outputs = num_outputs or self.layout.num_outputs
        self.parameters: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        vector = torch.cat([torch.empty_like(p).flatten() for p in self.parameters])
        views = self.layout.view_parameters(vector)
        for parameter, view in zip(self.parameters, views, strict=True):
            parameter.data = view.copy_(parameter.data)
        self.vector = vector.requires_grad_()
        self._representation = torch.empty(0)
        if self.layout.head is not None:
            layer = find_linear_layers(module)[self.layout.head.layer]
            layer.register_forward_pre_hook(self._keep_representation)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, and the representation R(x), the input of the classifier layer.

        Args:
            inputs: a batch, (batch, ...).

        Returns:
            The logits, (batch, outputs), and the representation, (batch, features); without a
            classifier layer, the representation is empty.
        """
        logits: Tensor = self.module(inputs)
        self.num_outputs = logits.shape[-1]
        return logits, self._representation

    def load(self, state: ModelState) -> None:
        """Set all parameters, floating-point buffers and integer buffers.

        Integer buffers are counters, such as ``num_batches_tracked`` of batch norm.
        """
        with torch.no_grad():
            self.vector.copy_(state.parameters)
            tensors = self.module.state_dict()
            for name, part in self.layout.view_buffers(state).items():
                tensors[name].copy_(part)

    def copy_state(self) -> ModelState:
        """Return a copy on the CPU of all parameters, floating-point and integer buffers."""
        tensors = self.module.state_dict()
        floating = [tensors[name].flatten() for name in self.layout.buffers]
        integer = [tensors[name].flatten().long() for name in self.layout.counters]
        return ModelState(
            self.vector.detach().clone().cpu(),
            torch.cat([torch.zeros(0, device=self.vector.device), *floating]).cpu(),
            torch.cat([torch.zeros(0, device=self.vector.device).long(), *integer]).cpu(),
        )

    def compute_gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss with respect to all trainable parameters, (P,).

        The loss may depend on :attr:`parameters`, on :attr:`vector`, or on both.
        """
        leaves = [*self.parameters, self.vector]
        *grads, vector_grad = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(self.parameters, grads, strict=True)
        total = torch.cat(
            [flatten_parameter(torch.zeros_like(p) if g is None else g) for p, g in pairs]
        )
        return total if vector_grad is None else total.add_(vector_grad)

    def _keep_representation(self, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._representation = inputs[0]


def to_channels_last(inputs: Tensor) -> Tensor:
    """Convert images to the memory format ``channels_last``; return other inputs unchanged."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
