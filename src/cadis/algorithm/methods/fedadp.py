"""FedAdp (Wu and Wang, 2021): who moves along with the whole counts more."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis._io import squared_distance
from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights, mean_state
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import ServerRound, ServerState, Weighing
from cadis.types import ClientId, ClientUpdate, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class FedAdp(BaseMethod):
    """Weights n_i exp(f(angle_i)): who moves the way of the mean update counts more.

    theta_i = arccos(<w_i - w_t, m> / (||w_i - w_t|| ||m||)), with m = sum of n_i / N (w_i - w_t);
    its mean over the client's own rounds is mapped by the paper's Gompertz function,
    f(theta) = alpha (1 - exp(-exp(-alpha (theta - 1)))).

    Departure: where a client or the mean did not move there is no angle; it is taken for a right
    one, which is neither with the mean nor against it.

    Attributes:
        alpha: how much the weights of small and of large angles differ, and how suddenly.
    """

    name: ClassVar[str] = "fedadp"
    about: ClassVar[About] = About(
        kind="weights on the server",
        paper="Wu and Wang, 2021",
        server_memory="two numbers a client",
    )
    alpha: Annotated[float, Gt(0)] = 5.0

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """The softmax of log n_i + f(theta_i)."""
        shares = example_weights([update.num_examples for update in updates])
        (sent,) = state.models.values()
        angles = angles_to_mean(updates, sent.parameters, shares)
        means: dict[ClientId, tuple[float, int]] = {}
        if state.memory:
            before = state.memory["angles"].tolist(), state.memory["times"].tolist()
            ids = ids_from_tensor(state.memory["client_ids"])
            means = dict(zip(ids, zip(*before, strict=True), strict=True))
        for update, angle in zip(updates, angles.tolist(), strict=True):
            mean, times = means.get(update.client_id, (0.0, 0))
            means[update.client_id] = (times * mean + angle) / (times + 1), times + 1
        smoothed = [means[update.client_id][0] for update in updates]
        contribution = self.contribution(torch.tensor(smoothed, dtype=torch.float64))
        memory = {
            "client_ids": ids_to_tensor(list(means)),
            "angles": torch.tensor([mean for mean, _ in means.values()], dtype=torch.float64),
            "times": torch.tensor([times for _, times in means.values()]),
        }
        return Weighing(torch.softmax(shares.log() + contribution, dim=0), memory)

    def contribution(self, angles: Tensor) -> Tensor:
        """The Gompertz function of angles: alpha for small ones, 0 for large ones."""
        return -self.alpha * torch.expm1(-torch.exp(-self.alpha * (angles - 1)))


def angles_to_mean(updates: Sequence[ClientUpdate], sent: Tensor, shares: Tensor) -> Tensor:
    """The angles between the updates and their mean by these shares, (k,), float64.

    Inner products are told by distances, 2 <a, b> = ||a||^2 + ||b||^2 - ||a - b||^2, so that no
    update is ever written down.
    """
    mean = mean_state([update.model for update in updates], shares).parameters
    length = squared_distance(mean, sent)
    angles = torch.full((len(updates),), pi / 2, dtype=torch.float64)
    for place, update in enumerate(updates):
        model = update.model.parameters
        own = squared_distance(model, sent)
        if own > 0 and length > 0:
            inner = (own + length - squared_distance(model, mean)) / 2
            angles[place] = inner / (own * length) ** 0.5
            angles[place] = angles[place].clamp(-1, 1).arccos()
    return angles
