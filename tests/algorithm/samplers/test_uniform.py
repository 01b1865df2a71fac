from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm.samplers import SampledRound, SamplerRound, Uniform
from cadis.rng import generator_for
from cadis.types import ClientId


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
