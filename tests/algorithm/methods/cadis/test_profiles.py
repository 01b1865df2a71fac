"""Class profiles, and what the server remembers of them."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm import unit
from cadis.algorithm.methods.cadis import ClientProfiles, class_profiles
from cadis.algorithm.methods.cadis.profiles import LONGEST
from cadis.rng import generator_for
from cadis.types import client_keys
from method_support import same_tensors
from parts_support import snapshot


def some_profiles(number: int, classes: int, seed: int) -> Tensor:
    return unit(torch.randn(number, classes, generator=generator_for(seed)))


def test_a_profile_by_hand() -> None:
    """Class 0 grows along positive features, class 1 shrinks; class 2 does not move."""
    weight = torch.tensor([[[3.0, 4.0], [-0.6, 0.0], [0.0, 0.0]]])
    bias = torch.tensor([[0.0, -0.8, 0.0]])
    # features: rows times unit bias (0, -1, 0) = (0.6, 0); along: 3, -0.6 - 0.8, 0
    # sizes: 5 ** 0.25 and 1 ** 0.25 (the norm of (-0.6, 0, -0.8) is 1), 0; their mean is taken off
    mean = (5**0.25 - 1) / 3
    centred = [5**0.25 - mean, -1 - mean, 0 - mean]
    length = sqrt(sum(value**2 for value in centred))
    expected = [value / length for value in centred]
    assert class_profiles(weight, bias)[0].tolist() == pytest.approx(expected)
    # without a bias, the rows' own sums say where the features are
    weight = torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]])
    expected = [1 / sqrt(2), -1 / sqrt(2)]
    assert class_profiles(weight)[0].tolist() == pytest.approx(expected)


def test_the_scale_of_an_update_does_not_matter() -> None:
    weight = torch.randn(4, 5, 7, generator=generator_for(1))
    bias = torch.randn(4, 5, generator=generator_for(2))
    plain = class_profiles(weight, bias)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(class_profiles(weight * scale, bias * scale), plain)
    torch.testing.assert_close(plain.norm(dim=1), torch.ones(4))


def test_a_client_that_did_not_move_has_no_profile() -> None:
    weight, bias = torch.zeros(2, 3, 4), torch.zeros(2, 3)
    weight[1] = 1
    assert class_profiles(weight, bias)[0].tolist() == [0, 0, 0]
    assert class_profiles(weight, bias).isfinite().all()


@pytest.mark.parametrize("features", ["positive", "signed"])
def test_a_step_of_softmax_tells_the_classes_that_a_client_has(features: str) -> None:
    """Proposition 1: rows of classes with samples grow, all others shrink."""
    generator = generator_for(3)
    inputs = torch.randn(40, 16, generator=generator) + (2 if features == "signed" else 0)
    if features == "positive":
        inputs = inputs.relu()
    labels = torch.tensor([[0, 1], [0, 1], [2, 4]])[:, torch.arange(40) % 2]
    probabilities = torch.full((40, 5), 0.2)
    updates = []
    for own in labels:
        residual = torch.nn.functional.one_hot(own, 5) - probabilities
        updates.append((residual.T @ inputs, residual.sum(dim=0)))
    weight, bias = (torch.stack(part) for part in zip(*updates, strict=True))
    profiles = class_profiles(weight, bias)
    for profile, own in zip(profiles, labels, strict=True):
        assert set((profile > 0).nonzero()[:, 0].tolist()) == set(own.tolist())
    cosines = profiles @ profiles.T
    assert cosines[0, 1] > 0.99
    assert cosines[0, 2] < 0


def test_keys_are_numbers_of_clients_or_hashes_of_their_names() -> None:
    keys = client_keys([3, -7, "charite", "mayo"])
    assert keys[:2].tolist() == [3, -7]
    assert torch.equal(keys, client_keys([3, -7, "charite", "mayo"]))
    assert len(keys.unique()) == 4


class Plain:
    """The same memory as dictionaries, without half precision."""

    def __init__(self) -> None:
        self.mean: dict[int, Tensor] = {}
        self.count: dict[int, int] = {}

    def observe(self, keys: list[int], profiles: Tensor) -> None:
        for key, profile in zip(keys, profiles, strict=True):
            times = min(self.count.get(key, 0), LONGEST - 1)
            before = self.mean.get(key, torch.zeros_like(profile))
            self.mean[key] = (times * before + profile) / (times + 1)
            self.count[key] = self.count.get(key, 0) + 1


@given(st.lists(st.sets(st.integers(-5, 12), min_size=1, max_size=6), min_size=1, max_size=30))
def test_means_are_those_of_a_plain_memory(rounds: list[set[int]]) -> None:
    plain, profiles = Plain(), ClientProfiles()
    for number, participants in enumerate(rounds):
        keys, new = list(participants), some_profiles(len(participants), 4, number)
        plain.observe(keys, new)
        profiles = profiles.observe(torch.tensor(keys), new)
    everybody = [*plain.mean, 99]
    mean, count = profiles.of(torch.tensor(everybody), 4)
    expected = torch.stack([*plain.mean.values(), torch.zeros(4)])
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.005)
    assert count.tolist() == [*plain.count.values(), 0]


def test_many_clients_are_moved_to_the_old_table_and_found_there() -> None:
    plain, profiles = Plain(), ClientProfiles()
    for number in range(5):
        keys = torch.randperm(20_000, generator=generator_for(number))[:1500]
        new = some_profiles(1500, 3, number)
        plain.observe(keys.tolist(), new)
        profiles = profiles.observe(keys, new)
    assert len(profiles.old.keys) > 4096
    assert 0 < len(profiles.new.keys) <= 4096
    mean, count = profiles.of(torch.tensor(list(plain.mean)), 3)
    torch.testing.assert_close(mean, torch.stack(list(plain.mean.values())), rtol=0, atol=0.005)
    assert count.tolist() == list(plain.count.values())
    some, counts = profiles.some(256)
    assert 200 <= len(some) <= 256
    assert (counts > 0).all()


def test_observing_leaves_what_was_before_as_it_was() -> None:
    first = ClientProfiles().observe(torch.tensor([1, 2]), some_profiles(2, 3, 0))
    held = snapshot(first.to_tensors())
    first.observe(torch.tensor([2, 3]), some_profiles(2, 3, 1))
    assert same_tensors(held, first.to_tensors())


def test_a_checkpoint_holds_all_of_it() -> None:
    profiles = ClientProfiles().observe(client_keys(["a", 4]), some_profiles(2, 3, 0))
    again = ClientProfiles.from_tensors(profiles.to_tensors())
    assert same_tensors(profiles.to_tensors(), again.to_tensors())
    assert ClientProfiles.from_tensors({}).some(9)[0].shape == (0, 0)


def test_of_a_client_that_changes_the_past_fades() -> None:
    before, after = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    profiles = ClientProfiles()
    for profile in [before] * 100 + [after] * 2 * LONGEST:
        profiles = profiles.observe(torch.tensor([0]), profile)
    mean, count = profiles.of(torch.tensor([0]), 2)
    assert mean[0, 1] > 3 * mean[0, 0]
    assert count.tolist() == [100 + 2 * LONGEST]
