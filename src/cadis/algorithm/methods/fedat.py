"""FedAT (Chai et al., 2021): synchronous within tiers of equally fast clients, not across them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights, mean_state
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import Aggregation, ServerRound, ServerState, Step
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@dataclass(frozen=True)
class FedAT(BaseMethod):
    """Tiers of equally fast clients, each at its own pace; rare updates weigh as often ones.

    Clients are put into tiers of equal size by the time that they take. A tier trains from the
    global model as it was when the tier began, right after it last ended. A round of ours is one
    event: the tier that ends next. It makes w_m, the mean of its participants by samples, and
    w = sum_m T_(M+1-m) / T * w_m over the tiers from the fastest to the slowest, where T_m is
    how often tier m has ended, and T the sum of these: the slowest tier weighs by the count of
    the fastest. Clients add mu / 2 * ||w - w_t||^2 to their loss.

    Departure: M counts the tiers that have ended at least once. By the formula as it stands, the
    slowest tier would weigh by the count of the fastest before it has a model of its own, and the
    fastest not at all: the global model would stay near the initial one until the slowest ends.
    Departure: a round of a tier lasts as long as its slowest member takes, whether it takes part
    or not, since it must be known who ends next before the participants are chosen.
    Departure: mu is 0.01, as FedProx has it. On the digits (IID, two seeds, speeds 100:500) 0.4
    took three times as long to 85%, and 0 was like 0.01.
    Departure: tiers are made once; speeds do not change here. Clients that take the same time are
    in the same tier, so that there may be fewer tiers. Messages are not compressed: there are
    transforms for that, such as top-k.

    Attributes:
        tiers: M, the number of tiers.
        mu: strength of the proximal term, lambda in the paper.
    """

    name: ClassVar[str] = "fedat"
    needs_clock: ClassVar[bool] = True
    about: ClassVar[About] = About(
        kind="time",
        paper="Chai et al., 2021",
        server_memory="a model a tier, and what each began with",
        flower="no: it simulates who is how fast",
    )
    tiers: Annotated[int, Ge(1)] = 3
    mu: Annotated[float, Ge(0)] = 0.01

    def penalty(self, step: Step) -> Tensor | None:
        """The proximal term, mu / 2 * ||w - w_t||^2."""
        if not self.mu:
            return None
        return self.mu / 2 * (step.parameters - step.received).square().sum(dim=-1)

    def eligible_clients(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """The members of the tier that ends next; of two at once, of the faster one."""
        tiers = self._tiers(server_round, state.memory, clients)
        tier_of_client = tiers.of(server_round, clients)
        ending = min(set(tier_of_client), key=lambda tier: (tiers.end_of(tier), tier))
        return [c for c, tier in zip(clients, tier_of_client, strict=True) if tier == ending]

    def broadcast(self, server_round: ServerRound, state: ServerState, client: ClientId) -> Message:
        """The global model as it was when the client's tier began."""
        (name, model), *_ = state.models.items()
        if not state.memory:
            return Message({name: model})  # all tiers begin with the initial model
        tiers = self._tiers(server_round, state.memory, [client])
        (tier,) = tiers.of(server_round, [client])
        version = int(tiers.versions[tier])
        if version < tiers.total:
            model = _model_in(state.memory, f"global-{version}")
        return Message({name: model})

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The mean of the tier's participants, and the mean of the tiers."""
        (name, model), *_ = state.models.items()
        participants = [update.client_id for update in updates]
        tiers = self._tiers(server_round, state.memory, server_round.clients or participants)
        tier = tiers.of(server_round, participants)[0]
        weights = example_weights([update.num_examples for update in updates])
        own = mean_state([update.model for update in updates], weights)
        after, clock = tiers.ended(tier)
        models = {
            f"tier-{place}": own if place == tier else _model_in(state.memory, f"tier-{place}")
            for place in after.counts.nonzero().flatten().tolist()
        }
        shares = after.shares()
        mean = mean_state(list(models.values()), shares[shares > 0])
        for version in sorted(set(after.versions.tolist()) - {after.total}):
            former = f"global-{version}"  # that a tier still trains from
            is_last = version == tiers.total
            models[former] = model if is_last else _model_in(state.memory, former)
        memory = vars(after) | _to_tensors(models)
        staleness = tiers.total - int(tiers.versions[tier])
        report = {
            "tier": torch.full((len(updates),), tier),
            "staleness": torch.full((len(updates),), staleness),
            "tier_weights": shares,
        }
        return Aggregation({name: mean}, memory, weights, report, clock)

    def _tiers(
        self, server_round: ServerRound, memory: TensorState, clients: Sequence[ClientId]
    ) -> "_Tiers":
        """What is known of the tiers; before the first round they are made of these clients."""
        seconds = server_round.seconds_of(clients)  # (n,)
        if memory:
            tiers = _Tiers(*(memory[name] for name in ("bounds", "began", "versions", "counts")))
            slowest = torch.maximum(tiers.bounds[-1:], seconds.max())  # a newcomer's, perhaps
            return replace(tiers, bounds=torch.cat([tiers.bounds[:-1], slowest]))
        ends = [-(-len(clients) * (tier + 1) // self.tiers) - 1 for tier in range(self.tiers)]
        bounds = seconds.sort().values[ends].unique()  # (M,)
        nothing = torch.zeros(len(bounds), dtype=torch.int64)
        return _Tiers(bounds, torch.zeros_like(bounds), nothing, nothing)


@dataclass(frozen=True)
class _Tiers:
    """All tiers, from the fastest to the slowest."""

    bounds: Tensor  # the time that the slowest member takes for a round, ascending, (M,)
    began: Tensor  # the simulated time when each began its present round, (M,)
    versions: Tensor  # how many updates were in the global model that it began with, (M,)
    counts: Tensor  # T_m, how often each has ended, (M,)

    @property
    def total(self) -> int:
        """T, how many updates the global model has had."""
        return int(self.counts.sum())

    def of(self, server_round: ServerRound, clients: Sequence[ClientId]) -> list[int]:
        """The tier of each client: the fastest whose bound it keeps, else the slowest."""
        fitting = torch.searchsorted(self.bounds, server_round.seconds_of(clients))
        found: list[int] = fitting.clamp(max=len(self.bounds) - 1).tolist()
        return found

    def end_of(self, tier: int) -> float:
        """When a tier ends its present round."""
        return float(self.began[tier] + self.bounds[tier])

    def ended(self, tier: int) -> "tuple[_Tiers, float]":
        """The tiers after one of them has ended and begun anew, and when that was.

        Nobody of a tier may have been there when it was to end; then it ends later.
        """
        clock = max(self.end_of(tier), float(self.began.max()))
        began, versions, counts = self.began.clone(), self.versions.clone(), self.counts.clone()
        counts[tier] += 1
        began[tier], versions[tier] = clock, counts.sum()
        return _Tiers(self.bounds, began, versions, counts), clock

    def shares(self) -> Tensor:
        """T_(M+1-m) / T among the tiers that have ended, 0 for the others, (M,), sum 1."""
        used = self.counts > 0
        shares = torch.zeros(len(self.counts), dtype=torch.float64)
        shares[used] = self.counts[used].flip(0) / self.counts.sum().double()
        return shares


def _to_tensors(models: dict[str, ModelState]) -> dict[str, Tensor]:
    return {f"{name}/{p}": v for name, model in models.items() for p, v in model.vectors().items()}


def _model_in(memory: TensorState, name: str) -> ModelState:
    return ModelState(*(memory[f"{name}/{p}"] for p in ("parameters", "buffers", "counters")))
