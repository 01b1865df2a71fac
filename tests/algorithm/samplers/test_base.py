"""Uniform sampling, draws by unequal weights, and what all samplers must do in a run."""

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
    SampledRound,
    SamplerRound,
    Uniform,
)
from cadis.algorithm.samplers.base import draw
from cadis.rng import generator_for
from cadis.types import ClientId
from support import check_goes_on, model_after, run_rounds, same, small_settings


def chosen(seed: int, number: int, available: Sequence[ClientId], wanted: int) -> list[ClientId]:
    generator = generator_for(seed, "participants", number)
    return list(Uniform().choose(SamplerRound(number, available, wanted, generator), {}))


@pytest.mark.parametrize(
    ("seed", "number", "clients", "wanted", "expected"),
    [
        (0, 1, 20, 5, [4, 13, 15, 18, 19]),
        (0, 2, 20, 5, [3, 7, 8, 11, 17]),
        (7, 1, 100, 10, [9, 13, 21, 22, 53, 57, 68, 71, 82, 97]),
        (7, 960, 100, 10, [6, 9, 27, 48, 57, 77, 84, 89, 92, 94]),
        (1, 1, 3, 3, [0, 1, 2]),
        (123456789, 1, 7, 1, [0]),
    ],
)
def test_the_same_clients_as_ever(
    seed: int, number: int, clients: int, wanted: int, expected: list[int]
) -> None:
    """Stored runs go on with the participants that they would have had."""
    assert chosen(seed, number, range(clients), wanted) == expected


@given(st.integers(0, 10**6), st.integers(1, 30), st.data())
def test_each_once_and_in_order(seed: int, clients: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, clients))
    names = [f"site-{(7 * n) % 31}" for n in range(clients)]  # in no alphabetical order
    found = chosen(seed, 1, names, wanted)
    assert len(found) == len(set(found)) == wanted
    places = [names.index(str(name)) for name in found]
    assert places == sorted(places)


def test_everybody_is_as_likely() -> None:
    counts = torch.zeros(10)
    for seed in range(3000):
        counts[[int(client) for client in chosen(seed, 1, range(10), 3)]] += 1
    deviation = (3000 * 0.3 * 0.7) ** 0.5
    assert (counts - 3000 * 0.3).abs().max() < 4.5 * deviation


def test_there_is_nothing_to_learn() -> None:
    memory = {"kept": torch.ones(1)}
    assert Uniform().learn(SampledRound(1, []), memory) is memory


def test_each_is_drawn_by_its_weight_among_those_that_are_left() -> None:
    weights, draws = [1.0, 2.0, 5.0], 4000
    logs = torch.tensor(weights).log()
    found = Counter(tuple(draw(logs, 2, generator_for(seed)).tolist()) for seed in range(draws))
    for first, second in permutations(range(3), 2):
        left = sum(weights) - weights[first]
        expected = weights[first] / sum(weights) * weights[second] / left
        deviation = (expected * (1 - expected) / draws) ** 0.5
        assert abs(found[first, second] / draws - expected) < 4.5 * deviation


def test_weights_may_be_as_small_as_they_like() -> None:
    logs = torch.tensor([0.0, -1e6, -2e6, 3.0])
    for seed in range(20):
        drawn = draw(logs, 4, generator_for(seed)).tolist()
        assert sorted(drawn[:2]) == [0, 3]
        assert drawn[2:] == [1, 2]


def test_a_constant_changes_nothing() -> None:
    logs = torch.randn(9, generator=generator_for(1), dtype=torch.float64)
    first = draw(logs, 5, generator_for(2))
    assert torch.equal(first, draw(logs + 7, 5, generator_for(2)))


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
def test_a_stopped_run_goes_on(
    method: BaseMethod, sampler: BaseSampler, workers: int, tmp_path: Path
) -> None:
    check_goes_on(Algorithm(method, sampler=sampler), tmp_path, workers)


@pytest.mark.parametrize(
    ("method", "sampler", "per_round"),
    [(FedAvg(), HiCS(), 5), (CADIS(), PowerOfChoice(), 5), (FedAvg(), FedCluster(1), 3)],
)
def test_where_there_is_no_choice_it_is_uniform(
    method: BaseMethod, sampler: BaseSampler, per_round: int, tmp_path: Path
) -> None:
    """Everybody takes part, or there is one cluster."""
    one, other = (
        run_rounds(Algorithm(method, sampler=s), tmp_path, small_settings(per_round=per_round))[-1]
        for s in (sampler, Uniform())
    )
    assert same(model_after(one).parameters, model_after(other).parameters)
