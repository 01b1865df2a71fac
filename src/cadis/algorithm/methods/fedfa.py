"""FedFA: weights computed from the accuracy and the participation of clients.

Problem: the global model has a low accuracy on the data of some clients.

Huang et al., arXiv 2020, https://arxiv.org/abs/2012.10069
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    BatchExtras,
    ClientWeights,
    ModelOutputs,
    ServerRound,
    ServerState,
)
from cadis.types import ClientId, ClientUpdate, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class FedFA(BaseMethod):
    """Larger weights for clients on whose data the received model has a low accuracy.

    Use it if all clients should have a similar accuracy.

    Let acc_i be the accuracy of the received model on the data of client i, and f_i the number of
    rounds in which the client took part. ``A_i = -log2(acc_i / sum_j acc_j)`` is large if acc_i is
    small. ``F_i = -log2(1 - f_i / sum_j f_j)`` is large if f_i is large. Both are normalized to
    sum 1. The weight of client i is ``alpha * A_i + beta * F_i``, again normalized to sum 1.

    Departure from the paper: momentum is left out; choose it as a local or server optimizer. An
    accuracy of 0 counts as half a correct sample, because the logarithm of 0 is infinite. No weight
    is larger than four times an equal share (``largest_share``); the weight of a client with an
    accuracy near 0 is often more than twice an equal share, which is the point of the method.

    Attributes:
        alpha: factor of the accuracy term in a client's aggregation weight. This term is large if
            the received model has a low accuracy on the client's data.
        beta: factor of the participation term in a client's aggregation weight. This term is large
            if the client took part in many rounds.
    """

    name: ClassVar[str] = "fedfa"
    needs_scalars: ClassVar[tuple[str, ...]] = ("received_accuracy",)
    scalar_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"received_accuracy": (0.0, 1.0)}
    about: ClassVar[About] = About(
        topic="aggregation weights",
        paper=Paper(
            title="Fairness and Accuracy in Federated Learning",
            authors="Wei Huang, Tianrui Li, Dexian Wang, Shengdong Du, Junbo Zhang",
            venue="arXiv",
            year=2020,
            link="https://arxiv.org/abs/2012.10069",
        ),
        sends="the received model's accuracy on the client's data",
        server_state="one count per client",
    )
    largest_share: ClassVar[float] = 4.0
    alpha: Annotated[float, Ge(0)] = 1.0
    beta: Annotated[float, Ge(0)] = 0.0

    @property
    def needs_model_outputs(self) -> bool:
        """True, because clients compute the accuracy of the received model."""
        return True

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Compute the accuracy of the received model on the client's training data."""
        return BatchExtras(scalars={"received_accuracy": outputs.correct.float().mean()})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Return alpha * A_i + beta * F_i, normalized, and update the counts f_i."""
        clients = [update.client_id for update in updates]
        counts: Counter[ClientId] = Counter()
        if state.tensors:
            ids = ids_from_tensor(state.tensors["client_ids"])
            participations = state.tensors["times"]
            counts.update(dict(zip(ids, participations.tolist(), strict=True)))
        counts.update(clients)
        accuracy = torch.tensor([_get_accuracy(update) for update in updates], dtype=torch.float64)
        rounds = torch.tensor([counts[client] for client in clients], dtype=torch.float64)
        by_accuracy = _normalize(-torch.log2(accuracy / accuracy.sum()))
        by_rounds = _normalize(-torch.log2(1 - rounds / rounds.sum()))
        weights = _normalize(self.alpha * by_accuracy + self.beta * by_rounds)
        participations = torch.tensor(list(counts.values()))
        tensors = {"client_ids": ids_to_tensor(list(counts)), "times": participations}
        return ClientWeights(weights, tensors)


def _get_accuracy(update: ClientUpdate) -> float:
    """Return the accuracy that a client sent, but at least half a correct sample."""
    return min(max(update.scalars["received_accuracy"], 0.5 / update.num_samples), 1.0)


def _normalize(values: Tensor) -> Tensor:
    """Scale values to sum 1; return equal values if the sum is 0, NaN or infinite."""
    total = values.sum()
    if not torch.isfinite(total) or total <= 0:
        return torch.full_like(values, 1 / len(values))
    return values / total
