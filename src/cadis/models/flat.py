"""Any model as three flat vectors, so that moving, comparing and averaging it is one operation."""

import torch
from torch import Tensor, nn

from cadis.models.head import linear_layers
from cadis.models.layout import Layout, flattened
from cadis.types import ModelState


class FlatModel:
    """A model whose trained parameters are views of one vector.

    Attributes:
        module: the model, usable as ever. It is taken over: its parameters now live here.
        layout: what is where.
        num_outputs: how many numbers it makes of an input; 0 if that is not known yet, for it has
            no classifier layer and was never applied.
        vector: all trained parameters, (P,). It shares its memory with them, but is a leaf of
            its own for autograd, so that penalties on all parameters are one expression.
    """

    def __init__(self, module: nn.Module, head: str | None = None, num_outputs: int = 0) -> None:
        """Take over a model.

        Args:
            module: the model.
            head: name of its classifier layer, by default its last linear one, if it has any; ""
                is none, or the model itself if that is a linear layer.
            num_outputs: how many it has, by default as many as the classifier layer.
        """
        self.module = module
        self.layout = Layout.of_module(module, head)
        self.num_outputs = num_outputs or self.layout.num_outputs
        self.parameters: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        memory = torch.cat([torch.empty_like(p).flatten() for p in self.parameters])
        for parameter, view in zip(self.parameters, self.layout.views(memory), strict=True):
            parameter.data = view.copy_(parameter.data)
        self.vector = memory.requires_grad_()
        self._representation = torch.empty(0)
        if self.layout.head is not None:
            layer = linear_layers(module)[self.layout.head.layer]
            layer.register_forward_pre_hook(self._keep_representation)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the representation R(x): the classifier's input, empty without one."""
        logits: Tensor = self.module(inputs)
        self.num_outputs = logits.shape[-1]
        return logits, self._representation

    def load(self, state: ModelState) -> None:
        """Set all parameters, buffers and counters."""
        with torch.no_grad():
            self.vector.copy_(state.parameters)
            tensors = self.module.state_dict()
            for name, part in self.layout.buffer_places(state).items():
                tensors[name].copy_(part)

    def state(self) -> ModelState:
        """A copy of all numbers, on the CPU."""
        tensors = self.module.state_dict()
        floating = [tensors[name].flatten() for name in self.layout.buffers]
        integer = [tensors[name].flatten().long() for name in self.layout.counters]
        return ModelState(
            self.vector.detach().clone().cpu(),
            torch.cat([torch.zeros(0, device=self.vector.device), *floating]).cpu(),
            torch.cat([torch.zeros(0, device=self.vector.device).long(), *integer]).cpu(),
        )

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss with respect to all trained parameters, (P,).

        A loss may depend on the parameters themselves, on :attr:`vector`, or on both.
        """
        leaves = [*self.parameters, self.vector]
        *parts, whole = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(self.parameters, parts, strict=True)
        joined = torch.cat([flattened(torch.zeros_like(p) if g is None else g) for p, g in pairs])
        return joined if whole is None else joined.add_(whole)

    def _keep_representation(self, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._representation = inputs[0]


def channels_last(inputs: Tensor) -> Tensor:
    """Pictures with the channels last in memory; other inputs as they are."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
