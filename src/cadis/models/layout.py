"""Where each named tensor of a model lies in its flat vectors; the same on every machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate

import torch
from torch import Tensor, nn

from cadis._io import fresh
from cadis.errors import CadisError
from cadis.models.head import Head, find_head, linear_layers
from cadis.types import Message, ModelState

_STATISTICS = (".running_mean", ".running_var")
"""Floating numbers that SGD does not train; where there is no module, they are told by name."""


class WrongTensorsError(ValueError):
    """Tensors that do not fit a layout; the end of a sentence about who sent them."""


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a ``state_dict`` lies in a :class:`ModelState`.

    Pictures go through convolutions faster with the channels last, so the weights of convolutions
    lie in the parameters in that order. Integers are never made floats.

    Attributes:
        shapes: of all tensors, in the order of the ``state_dict``.
        dtypes: the same.
        parameters: names of the tensors that SGD trains, in order.
        buffers: names of the other floating tensors.
        counters: names of the integer tensors.
        aliases: other names of parameters that are used twice.
        head: the classifier layer, None if there is none.
        head_slices: where it lies among the parameters: weight, then bias.
        frozen: where parameters that are not trained lie among the buffers.
    """

    shapes: Mapping[str, torch.Size]
    dtypes: Mapping[str, torch.dtype]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    counters: tuple[str, ...]
    aliases: Mapping[str, str]
    head: Head | None
    head_slices: tuple[slice, ...]
    frozen: tuple[slice, ...] = ()

    @classmethod
    def of_module(cls, module: nn.Module, head: str | None = None) -> "Layout":
        """A model's layout; frozen parameters count as buffers.

        The classifier layer is by default the last linear one, if there is any; "" is none.
        """
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if not trained:
            raise CadisError("The model has no trainable parameters.")
        if len({p.dtype for p in trained.values()}) > 1:
            raise CadisError("The model's parameters are of several types; make them all one type.")
        tensors = module.state_dict()
        names = {p.data_ptr(): n for n, p in trained.items()}
        aliases = {
            n: names[t.data_ptr()]
            for n, t in tensors.items()
            if n not in trained and t.numel() and t.data_ptr() in names
        }
        linear = linear_layers(module)
        none = head == "" and "" not in linear  # a lone linear layer has no other name
        found = None if none else find_head(_shapes(tensors), head, linear)
        layout = cls._of(tensors, tuple(trained), aliases, found)
        if layout.head is not None and not layout.head_slices:
            raise CadisError("The model's classifier layer is frozen; it must be trainable.")
        fixed = {p.data_ptr() for p in module.parameters() if not p.requires_grad and p.numel()}
        places = _slices(layout.shapes, layout.buffers).items()
        frozen = (place for name, place in places if tensors[name].data_ptr() in fixed)
        return replace(layout, frozen=tuple(frozen))

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], head: str | None = None) -> "Layout":
        """The layout of a ``state_dict`` alone: whoever aggregates need not have the model's code.

        All floating tensors count as trained, but batch norm's statistics.
        """
        parameters = tuple(
            name
            for name, tensor in tensors.items()
            if tensor.is_floating_point() and not name.endswith(_STATISTICS)
        )
        if not parameters:
            raise CadisError("The initial arrays hold no floating numbers that could be trained.")
        shapes = {name: tensors[name].shape for name in parameters}
        return cls._of(tensors, parameters, {}, find_head(shapes, head))

    @classmethod
    def _of(
        cls,
        tensors: Mapping[str, Tensor],
        parameters: tuple[str, ...],
        aliases: Mapping[str, str],
        head: Head | None,
    ) -> "Layout":
        shapes = _shapes(tensors)
        others = [n for n in tensors if n not in parameters and n not in aliases]
        places = _slices(shapes, parameters)
        parts = [aliases.get(name, name) for name in (head.parts if head else ())]
        return cls(
            shapes=shapes,
            dtypes={name: tensor.dtype for name, tensor in tensors.items()},
            parameters=parameters,
            buffers=tuple(n for n in others if tensors[n].is_floating_point()),
            counters=tuple(n for n in others if not tensors[n].is_floating_point()),
            aliases=aliases,
            head=head,
            head_slices=tuple(places[name] for name in parts if name in places),
        )

    @property
    def num_outputs(self) -> int:
        """How wide the classifier layer is, 0 if there is none."""
        return self.shapes[self.head.parts[0]][0] if self.head else 0

    def pack(self, tensors: Mapping[str, Tensor]) -> ModelState:
        """The flat vectors of tensors that must have the same names, shapes and kinds."""
        self.check(tensors)
        state, places = self.blank()
        for name, place in places.items():
            place.copy_(tensors[name])
        return state

    def unpack(self, state: ModelState) -> dict[str, Tensor]:
        """The named tensors of flat vectors, each of its own type again."""
        found = self.places(state)
        found |= {name: found[original] for name, original in self.aliases.items()}
        return {name: found[name].to(dtype) for name, dtype in self.dtypes.items()}

    def restore_frozen(self, update: Message, received: Message) -> Message:
        """Return an update whose frozen parameters are those that were received, bit for bit."""
        if not self.frozen:
            return update
        models = dict(update.models)
        for name in models.keys() & received.models.keys():
            buffers = models[name].buffers.clone()
            for place in self.frozen:
                buffers[place] = received.models[name].buffers[place]
            models[name] = replace(models[name], buffers=buffers)
        return replace(update, models=models)

    def blank(self) -> tuple[ModelState, dict[str, Tensor]]:
        """Vectors to be written to, and each tensor as a view of them."""
        vectors = {
            vector: fresh(self.size(names), dtype) for vector, names, dtype in self.contents()
        }
        state = ModelState(**vectors)
        return state, self.places(state)

    def places(self, state: ModelState) -> dict[str, Tensor]:
        """Each tensor but the aliases, as a view of the vector that it lies in."""
        trained = zip(self.parameters, self.views(state.parameters), strict=True)
        return dict(trained) | self.buffer_places(state)

    def buffer_places(self, state: ModelState) -> dict[str, Tensor]:
        """Each tensor that is not trained, as a view of the vector that it lies in."""
        found: dict[str, Tensor] = {}
        for names, vector in ((self.buffers, state.buffers), (self.counters, state.counters)):
            parts = vector.split([self.shapes[name].numel() for name in names])
            found |= {n: p.view(self.shapes[n]) for n, p in zip(names, parts, strict=True)}
        return found

    def contents(self) -> list[tuple[str, tuple[str, ...], torch.dtype]]:
        """The name of each vector, the tensors in it, and the type that holds them exactly."""
        return [
            ("parameters", self.parameters, self._common(self.parameters)),
            ("buffers", self.buffers, self._common(self.buffers)),
            ("counters", self.counters, torch.int64),
        ]

    def size(self, names: Sequence[str]) -> int:
        """How many numbers these tensors have together."""
        return sum(self.shapes[name].numel() for name in names)

    def unpack_all(self, models: Mapping[str, ModelState]) -> dict[str, Tensor]:
        """The named tensors of one model; of several, with the model's name before a slash."""
        if len(models) == 1:
            return self.unpack(*models.values())
        return {
            f"{model}/{name}": tensor
            for model, state in models.items()
            for name, tensor in self.unpack(state).items()
        }

    def views(self, parameters: Tensor) -> list[Tensor]:
        """Each parameter as a view of the vector of all."""
        shapes = [self.shapes[name] for name in self.parameters]
        parts = parameters.split([shape.numel() for shape in shapes])
        return [_view(part, shape) for part, shape in zip(parts, shapes, strict=True)]

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse tensors of other names, shapes or kinds."""
        if missing := [name for name in self.shapes if name not in tensors]:
            raise WrongTensorsError(f"its model lacks {missing[0]}")
        if unknown := [name for name in tensors if name not in self.shapes]:
            raise WrongTensorsError(f"its model has {unknown[0]}, which the global model has not")
        for name, tensor in tensors.items():
            if tensor.shape != self.shapes[name]:
                raise WrongTensorsError(
                    f"its {name} has shape {tuple(tensor.shape)}, not {tuple(self.shapes[name])}"
                )
            if tensor.is_floating_point() != self.dtypes[name].is_floating_point:
                raise WrongTensorsError(
                    f"its {name} has type {tensor.dtype}, not {self.dtypes[name]}"
                )

    def _common(self, names: Sequence[str]) -> torch.dtype:
        """The type that holds all of them exactly."""
        return reduce(torch.promote_types, (self.dtypes[name] for name in names), torch.float16)


def flattened(tensor: Tensor) -> Tensor:
    """A parameter's numbers in the order in which they lie in the vector of all."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).flatten()


def _view(part: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of :func:`flattened`, without a copy."""
    if len(shape) != 4:
        return part.view(shape)
    out, channels, height, width = shape
    return part.view(out, height, width, channels).permute(0, 3, 1, 2)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _slices(shapes: Mapping[str, torch.Size], names: Sequence[str]) -> dict[str, slice]:
    """Where each of these tensors lies in a vector of all of them."""
    ends = accumulate(shapes[name].numel() for name in names)
    return {n: slice(end - shapes[n].numel(), end) for n, end in zip(names, ends, strict=True)}
