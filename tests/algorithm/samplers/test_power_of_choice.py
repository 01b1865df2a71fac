"""Power of choice: the candidates with the highest last loss."""

from collections import Counter
from itertools import pairwise
from math import inf
from pathlib import Path

import torch

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.samplers import PowerOfChoice, SamplerFeedback, SamplerRound
from cadis.rng import derive_generator
from cadis.types import ClientUpdate, Message, TensorState
from parts_support import copy_tensors
from support import run_rounds, small_settings


def learn_losses(
    losses: dict[int, float], sizes: dict[int, int] | None = None, state: TensorState | None = None
) -> TensorState:
    """Return the state after a round in which clients sent these losses."""
    updates = [
        ClientUpdate(client, (sizes or {}).get(client, 10), Message(scalars={"train_loss": loss}))
        for client, loss in losses.items()
    ]
    return PowerOfChoice().learn(SamplerFeedback(1, updates), state or {})


def choose(
    state: TensorState,
    clients: int,
    num_participants: int,
    seed: int = 0,
    candidates: int | str = "auto",
) -> list[int]:
    server_round = SamplerRound(2, range(clients), num_participants, derive_generator(seed))
    sampler = PowerOfChoice(candidates=candidates)  # type: ignore[arg-type]
    return [int(client) for client in sampler.choose(server_round, state)]


def test_clients_with_the_highest_losses_are_chosen() -> None:
    state = learn_losses({0: 0.3, 1: 0.9, 2: 0.1, 3: 0.5})
    before = copy_tensors(state)
    assert choose(state, 4, 2) == [1, 3]
    assert choose(learn_losses({2: 2.0}, state=state), 4, 2) == [1, 2]
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())


def test_new_clients_are_chosen_first() -> None:
    assert choose(learn_losses({0: 9.0, 1: 8.0, 3: 7.0}), 5, 3) == [0, 2, 4]


def test_without_extra_candidates_all_are_chosen() -> None:
    state = learn_losses({client: float(client) for client in range(6)})
    counts = Counter(c for seed in range(300) for c in choose(state, 6, 2, seed, candidates=1))
    assert all(60 <= counts[client] <= 140 for client in range(6))  # 100 each are expected


def test_candidates_are_drawn_by_number_of_samples() -> None:
    """With one participant and one candidate, the candidate takes part."""
    state = learn_losses(dict.fromkeys(range(3), 1.0), sizes={0: 10, 1: 20, 2: 50})
    draws = 3000
    counts = Counter(choose(state, 3, 1, seed, candidates=1)[0] for seed in range(draws))
    for client, share in {0: 1 / 8, 1: 2 / 8, 2: 5 / 8}.items():
        deviation = (share * (1 - share) / draws) ** 0.5
        assert abs(counts[client] / draws - share) < 4.5 * deviation


def test_default_is_two_candidates_per_participant() -> None:
    """With four candidates for two participants, the lowest two of ten are never choose."""
    state = learn_losses({client: float(client) for client in range(10)})
    counts = Counter(c for seed in range(400) for c in choose(state, 10, 2, seed))
    assert counts[0] == counts[1] == 0
    assert counts[2] > 0  # if the two lowest are candidates, too


def test_updates_without_a_loss_are_ignored() -> None:
    state = PowerOfChoice().learn(SamplerFeedback(1, [ClientUpdate(1, 5, Message())]), {})
    assert len(choose(state, 5, 2)) == 2


def test_participants_of_a_run_have_the_highest_last_losses(tmp_path: Path) -> None:
    algorithm = Algorithm(FedAvg(), sampler=PowerOfChoice(candidates=5))
    results = run_rounds(algorithm, tmp_path, small_settings(rounds=8, per_round=2))
    records, losses = [result.record for result in results], dict[int, float]()
    for before, after in pairwise(records):
        for client, loss in zip(before.participants, before.client_loss, strict=True):
            assert loss is not None
            losses[int(client)] = loss
        known = {client: losses.get(client, inf) for client in range(5)}
        lowest_chosen = min(known[int(client)] for client in after.participants)
        others = [known[client] for client in range(5) if client not in after.participants]
        assert lowest_chosen >= max(others)


def test_loss_that_is_not_finite_is_unknown() -> None:
    state = learn_losses({0: float("nan"), 1: 2.0, 2: float("inf")})
    assert state["losses"].tolist() == [2.0]
