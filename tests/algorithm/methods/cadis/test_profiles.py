"""Class profiles, and the table of mean profiles on the server."""

from itertools import combinations
from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm import normalize
from cadis.algorithm.methods.cadis import ClientProfiles, compute_class_profiles
from cadis.algorithm.methods.cadis.profiles import PROFILE_WINDOW, sum_cosines
from cadis.rng import derive_generator
from cadis.types import compute_client_keys
from method_support import are_equal_tensors
from parts_support import copy_tensors


def make_profiles(number: int, classes: int, seed: int) -> Tensor:
    return normalize(torch.randn(number, classes, generator=derive_generator(seed)))


def test_profile_by_hand() -> None:
    """Class 0 grows along positive features, class 1 shrinks; class 2 does not move."""
    weight = torch.tensor([[[3.0, 4.0], [-0.6, 0.0], [0.0, 0.0]]])
    bias = torch.tensor([[0.0, -0.8, 0.0]])
    # features: rows times unit bias (0, -1, 0) = (0.6, 0); along: 3, -0.6 - 0.8, 0
    # sizes: 5 ** 0.25 and 1 ** 0.25 (the norm of (-0.6, 0, -0.8) is 1), 0; their mean is subtracted
    mean = (5**0.25 - 1) / 3
    centered = [5**0.25 - mean, -1 - mean, 0 - mean]
    length = sqrt(sum(value**2 for value in centered))
    expected = [value / length for value in centered]
    assert compute_class_profiles(weight, bias)[0].tolist() == pytest.approx(expected)
    # without a bias, the sums of the rows give the direction of the features
    weight = torch.tensor([[[1.0, 1.0], [-1.0, -1.0]]])
    expected = [1 / sqrt(2), -1 / sqrt(2)]
    assert compute_class_profiles(weight)[0].tolist() == pytest.approx(expected)


def test_the_scale_of_an_update_does_not_matter() -> None:
    weight = torch.randn(4, 5, 7, generator=derive_generator(1))
    bias = torch.randn(4, 5, generator=derive_generator(2))
    plain = compute_class_profiles(weight, bias)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(compute_class_profiles(weight * scale, bias * scale), plain)
    torch.testing.assert_close(plain.norm(dim=1), torch.ones(4))


def test_the_profile_of_a_zero_update_is_zero() -> None:
    weight, bias = torch.zeros(2, 3, 4), torch.zeros(2, 3)
    weight[1] = 1
    assert compute_class_profiles(weight, bias)[0].tolist() == [0, 0, 0]
    assert compute_class_profiles(weight, bias).isfinite().all()


@pytest.mark.parametrize("features", ["positive", "signed"])
def test_one_softmax_step_reveals_the_classes_of_a_client(features: str) -> None:
    """Proposition 1: rows of classes with samples grow, all others shrink."""
    generator = derive_generator(3)
    inputs = torch.randn(40, 16, generator=generator) + (2 if features == "signed" else 0)
    if features == "positive":
        inputs = inputs.relu()
    labels = torch.tensor([[0, 1], [0, 1], [2, 4]])[:, torch.arange(40) % 2]
    probabilities = torch.full((40, 5), 0.2)
    updates = []
    for client_labels in labels:
        residual = torch.nn.functional.one_hot(client_labels, 5) - probabilities
        updates.append((residual.T @ inputs, residual.sum(dim=0)))
    weight, bias = (torch.stack(part) for part in zip(*updates, strict=True))
    profiles = compute_class_profiles(weight, bias)
    for profile, client_labels in zip(profiles, labels, strict=True):
        assert set((profile > 0).nonzero()[:, 0].tolist()) == set(client_labels.tolist())
    cosines = profiles @ profiles.T
    assert cosines[0, 1] > 0.99
    assert cosines[0, 2] < 0


def test_client_keys_are_numbers_or_hashes_of_names() -> None:
    keys = compute_client_keys([3, -7, "charite", "mayo"])
    assert keys[:2].tolist() == [3, -7]
    assert torch.equal(keys, compute_client_keys([3, -7, "charite", "mayo"]))
    assert len(keys.unique()) == 4


class DictProfiles:
    """Mean profiles in dictionaries, without half precision."""

    def __init__(self) -> None:
        self.mean: dict[int, Tensor] = {}
        self.count: dict[int, int] = {}
        self.past: dict[int, list[Tensor]] = {}

    def observe(self, keys: list[int], profiles: Tensor) -> None:
        for key, profile in zip(keys, profiles, strict=True):
            past = self.past.setdefault(key, [])
            cosines = [float(a @ b) for a, b in combinations(past, 2)]
            if cosines and sum(cosines) / len(cosines) > 0.5 and self.mean[key] @ profile < 0:
                past.clear()  # the classes of the client have changed
                self.count[key] = 0
            past.append(profile)
            times = min(self.count.get(key, 0), PROFILE_WINDOW - 1)
            before = self.mean.get(key, torch.zeros_like(profile))
            self.mean[key] = (times * before + profile) / (times + 1)
            self.count[key] = self.count.get(key, 0) + 1


@given(st.lists(st.sets(st.integers(-5, 12), min_size=1, max_size=6), min_size=1, max_size=30))
def test_means_match_a_plain_implementation(rounds: list[set[int]]) -> None:
    plain, profiles = DictProfiles(), ClientProfiles()
    for number, participants in enumerate(rounds):
        keys, new = list(participants), make_profiles(len(participants), 4, number)
        plain.observe(keys, new)
        profiles = profiles.observe(torch.tensor(keys), new)
    clients = [*plain.mean, 99]
    mean, count = profiles.get(torch.tensor(clients), 4)
    expected = torch.stack([*plain.mean.values(), torch.zeros(4)])
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.005)
    assert count.tolist() == [*plain.count.values(), 0]


def test_many_clients_are_merged_into_the_old_table() -> None:
    plain, profiles = DictProfiles(), ClientProfiles()
    for number in range(5):
        keys = torch.randperm(20_000, generator=derive_generator(number))[:1500]
        new = make_profiles(1500, 3, number)
        plain.observe(keys.tolist(), new)
        profiles = profiles.observe(keys, new)
    assert len(profiles.old.keys) > 4096
    assert 0 < len(profiles.new.keys) <= 4096
    mean, count = profiles.get(torch.tensor(list(plain.mean)), 3)
    torch.testing.assert_close(mean, torch.stack(list(plain.mean.values())), rtol=0, atol=0.005)
    assert count.tolist() == list(plain.count.values())
    subset, counts = profiles.subsample(256)
    assert 200 <= len(subset) <= 256
    assert (counts > 0).all()


def test_observe_does_not_change_the_profiles_before() -> None:
    first = ClientProfiles().observe(torch.tensor([1, 2]), make_profiles(2, 3, 0))
    before = copy_tensors(first.to_tensors())
    first.observe(torch.tensor([2, 3]), make_profiles(2, 3, 1))
    assert are_equal_tensors(before, first.to_tensors())


def test_profiles_survive_a_checkpoint() -> None:
    profiles = ClientProfiles().observe(compute_client_keys(["a", 4]), make_profiles(2, 3, 0))
    again = ClientProfiles.from_tensors(profiles.to_tensors())
    assert are_equal_tensors(profiles.to_tensors(), again.to_tensors())
    assert ClientProfiles.from_tensors({}).subsample(9)[0].shape == (0, 0)


def test_earlier_rounds_are_forgotten_if_the_classes_of_a_client_change() -> None:
    """Three profiles with cosines 1, 0.8 and 0.8, then one with a negative cosine to their mean."""
    key, past = torch.tensor([7]), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.8, 0.6]])
    profiles = ClientProfiles()
    for profile in past:
        profiles = profiles.observe(key, profile[None])
    sums, pairs = sum_cosines(past.mean(dim=0)[None], torch.tensor([3]))
    assert sums.tolist() == pytest.approx([2 * (1 + 0.8 + 0.8)])
    assert pairs.tolist() == [6]
    new = torch.tensor([[-0.8, 0.6]])
    mean, count = profiles.observe(key, new).get(key, 2)
    torch.testing.assert_close(mean, new, rtol=0, atol=1e-3)
    assert count.tolist() == [1]
    # one round is not enough to know the classes of a client
    mean, count = ClientProfiles().observe(key, past[:1]).observe(key, new).get(key, 2)
    torch.testing.assert_close(mean, (past[:1] + new) / 2, rtol=0, atol=1e-3)
    # nor are rounds with different profiles
    profiles = ClientProfiles().observe(key, past[:1]).observe(key, torch.tensor([[0.0, 1.0]]))
    assert profiles.observe(key, -past[:1]).get(key, 2)[1].tolist() == [3]


def test_old_rounds_of_a_client_fade() -> None:
    before, after = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    profiles = ClientProfiles()
    for profile in [before] * 100 + [after] * 2 * PROFILE_WINDOW:
        profiles = profiles.observe(torch.tensor([0]), profile)
    mean, count = profiles.get(torch.tensor([0]), 2)
    assert mean[0, 1] > 3 * mean[0, 0]
    assert count.tolist() == [100 + 2 * PROFILE_WINDOW]
