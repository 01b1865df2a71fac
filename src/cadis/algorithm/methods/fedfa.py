"""FedFA: weights by the information in accuracy and participation.

Problem: the global model serves some clients badly.

Wei Huang, Tianrui Li, Dexian Wang, Shengdong Du, Junbo Zhang: Fairness and Accuracy in Federated
Learning. 2020. https://arxiv.org/abs/2012.10069
"""

from collections import Counter
from collections.abc import Sequence
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
    """Larger weights for clients with a low accuracy of the received model.

    The weight of client i is ``alpha * A_i + beta * F_i``, normalized, with
    ``A_i = -log2(acc_i / sum_j acc_j)`` for the accuracy acc_i of the received model on the
    client's data and ``F_i = -log2(1 - f_i / sum_j f_j)`` for the number f_i of its rounds; A and F
    are each normalized to sum 1.

    Use it if all clients should have a similar accuracy.

    Departure: the momentum of the paper is left out; it is a local or a server optimizer here. An
    accuracy of 0 counts as half a sample, since its logarithm is infinite.

    Attributes:
        alpha: weight of the accuracy information.
        beta: weight of the participation information.
    """

    name: ClassVar[str] = "fedfa"
    needs_scalars: ClassVar[tuple[str, ...]] = ("received_accuracy",)
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
    alpha: Annotated[float, Ge(0)] = 1.0
    beta: Annotated[float, Ge(0)] = 0.0

    @property
    def needs_model_outputs(self) -> bool:
        """True: clients compute the accuracy of the received model."""
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
            ids, times = ids_from_tensor(state.tensors["client_ids"]), state.tensors["times"]
            counts.update(dict(zip(ids, times.tolist(), strict=True)))
        counts.update(clients)
        accuracy = torch.tensor([_get_accuracy(update) for update in updates], dtype=torch.float64)
        rounds = torch.tensor([counts[client] for client in clients], dtype=torch.float64)
        by_accuracy = _normalize(-torch.log2(accuracy / accuracy.sum()))
        by_rounds = _normalize(-torch.log2(1 - rounds / rounds.sum()))
        weights = _normalize(self.alpha * by_accuracy + self.beta * by_rounds)
        times = torch.tensor(list(counts.values()))
        return ClientWeights(weights, {"client_ids": ids_to_tensor(list(counts)), "times": times})


def _get_accuracy(update: ClientUpdate) -> float:
    """Return the accuracy sent by a client, at least that of half a correct sample."""
    return min(max(update.scalars["received_accuracy"], 0.5 / update.num_samples), 1.0)


def _normalize(information: Tensor) -> Tensor:
    """Scale to sum 1; equal values without information, as for a single client."""
    total = information.sum()
    if not torch.isfinite(total) or total <= 0:
        return torch.full_like(information, 1 / len(information))
    return information / total
