"""Why models became infinite or not a number: the model, the loss, the inputs, or the steps."""

from collections.abc import Callable, Iterator
from math import isfinite

from cadis.algorithm.tasks import Task
from cadis.data import Examples
from cadis.engine.federation import Federation
from cadis.models import FlatModel
from cadis.training import outputs_of
from cadis.types import ClientId

_CLIENTS, _SAMPLES = 20, 64
"""Who is looked at, and how much of what they have: enough to tell."""

_LARGE = 100.0
"""Inputs that networks are made for are around 1."""


def cause(
    model_of: Callable[[ClientId], FlatModel], federation: Federation, task: Task, lr: float
) -> str:
    """What is known of the cause, and what to do: the end of a sentence.

    Args:
        model_of: the model that a client was sent.
        federation: whose data it was trained on; they are known to be finite.
        task: says what the loss is.
        lr: the learning rate.
    """
    smaller, losses = f"try a smaller learning rate than {lr:g}, such as {lr / 10:g}", []
    for client, examples in _some(federation):
        if (largest := _largest(examples)) > _LARGE:
            whose = f"inputs of client {client} are as large as {largest:.3g}"
            return f"{whose}: bring them to about 1, or {smaller}."
        whose = f"for the data of client {client}, before any training in this round"
        outputs = outputs_of(model_of(client), examples)[0]
        if not outputs.isfinite().all():
            return f"its outputs were so already {whose}; the data are finite: look at the model."
        losses.append(float(task.loss(outputs, examples.labels, "mean")))
        if not isfinite(losses[-1]):
            which = f"the loss of the task '{task.name}'"
            return f"the loss was so already {whose}; the outputs are finite: look at {which}."
    mean = f"{sum(losses) / len(losses):.3g}"
    return f"data and outputs are finite, and the loss was {mean} at first: {smaller}."


def _largest(examples: Examples) -> float:
    """The largest input; numbers of words and the like are no amounts."""
    inputs = examples.scaled
    return float(inputs.abs().max()) if inputs.is_floating_point() else 0.0


def _some(federation: Federation) -> Iterator[tuple[ClientId, Examples]]:
    """A few examples of a few clients."""
    for place, client in enumerate(federation.client_ids[:_CLIENTS]):
        yield client, federation.clients[place].take(slice(0, _SAMPLES))
