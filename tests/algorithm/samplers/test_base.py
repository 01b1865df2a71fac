"""Uniform sampling, weighted draws, and properties of all samplers in a run."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, IFCA, FedAvg
from cadis.algorithm.samplers import (
    BaseSampler,
    FedCluster,
    HiCS,
    PowerOfChoice,
    SamplerFeedback,
    SamplerRound,
    Uniform,
)
from cadis.algorithm.samplers.base import draw_without_replacement
from cadis.rng import derive_generator
from cadis.types import ClientId
from support import check_resume, get_model, is_identical, run_rounds, small_settings


def choose(
    seed: int, number: int, available: Sequence[ClientId], num_participants: int
) -> list[ClientId]:
    generator = derive_generator(seed, "participants", number)
    return list(Uniform().choose(SamplerRound(number, available, num_participants, generator), {}))


@pytest.mark.parametrize(
    ("seed", "number", "clients", "num_participants", "expected"),
    [
        (0, 1, 20, 5, [4, 13, 15, 18, 19]),
        (0, 2, 20, 5, [3, 7, 8, 11, 17]),
        (7, 1, 100, 10, [9, 13, 21, 22, 53, 57, 68, 71, 82, 97]),
        (7, 960, 100, 10, [6, 9, 27, 48, 57, 77, 84, 89, 92, 94]),
        (1, 1, 3, 3, [0, 1, 2]),
        (123456789, 1, 7, 1, [0]),
    ],
)
def test_participants_are_reproducible(
    seed: int, number: int, clients: int, num_participants: int, expected: list[int]
) -> None:
    """Stored runs resume with the same participants."""
    assert choose(seed, number, range(clients), num_participants) == expected


@given(st.integers(0, 10**6), st.integers(1, 30), st.data())
def test_participants_are_unique_and_in_order(seed: int, clients: int, data: st.DataObject) -> None:
    num_participants = data.draw(st.integers(1, clients))
    names = [f"site-{(7 * n) % 31}" for n in range(clients)]  # not in alphabetical order
    participants = choose(seed, 1, names, num_participants)
    assert len(participants) == len(set(participants)) == num_participants
    indices = [names.index(str(name)) for name in participants]
    assert indices == sorted(indices)


def test_all_clients_are_equally_likely() -> None:
    counts = torch.zeros(10)
    for seed in range(3000):
        counts[[int(client) for client in choose(seed, 1, range(10), 3)]] += 1
    deviation = (3000 * 0.3 * 0.7) ** 0.5
    assert (counts - 3000 * 0.3).abs().max() < 4.5 * deviation


def test_uniform_keeps_its_state() -> None:
    state = {"kept": torch.ones(1)}
    assert Uniform().learn(SamplerFeedback(1, []), state) is state


def test_draws_follow_the_remaining_weights() -> None:
    weights, draws = [1.0, 2.0, 5.0], 4000
    logs = torch.tensor(weights).log()
    counts = Counter[tuple[int, ...]]()
    for seed in range(draws):
        counts[tuple(draw_without_replacement(logs, 2, derive_generator(seed)).tolist())] += 1
    for first, second in permutations(range(3), 2):
        left = sum(weights) - weights[first]
        expected = weights[first] / sum(weights) * weights[second] / left
        deviation = (expected * (1 - expected) / draws) ** 0.5
        assert abs(counts[first, second] / draws - expected) < 4.5 * deviation


def test_very_small_weights_are_drawn_last() -> None:
    logs = torch.tensor([0.0, -1e6, -2e6, 3.0])
    for seed in range(20):
        drawn = draw_without_replacement(logs, 4, derive_generator(seed)).tolist()
        assert sorted(drawn[:2]) == [0, 3]
        assert drawn[2:] == [1, 2]


def test_constant_in_log_weights_does_not_matter() -> None:
    logs = torch.randn(9, generator=derive_generator(1), dtype=torch.float64)
    first = draw_without_replacement(logs, 5, derive_generator(2))
    assert torch.equal(first, draw_without_replacement(logs + 7, 5, derive_generator(2)))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("method", "sampler"),
    [
        (FedAvg(), FedCluster(num_clusters=3)),
        (CADIS(), FedCluster(num_clusters=3)),
        (FedAvg(), HiCS()),
        (IFCA(), HiCS()),
        (FedAvg(), PowerOfChoice(candidates=4)),
    ],
)
def test_interrupted_run_resumes(
    method: BaseMethod, sampler: BaseSampler, workers: int, tmp_path: Path
) -> None:
    check_resume(Algorithm(method, sampler=sampler), tmp_path, workers)


@pytest.mark.parametrize(
    ("method", "sampler", "per_round"),
    [(FedAvg(), HiCS(), 5), (CADIS(), PowerOfChoice(), 5), (FedAvg(), FedCluster(1), 3)],
)
def test_without_a_choice_samplers_equal_uniform(
    method: BaseMethod, sampler: BaseSampler, per_round: int, tmp_path: Path
) -> None:
    """All clients take part, or there is only one cluster."""
    one, other = (
        run_rounds(Algorithm(method, sampler=s), tmp_path, small_settings(per_round=per_round))[-1]
        for s in (sampler, Uniform())
    )
    assert is_identical(get_model(one).parameters, get_model(other).parameters)
