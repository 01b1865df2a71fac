"""Power of choice: of the candidates, those with the highest last loss."""

from collections import Counter
from itertools import pairwise
from math import inf
from pathlib import Path

import torch

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.samplers import PowerOfChoice, SampledRound, SamplerRound
from cadis.rng import generator_for
from cadis.types import ClientUpdate, Message, TensorState
from parts_support import snapshot
from support import run_rounds, small_settings


def learned(
    losses: dict[int, float], sizes: dict[int, int] | None = None, memory: TensorState | None = None
) -> TensorState:
    """What is remembered after a round in which these clients told these losses."""
    updates = [
        ClientUpdate(client, (sizes or {}).get(client, 10), Message(scalars={"train_loss": loss}))
        for client, loss in losses.items()
    ]
    return PowerOfChoice().learn(SampledRound(1, updates), memory or {})


def chosen(
    memory: TensorState, clients: int, wanted: int, seed: int = 0, candidates: int | str = "auto"
) -> list[int]:
    among = SamplerRound(2, range(clients), wanted, generator_for(seed))
    sampler = PowerOfChoice(candidates=candidates)  # type: ignore[arg-type]
    return [int(client) for client in sampler.choose(among, memory)]


def test_the_highest_losses_of_all_if_all_are_candidates() -> None:
    memory = learned({0: 0.3, 1: 0.9, 2: 0.1, 3: 0.5})
    before = snapshot(memory)
    assert chosen(memory, 4, 2) == [1, 3]
    assert chosen(learned({2: 2.0}, memory=memory), 4, 2) == [1, 2]
    assert all(torch.equal(memory[name], tensor) for name, tensor in before.items())


def test_whoever_never_took_part_comes_first() -> None:
    assert chosen(learned({0: 9.0, 1: 8.0, 3: 7.0}), 5, 3) == [0, 2, 4]


def test_of_as_many_candidates_as_seats_all_take_part() -> None:
    memory = learned({client: float(client) for client in range(6)})
    found = Counter(c for seed in range(300) for c in chosen(memory, 6, 2, seed, candidates=1))
    assert all(60 <= found[client] <= 140 for client in range(6))  # 100 each are expected


def test_candidates_are_drawn_by_their_sizes() -> None:
    """With one seat and one candidate, who takes part is who is a candidate."""
    memory = learned(dict.fromkeys(range(3), 1.0), sizes={0: 10, 1: 20, 2: 50})
    draws = 3000
    found = Counter(chosen(memory, 3, 1, seed, candidates=1)[0] for seed in range(draws))
    for client, share in {0: 1 / 8, 1: 2 / 8, 2: 5 / 8}.items():
        deviation = (share * (1 - share) / draws) ** 0.5
        assert abs(found[client] / draws - share) < 4.5 * deviation


def test_twice_as_many_candidates_as_seats_unless_told() -> None:
    """The lowest two of ten are never chosen once there are four candidates for two seats ..."""
    memory = learned({client: float(client) for client in range(10)})
    found = Counter(c for seed in range(400) for c in chosen(memory, 10, 2, seed))
    assert found[0] == found[1] == 0
    assert found[2] > 0  # ... and the third, if it is with the two below


def test_a_method_that_tells_no_loss_is_drawn_from_by_chance() -> None:
    memory = PowerOfChoice().learn(SampledRound(1, [ClientUpdate(1, 5, Message())]), {})
    assert len(chosen(memory, 5, 2)) == 2


def test_those_with_the_highest_last_loss_take_part(tmp_path: Path) -> None:
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
