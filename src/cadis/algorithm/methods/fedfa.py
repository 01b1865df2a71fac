"""FedFA (Huang et al., 2020): weights by the information in accuracy and participation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import BatchExtras, ModelOutputs, ServerRound, ServerState, Weighing
from cadis.types import ClientId, ClientUpdate, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class FedFA(BaseMethod):
    """Weights alpha * A_i + beta * F_i: clients that the global model serves badly count more.

    A_i = -log2(acc_i / sum acc), with the received model's accuracy on the client's own data;
    F_i = -log2(1 - f_i / sum f), with how often it has taken part; each normalised to sum 1.

    Attributes:
        alpha: weight of the accuracy information.
        beta: weight of the participation information.
    """

    name: ClassVar[str] = "fedfa"
    needs_scalars: ClassVar[tuple[str, ...]] = ("received_accuracy",)
    about: ClassVar[About] = About(
        kind="weights on the server",
        paper="Huang et al., 2020",
        sends="the received model's accuracy on the client's data",
        server_memory="a count a client",
    )
    alpha: Annotated[float, Ge(0)] = 1.0
    beta: Annotated[float, Ge(0)] = 0.0

    @property
    def needs_view(self) -> bool:
        """A view of the data is needed for the accuracy of the received model."""
        return True

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """Accuracy of the received model on the client's own training data."""
        return BatchExtras(scalars={"received_accuracy": view.correct.float().mean()})

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Weigh by information."""
        clients = [update.client_id for update in updates]
        counts: Counter[ClientId] = Counter()
        if state.memory:
            ids, times = ids_from_tensor(state.memory["client_ids"]), state.memory["times"]
            counts.update(dict(zip(ids, times.tolist(), strict=True)))
        counts.update(clients)
        accuracy = torch.tensor([_accuracy(update) for update in updates], dtype=torch.float64)
        taken_part = torch.tensor([counts[client] for client in clients], dtype=torch.float64)
        by_accuracy = _share(-torch.log2(accuracy / accuracy.sum()))
        by_times = _share(-torch.log2(1 - taken_part / taken_part.sum()))
        weights = _share(self.alpha * by_accuracy + self.beta * by_times)
        times = torch.tensor(list(counts.values()))
        return Weighing(weights, {"client_ids": ids_to_tensor(list(counts)), "times": times})


def _accuracy(update: ClientUpdate) -> float:
    """The accuracy, no less than half a sample right: the logarithm of zero is no weight."""
    return min(max(update.scalars["received_accuracy"], 0.5 / update.num_examples), 1.0)


def _share(information: Tensor) -> Tensor:
    """Normalised to sum 1; all equal where there is no information, as with a single client."""
    total = information.sum()
    if not torch.isfinite(total) or total <= 0:
        return torch.full_like(information, 1 / len(information))
    return information / total
