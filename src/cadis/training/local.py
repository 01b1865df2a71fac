"""The one SGD loop, used by every method."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn import functional as F

from cadis.core import ModelState
from cadis.data import Examples
from cadis.methods import LocalView, Method, Prepared, Step, TensorState
from cadis.models import FlatModel, channels_last

_LARGE_BATCH = 64
"""Examples that are evaluated at once: enough to be efficient, few enough for the cache."""


@dataclass(frozen=True)
class LocalSettings:
    """How a client trains: plain SGD, as in the paper.

    Attributes:
        epochs: E, passes over the client's data.
        batch_size: b.
        lr: eta, the learning rate.
    """

    epochs: Annotated[int, Gt(0)] = 5
    batch_size: Annotated[int, Gt(0)] = 8
    lr: Annotated[float, Gt(0)] = 0.001


@dataclass(frozen=True)
class LocalResult:
    """What local training leaves behind besides the trained model itself."""

    metrics: dict[str, float]
    client_state: TensorState


def train_locally(
    model: FlatModel,
    method: Method,
    examples: Examples,
    received: ModelState,
    client_state: TensorState,
    settings: LocalSettings,
    generator: torch.Generator,
) -> LocalResult:
    """Train the received global model on a client's examples; ``model`` holds the result.

    Args:
        model: where to train; what it held before does not matter.
        method: its client half.
        examples: the client's own.
        received: the global model w_t.
        client_state: what the method remembered for this client.
        settings: epochs, batch size, learning rate.
        generator: shuffles the examples, and seeds dropout.
    """
    model.load(received)
    start = model.vector.detach().clone()
    prepared = method.prepare(view_of(model, examples)) if method.needs_view else Prepared()
    model.module.train()
    with torch.random.fork_rng(devices=[start.device] if start.is_cuda else []):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for batch, per_example in _batches(examples, prepared, settings, generator):
            logits, representation = model.forward(batch.scaled)
            loss = F.cross_entropy(logits, batch.labels)
            penalty = method.penalty(
                Step(
                    logits=logits,
                    representation=representation,
                    labels=batch.labels,
                    parameters=model.vector,
                    received=start,
                    per_example=per_example,
                    client_state=client_state,
                )
            )
            if penalty is None:
                _descend(model.parameters, loss, settings.lr)
            else:
                leaves = [*model.parameters, model.vector]  # a penalty may be on either
                _descend(leaves, loss + penalty, settings.lr)
    new_state = method.finish(model.vector.detach(), start, client_state)
    metrics = {name: float(value) for name, value in prepared.metrics.items()}
    return LocalResult(metrics, new_state)


def view_of(model: FlatModel, examples: Examples) -> LocalView:
    """Outputs of the model on all examples, in evaluation mode and large batches."""
    model.module.eval()
    parts = range(0, len(examples), _LARGE_BATCH)
    with torch.no_grad():
        batches = (examples.take(slice(start, start + _LARGE_BATCH)) for start in parts)
        outputs = [model.forward(channels_last(batch.scaled)) for batch in batches]
    logits, representations = zip(*outputs, strict=True)
    return LocalView(torch.cat(logits), torch.cat(representations), examples.labels)


def _descend(leaves: list[Tensor], loss: Tensor, learning_rate: float) -> None:
    """One step of SGD on the leaves that the loss depends on."""
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    with torch.no_grad():
        for leaf, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                leaf.add_(gradient, alpha=-learning_rate)


def _batches(
    examples: Examples, prepared: Prepared, settings: LocalSettings, generator: torch.Generator
) -> Iterator[tuple[Examples, TensorState]]:
    """Shuffled batches of all epochs: gathered once an epoch, then views."""
    sizes = batch_sizes(len(examples), settings.batch_size)
    for _ in range(settings.epochs):
        order = torch.randperm(len(examples), generator=generator)
        inputs = channels_last(examples.inputs[order]).split(sizes)
        labels = examples.labels[order].split(sizes)
        extra = {n: rows[order].split(sizes) for n, rows in prepared.per_example.items()}
        for number, pair in enumerate(zip(inputs, labels, strict=True)):
            batch = Examples(*pair, examples.scaling)
            yield batch, {name: parts[number] for name, parts in extra.items()}


def batch_sizes(num_examples: int, batch_size: int) -> list[int]:
    """Sizes of an epoch's batches.

    A last batch of a single example joins the one before: batch norm cannot train on it.
    """
    whole, rest = divmod(num_examples, batch_size)
    sizes = [batch_size] * whole + [rest] * (rest > 0)
    if rest == 1 and whole:
        sizes[-2:] = [batch_size + 1]
    return sizes
