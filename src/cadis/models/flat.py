"""Any model as three flat vectors, so that moving, comparing and averaging it is one operation."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cadis.core import CadisError, ModelState
from cadis.models.head import find_head


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its :class:`ModelState`.

    Attributes:
        parameters: name -> shape of what SGD trains, in order.
        buffers: name -> shape of the other floating tensors.
        counters: name -> shape of the integer tensors.
        head: where the classifier layer lies among the parameters: weight, then bias.
    """

    parameters: Mapping[str, torch.Size]
    buffers: Mapping[str, torch.Size]
    counters: Mapping[str, torch.Size]
    head: tuple[slice, ...]

    @classmethod
    def of(cls, module: nn.Module, head: nn.Linear) -> "Layout":
        """Read a model's layout. Frozen parameters count as buffers."""
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if not trained:
            raise CadisError("The model has no trainable parameters.")
        if len({p.dtype for p in trained.values()}) > 1:
            raise CadisError("The model's parameters are of several types; make them all one type.")
        tied = {p.data_ptr() for p in trained.values()}
        others = {
            n: t for n, t in module.state_dict().items() if t.numel() and t.data_ptr() not in tied
        }
        starts, position = {}, 0
        for parameter in trained.values():
            starts[id(parameter)] = position
            position += parameter.numel()
        parts = [p for p in (head.weight, head.bias) if p is not None and id(p) in starts]
        if not parts:
            raise CadisError("The model's classifier layer is frozen; it must be trainable.")
        return cls(
            parameters={n: p.shape for n, p in trained.items()},
            buffers={n: t.shape for n, t in others.items() if t.is_floating_point()},
            counters={n: t.shape for n, t in others.items() if not t.is_floating_point()},
            head=tuple(slice(starts[id(p)], starts[id(p)] + p.numel()) for p in parts),
        )


class FlatModel:
    """A model whose trained parameters are views of one vector.

    Pictures go through convolutions faster with the channels last, so the weights of
    convolutions lie in the vector in that order.

    Attributes:
        module: the model, usable as ever. It is taken over: its parameters now live here.
        layout: what is where.
        vector: all trained parameters, (P,). It shares its memory with them, but is a leaf of
            its own for autograd, so that penalties on all parameters are one expression.
    """

    def __init__(self, module: nn.Module, head: str | None = None) -> None:
        """Take over a model; ``head`` names its classifier layer, by default its last linear."""
        self.module = module
        self._head = find_head(module, head)
        self.layout = Layout.of(module, self._head)
        self.parameters: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
        memory = torch.cat([torch.empty_like(p).flatten() for p in self.parameters])
        for parameter, view in zip(self.parameters, self._views(memory), strict=True):
            parameter.data = view.copy_(parameter.data)
        self.vector = memory.requires_grad_()
        self._representation = torch.empty(0)
        self._head.register_forward_pre_hook(self._keep_representation)

    @property
    def num_classes(self) -> int:
        """How many classes the classifier tells apart."""
        return self._head.out_features

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the representation R(x): the classifier's input."""
        return self.module(inputs), self._representation

    def load(self, state: ModelState) -> None:
        """Set all numbers."""
        with torch.no_grad():
            self.vector.copy_(state.parameters)
            tensors = self.module.state_dict()
            for names, source in (
                (self.layout.buffers, state.buffers),
                (self.layout.counters, state.counters),
            ):
                sizes = [shape.numel() for shape in names.values()]
                for name, part in zip(names, source.split(sizes), strict=True):
                    tensors[name].copy_(part.view(names[name]))

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

    def _views(self, memory: Tensor) -> list[Tensor]:
        shapes = list(self.layout.parameters.values())
        parts = memory.split([shape.numel() for shape in shapes])
        return [_view(part, shape) for part, shape in zip(parts, shapes, strict=True)]

    def _keep_representation(self, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._representation = inputs[0]


def channels_last(inputs: Tensor) -> Tensor:
    """Pictures with the channels last in memory; other inputs as they are."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _view(part: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return part.view(shape)
    out, channels, height, width = shape
    return part.view(out, height, width, channels).permute(0, 3, 1, 2)
