"""The positions of the tensors of a ``state_dict`` in flat vectors, the same on every machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate

import torch
from torch import Tensor, nn

from cadis._io import allocate_vector
from cadis.errors import CadisError
from cadis.models.head import Head, find_head, find_linear_layers
from cadis.types import Message, ModelState

_STATISTICS = (".running_mean", ".running_var")
"""Suffixes of batch norm's statistics, to recognize buffers in a ``state_dict``."""


class WrongTensorsError(ValueError):
    """Tensors that do not match a layout; the message is a clause such as "its model lacks w"."""


@dataclass(frozen=True)
class Layout:
    """The position of each tensor of a ``state_dict`` in a :class:`ModelState`.

    Weights of convolutions are stored with the channels last, because convolutions of images are
    faster in that format. Integers are never converted to floats.

    Attributes:
        shapes: the shapes of all tensors by name, in the order of the ``state_dict``.
        dtypes: the types of all tensors by name.
        parameters: the names of the trainable tensors, in order.
        buffers: the names of the other floating-point tensors.
        counters: the names of the integer tensors.
        aliases: further names of shared parameters, mapped to the name of the parameter.
        head: the classifier layer; None if there is none.
        head_slices: the slices of its weight and its bias in the vector of parameters.
        frozen: the slices of frozen parameters in the vector of buffers.

    Example:
        >>> import torch
        >>> layout = Layout.from_tensors(torch.nn.Linear(3, 2).state_dict())
        >>> layout.head_slices
        (slice(0, 6, None), slice(6, 8, None))
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
    def from_module(cls, module: nn.Module, head: str | None = None) -> "Layout":
        """Return the layout of a module; frozen parameters count as buffers.

        Args:
            module: the module.
            head: the name of the classifier layer, by default the last linear layer, if there is
                one; "" means no classifier layer.
        """
        trainable = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise CadisError("The model has no trainable parameters.")
        if len({p.dtype for p in trainable.values()}) > 1:
            raise CadisError("The model's parameters have several types; give them all one type.")
        tensors = module.state_dict()
        names = {p.data_ptr(): n for n, p in trainable.items()}
        aliases = {
            n: names[t.data_ptr()]
            for n, t in tensors.items()
            if n not in trainable and t.numel() and t.data_ptr() in names
        }
        linear = find_linear_layers(module)
        has_no_head = head == "" and "" not in linear  # "" also names a module that is a Linear
        layer = None if has_no_head else find_head(_get_shapes(tensors), head, linear)
        layout = cls._create(tensors, tuple(trainable), aliases, layer)
        if layout.head is not None and not layout.head_slices:
            raise CadisError("The model's classifier layer is frozen; it must be trainable.")
        frozen = {p.data_ptr() for p in module.parameters() if not p.requires_grad and p.numel()}
        slices = layout.buffer_slices.items()
        frozen_slices = (part for name, part in slices if tensors[name].data_ptr() in frozen)
        return replace(layout, frozen=tuple(frozen_slices))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], head: str | None = None) -> "Layout":
        """Return the layout of a ``state_dict``, for a server that does not have the model's code.

        All floating-point tensors except batch norm's statistics count as trainable.

        Args:
            tensors: the ``state_dict``, or numbered tensors: "0", "1", ...
            head: the name of the classifier layer, by default the last linear layer.
        """
        parameters = tuple(
            name
            for name, tensor in tensors.items()
            if tensor.is_floating_point() and not name.endswith(_STATISTICS)
        )
        if not parameters:
            raise CadisError("The initial arrays have no floating-point numbers to train.")
        shapes = {name: tensors[name].shape for name in parameters}
        return cls._create(tensors, parameters, {}, find_head(shapes, head))

    @classmethod
    def _create(
        cls,
        tensors: Mapping[str, Tensor],
        parameters: tuple[str, ...],
        aliases: Mapping[str, str],
        head: Head | None,
    ) -> "Layout":
        shapes = _get_shapes(tensors)
        others = [n for n in tensors if n not in parameters and n not in aliases]
        slices = _compute_slices(shapes, parameters)
        parts = [aliases.get(name, name) for name in (head.parts if head else ())]
        return cls(
            shapes=shapes,
            dtypes={name: tensor.dtype for name, tensor in tensors.items()},
            parameters=parameters,
            buffers=tuple(n for n in others if tensors[n].is_floating_point()),
            counters=tuple(n for n in others if not tensors[n].is_floating_point()),
            aliases=aliases,
            head=head,
            head_slices=tuple(slices[name] for name in parts if name in slices),
        )

    @property
    def num_outputs(self) -> int:
        """The number of outputs of the classifier layer; 0 if there is none."""
        return self.shapes[self.head.parts[0]][0] if self.head else 0

    @property
    def buffer_slices(self) -> dict[str, slice]:
        """The slice of each buffer in the vector of buffers."""
        return _compute_slices(self.shapes, self.buffers)

    def pack(self, tensors: Mapping[str, Tensor]) -> ModelState:
        """Copy the tensors of a ``state_dict``, which must match the layout, to flat vectors."""
        self.check_tensors(tensors)
        state, views = self.allocate()
        for name, view in views.items():
            view.copy_(tensors[name])
        return state

    def unpack(self, state: ModelState) -> dict[str, Tensor]:
        """Return flat vectors as a ``state_dict``, with the original types and aliases."""
        views = self.view_tensors(state)
        views |= {alias: views[name] for alias, name in self.aliases.items()}
        return {name: views[name].to(dtype) for name, dtype in self.dtypes.items()}

    def restore_frozen(self, update: Message, received: Message) -> Message:
        """Return the update with the frozen parameters of the received message, bit for bit."""
        if not self.frozen:
            return update
        models = dict(update.models)
        for name in models.keys() & received.models.keys():
            buffers = models[name].buffers.clone()
            for part in self.frozen:
                buffers[part] = received.models[name].buffers[part]
            models[name] = replace(models[name], buffers=buffers)
        return replace(update, models=models)

    def allocate(self) -> tuple[ModelState, dict[str, Tensor]]:
        """Return an uninitialized flat model, and a view of it for each tensor."""
        vectors = {
            vector: allocate_vector(self.count_elements(names), dtype)
            for vector, names, dtype in self.list_vectors()
        }
        state = ModelState(**vectors)
        return state, self.view_tensors(state)

    def view_tensors(self, state: ModelState) -> dict[str, Tensor]:
        """Return each tensor except the aliases as a view of the flat vectors."""
        parameters = zip(self.parameters, self.view_parameters(state.parameters), strict=True)
        return dict(parameters) | self.view_buffers(state)

    def view_buffers(self, state: ModelState) -> dict[str, Tensor]:
        """Return each buffer and counter as a view of the flat vectors."""
        views: dict[str, Tensor] = {}
        for names, vector in ((self.buffers, state.buffers), (self.counters, state.counters)):
            parts = vector.split([self.shapes[name].numel() for name in names])
            views |= {n: p.view(self.shapes[n]) for n, p in zip(names, parts, strict=True)}
        return views

    def list_vectors(self) -> list[tuple[str, tuple[str, ...], torch.dtype]]:
        """Return the name, the names of the tensors, and the type of each of the three vectors."""
        return [
            ("parameters", self.parameters, self._find_common_dtype(self.parameters)),
            ("buffers", self.buffers, self._find_common_dtype(self.buffers)),
            ("counters", self.counters, torch.int64),
        ]

    def count_elements(self, names: Sequence[str]) -> int:
        """Return the total number of elements of some tensors."""
        return sum(self.shapes[name].numel() for name in names)

    def unpack_models(self, models: Mapping[str, ModelState]) -> dict[str, Tensor]:
        """Return the ``state_dict`` of all models; several models have ``<model>/`` as prefix."""
        if len(models) == 1:
            return self.unpack(*models.values())
        return {
            f"{model}/{name}": tensor
            for model, state in models.items()
            for name, tensor in self.unpack(state).items()
        }

    def view_parameters(self, parameters: Tensor) -> list[Tensor]:
        """Return each parameter as a view of the vector of all parameters, (P,)."""
        shapes = [self.shapes[name] for name in self.parameters]
        parts = parameters.split([shape.numel() for shape in shapes])
        return [
            _unflatten_parameter(part, shape) for part, shape in zip(parts, shapes, strict=True)
        ]

    def check_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise :class:`WrongTensorsError` if names or shapes differ, or floats and integers do."""
        if missing := [name for name in self.shapes if name not in tensors]:
            raise WrongTensorsError(f"its model lacks {missing[0]}")
        if unknown := [name for name in tensors if name not in self.shapes]:
            raise WrongTensorsError(f"its model has {unknown[0]}, but the global model does not")
        for name, tensor in tensors.items():
            if tensor.shape != self.shapes[name]:
                raise WrongTensorsError(
                    f"its {name} has shape {tuple(tensor.shape)}, not {tuple(self.shapes[name])}"
                )
            if tensor.is_floating_point() != self.dtypes[name].is_floating_point:
                raise WrongTensorsError(
                    f"its {name} has type {tensor.dtype}, not {self.dtypes[name]}"
                )

    def _find_common_dtype(self, names: Sequence[str]) -> torch.dtype:
        """Return the smallest floating-point type that holds all of these tensors exactly."""
        return reduce(torch.promote_types, (self.dtypes[name] for name in names), torch.float16)


def flatten_parameter(tensor: Tensor) -> Tensor:
    """Flatten a parameter in the order of the flat vector: channels last for convolutions."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).flatten()


def _unflatten_parameter(vector: Tensor, shape: torch.Size) -> Tensor:
    """Invert :func:`flatten_parameter` without a copy."""
    if len(shape) != 4:
        return vector.view(shape)
    out, channels, height, width = shape
    return vector.view(out, height, width, channels).permute(0, 3, 1, 2)


def _get_shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _compute_slices(shapes: Mapping[str, torch.Size], names: Sequence[str]) -> dict[str, slice]:
    """Return the slice of each tensor in the concatenation of all tensors."""
    ends = accumulate(shapes[name].numel() for name in names)
    return {n: slice(end - shapes[n].numel(), end) for n, end in zip(names, ends, strict=True)}
