"""The loss and the optimizer step of one batch of local training."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor

from cadis.algorithm import Algorithm, BaseMethod, Calibration, Penalty, Step
from cadis.algorithm.local_optimizers import LocalOptimizer
from cadis.errors import RunError
from cadis.models import FlatModel
from cadis.training.fast.closed_forms import find_parameter_gradient
from cadis.training.fast.in_place import InPlaceLinears

_Function = TypeVar("_Function", bound=Callable[..., Any])


class BatchTrainer:
    """Trains one model batch by batch, with a method's loss terms and a local optimizer."""

    def __init__(
        self,
        model: FlatModel,
        algorithm: Algorithm,
        lr: float,
        penalty: Penalty | None,
        calibrate: Calibration | None,
    ) -> None:
        """Prepare the training.

        Args:
            model: the model to train in place.
            algorithm: the method and its parts.
            lr: the learning rate.
            penalty: the method's function that returns a term to add to the loss.
            calibrate: the method's function that returns the logits for the loss.
        """
        self.model, self.task, self.lr = model, algorithm.task, lr
        self.optimizer = algorithm.local_optimizer
        self.optimizer_state: dict[str, Tensor] = {}
        self.closed_form = find_parameter_gradient(algorithm.method, penalty)
        self.penalty = None if self.closed_form else penalty
        self.calibrate = drop_default_function(calibrate, BaseMethod.calibrate)
        self._linears = InPlaceLinears()

    def patch_linears(self) -> AbstractContextManager[None]:
        """Return a context for all batches, in which plain SGD updates linear layers in place."""
        is_plain = self.optimizer.is_plain
        return self._linears.patch(self.model.module) if is_plain else nullcontext()

    def train(self, step: Step) -> Tensor:
        """Take one optimizer step; return the loss of the batch without the penalty."""
        logits = step.logits if self.calibrate is None else self.calibrate(step)
        loss = self.task.loss(logits, step.labels, "mean")
        penalty = penalty_grad = None
        if self.closed_form is not None:
            with torch.no_grad():
                penalty_grad = self.closed_form(step)
        elif self.penalty is not None:
            penalty = self.penalty(step)
        total = loss if penalty is None else loss + penalty
        if self.optimizer.is_plain:
            uses_vector = penalty is not None or self.calibrate is not None
            self._take_plain_step(total, uses_vector, penalty_grad)
        else:
            self._take_step(total, penalty_grad)
        return loss.detach()

    def _take_step(self, loss: Tensor, penalty_grad: Tensor | None) -> None:
        """Take a step of any optimizer; ``penalty_grad``, (P,), is added to the gradient."""
        grad = self.model.compute_gradient(loss)
        with torch.no_grad():
            if penalty_grad is not None:
                grad = grad.add_(penalty_grad)
            take_step(self.optimizer, self.model.vector, grad, self.lr, self.optimizer_state)

    def _take_plain_step(
        self, loss: Tensor, uses_vector: bool, penalty_grad: Tensor | None
    ) -> None:
        """Take a step of plain SGD, which needs no flat vector of all gradients.

        Args:
            loss: the loss of the batch with its penalty.
            uses_vector: whether the loss may depend on the flat vector of parameters.
            penalty_grad: a gradient that is added to the gradient of the loss, (P,).
        """
        leaves = self.model.parameters
        if uses_vector:
            leaves = [*leaves, self.model.vector]
        grads = self._linears.compute_gradients(loss, leaves)
        with torch.no_grad():
            for leaf, leaf_grad in zip(leaves, grads, strict=True):
                if leaf_grad is not None:
                    leaf.add_(leaf_grad, alpha=-self.lr)
            if penalty_grad is not None:
                self.model.vector.add_(penalty_grad, alpha=-self.lr)
            self._linears.step(self.lr)


def drop_default_function(
    function: _Function | None, default: Callable[..., Any]
) -> _Function | None:
    """Return a method's ``penalty`` or ``calibrate``; None for the default, which has no effect."""
    is_default = isinstance(function, MethodType) and function.__func__ is default
    return None if is_default else function


def take_step(
    optimizer: LocalOptimizer,
    parameters: Tensor,
    gradient: Tensor,
    lr: float,
    state: dict[str, Tensor],
) -> None:
    """Take one step, and raise a RunError if the optimizer returns parameters.

    A user's optimizer that returns new parameters instead of changing them in place would
    otherwise train nothing.
    """
    result: object = optimizer.step(parameters, gradient, lr, state)  # type: ignore[func-returns-value]
    if result is not None:
        raise RunError(
            f"{optimizer.name}.step must change the parameters in place, for example with "
            f"parameters.sub_, and return None, not a {type(result).__name__}."
        )


def compute_effective_steps(optimizer: LocalOptimizer, steps: int, lr: float) -> float:
    """Return the number of plain SGD steps that change the parameters as much as these steps.

    The gradient is assumed to be the same in all steps. FedNova (Wang et al., NeurIPS 2020,
    https://arxiv.org/abs/2007.07481) calls this number the norm of a_i, and has a formula for each
    optimizer. Here it is computed for any optimizer: one parameter with gradient 1 takes the steps.
    """
    if optimizer.is_plain:
        return float(steps)
    parameter, state = torch.zeros(1, dtype=torch.float64), dict[str, Tensor]()
    for _ in range(steps):
        take_step(optimizer, parameter, torch.ones(1, dtype=torch.float64), lr, state)
    return -float(parameter) / lr
