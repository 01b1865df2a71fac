"""Stacked training: one optimizer step for several clients at once, for small models.

A stack holds m clients with their own models. Every tensor has a first dimension of size m (or of
the number of active clients, those that take part in the step): parameters (m, P), inputs
(m, b, ...), logits (m, b, outputs). Each client takes the same steps with the same batches as in
one-by-one training, so that the results differ only by rounding.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from cadis.data import concatenate
from cadis.training.batch_training import (
    compute_effective_steps,
    drop_default_function,
    take_step,
)
from cadis.training.evaluation import compute_mean_loss, compute_model_outputs
from cadis.training.fast.closed_forms import find_representation_gradient, supports_stacks
from cadis.training.fast.stacked_batches import StackedBatch, iter_stacked_batches
from cadis.training.fast.stacked_model import StackedModel
from cadis.training.local import Client, compute_batch_sizes
from cadis.types import TensorState

_MAX_STACK = 10
"""The maximum number of clients per stack: larger stacks are hardly faster."""

_MIN_STACKS = 2
"""The minimum number of stacks per round, so that at least two workers are busy."""


def split_into_stacks(sizes: Sequence[int]) -> list[list[int]]:
    """Split the participants of a round into stacks.

    The stacks do not depend on the number of workers. Large and small clients are distributed
    evenly, so that all stacks take about the same time.

    Args:
        sizes: the number of samples of each participant.

    Returns:
        The indices of the participants of each stack.

    Example:
        >>> split_into_stacks([5, 50, 40, 4])
        [[1, 0], [2, 3]]
    """
    num_stacks = min(len(sizes), max(_MIN_STACKS, -(-len(sizes) // _MAX_STACK)))
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    return [order[first::num_stacks] for first in range(num_stacks)]


def train_clients_stacked(clients: Sequence[Client], models: StackedModel) -> list[ClientOutput]:
    """Train the clients of a stack at once, and return their outputs.

    Args:
        clients: clients of one round, with the same algorithm and settings. The tensors of their
            states must have the same names and shapes.
        models: a stacked model with at least as many models as clients.
    """
    method = clients[0].algorithm.method
    extras = [BatchExtras()] * len(clients)
    if method.needs_model_outputs:
        extras = [method.prepare(outputs) for outputs in _compute_outputs(clients)]
    order = sorted(range(len(clients)), key=lambda index: -len(clients[index].samples))
    training = _StackedTraining(
        [clients[index] for index in order], models, [extras[index] for index in order]
    )
    results = dict(zip(order, training.train(), strict=True))
    pairs = enumerate(zip(clients, extras, strict=True))
    return [method.collect_output(*pair, results[index]) for index, pair in pairs]


def _compute_outputs(clients: Sequence[Client]) -> Iterator[ModelOutputs]:
    """Yield the outputs of each received model for its client's data.

    If all clients received the same model, it is called on the data of all clients at once.
    """
    first, model = clients[0], clients[0].received.model
    if len({client.received.model.parameters.data_ptr() for client in clients}) > 1:
        yield from (client.compute_outputs(client.received.model) for client in clients)
        return
    datasets = [client.samples for client in clients]
    first.model.load(model)
    outputs = compute_model_outputs(first.model, concatenate(datasets), first.algorithm.task)
    sizes, task = [len(dataset) for dataset in datasets], first.algorithm.task
    tensors = outputs.logits, outputs.representation, outputs.labels, outputs.correct
    parts = [tensor.split(sizes) for tensor in tensors]
    for logits, representation, labels, correct in zip(*parts, strict=True):
        loss = compute_mean_loss(task, logits, labels)
        yield ModelOutputs(logits, representation, labels, correct, loss)


def _sum_penalties(penalty: Penalty, step: Step) -> Tensor:
    """Return the sum of the clients' penalties, computed with ``torch.func.vmap`` over clients.

    Clients are grouped by batch size, so that the penalty gets no padding.
    """
    num_clients, max_size = step.labels.shape
    sizes = [max_size] * num_clients
    if step.row_mask is not None:
        sizes = step.row_mask.sum(dim=1).tolist()

    def compute_penalty(fields: Mapping[str, Any]) -> Tensor:
        client_step = Step(**fields)
        value = penalty(client_step)
        return client_step.parameters.new_zeros(()) if value is None else value

    def sum_group(size: int) -> Tensor:
        """Return the sum of the penalties of all clients with this batch size."""
        group = torch.tensor([index for index, other in enumerate(sizes) if other == size])
        fields: dict[str, Any] = {
            "logits": step.logits[group, :size],
            "representation": step.representation[group, :size],
            "labels": step.labels[group, :size],
            "parameters": step.parameters[group],
            "received": step.received[group],
            "tensors": {name: tensor[group] for name, tensor in step.tensors.items()},
            "per_sample": {name: rows[group, :size] for name, rows in step.per_sample.items()},
            "client_state": {name: tensor[group] for name, tensor in step.client_state.items()},
            "class_counts": step.class_counts[group],
        }
        penalties: Tensor = torch.func.vmap(compute_penalty)(fields)
        return penalties.sum()

    return torch.stack([sum_group(size) for size in sorted(set(sizes))]).sum()


class _StackedTraining:
    """The local training of a stack of m clients, sorted from most to fewest samples."""

    def __init__(
        self, clients: Sequence[Client], models: StackedModel, extras: Sequence[BatchExtras]
    ) -> None:
        first, method = clients[0], clients[0].algorithm.method
        self.clients, self.models, self.settings = clients, models, first.settings
        self.task, self.optimizer = first.algorithm.task, first.algorithm.local_optimizer
        self.lr = self.optimizer.compute_lr(first.settings.lr, first.round_number)
        self.closed_form = find_representation_gradient(method)
        penalty = drop_default_function(method.penalty, BaseMethod.penalty)
        self.penalty = None if self.closed_form else penalty
        self.supports_stacks = supports_stacks(method)
        self.calibrate = drop_default_function(method.calibrate, BaseMethod.calibrate)
        for row, client in zip(models.vectors, clients, strict=False):
            row.copy_(client.received.model.parameters)
            # One-by-one training draws a seed for dropout here; keep the generators in step.
            torch.randint(2**62, (), generator=client.generator)
        self.start = models.vectors[: len(clients)].clone()  # (m, P)
        self.epochs = [
            client.iter_epochs(client_extras, method.epoch_order)
            for client, client_extras in zip(clients, extras, strict=True)
        ]
        self.class_counts = torch.stack([client.count_classes() for client in clients])
        self.tensors = _stack([client.received.tensors for client in clients])
        self.client_states = _stack([client.state for client in clients])
        self.optimizer_states: list[dict[str, Tensor]] = [{} for _ in clients]
        self.loss_sums = torch.zeros(len(clients))

    def train(self) -> list[LocalResult]:
        """Train all epochs, and return the result of each client."""
        lr = self.lr if self.optimizer.is_plain else None
        for epochs in zip(*self.epochs, strict=True):
            for batch in iter_stacked_batches(epochs, self.settings.batch_size):
                self.models.use(len(batch.labels), lr)
                self._train_batch(batch)
        return [self._make_result(index, client) for index, client in enumerate(self.clients)]

    def _train_batch(self, batch: StackedBatch) -> None:
        """Take one step with all clients that take part in it.

        Autograd computes only the gradients of the loss and the penalty with respect to the logits,
        the representation and the parameters. The stacked model does the rest of the backward pass.
        """
        logits, representation = self.models.forward(batch.inputs)
        leaves = [logits.requires_grad_()]
        calibrated = logits
        if self.calibrate is not None or self.penalty is not None:
            vectors = self.models.vectors[: len(logits)].detach().requires_grad_()
            leaves += [representation.detach().requires_grad_(), vectors]
        if self.calibrate is not None:
            calibrated = self.calibrate(self._make_step(batch, *leaves))
        losses = self.task.loss(calibrated.flatten(0, 1), batch.labels.flatten(), "none")  # (m b,)
        weights = batch.weights.to(losses.dtype)
        outputs, output_weights = [losses], [weights.flatten()]
        penalty = self._compute_penalty(batch, leaves)
        if penalty is not None and penalty.requires_grad:
            outputs, output_weights = [losses, penalty], [*output_weights, torch.ones_like(penalty)]
        grads: list[Any] = [
            *torch.autograd.grad(outputs, leaves, output_weights, allow_unused=True)
        ]
        if self.closed_form is not None:
            step = self._make_step(batch, logits, representation, self.start)
            grads[1:2] = [_add_gradients(self.closed_form(step), *grads[1:2])]
        with torch.no_grad():
            self.loss_sums[: len(logits)] += (losses.view(len(logits), -1) * weights).sum(dim=1)
            self._update_parameters(*grads)

    def _compute_penalty(self, batch: StackedBatch, leaves: Sequence[Tensor]) -> Tensor | None:
        """Return the sum of the clients' penalties; None if the method has no penalty."""
        if self.penalty is None:
            return None
        step = self._make_step(batch, *leaves)
        if not self.supports_stacks:
            return _sum_penalties(self.penalty, step)
        penalties = self.penalty(step)
        return None if penalties is None else penalties.sum()

    def _make_step(
        self, batch: StackedBatch, logits: Tensor, representation: Tensor, vectors: Tensor
    ) -> Step:
        """Return the arguments of the method's functions; each tensor has one row per client."""
        num_active = len(logits)
        return Step(
            logits=logits,
            representation=representation,
            labels=batch.labels,
            parameters=vectors[:num_active],
            received=self.start[:num_active],
            tensors={name: tensor[:num_active] for name, tensor in self.tensors.items()},
            per_sample=batch.per_sample,
            client_state={name: tensor[:num_active] for name, tensor in self.client_states.items()},
            row_mask=batch.row_mask,
            class_counts=self.class_counts[:num_active],
        )

    def _update_parameters(
        self,
        logits_grad: Tensor,
        representation_grad: Tensor | None = None,
        parameters_grad: Tensor | None = None,
    ) -> None:
        """Do the backward pass and the optimizer step of the active clients.

        Args:
            logits_grad: the gradient with respect to the logits, (m, b, outputs).
            representation_grad: the gradient of the penalty with respect to the representation,
                (m, b, d).
            parameters_grad: the gradient of the penalty with respect to the parameters, (m, P).
        """
        models = self.models
        parameters = models.vectors[: models.num_active]
        grads = models.backward(logits_grad, representation_grad)
        if grads is None:  # the backward pass did the SGD step
            if parameters_grad is not None:
                parameters.sub_(parameters_grad, alpha=self.lr)
            return
        if parameters_grad is not None:
            grads += parameters_grad
        for row, grad, state in zip(parameters, grads, self.optimizer_states, strict=False):
            take_step(self.optimizer, row, grad, self.lr, state)

    def _make_result(self, index: int, client: Client) -> LocalResult:
        parameters, settings = self.models.vectors[index].clone(), self.settings
        steps = settings.epochs * len(compute_batch_sizes(len(client.samples), settings.batch_size))
        return LocalResult(
            replace(client.received.model, parameters=parameters),
            parameters,
            self.start[index],
            steps,
            self.lr,
            float(self.loss_sums[index]) / steps,
            compute_effective_steps(self.optimizer, steps, self.lr),
        )


def _add_gradients(*grads: Tensor | None) -> Tensor | None:
    """Return the sum of the gradients that are not None; None if all are None."""
    terms = [grad for grad in grads if grad is not None]
    return sum(terms[1:], terms[0]) if terms else None


def _stack(states: Sequence[TensorState]) -> dict[str, Tensor]:
    """Stack the named tensors of m clients to tensors of shape (m, ...)."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
