"""A stack of m models of one architecture, with one forward and backward pass for all of them.

A step of a small model spends most of its time on the overhead of PyTorch: it starts many small
operations and records them for autograd. Here the parameters of all models are one matrix, (m, P),
and every layer computes the outputs of all models in one operation.
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
    SamplewiseFunction,
)

_MAX_PARAMETERS = 250_000
"""The maximum number of parameters; larger models have little overhead when trained alone."""

_RELU = (F.relu, torch.relu, "relu")
"""The targets of ``torch.fx`` nodes that are a ReLU."""


class StackedModel:
    """A stack of models of one architecture, each with its own parameters.

    Attributes:
        vectors: the parameters of all models, (size, P).
        num_active: m, the number of models that take part in a step: the first m rows.

    Example:
        >>> stack = StackedModel(nn.Sequential(nn.Linear(3, 2)), head="0", size=4)
        >>> stack.use(2, lr=0.1)
        >>> logits, _ = stack.forward(torch.zeros(2, 5, 3))  # 2 models, 5 samples each
        >>> logits.shape
        torch.Size([2, 5, 2])
    """

    def __init__(self, module: nn.Module, head: str, size: int) -> None:
        """Allocate the parameters of several models, and build the stacked layers.

        Args:
            module: a module for which :func:`is_stackable` holds; it is changed.
            head: the name of its classifier layer.
            size: the maximum number of models.
        """
        self._layout = FlatModel(module.train(), head).layout
        self.num_active = 0
        self._lr: float | None = None
        total = self._layout.count_elements(self._layout.parameters)
        self.vectors = torch.zeros(size, total, dtype=next(module.parameters()).dtype)
        self._grads = torch.empty(0)  # (m, P), only without a learning rate
        self._parameters = {n: Parameter(torch.empty(0)) for n in self._layout.parameters}
        self._layers, self._head = _LayerBuilder(module, self._parameters).build(head)
        self._first, first = next(
            (index, layer)
            for index, layer in enumerate(self._layers)
            if isinstance(layer, Linear | Convolution)
        )
        first.is_first = True

    def use(self, num_models: int, lr: float | None) -> None:
        """Activate the first models of the stack for the next steps.

        Args:
            num_models: m, the number of active models.
            lr: the learning rate of the plain SGD steps that :meth:`backward` does in place. If it
                is None, :meth:`backward` returns the gradients instead.
        """
        if (num_models, lr) == (self.num_active, self._lr):
            return
        self.num_active, self._lr, start = num_models, lr, 0
        if lr is None:
            self._grads = torch.zeros_like(self.vectors[:num_models])
        for name, parameter in self._parameters.items():
            shape = _get_storage_shape(self._layout.shapes[name])
            columns = slice(start, start + prod(shape))
            parameter.value = self.vectors[:num_models, columns].view(num_models, *shape)
            parameter.lr, parameter.grad = lr, None
            if lr is None:
                parameter.grad = self._grads[:, columns].view(num_models, *shape)
            start += prod(shape)
        for layer in self._layers:
            if isinstance(layer, Refold):
                layer.num_models = num_models

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Do a forward pass.

        Args:
            inputs: the inputs of each active model, (m, b, ...).

        Returns:
            The logits, (m, b, outputs), and the representations, (m, b, d).
        """
        value = representation = inputs
        for index, layer in enumerate(self._layers):
            if index == self._head:
                representation = value
            value = layer.forward(value)
        return value, representation

    def backward(self, logits_grad: Tensor, representation_grad: Tensor | None) -> Tensor | None:
        """Do the backward pass of the last forward pass.

        Args:
            logits_grad: the gradient with respect to the logits, (m, b, outputs).
            representation_grad: a gradient with respect to the representation, (m, b, d), that is
                added to the gradient from the logits.

        Returns:
            The gradients with respect to the parameters, (m, P), if there is no learning rate. None
            if there is one: then the parameters have taken their SGD step.
        """
        grad = logits_grad
        for index in range(len(self._layers) - 1, self._first - 1, -1):
            grad = self._layers[index].backward(grad)
            if index == self._head > self._first and representation_grad is not None:
                grad = grad + representation_grad
        return self._grads.clone() if self._lr is None else None


def is_stackable(model: FlatModel) -> bool:
    """Return whether the layers of a model have stacked versions.

    The model must be small and on the CPU. All its parameters must be trainable, not shared, and
    belong to linear layers or convolutions. Batch norm and dropout are not supported, because they
    would mix the statistics or random numbers of clients. All other operations must treat each
    sample separately; the trial in ``stack_trial`` tests that.
    """
    layout = model.layout
    if layout.buffers or layout.counters or layout.aliases or layout.head is None:
        return False
    if model.vector.numel() > _MAX_PARAMETERS or model.vector.device.type != "cpu":
        return False
    layers = list(model.module.modules())
    if any(isinstance(layer, _DropoutNd) and layer.p for layer in layers):
        return False
    if any(_has_other_hooks(layer) for layer in layers):
        return False
    return all(_is_supported(layer) for layer in layers if list(layer.parameters(recurse=False)))


class _LayerBuilder:
    """Converts the ``torch.fx`` graph of a module to a chain of stacked layers.

    Consecutive nodes without a stacked layer of their own become one :class:`SamplewiseFunction`.
    """

    def __init__(self, module: nn.Module, parameters: dict[str, Parameter]) -> None:
        self.module, self.parameters = module, parameters
        self.layers: list[Layer] = []
        self.is_folded = False  # whether the output of the last layer is folded

    def build(self, head: str) -> tuple[list[Layer], int]:
        """Return the layers in order, and the index of the classifier layer.

        Raises:
            ValueError: if the model is not a chain of layers.
        """
        graph = fx.Tracer().trace(self.module)
        indices: dict[str, int] = {}
        rest: list[fx.Node] = []  # nodes since the last stacked layer
        value = next(node for node in graph.nodes if node.op == "placeholder")
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            layer = None if node.op == "output" else self._make_layer(node)
            if layer is None and node.op != "output":
                rest.append(node)
                continue
            if node.target in indices or node.args[0] is not (rest[-1] if rest else value):
                raise ValueError("The model is not a chain of layers.")
            self._add_samplewise(rest, value)
            rest, value = [], node
            if layer is not None:
                self._add(layer)
            if isinstance(layer, Linear | Convolution):
                indices[str(node.target)] = len(self.layers) - 1
        self._refold(to_folded=False)
        return self.layers, indices[head]

    def _make_layer(self, node: fx.Node) -> Layer | None:
        """Return the stacked layer for the call of a node; None if there is none for it."""
        if node.op != "call_module":
            is_relu = node.target in _RELU and len(node.args) == 1 and not node.kwargs
            return Relu() if is_relu else None
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
        if not isinstance(layer, Relu):  # it accepts both forms
            self._refold(to_folded=isinstance(layer, Convolution | MaxPool))
        self.layers.append(layer)

    def _refold(self, to_folded: bool) -> None:
        """Add a conversion if the output of the last layer is not in the form that is needed."""
        if to_folded != self.is_folded:
            self.layers.append(Refold(to_folded))
            self.is_folded = to_folded

    def _add_samplewise(self, nodes: Sequence[fx.Node], value: fx.Node) -> None:
        """Add nodes without parameters as one layer.

        Args:
            nodes: the nodes, in the order of the graph.
            value: the node whose output is the input of the layer.
        """
        if not nodes:
            return
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        copies[value] = graph.placeholder("rows")
        for node in nodes:
            copies[node] = graph.node_copy(node, lambda other: copies[other])
        graph.output(copies[nodes[-1]])
        self._add(SamplewiseFunction(fx.GraphModule(self.module, graph)))


def _has_other_hooks(layer: nn.Module) -> bool:
    """Return whether the layer has hooks that :class:`FlatModel` did not register."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooks = (hook for kind in kinds for hook in getattr(layer, kind).values())
    return any(not isinstance(getattr(hook, "__self__", None), FlatModel) for hook in hooks)


def _is_supported(layer: nn.Module) -> bool:
    """Return whether there is a stacked version of a layer with parameters."""
    if vars(layer).get("forward") is not None:
        return False
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return type(layer) is nn.Linear


def _get_storage_shape(shape: torch.Size) -> tuple[int, ...]:
    """Return the shape of a parameter in the flat vector: channels last for convolutions."""
    if len(shape) != 4:
        return tuple(shape)
    out, channels, height, width = shape
    return out, height, width, channels
