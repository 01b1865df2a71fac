"""Coverage: participants that together have even label shares."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import CADIS, CADISPaper, FedAvg
from cadis.algorithm.samplers import Coverage, SamplerFeedback, SamplerRound
from cadis.algorithm.samplers.coverage import choose_most_even, estimate_label_shares
from cadis.algorithm.vectors import normalize
from cadis.errors import CadisError
from cadis.rng import derive_generator
from cadis.types import ClientId, TensorState
from support import check_resume


def make_profiles(classes: Sequence[Sequence[int]], num_classes: int) -> Tensor:
    """Return centered profiles of norm 1 for clients with the given classes."""
    profiles = torch.zeros(len(classes), num_classes)
    for profile, present in zip(profiles, classes, strict=True):
        profile[list(present)] = 1
    return normalize(profiles - profiles.mean(dim=1, keepdim=True))


CLUSTERS = [0] * 14 + [1] * 4 + [2] * 2
CLASSES = [[0, 1], [2, 3], [4, 5]]
PROFILES = make_profiles([CLASSES[cluster] for cluster in CLUSTERS], 6)


def make_round(number: int, num_participants: int, profiles: Tensor = PROFILES) -> SamplerRound:
    def client_profiles(clients: Sequence[ClientId]) -> Tensor:
        return profiles[[int(client) for client in clients]]

    generator = derive_generator(0, "participants", number)
    clients = range(len(profiles))
    return SamplerRound(
        number, clients, num_participants, generator, client_profiles=client_profiles
    )


def run_rounds(count: int, num_participants: int, profiles: Tensor = PROFILES) -> list[list[int]]:
    """Return the participants of several rounds."""
    sampler = Coverage()
    state: TensorState = {}
    rounds = []
    for number in range(1, count + 1):
        chosen = sampler.choose(make_round(number, num_participants, profiles), state)
        state = sampler.learn(SamplerFeedback(number, [], participants=chosen), state)
        rounds.append([int(client) for client in chosen])
    return rounds


def test_clients_are_chosen_one_by_one() -> None:
    """Clients with label shares (1, 0), (0.5, 0.5), (0, 1), (0.25, 0.75); no past participants.

    N H is log 2 = 0.69 for client 1, 0.56 for client 3 and 0 for the others, so client 1 is first.
    The sums are then (1.5, 0.5), (0.5, 1.5) and (0.75, 1.25) for clients 0, 2 and 3, where N H is
    1.12, 1.12 and 1.32; with the bonus 0.3, client 2 is second: 1.42. The sums (1.5, 1.5) of client
    0, where N H = 3 log 2 = 2.08, are more even than the sums (0.75, 2.25) of client 3: 1.69.
    """
    shares = torch.tensor([[1, 0], [0.5, 0.5], [0, 1], [0.25, 0.75]], dtype=torch.float64)
    bonus = torch.tensor([0.0, 0.0, 0.3, 0.0])
    zero = torch.zeros(2, dtype=torch.float64)
    assert choose_most_even(zero, shares, bonus, 3).tolist() == [1, 2, 0]
    assert choose_most_even(zero, shares, bonus, 9).tolist() == [1, 2, 0, 3]
    assert bonus.tolist() == torch.tensor([0.0, 0.0, 0.3, 0.0]).tolist()  # not changed
    past = torch.tensor([5.0, 0.0], dtype=torch.float64)
    assert choose_most_even(past, shares, 0 * bonus, 2).tolist() == [2, 3]


def test_label_shares_of_a_hand_computed_example() -> None:
    """With classes 0 and 1 of 4, p = (1, 1, -1, -1) / 2 and z = (1, 1, -1, -1).

    The shares are proportional to (e^2, e^2, e^-2, e^-2). If the norm of p is 1/2, the factor is
    2 / 2^4 = 1/8, and the shares are nearly even.
    """
    profile = torch.tensor([[0.5, 0.5, -0.5, -0.5]])
    large, small = math.exp(2), math.exp(-2)
    expected = [large / (2 * large + 2 * small), small / (2 * large + 2 * small)]
    assert estimate_label_shares(profile)[0, 1:3].tolist() == pytest.approx(expected)
    large, small = math.exp(1 / 8), math.exp(-1 / 8)
    expected = [large / (2 * large + 2 * small), small / (2 * large + 2 * small)]
    assert estimate_label_shares(profile / 2)[0, 1:3].tolist() == pytest.approx(expected)


@given(st.integers(2, 40), st.data())
def test_label_shares_match_disjoint_classes(num_classes: int, data: st.DataObject) -> None:
    present = data.draw(st.sets(st.integers(0, num_classes - 1), min_size=1))
    shares = estimate_label_shares(make_profiles([sorted(present)], num_classes))[0]
    assert shares.sum() == pytest.approx(1)
    if len(present) < num_classes:
        assert (
            shares[sorted(present)].min()
            > 10 * shares[sorted({*range(num_classes)} - present)].max()
        )


def test_label_shares_are_even_without_a_profile() -> None:
    assert estimate_label_shares(torch.zeros(1, 4)).tolist() == [[0.25] * 4]
    assert estimate_label_shares(torch.ones(1, 1)).tolist() == [[1.0]]


def test_choice_has_the_largest_score_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with the formula, computed client by client, for random profiles and turns."""
    monkeypatch.setattr("cadis.algorithm.samplers.turns._JITTER", 0.0)
    generator = torch.Generator().manual_seed(0)
    profiles = normalize(torch.randn(12, 5, generator=generator))
    shares = estimate_label_shares(profiles).tolist()
    sampler, turns, last = Coverage(), [0.0] * 12, [0] * 12
    state: TensorState = {}
    for number in range(1, 20):
        (chosen,) = sampler.choose(make_round(number, 1, profiles), state)
        scores = []
        for i in range(12):
            sums = [
                sum(turns[j] * shares[j][c] for j in range(12)) + shares[i][c] for c in range(5)
            ]
            entropy = -sum(s / sum(sums) * math.log(s / sum(sums)) for s in sums)
            scores.append(sum(sums) * entropy + 0.1 * (number - 1 - last[i]) * 1 / 12)
        assert scores[int(chosen)] == pytest.approx(max(scores), abs=1e-5)
        state = sampler.learn(SamplerFeedback(number, [], participants=[chosen]), state)
        turns = [0.7 * value for value in turns]
        turns[int(chosen)] += 1
        last[int(chosen)] = number


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(0, 2**31))
def test_all_classes_are_covered(members: list[int], seed: int) -> None:
    """Each client has one class; there are as many seats as classes."""
    classes = [c for c, count in enumerate(members) for _ in range(count)]
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed)).tolist()
    profiles = make_profiles([[classes[i]] for i in order], len(members))
    for chosen in run_rounds(5, len(members), profiles):
        assert sorted(classes[order[client]] for client in chosen) == list(range(len(members)))


def test_each_cluster_gets_the_same_number_of_turns() -> None:
    turns = Counter(CLUSTERS[client] for chosen in run_rounds(60, 3) for client in chosen)
    assert all(55 <= turns[cluster] <= 65 for cluster in range(3))  # of 180


def test_clients_of_a_cluster_take_turns() -> None:
    """Without the bonus for waiting clients, the same clients of a cluster may be chosen again."""
    turns = Counter(client for chosen in run_rounds(140, 3) for client in chosen)
    assert all(turns[client] >= 5 for client in range(14))  # 140 / 14 = 10 are expected
    assert len(turns) == 20


def test_clients_with_all_classes_do_not_crowd_out_others() -> None:
    """Five clients have even label shares; the others have one class each, two clients per class.

    The even clients alone already have the largest entropy.
    """
    profiles = make_profiles([[c % 6] for c in range(12)], 6)
    even = torch.zeros(5, 6)
    even[:, 0], even[:, 1] = 0.01, -0.01
    turns = Counter(c for chosen in run_rounds(100, 3, torch.cat([profiles, even])) for c in chosen)
    assert all(turns[client] >= 5 for client in range(17))  # 300 / 17 = 18 on average


def test_identical_clients_are_chosen_equally_often() -> None:
    profiles = make_profiles([[0, 1]] * 10, 4)
    turns = Counter(client for chosen in run_rounds(50, 2, profiles) for client in chosen)
    assert all(8 <= turns[client] <= 12 for client in range(10))


@pytest.mark.parametrize("num_classes", [0, 1, 3])
def test_without_profiles_all_clients_are_newcomers(num_classes: int) -> None:
    """The profile of a single class is 0, because profiles are centered."""
    rounds = run_rounds(3, 10, torch.zeros(30, num_classes))
    assert [len(set(chosen)) for chosen in rounds] == [10, 10, 10]
    assert len({tuple(chosen) for chosen in rounds}) == 3


def test_one_class_works() -> None:
    """A method may have profiles with one number."""
    turns = Counter(client for chosen in run_rounds(50, 2, torch.ones(10, 1)) for client in chosen)
    assert all(8 <= turns[client] <= 12 for client in range(10))


def test_newcomers_get_at_most_half_of_the_seats() -> None:
    profiles = torch.cat([PROFILES, torch.zeros(180, 6)])
    chosen = Coverage().choose(make_round(5, 10, profiles), {})
    assert sum(int(client) >= 20 for client in chosen) == 5


def test_client_that_never_replies_is_not_chosen_again_and_again() -> None:
    """Only client 19 of its cluster replies; client 18 counts as chosen all the same."""
    rounds = run_rounds(100, 3)
    assert sum(18 in chosen for chosen in rounds) <= 60  # the cluster has 100 turns


def test_all_clients_take_part_if_there_are_enough_seats() -> None:
    assert run_rounds(3, 20) == [list(range(20))] * 3


def test_many_clients() -> None:
    """Only a subset of the clients is compared."""
    profiles = make_profiles([[client % 10] for client in range(30_000)], 10)
    chosen = Coverage().choose(make_round(2, 40, profiles), {})
    assert Counter(int(client) % 10 for client in chosen) == dict.fromkeys(range(10), 4)


def test_method_must_have_profiles() -> None:
    Algorithm(CADIS(), sampler=Coverage())
    for method in (FedAvg(), CADISPaper()):
        with pytest.raises(CadisError, match="needs the profiles of clients"):
            Algorithm(method, sampler=Coverage())


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_run_resumes(workers: int, tmp_path: Path) -> None:
    check_resume(Algorithm(CADIS(), sampler=Coverage()), tmp_path, workers)
