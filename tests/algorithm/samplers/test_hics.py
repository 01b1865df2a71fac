"""HiCS-FL: estimated entropies, clusters of clients, and a draw in two stages."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import acos, e, exp, log, sqrt
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, IFCA, FedAvg
from cadis.algorithm.samplers import HiCS, SampledRound, SamplerRound
from cadis.engine import Engine, Federation
from cadis.errors import CadisError
from cadis.rng import generator_for
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState
from parts_support import snapshot
from support import blobs, flat_model, run_rounds, small_model, small_settings

WEIGHT, BIAS = slice(1, 5), slice(5, 7)
"""A classifier of two classes and two features, after one parameter of another layer."""


def sampled(
    after: dict[int, ModelState], before: ModelState, head: tuple[slice, ...], outputs: int = 2
) -> SampledRound:
    updates = [ClientUpdate(c, 10 + c, Message({"model": m})) for c, m in after.items()]
    sent: dict[ClientId, Message] = {client: Message({"model": before}) for client in after}
    return SampledRound(1, updates, sent, {}, head, outputs)


def in_round(number: int, wanted: int = 2, clients: int = 4, seed: int = 0) -> SamplerRound:
    return SamplerRound(number, range(clients), wanted, generator_for(seed))


def test_entropies_by_hand() -> None:
    changes = torch.tensor([[1.0, 0.0], [0.25, 0.25]], dtype=torch.float64)
    share = e**2 / (e**2 + 1)
    skewed = -share * log(share) - (1 - share) * log(1 - share)
    found = HiCS(temperature=0.5).entropies(changes)
    assert found.tolist() == pytest.approx([skewed, log(2)])


def test_a_temperature_that_is_read_off_fits_any_learning_rate() -> None:
    changes = torch.tensor([[3.0, -1.0, -2.0], [-0.5, 0.0, 0.5]], dtype=torch.float64)
    automatic = HiCS().entropies(changes)
    by_hand = HiCS(temperature=(3 + 0.5) / 2 / 2).entropies(changes)
    assert automatic.tolist() == pytest.approx(by_hand.tolist())
    assert HiCS().entropies(changes / 1000).tolist() == pytest.approx(automatic.tolist())
    assert HiCS().entropies(torch.zeros(2, 4)).tolist() == pytest.approx([log(4)] * 2)


def test_distances_by_hand() -> None:
    changes = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -2.0]], dtype=torch.float64)
    entropy = torch.tensor([0.1, 0.4, 0.2], dtype=torch.float64)
    found = HiCS(entropy_weight=10).distances(changes, entropy)
    assert found.diagonal().tolist() == [0, 0, 0]
    assert float(found[0, 1]) == pytest.approx(acos(1 / sqrt(2)) + 10 * 0.3)
    assert float(found[0, 2]) == pytest.approx(acos(0) + 10 * 0.1)
    assert float(found[1, 2]) == pytest.approx(acos(-1 / sqrt(2)) + 10 * 0.2)
    assert torch.equal(found, found.T)


def test_probabilities_by_hand() -> None:
    """Two skewed clients alike, and two balanced ones; a quarter of the annealing is over."""
    changes = torch.tensor([[2.0, 0.0], [2.0, 0.0], [1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    sizes = torch.tensor([10, 30, 20, 20])
    sampler = HiCS(temperature=1.0, preference=4.0, annealing=40)
    found = sampler.log_weights(changes, sizes, in_round(10)).softmax(dim=0)
    share = e**2 / (e**2 + 1)
    skewed, balanced = -share * log(share) - (1 - share) * log(1 - share), log(2)
    gamma = 4 * (1 - 10 / 40)
    first = exp(gamma * skewed) / (exp(gamma * skewed) + exp(gamma * balanced))
    expected = [first / 4, first * 3 / 4, (1 - first) / 2, (1 - first) / 2]
    assert found.tolist() == pytest.approx(expected)
    late = sampler.log_weights(changes, sizes, in_round(41)).softmax(dim=0)
    assert late.tolist() == pytest.approx([1 / 8, 3 / 8, 1 / 4, 1 / 4])


def test_clusters_are_as_many_as_wanted() -> None:
    """Three directions: with two clusters those that are nearest are one."""
    changes = torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.1]], dtype=torch.float64)
    sizes = torch.tensor([1, 1, 1])
    even = HiCS(entropy_weight=0.0, preference=0.0, num_clusters=2)
    found = even.log_weights(changes, sizes, in_round(5)).softmax(dim=0)
    assert found.tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    alone = replace(even, num_clusters=3).log_weights(changes, sizes, in_round(5)).softmax(dim=0)
    assert alone.tolist() == pytest.approx([1 / 3] * 3)
    one = replace(even, num_clusters=1).log_weights(changes, sizes, in_round(5))
    assert one.unique().numel() == 1


def plain_draw(labels: list[int], entropy: list[float], gamma: float, seed: int) -> set[int]:
    """Two of the clients as Algorithm 1 draws them: a cluster, one in it, until there are two."""
    generator, found = generator_for(seed, "plain"), set[int]()
    groups = [[n for n, own in enumerate(labels) if own == label] for label in sorted(set(labels))]
    means = torch.tensor([sum(entropy[n] for n in group) / len(group) for group in groups])
    while len(found) < 2:
        group = groups[int(torch.multinomial((gamma * means).exp(), 1, generator=generator))]
        found.add(group[int(torch.randint(len(group), (), generator=generator))])
    return found


def test_the_draw_is_that_of_the_papers_loop() -> None:
    changes = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    sampler, draws = HiCS(temperature=1.0, annealing=10), 1500
    memory = {"changes": changes, "sizes": torch.full((4,), 7), "clients": ids(4)}
    entropy = sampler.entropies(changes).tolist()
    mine, theirs = Counter[int](), Counter[int]()
    for seed in range(draws):
        mine.update(int(c) for c in sampler.choose(in_round(5, seed=seed), memory))
        theirs.update(plain_draw([0, 0, 0, 1], entropy, 4 * (1 - 5 / 10), seed))
    for client in range(4):
        share = theirs[client] / draws
        assert abs(mine[client] / draws - share) < 6.5 * sqrt(share * (1 - share) / draws)


def ids(number: int) -> Tensor:
    still = flat_model(*[0.0] * 7)
    return HiCS().learn(sampled(dict.fromkeys(range(number), still), still, (BIAS,)), {})["clients"]


def test_it_learns_the_update_of_the_bias_and_the_size() -> None:
    before = flat_model(9.0, 1.0, 2.0, 3.0, 4.0, 0.5, 0.25)
    after = {3: flat_model(0.0, 0.0, 0.0, 0.0, 0.0, 1.5, 0.0)}
    memory = HiCS().learn(sampled(after, before, (WEIGHT, BIAS)), {})
    assert memory["changes"].tolist() == [[1.0, -0.25]]
    assert memory["sizes"].tolist() == [13]
    kept = snapshot(memory)
    again = {3: flat_model(*[0.0] * 7), 8: before}
    newer = HiCS().learn(sampled(again, before, (WEIGHT, BIAS)), memory)
    assert newer["changes"].tolist() == [[-0.5, -0.25], [0.0, 0.0]]
    assert all(torch.equal(memory[name], tensor) for name, tensor in kept.items())


@pytest.mark.parametrize(
    ("after", "head", "outputs", "expected"),
    [
        ([7.0, 1.0, 2.0, -3.0, -1.0], (WEIGHT,), 2, [(1 + 2) / 2, (-3 - 1) / 2]),
        ([0.0, 0.0, 0.5], (slice(0, 2), slice(2, 3)), 1, [-0.5, 0.5]),
    ],
    ids=["means of the rows without a bias", "one output tells two classes apart"],
)
def test_other_classifiers(
    after: list[float], head: tuple[slice, ...], outputs: int, expected: list[float]
) -> None:
    before = flat_model(*[0.0] * len(after))
    memory = HiCS().learn(sampled({0: flat_model(*after)}, before, head, outputs), {})
    assert memory["changes"].tolist() == [expected]


def test_a_model_without_a_classifier_layer_is_one_sentence() -> None:
    before = flat_model(1.0)
    with pytest.raises(CadisError, match="'hics' looks at the classifier layer"):
        HiCS().learn(sampled({0: before}, before, ()), {})


def test_those_never_seen_come_first_and_the_other_seats_are_drawn() -> None:
    memory: TensorState = {}
    before, seen = flat_model(*[0.0] * 7), set[int]()
    for number in (1, 2, 3):
        chosen = {int(c) for c in HiCS().choose(in_round(number, wanted=3, clients=8), memory)}
        assert len(chosen) == 3
        assert len(chosen - seen) == min(3, 8 - len(seen))
        after = {c: flat_model(*[0.0] * 5, 0.1 * c, -0.1) for c in chosen}
        memory = HiCS().learn(sampled(after, before, (WEIGHT, BIAS)), memory)
        seen |= chosen
    assert seen == set(range(8))


BALANCED = (3, 7, 11, 16)


def planted() -> Federation:
    """Of twenty clients four have all five classes, and every other one a single class."""
    every = [0, 1, 2, 3, 4]
    clients = [blobs(20, every if n in BALANCED else [n % 5], seed=n) for n in range(20)]
    return Federation(clients, blobs(20, every, seed=99))


def share_of_balanced(sampler: HiCS, folder: Path, model: nn.Module, method: BaseMethod) -> float:
    """Which part of the seats the balanced have, after everybody took part once."""
    settings = small_settings(rounds=24, per_round=5)
    settings = replace(settings, local=replace(settings.local, lr=0.02))
    engine = Engine(model, planted(), Algorithm(method, sampler=sampler), settings, folder)
    chosen = [result.record.participants for result in engine.rounds(engine.start)]
    assert sorted(int(c) for round_ in chosen[:4] for c in round_) == list(range(20))
    seats = [int(c) for round_ in chosen[4:] for c in round_]
    return sum(client in BALANCED for client in seats) / len(seats)


def unbiased_model() -> nn.Module:
    """As the small model, but its classifier has no bias."""
    return nn.Sequential(*list(small_model().children())[:-1], nn.Linear(7, 5, bias=False))


@pytest.mark.parametrize(
    ("method", "build"),
    [
        (FedAvg(), small_model),
        (CADIS(), small_model),
        (IFCA(), small_model),
        (FedAvg(), unbiased_model),
    ],
)
def test_balanced_clients_are_preferred(
    tmp_path: Path, method: BaseMethod, build: Callable[[], nn.Module]
) -> None:
    """Those that have all classes have a fifth of the seats by chance, and far more by HiCS."""
    assert share_of_balanced(HiCS(), tmp_path, build(), method) > 0.4


def test_once_annealed_they_are_not(tmp_path: Path) -> None:
    annealed = HiCS(annealing=1, entropy_weight=0.0)
    assert share_of_balanced(annealed, tmp_path, small_model(), FedAvg()) < 0.4


def test_what_is_remembered_is_small(tmp_path: Path) -> None:
    state = run_rounds(Algorithm(FedAvg(), sampler=HiCS()), tmp_path)[-1].state
    assert state.sampler["changes"].shape == (5, 5)  # clients, classes
    assert state.sampler["sizes"].shape == (5,)
