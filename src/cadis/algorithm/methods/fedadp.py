"""FedAdp: weights that depend on the angle between each update and the mean update.

Problem: with heterogeneous data, updates that contradict most other updates slow down convergence.

Wu and Wang, IEEE Transactions on Cognitive Communications and Networking (TCCN) 2021,
https://arxiv.org/abs/2012.00661
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from cadis._io import compute_squared_distance
from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import average_models, compute_sample_weights
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import ClientWeights, ServerRound, ServerState
from cadis.algorithm.weight_limits import limit_weights
from cadis.types import ClientId, ClientUpdate, ids_from_tensor, ids_to_tensor


@dataclass(frozen=True)
class FedAdp(BaseMethod):
    """Larger weights for clients whose updates have a small angle to the mean update.

    Use it if the updates of most clients have similar directions, and some clients contradict them.

    The weight of client i is proportional to ``n_i * exp(f(theta_i))``, with the Gompertz function
    ``f(theta) = alpha * (1 - exp(-exp(-alpha * (theta - 1))))``. theta_i is the angle between the
    client's update w_i - w_t and the mean update ``sum_j (n_j / N) * (w_j - w_t)``, averaged over
    the rounds in which the client took part.

    Departure from the paper: if the client's update or the mean update is zero, the angle is
    undefined. Here it is then a right angle. No weight is larger than four times an equal share
    (``largest_share``), because a long update has a small angle to the mean that it dominates.

    Attributes:
        alpha: how strongly the angle between a client's update and the mean update affects the
            client's weight; a client with a small angle gets up to exp(alpha) times the weight of a
            client with a large angle.
    """

    name: ClassVar[str] = "fedadp"
    about: ClassVar[About] = About(
        topic="aggregation weights",
        paper=Paper(
            title="Fast-Convergent Federated Learning with Adaptive Weighting",
            authors="Hongda Wu, Ping Wang",
            venue="TCCN",
            year=2021,
            link="https://arxiv.org/abs/2012.00661",
        ),
        server_state="two numbers per client",
    )
    largest_share: ClassVar[float] = 4.0
    alpha: Annotated[float, Gt(0)] = 5.0

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Return the softmax of log n_i + f(theta_i), and update the mean angles of clients."""
        shares = compute_sample_weights([update.num_samples for update in updates])
        (model,) = state.models.values()
        angles = compute_angles(updates, model.parameters, shares)
        means: dict[ClientId, tuple[float, int]] = {}  # mean angle and number of rounds
        if state.tensors:
            stored = state.tensors["angles"].tolist(), state.tensors["times"].tolist()
            ids = ids_from_tensor(state.tensors["client_ids"])
            means = dict(zip(ids, zip(*stored, strict=True), strict=True))
        for update, angle in zip(updates, angles.tolist(), strict=True):
            mean, count = means.get(update.client_id, (0.0, 0))
            means[update.client_id] = (count * mean + angle) / (count + 1), count + 1
        smoothed = [means[update.client_id][0] for update in updates]
        contribution = self.compute_contribution(torch.tensor(smoothed, dtype=torch.float64))
        tensors = {
            "client_ids": ids_to_tensor(list(means)),
            "angles": torch.tensor([mean for mean, _ in means.values()], dtype=torch.float64),
            "times": torch.tensor([count for _, count in means.values()]),
        }
        weights = torch.softmax(shares.log() + contribution, dim=0)
        return ClientWeights(limit_weights(weights, shares, self.largest_share), tensors)

    def compute_contribution(self, angles: Tensor) -> Tensor:
        """Return the Gompertz function f(theta): near alpha for small, near 0 for large angles."""
        return -self.alpha * torch.expm1(-torch.exp(-self.alpha * (angles - 1)))


def compute_angles(
    updates: Sequence[ClientUpdate], global_parameters: Tensor, shares: Tensor
) -> Tensor:
    """Return the angle between each update and the mean update.

    Inner products are computed from distances, 2 <a, b> = ||a||^2 + ||b||^2 - ||a - b||^2, because
    this needs no memory for the updates.

    Args:
        updates: updates of the participants.
        global_parameters: parameters w_t of the global model that was sent, (P,).
        shares: weights of the mean, n_i / N, (k,).

    Returns:
        Angles in radians, (k,), float64; pi / 2 if the update or the mean update is zero.
    """
    mean = average_models([update.model for update in updates], shares).parameters
    mean_square = compute_squared_distance(mean, global_parameters)
    angles = torch.full((len(updates),), pi / 2, dtype=torch.float64)
    for index, update in enumerate(updates):
        model = update.model.parameters
        square = compute_squared_distance(model, global_parameters)
        if square > 0 and mean_square > 0:
            inner = (square + mean_square - compute_squared_distance(model, mean)) / 2
            angles[index] = inner / (square * mean_square) ** 0.5
            angles[index] = angles[index].clamp(-1, 1).arccos()
    return angles
