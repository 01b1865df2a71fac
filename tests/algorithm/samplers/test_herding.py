"""Herding: participants whose data differ from the data of recent participants."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import CADIS, CADISPaper, FedAvg
from cadis.algorithm.samplers import Herding, SamplerFeedback, SamplerRound
from cadis.algorithm.samplers.herding import choose_one_by_one
from cadis.errors import CadisError
from cadis.rng import derive_generator
from cadis.types import ClientId, TensorState

CLUSTERS = [0] * 14 + [1] * 4 + [2] * 2
PROFILES = torch.eye(3)[CLUSTERS]  # clients of one cluster have the same profile


def make_round(number: int, num_participants: int, profiles: Tensor = PROFILES) -> SamplerRound:
    def client_profiles(clients: Sequence[ClientId]) -> Tensor:
        return profiles[[int(client) for client in clients]]

    generator = derive_generator(0, "participants", number)
    clients = range(len(profiles))
    return SamplerRound(
        number, clients, num_participants, generator, client_profiles=client_profiles
    )


def run_rounds(count: int, num_participants: int, sampler: Herding) -> list[list[int]]:
    """Return the participants of several rounds."""
    state: TensorState = {}
    rounds = []
    for number in range(1, count + 1):
        chosen = sampler.choose(make_round(number, num_participants), state)
        state = sampler.learn(SamplerFeedback(number, [], participants=chosen), state)
        rounds.append([int(client) for client in chosen])
    return rounds


def test_clients_are_chosen_one_by_one() -> None:
    """Profiles (1, 0), (1, 0), (0, 1), (0.6, 0.8) have the similarities 1, 0.36, 0.64 and 0.

    Client 2 has the smallest score, 0. Scores are then 0.3 + 0 = 0.3, 0.4 + 0 = 0.4 and
    0.1 + 0.64 = 0.74, so client 0 is next, and then client 3: 0.74 + 0.36 = 1.1 < 0.4 + 1 = 1.4.
    """
    profiles = torch.tensor([[1, 0], [1, 0], [0, 1], [0.6, 0.8]])
    scores = torch.tensor([0.3, 0.4, 0.0, 0.1])
    assert choose_one_by_one(scores, profiles, 3).tolist() == [2, 0, 3]
    assert choose_one_by_one(scores, profiles, 9).tolist() == [2, 0, 3, 1]
    assert scores.tolist() == torch.tensor([0.3, 0.4, 0.0, 0.1]).tolist()  # not changed


def test_choice_has_the_smallest_score_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with the formula, computed client by client, for random profiles and turns."""
    monkeypatch.setattr("cadis.algorithm.samplers.turns._JITTER", 0.0)
    generator = torch.Generator().manual_seed(0)
    profiles = torch.randn(12, 5, generator=generator)
    sampler, turns, last = Herding(), [0.0] * 12, [0] * 12
    state: TensorState = {}
    for number in range(1, 20):
        (chosen,) = sampler.choose(make_round(number, 1, profiles), state)
        scores = [
            sum(
                max(0.0, float(torch.cosine_similarity(profiles[i], profiles[j], dim=0))) ** 2
                * turns[j]
                for j in range(12)
            )
            - 0.3 * (number - 1 - last[i]) * 1 / 12
            for i in range(12)
        ]
        assert scores[int(chosen)] == pytest.approx(min(scores), abs=1e-5)
        state = sampler.learn(SamplerFeedback(number, [], participants=[chosen]), state)
        turns = [0.7 * value for value in turns]
        turns[int(chosen)] += 1
        last[int(chosen)] = number


def test_each_cluster_gets_the_same_number_of_turns() -> None:
    rounds = run_rounds(60, 3, Herding())
    turns = Counter(CLUSTERS[client] for chosen in rounds for client in chosen)
    assert all(55 <= turns[cluster] <= 65 for cluster in range(3))  # of 180


def test_clients_of_a_cluster_take_turns() -> None:
    """Without the bonus for waiting clients, the same clients of a cluster may be chosen again."""
    turns = Counter(client for chosen in run_rounds(140, 3, Herding()) for client in chosen)
    assert all(turns[client] >= 5 for client in range(14))  # 140 / 14 = 10 are expected
    assert len(turns) == 20


def test_identical_clients_are_chosen_equally_often() -> None:
    profiles, sampler = torch.ones(10, 4), Herding()
    state: TensorState = {}
    turns = Counter[ClientId]()
    for number in range(1, 51):
        chosen = sampler.choose(make_round(number, 2, profiles), state)
        state = sampler.learn(SamplerFeedback(number, [], participants=chosen), state)
        turns.update(chosen)
    assert all(8 <= turns[client] <= 12 for client in range(10))


def test_newcomers_get_at_most_half_of_the_seats() -> None:
    profiles = torch.cat([PROFILES, torch.zeros(180, 3)])
    chosen = Herding().choose(make_round(5, 10, profiles), {})
    assert sum(int(client) >= 20 for client in chosen) == 5
    assert len(Herding().choose(make_round(1, 10, torch.zeros(30, 0)), {})) == 10


def test_client_that_never_replies_is_not_chosen_again_and_again() -> None:
    """Only client 19 of its cluster replies; client 18 counts as chosen all the same."""
    rounds = run_rounds(100, 3, Herding())
    assert sum(18 in chosen for chosen in rounds) <= 60  # the cluster has 100 turns


def test_all_clients_take_part_if_there_are_enough_seats() -> None:
    assert run_rounds(3, 20, Herding()) == [list(range(20))] * 3


def test_many_clients() -> None:
    """Only a subset of the clients is compared, so the cost does not grow with their square."""
    profiles = torch.eye(10)[torch.arange(30_000) % 10]
    chosen = Herding().choose(make_round(2, 40, profiles), {})
    assert Counter(int(client) % 10 for client in chosen) == dict.fromkeys(range(10), 4)


def test_method_must_have_profiles() -> None:
    Algorithm(CADIS(), sampler=Herding())
    for method in (FedAvg(), CADISPaper()):
        with pytest.raises(CadisError, match="needs the profiles of clients"):
            Algorithm(method, sampler=Herding())
