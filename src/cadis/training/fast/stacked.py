"""Several clients trained at once, where a model is small: the same steps, side by side.

Each client takes the steps that it would take alone, in its own order and with its own chance, so
the results are those of one by one but for rounding. Clients with fewer steps in an epoch than
others wait for them. Where batches are of unequal size, the smaller ones are filled up with copies
of their own rows, which count for nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from cadis.algorithm.tasks import Task
from cadis.data import Examples, Scaling, joined
from cadis.training.fast.closed_forms import representation_gradient, takes_stacks
from cadis.training.fast.stacked_model import StackedModel
from cadis.training.local import (
    Client,
    batch_sizes,
    effective_steps,
    mean_loss,
    take_step,
    unless_default,
    view_of,
)
from cadis.types import TensorState

_MOST = 10
"""Clients that are trained at once: more are hardly faster, and leave nothing for other workers."""

_LEAST_STACKS = 2
"""So that two workers have something to do."""


def dealt_into_stacks(sizes: Sequence[int]) -> list[list[int]]:
    """Which of a round's clients are trained at once; the same for any number of workers.

    Args:
        sizes: how many examples each of them has.

    Returns:
        The places of the clients of each stack. Large and small ones are dealt evenly, so that
        stacks take about as long as each other.
    """
    number = min(len(sizes), max(_LEAST_STACKS, -(-len(sizes) // _MOST)))
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    return [order[first::number] for first in range(number)]


def replies_together(clients: Sequence[Client], models: StackedModel) -> list[ClientOutput]:
    """What several clients send back and remember, trained at once.

    Args:
        clients: of one federation, in the same round, with memories of the same form.
        models: where to train.
    """
    method = clients[0].algorithm.method
    assert isinstance(method, BaseMethod)
    prepared = [BatchExtras()] * len(clients)
    if method.needs_view:
        prepared = [method.prepare(view) for view in _views(clients)]
    trainings = train_together(clients, models, method, prepared)
    each = zip(clients, prepared, trainings, strict=True)
    return [method.collect_output(*parts) for parts in each]


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


@dataclass(frozen=True)
class _StackedPenalty:
    """A method's penalty for several clients at once.

    Attributes:
        penalty: the method's own.
        stacks: whether it takes several clients; else each is given to it by itself.
    """

    penalty: Penalty
    stacks: bool

    def __call__(self, step: Step) -> Tensor | None:
        """The sum of the clients' penalties."""
        if self.stacks:
            found = self.penalty(step)
            return None if found is None else found.sum()
        clients, largest = step.labels.shape
        sizes = [largest] * clients if step.present is None else step.present.sum(dim=1).tolist()
        return torch.stack([self._of_size(step, size, sizes) for size in sorted(set(sizes))]).sum()

    def _of_size(self, step: Step, size: int, sizes: Sequence[int]) -> Tensor:
        """The summed penalty of all clients with batches of this size, without any filling."""
        own = torch.tensor([place for place, other in enumerate(sizes) if other == size])

        def rows(tensor: Tensor) -> Tensor:
            return tensor[own, :size]

        def vectors(tensors: TensorState) -> dict[str, Tensor]:
            return {name: tensor[own] for name, tensor in tensors.items()}

        fields: dict[str, Any] = {
            "logits": rows(step.logits),
            "representation": rows(step.representation),
            "labels": rows(step.labels),
            "parameters": step.parameters[own],
            "received": step.received[own],
            "tensors": vectors(step.tensors),
            "per_example": {name: rows(tensor) for name, tensor in step.per_example.items()},
            "memory": vectors(step.memory),
            "class_counts": step.class_counts[own],
        }
        found: Tensor = torch.func.vmap(self._of_one)(fields)
        return found.sum()

    def _of_one(self, fields: Mapping[str, Any]) -> Tensor:
        step = Step(**fields)
        found = self.penalty(step)
        return step.parameters.new_zeros(()) if found is None else found


@dataclass(frozen=True)
class _Epoch:
    """What each client trains on in the steps of an epoch.

    All clients take their last batch, which may be a smaller one, in the last step. In the steps
    before, batches are of one size, and those take part who have so many.

    Attributes:
        inputs: of the batches, filled up by copies, (steps, m, largest batch, ...); of pictures
            with the channels last.
        labels: likewise, (steps, m, largest batch).
        per_example: what was prepared for them, likewise.
        weights: 1 / size of the batch; 0 for copies, likewise.
        sizes: of each step, the sizes of the batches of those who take part.
        scaling: of the inputs.
    """

    inputs: Tensor
    labels: Tensor
    per_example: TensorState
    weights: Tensor
    sizes: Sequence[Sequence[int]]
    scaling: Scaling | None

    @classmethod
    def of(cls, parts: Sequence[tuple[Examples, TensorState]], batch_size: int) -> "_Epoch":
        """An epoch of clients, of whom none has more steps than one before it.

        Args:
            parts: everybody's shuffled examples, and what was prepared for them.
            batch_size: b.
        """
        own = [batch_sizes(len(examples), batch_size) for examples, _ in parts]
        steps = len(own[0])
        sizes = torch.tensor([[*b[:-1], *[0] * (steps - len(b)), b[-1]] for b in own]).T
        rows, weights = _rows_and_weights(sizes)

        def batches(tensors: Iterable[Tensor]) -> Tensor:
            found = torch.cat(list(tensors)).index_select(0, rows.flatten())
            return found.view(*rows.shape, *found.shape[1:])

        first, prepared = parts[0]
        return cls(
            batches(_channels_last_in_shape(examples.inputs) for examples, _ in parts),
            batches(examples.labels for examples, _ in parts),
            {name: batches(tensors[name] for _, tensors in parts) for name in prepared},
            weights,
            [[size for size in row if size] for row in sizes.tolist()],
            first.scaling,
        )

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, labels and weights of all who take part in a step, (m, largest batch, ...)."""
        own = self._place(step)
        inputs = self.inputs[own]
        if inputs.dim() == 5:
            inputs = inputs.permute(0, 1, 4, 2, 3)
        scaled = inputs if self.scaling is None else self.scaling(inputs)
        return scaled, self.labels[own], self.weights[own]

    def prepared(self, step: int) -> dict[str, Tensor]:
        """What was prepared for the rows of a step, (m, largest batch, ...) each."""
        return {name: rows[self._place(step)] for name, rows in self.per_example.items()}

    def present(self, step: int) -> Tensor | None:
        """Which rows of a step are no copies, (m, largest batch); None if none is one."""
        uneven = len(set(self.sizes[step])) > 1
        return self.weights[self._place(step)] > 0 if uneven else None

    def _place(self, step: int) -> tuple[int, slice, slice]:
        sizes = self.sizes[step]
        return step, slice(len(sizes)), slice(max(sizes))


def _rows_and_weights(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Which row goes where when batches of these sizes are filled up, and what it counts.

    Args:
        sizes: of the batches of each client, whose rows lie one after the other, (steps, m).

    Returns:
        Numbers of rows, and 1 / size of the batch or 0 for copies, in double precision,
        (steps, m, largest size) each.
    """
    ends = sizes.T.flatten().cumsum(0).view(sizes.T.shape).T
    places = torch.arange(int(sizes.max()))
    filled = places.minimum((sizes - 1).clamp_min(0)[..., None])
    rows = ((ends - sizes)[..., None] + filled).clamp_max(int(ends[-1, -1]) - 1)
    return rows, (places < sizes[..., None]).double() / sizes.clamp_min(1)[..., None]


def train_together(
    clients: Sequence[Client],
    models: StackedModel,
    method: BaseMethod,
    prepared: Sequence[BatchExtras],
) -> list[LocalResult]:
    """Train a copy of its received model on each client's data; trainings in the clients' order."""
    order = sorted(range(len(clients)), key=lambda place: -len(clients[place].examples))
    run = _Run([clients[p] for p in order], models, method, [prepared[p] for p in order])
    found = dict(zip(order, run.train(), strict=True))
    return [found[place] for place in range(len(clients))]


class _Run:
    """The local training of several clients, those with the most steps first."""

    def __init__(
        self,
        clients: Sequence[Client],
        models: StackedModel,
        method: BaseMethod,
        prepared: Sequence[BatchExtras],
    ) -> None:
        first = clients[0]
        self.clients, self.models, self.method = clients, models, method
        self.gradient = representation_gradient(method)
        self.penalty: _StackedPenalty | None = None
        penalty = unless_default(method.penalty, BaseMethod.penalty)
        if penalty is not None and self.gradient is None:
            self.penalty = _StackedPenalty(penalty, takes_stacks(method))
        self.task: Task = first.algorithm.task
        self.optimizer = first.algorithm.local_optimizer
        self.lr = self.optimizer.lr_in_round(first.settings.lr, first.number)
        for row, client in zip(models.memory, clients, strict=False):
            row.copy_(client.received.model.parameters)
            torch.randint(2**62, (), generator=client.generator)  # what seeds dropout, one by one
        self.start = models.memory[: len(clients)].clone()  # (m, P)
        self.calibrate = unless_default(method.calibrate, BaseMethod.calibrate)
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
        settings = self.clients[0].settings
        lr = self.lr if self.optimizer.is_plain else None
        for parts in zip(*self.epochs, strict=True):
            epoch = _Epoch.of(parts, settings.batch_size)
            for step, sizes in enumerate(epoch.sizes):
                self.models.use(len(sizes), lr)
                self._step(epoch, step)
        return [self._training(*each) for each in enumerate(self.clients)]

    def _step(self, epoch: _Epoch, step: int) -> None:
        """One step of all clients that take part in it."""
        inputs, labels, weights = epoch.batch(step)
        logits, representation = self.models.forward(inputs)
        leaves = [logits.requires_grad_()]
        told = logits
        if self.calibrate is not None or self.penalty is not None:
            vector = self.models.memory[: len(logits)].detach().requires_grad_()
            leaves += [representation.detach().requires_grad_(), vector]
        if self.calibrate is not None:
            told = self.calibrate(self._described(epoch, step, labels, *leaves))
        losses = self.task.loss(told.flatten(0, 1), labels.flatten(), "none")  # (m n,)
        weights = weights.to(losses.dtype)
        outputs, counts = [losses], [weights.flatten()]  # what is added up, and how often
        if self.penalty is not None:
            found = self.penalty(self._described(epoch, step, labels, *leaves))
            if found is not None and found.requires_grad:
                outputs, counts = [*outputs, found], [*counts, torch.ones_like(found)]
        gradients: list[Any] = [*torch.autograd.grad(outputs, leaves, counts, allow_unused=True)]
        if self.gradient is not None:
            described = self._described(epoch, step, labels, logits, representation, self.start)
            gradients[1:2] = [_sum(self.gradient(described), *gradients[1:2])]
        with torch.no_grad():
            self.losses[: len(logits)] += (losses.view(len(logits), -1) * weights).sum(dim=1)
            self._move(*gradients)

    def _described(
        self,
        epoch: _Epoch,
        step: int,
        labels: Tensor,
        logits: Tensor,
        representation: Tensor,
        vector: Tensor,
    ) -> Step:
        """The step as a method sees it, with a dimension of clients before every other."""
        active = len(logits)
        return Step(
            logits=logits,
            representation=representation,
            labels=labels,
            parameters=vector[:active],
            received=self.start[:active],
            tensors={name: tensor[:active] for name, tensor in self.tensors.items()},
            per_example=epoch.prepared(step),
            memory={name: tensor[:active] for name, tensor in self.memory.items()},
            present=epoch.present(step),
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
        settings, parameters = client.settings, self.models.memory[place].clone()
        steps = settings.epochs * len(batch_sizes(len(client.examples), settings.batch_size))
        model = replace(client.received.model, parameters=parameters)
        loss, reach = (
            float(self.losses[place]) / steps,
            effective_steps(self.optimizer, steps, self.lr),
        )
        return LocalResult(model, parameters, self.start[place], steps, self.lr, loss, reach)


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
