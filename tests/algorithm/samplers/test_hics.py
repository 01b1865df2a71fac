"""HiCS-FL: estimated entropies, clusters of clients, and sampling in two steps."""

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
from cadis.algorithm.samplers import HiCS, SamplerFeedback, SamplerRound
from cadis.engine import Engine, Federation
from cadis.errors import CadisError
from cadis.rng import derive_generator
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState
from parts_support import copy_tensors
from support import blobs, flat_model, run_rounds, small_model, small_settings

WEIGHT, BIAS = slice(1, 5), slice(5, 7)
"""Classifier of two classes and two features, after one parameter of another layer."""


def make_feedback(
    after: dict[int, ModelState], before: ModelState, head: tuple[slice, ...], outputs: int = 2
) -> SamplerFeedback:
    updates = [ClientUpdate(c, 10 + c, Message({"model": m})) for c, m in after.items()]
    sent: dict[ClientId, Message] = {client: Message({"model": before}) for client in after}
    return SamplerFeedback(1, updates, sent, {}, head, outputs)


def make_round(
    number: int, num_participants: int = 2, clients: int = 4, seed: int = 0
) -> SamplerRound:
    return SamplerRound(number, range(clients), num_participants, derive_generator(seed))


def test_entropies_by_hand() -> None:
    changes = torch.tensor([[1.0, 0.0], [0.25, 0.25]], dtype=torch.float64)
    share = e**2 / (e**2 + 1)
    skewed = -share * log(share) - (1 - share) * log(1 - share)
    found = HiCS(temperature=0.5).compute_entropies(changes)
    assert found.tolist() == pytest.approx([skewed, log(2)])


def test_automatic_temperature_fits_any_learning_rate() -> None:
    changes = torch.tensor([[3.0, -1.0, -2.0], [-0.5, 0.0, 0.5]], dtype=torch.float64)
    automatic = HiCS().compute_entropies(changes)
    by_hand = HiCS(temperature=(3 + 0.5) / 2 / 2).compute_entropies(changes)
    assert automatic.tolist() == pytest.approx(by_hand.tolist())
    assert HiCS().compute_entropies(changes / 1000).tolist() == pytest.approx(automatic.tolist())
    assert HiCS().compute_entropies(torch.zeros(2, 4)).tolist() == pytest.approx([log(4)] * 2)


def test_distances_by_hand() -> None:
    changes = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -2.0]], dtype=torch.float64)
    entropy = torch.tensor([0.1, 0.4, 0.2], dtype=torch.float64)
    found = HiCS(entropy_weight=10).compute_distances(changes, entropy)
    assert found.diagonal().tolist() == [0, 0, 0]
    assert float(found[0, 1]) == pytest.approx(acos(1 / sqrt(2)) + 10 * 0.3)
    assert float(found[0, 2]) == pytest.approx(acos(0) + 10 * 0.1)
    assert float(found[1, 2]) == pytest.approx(acos(-1 / sqrt(2)) + 10 * 0.2)
    assert torch.equal(found, found.T)


def test_probabilities_by_hand() -> None:
    """Two skewed and two balanced clients, after a quarter of the annealing."""
    changes = torch.tensor([[2.0, 0.0], [2.0, 0.0], [1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    sizes = torch.tensor([10, 30, 20, 20])
    sampler = HiCS(temperature=1.0, preference=4.0, annealing=40)
    found = sampler.compute_log_weights(changes, sizes, make_round(10)).softmax(dim=0)
    share = e**2 / (e**2 + 1)
    skewed, balanced = -share * log(share) - (1 - share) * log(1 - share), log(2)
    gamma = 4 * (1 - 10 / 40)
    first = exp(gamma * skewed) / (exp(gamma * skewed) + exp(gamma * balanced))
    expected = [first / 4, first * 3 / 4, (1 - first) / 2, (1 - first) / 2]
    assert found.tolist() == pytest.approx(expected)
    late = sampler.compute_log_weights(changes, sizes, make_round(41)).softmax(dim=0)
    assert late.tolist() == pytest.approx([1 / 8, 3 / 8, 1 / 4, 1 / 4])


def test_number_of_clusters() -> None:
    """Of three directions, the nearest two form one cluster if there are two clusters."""
    changes = torch.tensor([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.1]], dtype=torch.float64)
    sizes = torch.tensor([1, 1, 1])
    even = HiCS(entropy_weight=0.0, preference=0.0, num_clusters=2)
    found = even.compute_log_weights(changes, sizes, make_round(5)).softmax(dim=0)
    assert found.tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    alone = (
        replace(even, num_clusters=3)
        .compute_log_weights(changes, sizes, make_round(5))
        .softmax(dim=0)
    )
    assert alone.tolist() == pytest.approx([1 / 3] * 3)
    one = replace(even, num_clusters=1).compute_log_weights(changes, sizes, make_round(5))
    assert one.unique().numel() == 1


def draw_by_loop(labels: list[int], entropy: list[float], gamma: float, seed: int) -> set[int]:
    """Draw two clients as Algorithm 1 does: a cluster, then a client of it, until there are two."""
    generator, found = derive_generator(seed, "plain"), set[int]()
    groups = [[n for n, own in enumerate(labels) if own == label] for label in sorted(set(labels))]
    means = torch.tensor([sum(entropy[n] for n in group) / len(group) for group in groups])
    while len(found) < 2:
        group = groups[int(torch.multinomial((gamma * means).exp(), 1, generator=generator))]
        found.add(group[int(torch.randint(len(group), (), generator=generator))])
    return found


def test_draws_equal_the_loop_of_the_paper() -> None:
    changes = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    sampler, draws = HiCS(temperature=1.0, annealing=10), 1500
    state = {"changes": changes, "sizes": torch.full((4,), 7), "clients": make_ids(4)}
    entropy = sampler.compute_entropies(changes).tolist()
    mine, theirs = Counter[int](), Counter[int]()
    for seed in range(draws):
        mine.update(int(c) for c in sampler.choose(make_round(5, seed=seed), state))
        theirs.update(draw_by_loop([0, 0, 0, 1], entropy, 4 * (1 - 5 / 10), seed))
    for client in range(4):
        share = theirs[client] / draws
        assert abs(mine[client] / draws - share) < 6.5 * sqrt(share * (1 - share) / draws)


def make_ids(number: int) -> Tensor:
    still = flat_model(*[0.0] * 7)
    return HiCS().learn(make_feedback(dict.fromkeys(range(number), still), still, (BIAS,)), {})[
        "clients"
    ]


def test_state_has_the_update_of_the_bias_and_the_size() -> None:
    before = flat_model(9.0, 1.0, 2.0, 3.0, 4.0, 0.5, 0.25)
    after = {3: flat_model(0.0, 0.0, 0.0, 0.0, 0.0, 1.5, 0.0)}
    state = HiCS().learn(make_feedback(after, before, (WEIGHT, BIAS)), {})
    assert state["changes"].tolist() == [[1.0, -0.25]]
    assert state["sizes"].tolist() == [13]
    kept = copy_tensors(state)
    again = {3: flat_model(*[0.0] * 7), 8: before}
    newer = HiCS().learn(make_feedback(again, before, (WEIGHT, BIAS)), state)
    assert newer["changes"].tolist() == [[-0.5, -0.25], [0.0, 0.0]]
    assert all(torch.equal(state[name], tensor) for name, tensor in kept.items())


@pytest.mark.parametrize(
    ("after", "head", "outputs", "expected"),
    [
        ([7.0, 1.0, 2.0, -3.0, -1.0], (WEIGHT,), 2, [(1 + 2) / 2, (-3 - 1) / 2]),
        ([0.0, 0.0, 0.5], (slice(0, 2), slice(2, 3)), 1, [-0.5, 0.5]),
    ],
    ids=["row means without a bias", "one output for two classes"],
)
def test_other_classifiers(
    after: list[float], head: tuple[slice, ...], outputs: int, expected: list[float]
) -> None:
    before = flat_model(*[0.0] * len(after))
    state = HiCS().learn(make_feedback({0: flat_model(*after)}, before, head, outputs), {})
    assert state["changes"].tolist() == [expected]


def test_model_without_a_classifier_layer_is_rejected() -> None:
    before = flat_model(1.0)
    with pytest.raises(CadisError, match="'hics' needs the classifier layer"):
        HiCS().learn(make_feedback({0: before}, before, ()), {})


def test_new_clients_are_chosen_first() -> None:
    state: TensorState = {}
    before, seen = flat_model(*[0.0] * 7), set[int]()
    for number in (1, 2, 3):
        chosen = {
            int(c) for c in HiCS().choose(make_round(number, num_participants=3, clients=8), state)
        }
        assert len(chosen) == 3
        assert len(chosen - seen) == min(3, 8 - len(seen))
        after = {c: flat_model(*[0.0] * 5, 0.1 * c, -0.1) for c in chosen}
        state = HiCS().learn(make_feedback(after, before, (WEIGHT, BIAS)), state)
        seen |= chosen
    assert seen == set(range(8))


BALANCED = (3, 7, 11, 16)


def make_federation() -> Federation:
    """Return twenty clients: four have all five classes, the others one class each."""
    every = [0, 1, 2, 3, 4]
    clients = [blobs(20, every if n in BALANCED else [n % 5], seed=n) for n in range(20)]
    return Federation(clients, blobs(20, every, seed=99))


def measure_balanced_fraction(
    sampler: HiCS, folder: Path, model: nn.Module, method: BaseMethod
) -> float:
    """Return the fraction of balanced participants, after all clients took part once."""
    settings = small_settings(rounds=24, per_round=5)
    settings = replace(settings, local=replace(settings.local, lr=0.02))
    engine = Engine(model, make_federation(), Algorithm(method, sampler=sampler), settings, folder)
    chosen = [result.record.participants for result in engine.rounds(engine.start)]
    assert sorted(int(c) for round_ in chosen[:4] for c in round_) == list(range(20))
    seats = [int(c) for round_ in chosen[4:] for c in round_]
    return sum(client in BALANCED for client in seats) / len(seats)


def make_model_without_bias() -> nn.Module:
    """Return the small model with a classifier without bias."""
    return nn.Sequential(*list(small_model().children())[:-1], nn.Linear(7, 5, bias=False))


@pytest.mark.parametrize(
    ("method", "build"),
    [
        (FedAvg(), small_model),
        (CADIS(), small_model),
        (IFCA(), small_model),
        (FedAvg(), make_model_without_bias),
    ],
)
def test_balanced_clients_are_preferred(
    tmp_path: Path, method: BaseMethod, build: Callable[[], nn.Module]
) -> None:
    """Uniform sampling would choose a fifth of the participants from the balanced clients."""
    assert measure_balanced_fraction(HiCS(), tmp_path, build(), method) > 0.4


def test_balanced_clients_are_not_preferred_after_annealing(tmp_path: Path) -> None:
    annealed = HiCS(annealing=1, entropy_weight=0.0)
    assert measure_balanced_fraction(annealed, tmp_path, small_model(), FedAvg()) < 0.4


def test_shapes_of_the_state(tmp_path: Path) -> None:
    state = run_rounds(Algorithm(FedAvg(), sampler=HiCS()), tmp_path)[-1].state
    assert state.sampler["changes"].shape == (5, 5)  # clients, classes
    assert state.sampler["sizes"].shape == (5,)
