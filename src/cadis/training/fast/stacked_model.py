"""Models of several clients side by side, which their batches go through at once.

Where a model is small, most of a step's time goes into beginning operations and recording them,
not into arithmetic. So the parameters of several clients are held as one matrix, a row for each,
and every layer does the work of all of them in one operation.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from cadis.models import FlatModel
from cadis.training.fast.stacked_layers import (
    Convolution,
    Flatten,
    Layer,
    Linear,
    MaxPool,
    Parameter,
    Refold,
    Relu,
    Rows,
)

_MOST_PARAMETERS = 250_000
"""Larger models keep a core busy by themselves."""

_RELU = (F.relu, torch.relu, "relu")


class StackedModel:
    """Models of one architecture, each with its own parameters.

    Attributes:
        memory: the parameters of all models, (m, P).
        in_use: how many of the models are in use, from the first.
    """

    def __init__(self, module: nn.Module, head: str, size: int) -> None:
        """Take over a module for which :func:`stacks` holds, and make room for so many models."""
        self._layout = FlatModel(module.train(), head).layout
        self.in_use = 0
        self._lr: float | None = None
        total = self._layout.size(self._layout.parameters)
        self.memory = torch.zeros(size, total, dtype=next(module.parameters()).dtype)
        self._gradient = torch.empty(0)
        self._parameters = {n: Parameter(torch.empty(0)) for n in self._layout.parameters}
        self._layers, self._head = _Builder(module, self._parameters).layers(head)
        self._first, first = next(
            (place, layer)
            for place, layer in enumerate(self._layers)
            if isinstance(layer, Linear | Convolution)
        )
        first.is_first = True

    def use(self, number: int, lr: float | None) -> None:
        """Use the first so many models; without a learning rate, gradients are gathered instead."""
        if (number, lr) == (self.in_use, self._lr):
            return
        self.in_use, self._lr, start = number, lr, 0
        if lr is None:
            self._gradient = torch.zeros_like(self.memory[:number])
        for name, parameter in self._parameters.items():
            shape = _stored(self._layout.shapes[name])
            place = slice(start, start + prod(shape))
            parameter.value = self.memory[:number, place].view(number, *shape)
            parameter.lr, parameter.gradient = lr, None
            if lr is None:
                parameter.gradient = self._gradient[:, place].view(number, *shape)
            start += prod(shape)
        for layer in self._layers:
            if isinstance(layer, Refold):
                layer.models = number

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and representations, (m, n, ...) each, of stacked inputs."""
        value = representation = inputs
        for place, layer in enumerate(self._layers):
            if place == self._head:
                representation = value
            value = layer.forward(value)
        return value, representation

    def backward(self, by_logits: Tensor, by_representation: Tensor | None) -> Tensor | None:
        """Let all parameters take their gradients; or return them, (m, P), if they do not.

        To the gradient by the representation comes that of a penalty on it, if there is any.
        """
        slope = by_logits
        for place in range(len(self._layers) - 1, self._first - 1, -1):
            slope = self._layers[place].backward(slope)
            if place == self._head > self._first and by_representation is not None:
                slope = slope + by_representation
        return self._gradient.clone() if self._lr is None else None


def stacks(model: FlatModel) -> bool:
    """Whether models of this architecture may be trained side by side: a rule, by its layers.

    It must be small, a chain of layers, and have parameters only in linear layers and
    convolutions, all trained and none used twice. Batch norm, for one, would see everybody's rows
    as one batch, and dropout everybody's chance. What else there is must take each sample for
    itself, which a trial shows.
    """
    layout = model.layout
    if layout.buffers or layout.counters or layout.aliases or layout.head is None:
        return False
    if model.vector.numel() > _MOST_PARAMETERS or model.vector.device.type != "cpu":
        return False
    layers = list(model.module.modules())
    if any(isinstance(layer, _DropoutNd) and layer.p for layer in layers):
        return False
    if any(_has_other_hooks(layer) for layer in layers):
        return False
    return all(_is_known(layer) for layer in layers if list(layer.parameters(recurse=False)))


class _Builder:
    """Makes stacked layers of a model, by the graph of what it calls."""

    def __init__(self, module: nn.Module, parameters: dict[str, Parameter]) -> None:
        self.module, self.parameters = module, parameters
        self.found: list[Layer] = []
        self.folded = False

    def layers(self, head: str) -> tuple[list[Layer], int]:
        """The layers in order, and the place of the classifier among them.

        Raises:
            ValueError: if the model is no chain of layers.
        """
        graph = fx.Tracer().trace(self.module)
        places: dict[str, int] = {}
        rest: list[fx.Node] = []  # nodes since the last layer that is known
        value = next(node for node in graph.nodes if node.op == "placeholder")
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            known = None if node.op == "output" else self._known(node)
            if known is None and node.op != "output":
                rest.append(node)
                continue
            if node.target in places or node.args[0] is not (rest[-1] if rest else value):
                raise ValueError("The model is no chain of layers.")
            self._add_rest(rest, value)
            rest, value = [], node
            if known is not None:
                self._add(known)
            if isinstance(known, Linear | Convolution):
                places[str(node.target)] = len(self.found) - 1
        self._bring(folded=False)
        return self.found, places[head]

    def _known(self, node: fx.Node) -> Layer | None:
        """The stacked layer for what a node calls; None if it is any function."""
        if node.op != "call_module":
            plain = node.target in _RELU and len(node.args) == 1 and not node.kwargs
            return Relu() if plain else None
        layer = self.module.get_submodule(str(node.target))
        if isinstance(layer, nn.Linear | nn.Conv2d):
            weight = self.parameters[f"{node.target}.weight"]
            bias = None if layer.bias is None else self.parameters[f"{node.target}.bias"]
            if isinstance(layer, nn.Linear):
                return Linear(weight, bias)
            return Convolution(layer, weight, bias)
        if type(layer) is nn.MaxPool2d and not layer.return_indices:
            return MaxPool(layer)
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            return Flatten()
        return Relu() if type(layer) is nn.ReLU else None

    def _add(self, layer: Layer) -> None:
        if not isinstance(layer, Relu):  # which is the same of either form
            self._bring(folded=isinstance(layer, Convolution | MaxPool))
        self.found.append(layer)

    def _bring(self, folded: bool) -> None:
        """Bring the value into the form that the next layer wants."""
        if folded != self.folded:
            self.found.append(Refold(folded))
            self.folded = folded

    def _add_rest(self, nodes: Sequence[fx.Node], value: fx.Node) -> None:
        """Nodes without parameters, all of one value, as one function of rows."""
        if not nodes:
            return
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        copies[value] = graph.placeholder("rows")
        for node in nodes:
            copies[node] = graph.node_copy(node, lambda other: copies[other])
        graph.output(copies[nodes[-1]])
        self._add(Rows(fx.GraphModule(self.module, graph)))


def _has_other_hooks(layer: nn.Module) -> bool:
    """Return whether the layer has hooks other than ours."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = (hook for kind in kinds for hook in getattr(layer, kind).values())
    return any(not isinstance(getattr(hook, "__self__", None), FlatModel) for hook in hooks)


def _is_known(layer: nn.Module) -> bool:
    """Whether we know how to do this layer's work for several models."""
    if vars(layer).get("forward") is not None:
        return False
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return type(layer) is nn.Linear


def _stored(shape: torch.Size) -> tuple[int, ...]:
    """How a parameter lies in a model's vector: convolutions with the channels last."""
    if len(shape) != 4:
        return tuple(shape)
    out, channels, height, width = shape
    return out, height, width, channels
