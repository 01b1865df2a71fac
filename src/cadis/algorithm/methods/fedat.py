"""FedAT: tiers of clients with similar speed; synchronous within a tier, asynchronous across tiers.

Problem: in synchronous training all clients wait for the slowest client.

Chai et al., SC 2021, https://arxiv.org/abs/2010.05958
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import average_models, compute_sample_weights
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Aggregation, ServerRound, ServerState, Step
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class FedAT(BaseMethod):
    """Asynchronous tiers of clients with similar speed; slow tiers get larger weights.

    Use it in simulations with clients of very different speed.

    Clients are divided into M tiers of equal size, according to the seconds that they need for a
    round. Each tier trains at its own pace, from the global model that it received when its last
    round ended. A round of the run is the end of one round of one tier. The model w_m of this tier
    becomes the mean of its participants' models, weighted by their numbers of samples. The new
    global model is ``w = sum_m (T_(M+1-m) / T) * w_m``, where the tiers are ordered from the
    fastest to the slowest, T_m is the number of finished rounds of tier m, and T = sum_m T_m. So
    the slowest tier, which has the fewest rounds, gets the largest weight, T_1 / T. Clients add
    ``mu / 2 * ||w - w_t||^2`` to their loss.

    Departure from the paper: M is the number of tiers that have finished a round. Otherwise the
    slowest tier would get most of the weight before it has trained a model.

    Departure from the paper: a round of a tier takes as long as its slowest client needs, even if
    this client does not take part. The server must know which tier ends next before it chooses the
    participants.

    Departure from the paper: mu is 0.01 as in FedProx, instead of 0.4. On the digits (IID, two
    seeds, speeds 100:500), training to an accuracy of 85% took three times as long with 0.4; the
    results with 0 and 0.01 were similar.

    Departure from the paper: tiers never change, because the speeds of simulated clients do not
    change. Clients with equal speed are in the same tier, so there can be fewer than M tiers.
    Messages are not compressed; use a transform such as top-k for that.

    Attributes:
        tiers: number of groups into which clients are divided according to their speed.
        mu: factor of the proximal term in the local loss, which keeps local models near the
            received model; 0 disables the term.
    """

    name: ClassVar[str] = "fedat"
    largest_share: ClassVar[float] = inf  # a client may be alone in its tier
    needs_clock: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="time",
        paper=Paper(
            title="FedAT: A High-Performance and Communication-Efficient Federated Learning System "
            "with Asynchronous Tiers",
            authors="Zheng Chai, Yujing Chen, Ali Anwar, Liang Zhao, Yue Cheng, Huzefa Rangwala",
            venue="SC",
            year=2021,
            link="https://arxiv.org/abs/2010.05958",
        ),
        server_state="per tier, its model and the model that it received",
        flower="no: it simulates the speed of clients",
    )
    tiers: Annotated[int, Ge(1)] = 3
    mu: Annotated[float, Ge(0)] = 0.01

    def penalty(self, step: Step) -> Tensor | None:
        """Return the proximal term, mu / 2 * ||w - w_t||^2."""
        if not self.mu:
            return None
        return self.mu / 2 * (step.parameters - step.received).square().sum(dim=-1)

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Return the clients of the tier that ends next; the faster tier if two end together."""
        tiers = self._load_tiers(server_round, state.tensors, clients)
        tier_by_client = tiers.assign(server_round, clients)
        ending = min(set(tier_by_client), key=lambda tier: (tiers.get_end_time(tier), tier))
        return [c for c, tier in zip(clients, tier_by_client, strict=True) if tier == ending]

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """Send the global model that was current when the client's tier started its round."""
        (name, model), *_ = state.models.items()
        if not state.tensors:
            return Message({name: model})  # all tiers start with the initial model
        tiers = self._load_tiers(server_round, state.tensors, [client])
        (tier,) = tiers.assign(server_round, [client])
        version = int(tiers.versions[tier])
        if version < tiers.num_updates:
            model = _read_model(state.tensors, f"global-{version}")
        return Message({name: model})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Average the participants of the tier, then the models of all tiers."""
        (name, model), *_ = state.models.items()
        participants = [update.client_id for update in updates]
        tiers = self._load_tiers(server_round, state.tensors, server_round.clients or participants)
        tier = tiers.assign(server_round, participants)[0]
        weights = compute_sample_weights([update.num_samples for update in updates])
        tier_model = average_models([update.model for update in updates], weights)
        after, clock = tiers.finish_round(tier)
        models = {
            f"tier-{index}": tier_model
            if index == tier
            else _read_model(state.tensors, f"tier-{index}")
            for index in after.counts.nonzero().flatten().tolist()
        }
        tier_weights = after.compute_weights()
        mean = average_models(list(models.values()), tier_weights[tier_weights > 0])
        for version in sorted(set(after.versions.tolist()) - {after.num_updates}):
            key = f"global-{version}"  # an older global model that a tier still trains
            is_last = version == tiers.num_updates
            models[key] = model if is_last else _read_model(state.tensors, key)
        staleness = tiers.num_updates - int(tiers.versions[tier])
        report = {
            "tier": torch.full((len(updates),), tier),
            "staleness": torch.full((len(updates),), staleness),
            "tier_weights": tier_weights,
        }
        tensors = after.to_tensors() | _to_tensors(models)
        return Aggregation({name: mean}, tensors, weights, report, clock)

    def _load_tiers(
        self, server_round: ServerRound, tensors: TensorState, clients: Sequence[ClientId]
    ) -> "_Tiers":
        """Restore the tiers; before the first round, divide these clients into tiers."""
        seconds = server_round.estimate_seconds(clients)  # (n,)
        if tensors:
            tiers = _Tiers.from_tensors(tensors)
            slowest = torch.maximum(tiers.bounds[-1:], seconds.max())  # a new client can be slower
            return replace(tiers, bounds=torch.cat([tiers.bounds[:-1], slowest]))
        count = min(self.tiers, len(clients))  # with more tiers, the others would be empty
        ends = [-(-len(clients) * (tier + 1) // count) - 1 for tier in range(count)]
        bounds = seconds.sort().values[ends].unique()  # (M,)
        zeros = torch.zeros(len(bounds), dtype=torch.int64)
        return _Tiers(bounds, torch.zeros_like(bounds), zeros, zeros)


@dataclass(frozen=True)
class _Tiers:
    """The tiers, from the fastest to the slowest."""

    bounds: Tensor  # seconds that the slowest client of each tier needs, ascending, (M,)
    start_times: Tensor  # simulated time when each tier started its current round, (M,)
    versions: Tensor  # number of updates in the global model that each tier received, (M,)
    counts: Tensor  # T_m, number of finished rounds of each tier, (M,)

    @property
    def num_updates(self) -> int:
        """T, the number of updates of the global model."""
        return int(self.counts.sum())

    def assign(self, server_round: ServerRound, clients: Sequence[ClientId]) -> list[int]:
        """Return the tier of each client: the fastest tier whose bound the client does not exceed.

        A client that exceeds all bounds is in the slowest tier.
        """
        index = torch.searchsorted(self.bounds, server_round.estimate_seconds(clients))
        tiers: list[int] = index.clamp(max=len(self.bounds) - 1).tolist()
        return tiers

    def get_end_time(self, tier: int) -> float:
        """Return the simulated time when a tier ends its current round."""
        return float(self.start_times[tier] + self.bounds[tier])

    def finish_round(self, tier: int) -> "tuple[_Tiers, float]":
        """Return the tiers after one tier has ended its round, and the time of this end.

        The tier then starts its next round. If no client of the tier was available at its end time,
        the round ends later.
        """
        clock = max(self.get_end_time(tier), float(self.start_times.max()))
        start_times, versions = self.start_times.clone(), self.versions.clone()
        counts = self.counts.clone()
        counts[tier] += 1
        start_times[tier], versions[tier] = clock, counts.sum()
        return _Tiers(self.bounds, start_times, versions, counts), clock

    def compute_weights(self) -> Tensor:
        """Return T_(M+1-m) / T for tiers that have finished a round, 0 for other tiers, (M,)."""
        has_model = self.counts > 0
        weights = torch.zeros(len(self.counts), dtype=torch.float64)
        weights[has_model] = self.counts[has_model].flip(0) / self.counts.sum().double()
        return weights

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tiers as named tensors for a checkpoint."""
        return {
            "bounds": self.bounds,
            "began": self.start_times,
            "versions": self.versions,
            "counts": self.counts,
        }

    @classmethod
    def from_tensors(cls, tensors: TensorState) -> "_Tiers":
        """Restore the result of :meth:`to_tensors`."""
        return cls(*(tensors[name] for name in ("bounds", "began", "versions", "counts")))


def _to_tensors(models: dict[str, ModelState]) -> dict[str, Tensor]:
    return {f"{name}/{p}": v for name, model in models.items() for p, v in model.vectors().items()}


def _read_model(tensors: TensorState, name: str) -> ModelState:
    return ModelState(*(tensors[f"{name}/{p}"] for p in ("parameters", "buffers", "counters")))
