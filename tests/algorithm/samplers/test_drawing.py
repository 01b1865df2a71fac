"""Draws without replacement, by unequal weights."""

from collections import Counter
from itertools import permutations

import torch

from cadis.algorithm.samplers.drawing import draw
from cadis.rng import generator_for


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
