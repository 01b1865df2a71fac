"""FedAT: tiers, order of events, stale models and weights."""

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
from method_support import compute_penalty, make_server_round
from support import (
    flat_model,
    get_model,
    is_identical,
    make_server_state,
    make_step,
    make_update,
    run_rounds,
    small_settings,
)

SECONDS: dict[ClientId, float] = {"a": 1.0, "b": 2.0, "c": 5.0, "d": 5.0, "e": 9.0, "f": 11.0}
"""Three tiers: a and b take 2 seconds, c and d 5, e and f 11."""


def make_round(seconds: dict[ClientId, float], number: int = 1) -> ServerRound:
    def estimate_seconds(clients: Sequence[ClientId]) -> Tensor:
        return torch.tensor([seconds[client] for client in clients], dtype=torch.float64)

    return make_server_round(
        number, num_clients=len(seconds), clients=list(seconds), estimate_seconds=estimate_seconds
    )


def get_sent_model(method: FedAT, state: ServerState, client: ClientId) -> list[float]:
    message = method.broadcast(make_round(SECONDS), state, client)
    return [float(number) for number in message.model.parameters]


def aggregate(
    method: FedAT, state: ServerState, updates: Sequence[ClientUpdate]
) -> tuple[Aggregation, ServerState]:
    result = method.aggregate(make_round(SECONDS), updates, state)
    return result, ServerState(result.models, result.tensors)


def test_tiers_stale_models_and_weights_by_hand() -> None:
    """Events: the fast tier at 2 and 4 seconds, the middle tier at 5."""
    method, state = FedAT(tiers=3), make_server_state(flat_model(0.0))
    known = make_round(SECONDS)
    assert method.eligible_clients(known, state, list(SECONDS)) == ["a", "b"]
    result, state = aggregate(
        method, state, [make_update("a", 1, flat_model(1.0)), make_update("b", 3, flat_model(5.0))]
    )
    assert result.clock == 2.0
    assert result.weights.tolist() == [1 / 4, 3 / 4]
    first = (1 * 1.0 + 3 * 5.0) / 4  # only one tier has a model
    assert state.models["model"].parameters.tolist() == [first]
    assert (get_sent_model(method, state, "a"), get_sent_model(method, state, "d")) == (
        [first],
        [0.0],
    )
    assert method.eligible_clients(known, state, list(SECONDS)) == ["a", "b"]
    result, state = aggregate(method, state, [make_update("b", 3, flat_model(6.0))])
    assert result.clock == 4.0
    assert state.models["model"].parameters.tolist() == [6.0]
    assert method.eligible_clients(known, state, list(SECONDS)) == ["c", "d"]
    result, state = aggregate(method, state, [make_update("d", 2, flat_model(3.0))])
    assert result.clock == 5.0
    expected = (1 * 6.0 + 2 * 3.0) / 3  # T = (2, 1): the slower tier has the weight 2
    assert state.models["model"].parameters.tolist() == pytest.approx([expected])
    assert result.report["tier_weights"].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert (result.report["tier"].tolist(), result.report["staleness"].tolist()) == ([1], [2])
    assert get_sent_model(method, state, "a") == [6.0]  # it started at 4
    assert (
        get_sent_model(method, state, "c") == state.models["model"].parameters.tolist()
    )  # it starts now
    assert get_sent_model(method, state, "f") == [0.0]  # it started at 0


def test_weights_of_the_paper_after_all_tiers_ended() -> None:
    """T = (5, 2, 1): the weights are 1/8, 2/8 and 5/8."""
    method, state = FedAT(tiers=3), make_server_state(flat_model(0.0))
    value = {"a": 8.0, "c": 16.0, "e": 24.0}
    ends: list[float] = []
    for _ in range(8):
        client = method.eligible_clients(make_round(SECONDS), state, list(SECONDS))[0]
        result, state = aggregate(
            method, state, [make_update(client, 1, flat_model(value[str(client)]))]
        )
        ends.append(result.clock or 0.0)
    assert ends == [2, 4, 5, 6, 8, 10, 10, 11]  # at 10 seconds the faster tier is first
    assert result.report["tier_weights"].tolist() == [1 / 8, 2 / 8, 5 / 8]
    expected = (1 * 8.0 + 2 * 16.0 + 5 * 24.0) / 8
    assert state.models["model"].parameters.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("tiers", [1, 2, 3, 5, 40])
def test_events_match_a_plain_simulation(tiers: int) -> None:
    """The simulation sorts clients, divides them, and steps by quarters of a second."""
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
    method, state, known = (
        FedAT(tiers=tiers),
        make_server_state(flat_model(0.0)),
        make_round(seconds),
    )
    for quarter, expected in timeline[:60]:
        chosen = method.eligible_clients(known, state, list(seconds))
        assert set(chosen) == expected
        result = method.aggregate(known, [make_update(chosen[0], 1, flat_model(1.0))], state)
        assert result.clock == quarter / 4
        state = ServerState(result.models, result.tensors)


def test_absent_and_new_clients() -> None:
    method, state = FedAT(tiers=3), make_server_state(flat_model(0.0))
    _, state = aggregate(method, state, [make_update("a", 1, flat_model(1.0))])
    slow = ["e", "f"]  # only this tier is available
    assert method.eligible_clients(make_round(SECONDS), state, slow) == slow
    result, state = aggregate(method, state, [make_update("e", 1, flat_model(1.0))])
    assert result.clock == 11.0
    result, _ = aggregate(method, state, [make_update("a", 1, flat_model(1.0))])
    assert result.clock == 11.0  # no client of the tier was available at 4
    seconds = SECONDS | {"g": 4.0, "h": 30.0}
    eligible = method.eligible_clients(make_round(seconds), state, ["g", "f"])
    assert eligible == ["g"]  # its tier would end at 5
    known = make_round(seconds)
    result = method.aggregate(known, [make_update("h", 1, flat_model(1.0))], state)
    assert result.report["tier"].tolist() == [2]
    assert result.clock == 11.0 + 30.0  # the slowest tier waits for its slowest member


def test_clients_of_equal_speed_form_one_tier() -> None:
    equal_speeds = make_round(dict.fromkeys(["x", "y", "z"], 7.0))
    state = make_server_state(flat_model(0.0))
    assert FedAT(tiers=3).eligible_clients(equal_speeds, state, ["x", "y", "z"]) == ["x", "y", "z"]


def test_proximal_term_by_hand() -> None:
    parameters, received = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.0])
    penalty = compute_penalty(FedAT(mu=0.4), make_step(parameters, received))
    assert penalty.item() == pytest.approx(0.4 / 2 * (2**2 + 1**2))
    assert FedAT(mu=0).penalty(make_step(parameters, received)) is None


@pytest.mark.parametrize("momentum", [False, True])
def test_one_tier_equals_fedavg(momentum: bool, tmp_path: Path) -> None:
    parts = {"server_optimizer": Momentum()} if momentum else {}
    fedavg, fedat = (
        run_rounds(Algorithm(method, **parts), tmp_path, small_settings(5))  # type: ignore[arg-type]
        for method in (FedAvg(), FedAT(tiers=1, mu=0))
    )
    for one, other in zip(fedavg, fedat, strict=True):
        assert one.record.participants == other.record.participants
        assert is_identical(get_model(one).parameters, get_model(other).parameters)


def test_a_tier_trains_the_model_after_the_server_optimizer(tmp_path: Path) -> None:
    """The server sends the model after the optimizer step, not the aggregated model."""
    algorithm = Algorithm(FedAT(tiers=2), Uniform(), Momentum())
    results = run_rounds(algorithm, tmp_path, small_settings(6))
    last, server = {}, results[-1].state.server
    for result in results:
        last[int(result.record.report["tier"][0])] = get_model(result)  # type: ignore[arg-type,index]
    seconds: dict[ClientId, float] = {n: 2.0 * (9 + 2 * n) for n in range(5)}
    for client, tier in ((0, 0), (4, 1)):
        message = algorithm.method.broadcast(make_round(seconds), server, client)
        assert is_identical(message.model.parameters, last[tier].parameters)
