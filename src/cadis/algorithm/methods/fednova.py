"""FedNova: normalized averaging of clients with different numbers of local steps.

Problem: clients with more local steps have larger updates and dominate the mean of FedAvg, which
then converges to the optimum of a different objective.

Wang et al., NeurIPS 2020, https://arxiv.org/abs/2007.07481
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from cadis._io import map_chunks
from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import average_updates, compute_sample_weights
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Aggregation, ClientOutput, LocalResult, ServerRound, ServerState
from cadis.algorithm.weight_limits import limit_weights
from cadis.types import ClientUpdate, Message, TensorState

_SHARE_OF_TWO = 2.85
"""``largest_share`` for two clients, which is 95%: one may have ten times as many steps."""


@dataclass(frozen=True)
class FedNova(BaseMethod):
    """The mean of the clients' updates per local step, times the mean number of local steps.

    Use it if clients have very different numbers of samples, and so different numbers of local
    steps.

    ``w <- w_t + tau * sum_i p_i * (w_i - w_t) / tau_i`` with p_i = n_i / N and
    ``tau = sum_i p_i * tau_i`` (Eq. 7 and 10 of the paper). tau_i is the effective number of local
    steps, the norm of the vector a_i in the paper. For plain SGD it is the number of steps. With
    momentum or weight decay, it is the number of plain SGD steps that would move as far along a
    constant gradient. If tau_i is the same for all clients, the result equals FedAvg.

    Departure from the paper: no client has more than twice an equal share (``largest_share``) of
    ``sum_i p_i / tau_i``, or of ``sum_i p_i * tau_i``, unless its share of the samples, or of their
    squares, is larger. So a client that reports a wrong number of steps gets no large weight, and
    does not scale the step of the round. If numbers of steps are proportional to numbers of
    samples, these limits change nothing. With two clients, the limit is 95%.
    """

    name: ClassVar[str] = "fednova"
    needs_scalars: ClassVar[tuple[str, ...]] = ("effective_steps",)
    scalar_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"effective_steps": (0.0, 1e9)}
    about: ClassVar[About] = About(
        topic="drift correction",
        paper=Paper(
            title="Tackling the Objective Inconsistency Problem in Heterogeneous Federated "
            "Optimization",
            authors="Jianyu Wang, Qinghua Liu, Hao Liang, Gauri Joshi, H. Vincent Poor",
            venue="NeurIPS",
            year=2020,
            link="https://arxiv.org/abs/2007.07481",
        ),
        sends="the number of local steps",
    )

    def finish(
        self, result: LocalResult, received: Message, client_state: TensorState
    ) -> ClientOutput:
        """Send tau_i, the effective number of local steps."""
        return ClientOutput(client_state, scalars={"effective_steps": result.effective_steps})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Return the normalized average of Eq. 7.

        The models are first averaged with weights proportional to p_i / tau_i. Then the difference
        between this mean and w_t is multiplied by tau * sum_i p_i / tau_i.
        """
        shares = compute_sample_weights([update.num_samples for update in updates])
        values = [update.scalars["effective_steps"] for update in updates]
        steps = torch.tensor(values, dtype=torch.float64).clamp(min=1e-3)  # not 0
        weights, per_step = self._limit_terms(shares / steps, shares)
        _, mean_steps = self._limit_terms(shares * steps, shares.square() / shares.square().sum())
        scale = mean_steps * per_step  # tau * sum_i p_i / tau_i
        models, weights = average_updates(updates, weights)

        def rescale(global_parameters: Tensor, mean: Tensor) -> tuple[Tensor, ...]:
            start = global_parameters.double()
            return (torch.add(start, mean.double() - start, alpha=scale).to(mean.dtype),)

        for name, mean in models.items():
            (parameters,) = map_chunks(rescale, state.models[name].parameters, mean.parameters)
            models[name] = replace(mean, parameters=parameters)
        return Aggregation(models, state.tensors, weights)

    def _limit_terms(self, terms: Tensor, shares: Tensor) -> tuple[Tensor, float]:
        """Limit the terms of a sum; return the share of each term, (k,), and the sum."""
        before = terms / terms.sum()
        largest = self.largest_share if len(terms) > 2 else _SHARE_OF_TWO
        after = limit_weights(before, shares, largest)
        if after is before:
            return before, float(terms.sum())
        return after, float((terms / after).min())
