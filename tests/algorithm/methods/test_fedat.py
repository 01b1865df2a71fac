"""FedAT: tiers, the order of events, stale models, weights."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cadis.algorithm import Aggregation, Algorithm, ServerRound, ServerState
from cadis.algorithm.methods import FedAT, FedAvg
from cadis.algorithm.samplers import Uniform
from cadis.algorithm.server_optimizers import Momentum
from cadis.types import ClientId, ClientUpdate
from method_support import penalty_of, server_round
from support import (
    flat_model,
    model_after,
    run_rounds,
    same,
    small_settings,
    state_of,
    step_of,
    update_of,
)

SECONDS: dict[ClientId, float] = {"a": 1.0, "b": 2.0, "c": 5.0, "d": 5.0, "e": 9.0, "f": 11.0}
"""Of three tiers: {a, b} takes 2 seconds, {c, d} takes 5, {e, f} takes 11."""


def round_of(seconds: dict[ClientId, float], number: int = 1) -> ServerRound:
    def seconds_of(clients: Sequence[ClientId]) -> Tensor:
        return torch.tensor([seconds[client] for client in clients], dtype=torch.float64)

    return server_round(
        number, num_clients=len(seconds), clients=list(seconds), seconds_of=seconds_of
    )


def sent(method: FedAT, state: ServerState, client: ClientId) -> list[float]:
    message = method.broadcast(round_of(SECONDS), state, client)
    return [float(number) for number in message.model.parameters]


def step(
    method: FedAT, state: ServerState, updates: Sequence[ClientUpdate]
) -> tuple[Aggregation, ServerState]:
    made = method.aggregate(round_of(SECONDS), updates, state)
    return made, ServerState(made.models, made.memory)


def test_tiers_stale_models_and_weights_by_hand() -> None:
    """Ends at 2, 4, 5: the fast tier, the fast one again, then the middle one."""
    method, state = FedAT(tiers=3), state_of(flat_model(0.0))
    known = round_of(SECONDS)
    assert method.eligible_clients(known, state, list(SECONDS)) == ["a", "b"]
    made, state = step(
        method, state, [update_of("a", 1, flat_model(1.0)), update_of("b", 3, flat_model(5.0))]
    )
    assert made.clock == 2.0
    assert made.weights.tolist() == [1 / 4, 3 / 4]
    first = (1 * 1.0 + 3 * 5.0) / 4  # the only tier that has ended is the global model
    assert state.models["model"].parameters.tolist() == [first]
    assert (sent(method, state, "a"), sent(method, state, "d")) == ([first], [0.0])
    assert method.eligible_clients(known, state, list(SECONDS)) == ["a", "b"]
    made, state = step(method, state, [update_of("b", 3, flat_model(6.0))])
    assert made.clock == 4.0
    assert state.models["model"].parameters.tolist() == [6.0]
    assert method.eligible_clients(known, state, list(SECONDS)) == ["c", "d"]
    made, state = step(method, state, [update_of("d", 2, flat_model(3.0))])
    assert made.clock == 5.0
    expected = (1 * 6.0 + 2 * 3.0) / 3  # T is 2 and 1: the slower weighs by the faster's count
    assert state.models["model"].parameters.tolist() == pytest.approx([expected])
    assert made.report["tier_weights"].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert (made.report["tier"].tolist(), made.report["staleness"].tolist()) == ([1], [2])
    assert sent(method, state, "a") == [6.0]  # it began at 4
    assert sent(method, state, "c") == state.models["model"].parameters.tolist()  # it begins now
    assert sent(method, state, "f") == [0.0]  # it began at 0


def test_the_papers_weights_when_all_tiers_have_ended() -> None:
    """T = (5, 2, 1): tiers weigh 1/8, 2/8 and 5/8."""
    method, state = FedAT(tiers=3), state_of(flat_model(0.0))
    value = {"a": 8.0, "c": 16.0, "e": 24.0}
    ends: list[float] = []
    for _ in range(8):
        who = method.eligible_clients(round_of(SECONDS), state, list(SECONDS))[0]
        made, state = step(method, state, [update_of(who, 1, flat_model(value[str(who)]))])
        ends.append(made.clock or 0.0)
    assert ends == [2, 4, 5, 6, 8, 10, 10, 11]  # at 10 the faster tier is first
    assert made.report["tier_weights"].tolist() == [1 / 8, 2 / 8, 5 / 8]
    expected = (1 * 8.0 + 2 * 16.0 + 5 * 24.0) / 8
    assert state.models["model"].parameters.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("tiers", [1, 2, 3, 5, 40])
def test_events_come_as_in_a_plain_simulation(tiers: int) -> None:
    """The oracle sorts clients, cuts the list into parts, and goes on by quarters of a second."""
    generator = torch.Generator().manual_seed(tiers)
    times = (torch.randint(1, 120, (23,), generator=generator) / 4).tolist()
    seconds: dict[ClientId, float] = dict(enumerate(times))
    ordered = sorted(seconds, key=lambda client: seconds[client])
    cuts = [-(-23 * n // tiers) for n in range(tiers + 1)]
    slowest = sorted({seconds[ordered[cut - 1]] for cut in cuts[1:]})
    members = {
        top: {c for c in seconds if low < seconds[c] <= top}
        for low, top in zip([0.0, *slowest], slowest, strict=False)
    }
    timeline: list[tuple[int, set[ClientId]]] = []
    for quarter in range(1, 1200):
        timeline += [(quarter, members[t]) for t in slowest if quarter % round(4 * t) == 0]
    method, state, known = FedAT(tiers=tiers), state_of(flat_model(0.0)), round_of(seconds)
    for quarter, expected in timeline[:60]:
        chosen = method.eligible_clients(known, state, list(seconds))
        assert set(chosen) == expected
        made = method.aggregate(known, [update_of(chosen[0], 1, flat_model(1.0))], state)
        assert made.clock == quarter / 4
        state = ServerState(made.models, made.memory)


def test_who_is_not_there_and_who_joins_later() -> None:
    method, state = FedAT(tiers=3), state_of(flat_model(0.0))
    _, state = step(method, state, [update_of("a", 1, flat_model(1.0))])
    slow = ["e", "f"]  # nobody else is there, so that their tier is the next to end
    assert method.eligible_clients(round_of(SECONDS), state, slow) == slow
    made, state = step(method, state, [update_of("e", 1, flat_model(1.0))])
    assert made.clock == 11.0
    made, _ = step(method, state, [update_of("a", 1, flat_model(1.0))])
    assert made.clock == 11.0  # it was to end at 4, when nobody of it was there
    joined = SECONDS | {"g": 4.0, "h": 30.0}
    both = method.eligible_clients(round_of(joined), state, ["g", "f"])
    assert both == ["g"]  # of the middle tier, which was to end at 5
    known = round_of(joined)
    made = method.aggregate(known, [update_of("h", 1, flat_model(1.0))], state)
    assert made.report["tier"].tolist() == [2]
    assert made.clock == 11.0 + 30.0  # the slowest tier waits for its slowest member


def test_clients_of_one_time_are_one_tier() -> None:
    alike = round_of(dict.fromkeys(["x", "y", "z"], 7.0))
    state = state_of(flat_model(0.0))
    assert FedAT(tiers=3).eligible_clients(alike, state, ["x", "y", "z"]) == ["x", "y", "z"]


def test_the_proximal_term() -> None:
    parameters, received = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.0])
    penalty = penalty_of(FedAT(mu=0.4), step_of(parameters, received))
    assert penalty.item() == pytest.approx(0.4 / 2 * (2**2 + 1**2))
    assert FedAT(mu=0).penalty(step_of(parameters, received)) is None


@pytest.mark.parametrize("momentum", [False, True])
def test_one_tier_is_fedavg_bit_for_bit(momentum: bool, tmp_path: Path) -> None:
    more = {"server_optimizer": Momentum()} if momentum else {}
    fedavg, fedat = (
        run_rounds(Algorithm(method, **more), tmp_path, small_settings(5))  # type: ignore[arg-type]
        for method in (FedAvg(), FedAT(tiers=1, mu=0))
    )
    for one, other in zip(fedavg, fedat, strict=True):
        assert one.record.participants == other.record.participants
        assert same(model_after(one).parameters, model_after(other).parameters)


def test_a_tier_trains_from_the_stepped_model_that_it_began_with(tmp_path: Path) -> None:
    """What is broadcast is what the server had after its optimiser, not the aggregated model."""
    algorithm = Algorithm(FedAT(tiers=2), Uniform(), Momentum())
    results = run_rounds(algorithm, tmp_path, small_settings(6))
    last, server = {}, results[-1].state.server
    for result in results:
        last[int(result.record.report["tier"][0])] = model_after(result)  # type: ignore[arg-type,index]
    seconds: dict[ClientId, float] = {n: 2.0 * (9 + 2 * n) for n in range(5)}
    for client, tier in ((0, 0), (4, 1)):
        message = algorithm.method.broadcast(round_of(seconds), server, client)
        assert same(message.model.parameters, last[tier].parameters)
