"""FedFV: fair averaging that mitigates conflicts between updates.

Problem: updates with a negative inner product cancel each other partly, so that the mean update is
bad for some clients.

Wang et al., IJCAI 2021, https://arxiv.org/abs/2104.14937
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import average_models
from cadis.algorithm.method import Aggregation, ServerRound, ServerState
from cadis.algorithm.methods.fedcav import ReceivedLossMethod
from cadis.types import ClientId, ClientUpdate, TensorState, ids_from_tensor, ids_to_tensor

_CHUNK = 2**15  # columns of the updates that are converted to float64 at once, to save memory
_ROUNDING = 1e-12  # a smaller ratio of squared norms is considered a rounding error


@dataclass(frozen=True)
class FedFV(ReceivedLossMethod):
    """The mean of updates after projections that remove conflicts between updates.

    Use it if the global model should become better for all clients.

    Two updates g_i and g_j are in conflict if their inner product is negative. Internal conflicts
    (Algorithm 2 of the paper) are conflicts between participants: an update g in conflict with g_j
    is projected onto the normal plane of g_j, ``g <- g - (g . g_j) / ||g_j||^2 * g_j``, for all
    participants j in ascending order of their losses. The fraction alpha of the participants with
    the highest losses keep their updates. External conflicts (Algorithm 3) are conflicts between
    the mean of these updates and the last updates of absent clients: for each of the last tau
    rounds, the oldest first, the mean is projected in the same way, where g_j is the sum of all
    updates of this round in conflict with the mean. At the end, the result is scaled to the norm of
    the plain mean (Algorithm 1). The loss of a client is the loss of the received model on its
    data. Batch-norm buffers are averaged.

    Departure from the paper: the result is not scaled if the projections leave only rounding
    errors. In the paper, clients are drawn with probabilities proportional to their numbers of
    samples; here the sampler decides this. The aggregation does not use the number of samples, as
    in the paper.

    Attributes:
        alpha: fraction of the participants whose updates stay unchanged: those with the highest
            losses. All other updates lose the component that points against another update (a
            conflict).
        tau: number of past rounds from which the updates of absent clients are used, so that the
            aggregated update does not contradict them; 0 uses none.
    """

    name: ClassVar[str] = "fedfv"
    about: ClassVar[About] = About(
        topic="aggregation weights",
        paper=Paper(
            title="Federated Learning with Fair Averaging",
            authors="Zheng Wang, Xiaoliang Fan, Jianzhong Qi, Chenglu Wen, Cheng Wang, Rongshan Yu",
            venue="IJCAI",
            year=2021,
            link="https://arxiv.org/abs/2104.14937",
        ),
        sends="the received model's loss",
        server_state="the updates of the last tau rounds",
    )
    alpha: Annotated[float, Ge(0), Le(1)] = 0.1
    tau: Annotated[int, Ge(0)] = 1

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Mitigate internal conflicts, then external conflicts.

        The projections only change the coefficients of a linear combination of updates. So they are
        computed from inner products, and the updates are combined once at the end.
        """
        (name, model), *_ = state.models.items()
        weights = torch.full((len(updates),), 1 / len(updates), dtype=torch.float64)
        mean = average_models([update.model for update in updates], weights)
        if self.alpha == 1 and self.tau == 0:
            return Aggregation({name: mean}, {}, weights)
        present = _StoredUpdates.from_updates(updates, model.parameters, server_round.number)
        absent = _StoredUpdates.from_tensors(state.tensors, present)
        absent = absent.select([client not in present.clients for client in absent.clients])
        products = compute_inner_products(present.updates, absent.updates)
        losses = torch.tensor([update.scalars["received_loss"] for update in updates])
        step = self.compute_coefficients(products, losses, absent.rounds)
        tensors = self._store_updates(absent, present, server_round.number)
        if torch.equal(step, _get_mean_coefficients(len(updates), len(products))):
            return Aggregation({name: mean}, tensors, weights)  # no conflict
        shares = step.to(present.updates.dtype).split([len(updates), len(absent.rounds)])
        update = shares[0] @ present.updates + shares[1] @ absent.updates  # (P,)
        parameters = (model.parameters + update).to(model.parameters.dtype)
        return Aggregation({name: replace(mean, parameters=parameters)}, tensors, weights)

    def _store_updates(
        self, absent: "_StoredUpdates", present: "_StoredUpdates", round_number: int
    ) -> TensorState:
        """Return the updates that the next round needs, as named tensors."""
        if self.tau == 0:
            return {}
        recent = absent.select((absent.rounds > round_number - self.tau).tolist())
        stored = recent.append(present) if recent.clients else present
        ids = ids_to_tensor(stored.clients)
        return {"client_ids": ids, "rounds": stored.rounds, "updates": stored.updates}

    def compute_coefficients(self, products: Tensor, losses: Tensor, rounds: Tensor) -> Tensor:
        """Return the coefficient of each update in the aggregated update (Algorithm 1).

        Args:
            products: inner products of the updates of k participants and m absent clients,
                (k + m, k + m).
            losses: losses of the participants, (k,).
            rounds: round of the last update of each absent client, (m,).

        Returns:
            Coefficients, (k + m,).
        """
        mean = _get_mean_coefficients(len(losses), len(products))
        step = mitigate_internal_conflicts(products, losses, self.alpha)
        step = mitigate_external_conflicts(products, step, rounds)
        if torch.equal(step, mean):
            return mean
        mean_square, square = (vector @ products @ vector for vector in (mean, step))
        if square > _ROUNDING * mean_square:
            return step * (mean_square / square).sqrt()
        return step


def mitigate_internal_conflicts(products: Tensor, losses: Tensor, alpha: float) -> Tensor:
    """Return the coefficients of the mean of the projected updates (Algorithm 2), (k + m,)."""
    num_present = len(losses)
    order = losses.argsort(stable=True).tolist()
    coefficients = torch.eye(num_present, len(products), dtype=torch.float64)
    for row in order[: num_present - ceil(alpha * num_present - 1e-9)]:
        for other in order:
            inner = coefficients[row] @ products[other]
            if other != row and inner < 0:
                coefficients[row, other] -= inner / products[other, other]
    return coefficients.mean(dim=0)


def mitigate_external_conflicts(products: Tensor, step: Tensor, rounds: Tensor) -> Tensor:
    """Remove conflicts of a step with absent clients of past rounds (Algorithm 3), (k + m,)."""
    num_present = len(products) - len(rounds)
    for past_round in rounds.unique().tolist():  # in ascending order
        rows = num_present + (rounds == past_round).nonzero().flatten()
        conflicts = rows[(products @ step)[rows] < 0]
        if len(conflicts):
            total = torch.zeros_like(step).index_fill(0, conflicts, 1.0)
            step = step - (step @ products @ total) / (total @ products @ total) * total
    return step


def compute_inner_products(present: Tensor, absent: Tensor) -> Tensor:
    """Return the inner products of all pairs of updates, (k + m, k + m), float64.

    Args:
        present: updates of the participants, (k, P).
        absent: last updates of the absent clients, (m, P).
    """
    size = len(present) + len(absent)
    products = torch.zeros(size, size, dtype=torch.float64)
    for parts in zip(present.split(_CHUNK, dim=1), absent.split(_CHUNK, dim=1), strict=True):
        rows = torch.cat(parts).double()
        products.addmm_(rows, rows.T)
    return products


def _get_mean_coefficients(num_present: int, size: int) -> Tensor:
    """Return the coefficients of the plain mean of the participants, (k + m,)."""
    mean = torch.zeros(size, dtype=torch.float64)
    mean[:num_present] = 1 / num_present
    return mean


@dataclass(frozen=True)
class _StoredUpdates:
    """The last update w_i - w_t of each client, and the round in which it was sent."""

    clients: tuple[ClientId, ...]  # m clients
    rounds: Tensor  # (m,)
    updates: Tensor  # (m, P)

    @classmethod
    def from_updates(
        cls, updates: Sequence[ClientUpdate], global_parameters: Tensor, round_number: int
    ) -> "_StoredUpdates":
        precise = torch.promote_types(global_parameters.dtype, torch.float32)
        matrix = torch.empty(len(updates), len(global_parameters), dtype=precise)
        for row, update in zip(matrix, updates, strict=True):
            torch.sub(update.model.parameters.to(precise), global_parameters, out=row)
        rounds = torch.full((len(updates),), round_number)
        return cls(tuple(update.client_id for update in updates), rounds, matrix)

    @classmethod
    def from_tensors(cls, tensors: TensorState, like: "_StoredUpdates") -> "_StoredUpdates":
        """Restore stored updates; without tensors, return an empty object like ``like``."""
        if not tensors:
            return cls((), like.rounds[:0], like.updates[:0])
        return cls(ids_from_tensor(tensors["client_ids"]), tensors["rounds"], tensors["updates"])

    def select(self, mask: Sequence[bool]) -> "_StoredUpdates":
        if all(mask):
            return self
        rows = torch.tensor(mask)
        clients = tuple(compress(self.clients, mask))
        return _StoredUpdates(clients, self.rounds[rows], self.updates[rows])

    def append(self, later: "_StoredUpdates") -> "_StoredUpdates":
        rounds, updates = (self.rounds, later.rounds), (self.updates, later.updates)
        return _StoredUpdates(self.clients + later.clients, torch.cat(rounds), torch.cat(updates))
