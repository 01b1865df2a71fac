"""Tests of the global model after a round: sampled clients, groups, and rounds that are due."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import FedAvg
from cadis.data import Samples, Subsets
from cadis.engine import Engine, EngineSettings, Federation
from cadis.engine.transport import group_clients, is_due, sample_test_clients, split_evenly
from cadis.models import FlatModel
from cadis.server import RoundResult
from cadis.training import LocalSettings, compute_accuracies, evaluate
from support import get_model, run_rounds, small_federation, small_model, small_settings

SETTINGS = EngineSettings(rounds=80, seed=3, local=LocalSettings(epochs=5))


def test_all_clients_of_a_small_federation_are_tested() -> None:
    """A tenth of the training of 10 clients, 5 epochs and 10 rounds suffices for 150 clients."""
    assert sample_test_clients(100, 0.1, SETTINGS) == list(range(100))
    assert sample_test_clients(150, 10 / 150, SETTINGS) == list(range(150))
    assert sample_test_clients(20, 0.5, replace(SETTINGS, test_clients=1)) == list(range(20))


@pytest.mark.parametrize(
    ("rounds", "every", "epochs", "expected"),
    [
        (80, 10, 5, 1500),  # 10 rounds x 100 clients x 5 epochs x 3, by 10
        (80, 10, 1, 300),
        (80, 2, 5, 300),
        (4, 10, 5, 600),  # the run has only 4 rounds
        (80, 1, 1, 100),  # the minimum
    ],
)
def test_testing_a_sample_costs_a_tenth_of_the_training(
    rounds: int, every: int, epochs: int, expected: int
) -> None:
    local = LocalSettings(epochs=epochs)
    settings = replace(SETTINGS, rounds=rounds, test_clients=every, local=local)
    assert len(sample_test_clients(10_000, 0.01, settings)) == expected


def test_smaller_sample_is_a_subset_of_a_larger_one() -> None:
    small, large = (
        sample_test_clients(10_000, 0.01, replace(SETTINGS, test_clients=n)) for n in (2, 10)
    )
    assert set(small) < set(large)
    assert large == sorted(set(large))
    assert large == sample_test_clients(10_000, 0.01, SETTINGS)
    assert large != sample_test_clients(10_000, 0.01, replace(SETTINGS, seed=4))


def test_sample_is_uniform() -> None:
    """In 50 samples of 100 of 1,000 clients, each tenth of the clients has about a tenth."""
    settings = replace(SETTINGS, test_clients=1)
    seeds = range(50)
    drawn = [c for s in seeds for c in sample_test_clients(1000, 0.01, replace(settings, seed=s))]
    counts = torch.bincount(torch.tensor(drawn) // 100, minlength=10)
    assert counts.sum() == 5000
    assert (counts - 500).abs().max() < 5 * 500**0.5


def test_groups_keep_the_order_and_have_enough_samples() -> None:
    sizes = [1, 300, 200, 50, 6, 255, 1, 3]
    clients = [0, 1, 2, 3, 4, 5, 7]
    assert group_clients(clients, sizes) == [(0, 1), (2, 3, 4), (5, 7)]
    assert group_clients([], sizes) == []
    many = group_clients(range(1000), [14] * 1000)
    assert list(chain.from_iterable(many)) == list(range(1000))
    assert {len(group) for group in many[:-1]} == {19}  # 18 have 252 samples


def test_test_set_is_split_evenly() -> None:
    assert split_evenly(256) == [(0, 256)]
    assert split_evenly(257) == [(0, 129), (129, 257)]


def test_rounds_in_which_a_test_is_due() -> None:
    assert [n for n in range(1, 9) if is_due(n, 3, 8)] == [3, 6, 8]
    assert not any(is_due(n, 0, 8) for n in range(1, 9))


def test_clients_tested_in_one_batch_have_the_same_accuracy() -> None:
    generator, task = torch.Generator().manual_seed(0), Algorithm(FedAvg()).task
    model = FlatModel(small_model(), "7")
    shape = small_federation().test.inputs.shape[1:]
    sizes = [3, 90, 1, 70]
    inputs = torch.randn(sum(sizes), *shape, generator=generator)
    labels = torch.randint(0, 5, (sum(sizes),), generator=generator)
    inputs[5] = torch.nan  # its outputs are NaN, which counts as wrong
    accuracies = compute_accuracies(model, Samples(inputs, labels), sizes, task)
    pairs = zip(inputs.split(sizes), labels.split(sizes), strict=True)
    assert accuracies == [evaluate(model, Samples(*pair), task).accuracy for pair in pairs]


def make_many_clients(shared: bool) -> Federation:
    """Return 130 clients with one to seven samples, as subsets of one dataset if ``shared``."""
    test = small_federation().test
    generator = torch.Generator().manual_seed(5)
    sizes = torch.randint(1, 8, (130,), generator=generator).tolist()
    inputs = torch.randn(sum(sizes), *test.inputs.shape[1:], generator=generator)
    labels = torch.randint(0, 5, (sum(sizes),), generator=generator)
    indices = torch.randperm(sum(sizes), generator=generator).split(sizes)
    dataset = Samples(inputs, labels)
    if shared:
        return Federation(Subsets(dataset, indices), test)
    return Federation([dataset.take(part) for part in indices], test)


def run_with_tests(federation: Federation, path: Path, workers: int) -> list[RoundResult]:
    settings = small_settings(rounds=4, workers=workers, per_round=2)
    settings = replace(settings, test_clients=2, eval_every=3)
    engine = Engine(small_model(), federation, Algorithm(FedAvg()), settings, path)
    return list(engine.rounds(engine.start))


@pytest.mark.parametrize("shared", [False, True])
def test_sample_of_many_clients_is_the_same_for_any_number_of_workers(
    shared: bool, tmp_path: Path
) -> None:
    federation, task = make_many_clients(shared), Algorithm(FedAvg()).task
    one_worker = run_with_tests(federation, tmp_path, workers=1)
    two_workers = run_with_tests(federation, tmp_path, workers=2)
    accuracies = [result.record.client_accuracy for result in one_worker]
    assert accuracies == [result.record.client_accuracy for result in two_workers]
    assert [accuracy is not None for accuracy in accuracies] == [False, True, False, True]
    sample = sample_test_clients(130, 2 / 130, replace(small_settings(4), test_clients=2))
    assert len(sample) == 100
    model = FlatModel(small_model(), "7")
    for result in one_worker:
        accuracy = result.record.client_accuracy
        if accuracy is None:
            continue
        assert [n for n, value in enumerate(accuracy) if value is not None] == sample
        model.load(get_model(result))
        for client in sample:
            expected = evaluate(model, federation.clients[client], task).accuracy
            assert accuracy[client] == pytest.approx(expected)


def test_test_set_is_used_every_n_rounds_and_after_the_last(tmp_path: Path) -> None:
    often = run_rounds(FedAvg(), tmp_path, small_settings(rounds=5, workers=2))
    settings = replace(small_settings(rounds=5, workers=2), eval_every=2)
    seldom = run_rounds(FedAvg(), tmp_path, settings)
    for one, other in zip(often, seldom, strict=True):
        record = other.record
        assert torch.equal(get_model(one).parameters, get_model(other).parameters)
        assert record.client_accuracy == one.record.client_accuracy
        if record.round in (2, 4, 5):
            assert (record.accuracy, record.loss) == (one.record.accuracy, one.record.loss)
            assert record.class_accuracy == one.record.class_accuracy
            assert other.evaluation is not None
        else:
            assert (record.accuracy, record.loss, other.evaluation) == (None, None, None)
            assert record.class_accuracy == []
