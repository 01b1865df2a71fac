"""FedNova (Wang et al., 2020): normalised averaging of clients that take unequal many steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from cadis._io import in_chunks
from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.base_method import BaseMethod, weighted_models
from cadis.algorithm.method import Aggregation, ClientOutput, LocalResult, ServerRound, ServerState
from cadis.types import ClientUpdate, Message, TensorState


@dataclass(frozen=True)
class FedNova(BaseMethod):
    """Averages updates by step, so that who takes more steps does not pull the model its way.

    With p_i = n_i / N and tau_i effective local steps, w <- w_t + tau * sum_i p_i (w_i - w_t) /
    tau_i, where tau = sum_i p_i tau_i (Eq. 7 and 10 of the paper). tau_i is the norm of the
    paper's a_i: the number of steps for plain SGD; what momentum and weight decay make of it is
    found by taking the steps along a constant gradient.

    The sum is the mean of the models with weights proportional to p_i / tau_i, stretched away from
    w_t; with equal many steps it is FedAvg.
    """

    name: ClassVar[str] = "fednova"
    needs_scalars: ClassVar[tuple[str, ...]] = ("effective_steps",)
    about: ClassVar[About] = About(
        kind="drift correction", paper="Wang et al., 2020", sends="the number of local steps"
    )

    def finish(self, training: LocalResult, received: Message, memory: TensorState) -> ClientOutput:
        """Tell tau_i."""
        return ClientOutput(memory, scalars={"effective_steps": training.effective_steps})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The mean by step, as long as the mean of the clients' steps."""
        shares = example_weights([update.num_examples for update in updates])
        told = [update.scalars["effective_steps"] for update in updates]
        steps = torch.tensor(told, dtype=torch.float64).clamp(min=1e-3)  # it is divided by them
        by_step = shares / steps
        stretch = float((shares * steps).sum() * by_step.sum())  # tau * sum_i p_i / tau_i
        models, weights = weighted_models(updates, by_step / by_step.sum())

        def stretched(sent: Tensor, mean: Tensor) -> tuple[Tensor, ...]:
            start = sent.double()
            return (torch.add(start, mean.double() - start, alpha=stretch).to(mean.dtype),)

        for name, mean in models.items():
            (parameters,) = in_chunks(stretched, state.models[name].parameters, mean.parameters)
            models[name] = replace(mean, parameters=parameters)
        return Aggregation(models, state.memory, weights)
