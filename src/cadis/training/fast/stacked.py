"""Several clients trained at once, where a model is small: the same steps, side by side.

Each client takes the steps that it would take alone, in its own order and with its own chance, so
the results are those of one by one but for rounding. Clients with fewer steps in an epoch than
others wait for them. Where batches are of unequal size, the smaller ones are filled up with copies
of their own rows, which count for nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cadis.algorithm import (
    BaseMethod,
    BatchExtras,
    ClientOutput,
    LocalResult,
    ModelOutputs,
    Penalty,
    Step,
)
from cadis.data import Examples, joined
from cadis.training.evaluation import mean_loss, view_of
from cadis.training.fast.closed_forms import representation_gradient, takes_stacks
from cadis.training.fast.stacked_model import StackedModel
from cadis.training.local import Client, batch_sizes, effective_steps, take_step, unless_default
from cadis.types import TensorState

_MOST = 10
"""Clients that are trained at once: more are hardly faster, and leave nothing for other workers."""

_LEAST_STACKS = 2
"""So that two workers have something to do."""


def dealt_into_stacks(sizes: Sequence[int]) -> list[list[int]]:
    """Which of a round's clients are trained at once; the same for any number of workers.

    Returns the indices of the clients of each stack. Large and small ones are dealt evenly, so
    that stacks take about as long as each other.
    """
    number = min(len(sizes), max(_LEAST_STACKS, -(-len(sizes) // _MOST)))
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    return [order[first::number] for first in range(number)]


def replies_together(clients: Sequence[Client], models: StackedModel) -> list[ClientOutput]:
    """What several clients send back and remember, trained at once.

    They are of one federation and in the same round, with memories of the same form.
    """
    method = clients[0].algorithm.method
    prepared = [BatchExtras()] * len(clients)
    if method.needs_view:
        prepared = [method.prepare(view) for view in _views(clients)]
    order = sorted(range(len(clients)), key=lambda place: -len(clients[place].examples))
    run = _Run([clients[place] for place in order], models, [prepared[place] for place in order])
    trained = dict(zip(order, run.train(), strict=True))
    each = enumerate(zip(clients, prepared, strict=True))
    return [method.collect_output(*parts, trained[place]) for place, parts in each]


def _views(clients: Sequence[Client]) -> Iterator[ModelOutputs]:
    """What each received model makes of its client's data; one model sees everybody's at once."""
    first, model = clients[0], clients[0].received.model
    places = {client.received.model.parameters.data_ptr() for client in clients}
    if len(places) > 1:
        yield from (client.view(client.received.model) for client in clients)
        return
    parts = [client.examples for client in clients]
    first.model.load(model)
    view = view_of(first.model, joined(parts), first.algorithm.task)
    sizes, task = [len(part) for part in parts], first.algorithm.task
    rows = view.logits, view.representation, view.labels, view.correct
    split = [tensor.split(sizes) for tensor in rows]
    for logits, representation, labels, correct in zip(*split, strict=True):
        loss = mean_loss(task, logits, labels)
        yield ModelOutputs(logits, representation, labels, correct, loss)


def _sum_penalties(penalty: Penalty, step: Step) -> Tensor:
    """The sum of the penalties of several clients, each of which is given to it by itself."""
    clients, largest = step.labels.shape
    sizes = [largest] * clients if step.present is None else step.present.sum(dim=1).tolist()

    def penalty_of_one(fields: Mapping[str, Any]) -> Tensor:
        one = Step(**fields)
        found = penalty(one)
        return one.parameters.new_zeros(()) if found is None else found

    def of_size(size: int) -> Tensor:
        """The summed penalty of all clients with batches of this size, without any filling."""
        own = torch.tensor([place for place, other in enumerate(sizes) if other == size])
        fields: dict[str, Any] = {
            "logits": step.logits[own, :size],
            "representation": step.representation[own, :size],
            "labels": step.labels[own, :size],
            "parameters": step.parameters[own],
            "received": step.received[own],
            "tensors": {name: tensor[own] for name, tensor in step.tensors.items()},
            "per_example": {name: rows[own, :size] for name, rows in step.per_example.items()},
            "memory": {name: tensor[own] for name, tensor in step.memory.items()},
            "class_counts": step.class_counts[own],
        }
        found: Tensor = torch.func.vmap(penalty_of_one)(fields)
        return found.sum()

    return torch.stack([of_size(size) for size in sorted(set(sizes))]).sum()


class _Batch(NamedTuple):
    """What each client trains on in a step, filled up by copies of rows to the largest batch.

    Attributes:
        inputs: (m, largest batch, ...).
        labels: (m, largest batch).
        per_example: what was prepared for them, (m, largest batch, ...).
        weights: 1 / size of the batch; 0 for copies, (m, largest batch).
        present: which rows are no copies, (m, largest batch); None if none is one.
    """

    inputs: Tensor
    labels: Tensor
    per_example: TensorState
    weights: Tensor
    present: Tensor | None


def _batches(parts: Sequence[tuple[Examples, TensorState]], batch_size: int) -> Iterator[_Batch]:
    """Yield the batches of an epoch of clients, of whom none has more steps than one before it.

    All clients take their last batch, which may be a smaller one, in the last step. In the steps
    before, batches are of one size, and those take part who have so many.
    """
    own = [batch_sizes(len(examples), batch_size) for examples, _ in parts]
    steps = len(own[0])
    sizes = torch.tensor([[*b[:-1], *[0] * (steps - len(b)), b[-1]] for b in own]).T
    rows, weights = _rows_and_weights(sizes)

    def gather(tensors: Iterable[Tensor]) -> Tensor:
        found = torch.cat(list(tensors)).index_select(0, rows.flatten())
        return found.view(*rows.shape, *found.shape[1:])

    first, prepared = parts[0]
    inputs = gather(_channels_last_in_shape(examples.inputs) for examples, _ in parts)
    labels = gather(examples.labels for examples, _ in parts)
    per_example = {name: gather(tensors[name] for _, tensors in parts) for name in prepared}
    for step, row in enumerate(sizes.tolist()):
        taking_part = [size for size in row if size]
        place = step, slice(len(taking_part)), slice(max(taking_part))
        batch = inputs[place].permute(0, 1, 4, 2, 3) if inputs.dim() == 6 else inputs[place]
        yield _Batch(
            batch if first.scaling is None else first.scaling(batch),
            labels[place],
            {name: tensor[place] for name, tensor in per_example.items()},
            weights[place],
            weights[place] > 0 if len(set(taking_part)) > 1 else None,
        )


def _rows_and_weights(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Which row goes where when batches are filled up; and weights, 1 / batch size, 0 for copies.

    The sizes are those of the batches of each client, whose rows lie one after the other,
    (steps, m). Returns (steps, m, largest size) each; weights are in double precision.
    """
    ends = sizes.T.flatten().cumsum(0).view(sizes.T.shape).T
    places = torch.arange(int(sizes.max()))
    filled = places.minimum((sizes - 1).clamp_min(0)[..., None])
    rows = ((ends - sizes)[..., None] + filled).clamp_max(int(ends[-1, -1]) - 1)
    return rows, (places < sizes[..., None]).double() / sizes.clamp_min(1)[..., None]


class _Run:
    """The local training of several clients, those with the most steps first."""

    def __init__(
        self, clients: Sequence[Client], models: StackedModel, prepared: Sequence[BatchExtras]
    ) -> None:
        first, method = clients[0], clients[0].algorithm.method
        self.clients, self.models, self.settings = clients, models, first.settings
        self.task, self.optimizer = first.algorithm.task, first.algorithm.local_optimizer
        self.lr = self.optimizer.lr_in_round(first.settings.lr, first.number)
        self.gradient = representation_gradient(method)
        penalty = unless_default(method.penalty, BaseMethod.penalty)
        self.penalty = None if self.gradient else penalty
        self.takes_stacks = takes_stacks(method)
        self.calibrate = unless_default(method.calibrate, BaseMethod.calibrate)
        for row, client in zip(models.memory, clients, strict=False):
            row.copy_(client.received.model.parameters)
            torch.randint(2**62, (), generator=client.generator)  # what seeds dropout, one by one
        self.start = models.memory[: len(clients)].clone()  # (m, P)
        self.epochs = [
            c.epochs(own, method.epoch_order) for c, own in zip(clients, prepared, strict=True)
        ]
        self.class_counts = torch.stack([client.class_counts() for client in clients])
        self.tensors = _stacked([client.received.tensors for client in clients])
        self.memory = _stacked([client.memory for client in clients])
        self.memories: list[dict[str, Tensor]] = [{} for _ in clients]
        self.losses = torch.zeros(len(clients))

    def train(self) -> list[LocalResult]:
        """Take all steps."""
        lr = self.lr if self.optimizer.is_plain else None
        for parts in zip(*self.epochs, strict=True):
            for batch in _batches(parts, self.settings.batch_size):
                self.models.use(len(batch.labels), lr)
                self._step(batch)
        return [self._training(*each) for each in enumerate(self.clients)]

    def _step(self, batch: _Batch) -> None:
        """One step of all clients that take part in it."""
        logits, representation = self.models.forward(batch.inputs)
        leaves = [logits.requires_grad_()]
        told = logits
        if self.calibrate is not None or self.penalty is not None:
            vector = self.models.memory[: len(logits)].detach().requires_grad_()
            leaves += [representation.detach().requires_grad_(), vector]
        if self.calibrate is not None:
            told = self.calibrate(self._described(batch, *leaves))
        losses = self.task.loss(told.flatten(0, 1), batch.labels.flatten(), "none")  # (m n,)
        weights = batch.weights.to(losses.dtype)
        outputs, counts = [losses], [weights.flatten()]  # what is added up, and how often
        found = self._penalty(batch, leaves)
        if found is not None and found.requires_grad:
            outputs, counts = [*outputs, found], [*counts, torch.ones_like(found)]
        gradients: list[Any] = [*torch.autograd.grad(outputs, leaves, counts, allow_unused=True)]
        if self.gradient is not None:
            described = self._described(batch, logits, representation, self.start)
            gradients[1:2] = [_sum(self.gradient(described), *gradients[1:2])]
        with torch.no_grad():
            self.losses[: len(logits)] += (losses.view(len(logits), -1) * weights).sum(dim=1)
            self._move(*gradients)

    def _penalty(self, batch: _Batch, leaves: Sequence[Tensor]) -> Tensor | None:
        """The sum of the clients' penalties, if there are any."""
        if self.penalty is None:
            return None
        step = self._described(batch, *leaves)
        if not self.takes_stacks:
            return _sum_penalties(self.penalty, step)
        found = self.penalty(step)
        return None if found is None else found.sum()

    def _described(
        self, batch: _Batch, logits: Tensor, representation: Tensor, vector: Tensor
    ) -> Step:
        """The step as a method sees it, with a dimension of clients before every other."""
        active = len(logits)
        return Step(
            logits=logits,
            representation=representation,
            labels=batch.labels,
            parameters=vector[:active],
            received=self.start[:active],
            tensors={name: tensor[:active] for name, tensor in self.tensors.items()},
            per_example=batch.per_example,
            memory={name: tensor[:active] for name, tensor in self.memory.items()},
            present=batch.present,
            class_counts=self.class_counts[:active],
        )

    def _move(
        self,
        by_logits: Tensor,
        by_representation: Tensor | None = None,
        by_parameters: Tensor | None = None,
    ) -> None:
        """Step along the gradient of the losses, which is told by these three."""
        models = self.models
        parameters = models.memory[: models.in_use]
        gradient = models.backward(by_logits, by_representation)
        if gradient is None:
            if by_parameters is not None:
                parameters.sub_(by_parameters, alpha=self.lr)
            return
        if by_parameters is not None:
            gradient += by_parameters
        for row, slope, memory in zip(parameters, gradient, self.memories, strict=False):
            take_step(self.optimizer, row, slope, self.lr, memory)

    def _training(self, place: int, client: Client) -> LocalResult:
        parameters, settings = self.models.memory[place].clone(), self.settings
        steps = settings.epochs * len(batch_sizes(len(client.examples), settings.batch_size))
        return LocalResult(
            replace(client.received.model, parameters=parameters),
            parameters,
            self.start[place],
            steps,
            self.lr,
            float(self.losses[place]) / steps,
            effective_steps(self.optimizer, steps, self.lr),
        )


def _sum(*gradients: Tensor | None) -> Tensor | None:
    """Return the sum of those gradients that there are; None if there is none."""
    known = [gradient for gradient in gradients if gradient is not None]
    return sum(known[1:], known[0]) if known else None


def _stacked(tensors: Sequence[TensorState]) -> dict[str, Tensor]:
    """Named tensors of several clients with a dimension of clients before their own."""
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}


def _channels_last_in_shape(inputs: Tensor) -> Tensor:
    """Pictures as (n, h, w, c); other inputs as they are."""
    return inputs.permute(0, 2, 3, 1) if inputs.dim() == 4 else inputs
