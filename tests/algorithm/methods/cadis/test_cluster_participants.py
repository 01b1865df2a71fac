"""Who belongs together: newcomers are seen through those who moved as they did."""

import pytest
import torch
from torch import Tensor

from cadis.algorithm import unit
from cadis.algorithm.methods.cadis import ClientProfiles
from cadis.algorithm.methods.cadis.cluster_participants import PairRule, group_by_profiles
from cadis.types import ClientId, client_keys


def test_newcomers_of_an_odd_round_are_known_by_those_seen_before() -> None:
    """In one round the model is far off, and everybody's profile is, in the same way."""
    clear = unit(torch.tensor([[1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]]))
    usual = clear[[0] * 6 + [1] * 4]
    first = group_by_profiles(usual, list(range(10)), {}, None)
    second = group_by_profiles(usual, list(range(10)), first.memory, None)
    odd = unit(torch.tensor([[1.0, -0.8, -0.1, -0.1], [-1.0, -1.0, 1.0, 1.0]]))
    clients: list[ClientId] = [0, 1, "new", 9]
    third = group_by_profiles(odd[[0, 0, 0, 1]], clients, second.memory, None)
    assert third.labels.tolist() == [0, 0, 0, 1]
    mean, count = ClientProfiles.from_tensors(third.memory).of(client_keys(clients), 4)
    assert count.tolist() == [3, 3, 1, 3]
    # the mean of two clients with three rounds each (two usual, one odd) and its own odd round
    expected = (6 * (2 * clear[0] + odd[0]) / 3 + odd[0]) / 7
    torch.testing.assert_close(mean[2], expected, rtol=0, atol=2e-3)
    torch.testing.assert_close(mean[0], (2 * clear[0] + odd[0]) / 3, rtol=0, atol=2e-3)


def test_who_moved_alone_stays_as_it_is() -> None:
    profiles = unit(torch.randn(4, 12, generator=torch.Generator().manual_seed(0)))
    memory = group_by_profiles(profiles, [1, 2, 3, 4], {}, None).memory
    mean, _ = ClientProfiles.from_tensors(memory).of(client_keys([1, 2, 3, 4]), 12)
    torch.testing.assert_close(mean, profiles, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_the_sampler_sees_the_clusters_that_the_weights_use(seed: int) -> None:
    """Pairs that never met are unlike in both places, whatever the sign of the other cosines."""
    rule = PairRule(threshold=None, among_all=True, transitive="off", gamma=0.0)
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(2, 3, generator=generator).repeat_interleave(3, dim=0)
    changes, memory = centres + 0.2 * torch.randn(6, 3, generator=generator), dict[str, Tensor]()
    for clients in ([0, 1, 3], [1, 2, 4], [0, 3, 5]):
        grouping = rule.group(changes[clients], clients, memory, generator)
        memory = dict(grouping.memory)
        assert rule.clusters(clients, memory).tolist() == grouping.labels.tolist()
