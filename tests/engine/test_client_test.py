"""Held-out data of clients: used for tests and for nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import cadis
from cadis._io import read_toml
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.data import Samples, Subsets
from cadis.engine import Engine, EngineSettings, Federation
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.server import RoundResult
from cadis.store import RunFolder
from support import (
    ALL_METHODS,
    blobs,
    get_model,
    get_models,
    is_identical,
    run_small,
    small_federation,
    small_model,
    small_settings,
)

SHARE = 0.3


def run_method(
    method: BaseMethod, federation: Federation, settings: EngineSettings, folder: Path
) -> list[RoundResult]:
    folder.mkdir(exist_ok=True)
    engine = Engine(small_model(), federation, Algorithm(method), settings, folder)
    return list(engine.rounds(engine.start))


def to_json(result: RoundResult, *excluded: str) -> dict[str, object]:
    """Return the record of a round without its times and other excluded keys."""
    return {k: v for k, v in result.record.to_json().items() if k not in ("seconds", *excluded)}


def to_rows(samples: Samples) -> set[tuple[float, ...]]:
    return {tuple(row) for row in samples.inputs.flatten(1).tolist()}


def test_held_out_and_training_examples_are_a_partition_of_the_clients_data() -> None:
    federation = small_federation()
    split = federation.hold_out(SHARE, seed=7)
    for all_data, train, test in zip(
        federation.clients, split.clients, split.client_tests, strict=True
    ):
        assert len(train) + len(test) == len(all_data)
        assert to_rows(train) | to_rows(test) == to_rows(all_data)
        assert not to_rows(train) & to_rows(test)
        assert len(test) == round(SHARE * len(all_data))
        labels = set(all_data.labels.tolist())
        assert set(train.labels.tolist()) == set(test.labels.tolist()) == labels
    assert split.sizes() == [len(train) for train in split.clients]
    assert federation.hold_out(0.0, seed=7) is federation
    assert len(split.pool().clients[0]) == sum(split.sizes())


def test_held_out_examples_depend_on_the_seed_and_the_client_id() -> None:
    clients = [blobs(20, [0, 1], seed=1)] * 3
    federation = Federation(clients, small_federation().test, ("a", "b", "c"))
    first, again, other = (federation.hold_out(SHARE, seed).client_tests for seed in (1, 1, 2))
    assert all(to_rows(one) == to_rows(two) for one, two in zip(first, again, strict=True))
    assert to_rows(first[0]) != to_rows(first[1])
    assert to_rows(first[0]) != to_rows(other[0])
    alone = Federation(clients[:1], federation.test, ("b",)).hold_out(SHARE, seed=1)
    assert to_rows(alone.client_tests[0]) == to_rows(first[1])


def test_clients_still_share_a_dataset_after_the_split() -> None:
    dataset, indices = blobs(40, [0, 1, 2], seed=4), tuple(torch.randperm(40).split(8))
    test = small_federation().test
    shared = Federation(Subsets(dataset, indices), test).hold_out(SHARE, seed=3)
    copied = Federation([dataset.take(i) for i in indices], test).hold_out(SHARE, seed=3)
    for subsets, copies in zip(
        (shared.clients, shared.client_tests), (copied.clients, copied.client_tests), strict=True
    ):
        assert isinstance(subsets, Subsets)
        assert subsets.samples is dataset
        assert all(is_identical(a.inputs, b.inputs) for a, b in zip(subsets, copies, strict=True))


def test_sample_of_several_clients_cannot_be_held_out() -> None:
    dataset = blobs(10, [0, 1], seed=4)
    overlapping = Subsets(dataset, (torch.arange(6), torch.arange(4, 10)))
    federation = Federation(overlapping, small_federation().test)
    assert federation.hold_out(0.0, seed=0) is federation
    with pytest.raises(CadisError, match="belong to several clients, or twice to one"):
        federation.hold_out(0.2, seed=0)


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
def test_held_out_examples_do_not_change_training(method: BaseMethod, tmp_path: Path) -> None:
    """Models, weights, reports and states are those of clients without these samples."""
    federation, settings = small_federation(), replace(small_settings(rounds=2), client_test=SHARE)
    reduced = replace(federation.hold_out(SHARE, settings.seed), client_tests=())
    results = run_method(method, federation, settings, tmp_path / "one")
    others = run_method(method, reduced, replace(settings, client_test=0.0), tmp_path / "other")
    for result, expected in zip(results, others, strict=True):
        assert to_json(result, "client_accuracy") == to_json(expected, "client_accuracy")
        for one, other in zip(get_models(result), get_models(expected), strict=True):
            assert is_identical(one.parameters, other.parameters)
        for name, tensor in result.state.server.tensors.items():
            assert is_identical(tensor, expected.state.server.tensors[name])


@pytest.mark.parametrize("method", [FedAvg(), SingleSet()], ids=lambda method: method.name)
@pytest.mark.parametrize("workers", [1, 2])
def test_accuracy_equals_that_of_a_plain_loop(
    method: BaseMethod, workers: int, tmp_path: Path
) -> None:
    federation = small_federation()
    settings = replace(small_settings(rounds=2, workers=workers), client_test=SHARE)
    results = run_method(method, federation, settings, tmp_path)
    tests = federation.hold_out(SHARE, settings.seed).client_tests
    model = FlatModel(small_model(), "7")
    for result in results:
        model.load(get_model(result))
        model.module.eval()
        by_hand = [
            float((model.module(test.inputs).argmax(dim=1) == test.labels).double().mean())
            for test in tests
        ]
        assert result.record.client_accuracy == pytest.approx(by_hand)


def test_number_of_workers_does_not_change_results(tmp_path: Path) -> None:
    settings = replace(small_settings(rounds=3), client_test=SHARE)
    one_worker, two_workers = (
        run_method(CADIS(), small_federation(), replace(settings, workers=n), tmp_path / str(n))
        for n in (1, 2)
    )
    assert [to_json(result) for result in one_worker] == [to_json(result) for result in two_workers]
    assert is_identical(get_model(one_worker[-1]).parameters, get_model(two_workers[-1]).parameters)


@pytest.mark.parametrize("workers", [1, 2])
def test_single_sample_is_used_for_training(workers: int, tmp_path: Path) -> None:
    test, settings = small_federation().test, small_settings(1, workers=workers, per_round=None)
    settings = replace(settings, client_test=SHARE)
    single, several = blobs(1, [2], seed=0), blobs(10, [0, 1], seed=1)
    (result,) = run_method(FedAvg(), Federation([single, several], test), settings, tmp_path)
    assert result.record.participants == [0, 1]
    assert result.record.weights == pytest.approx([1 / 8, 7 / 8])  # 1 and 10 - 3
    assert result.record.client_accuracy is not None
    assert [accuracy is None for accuracy in result.record.client_accuracy] == [True, False]
    (result,) = run_method(FedAvg(), Federation([single] * 2, test), settings, tmp_path)
    assert result.record.client_accuracy == [None, None]


def run(out: Path, rounds: int = 4, **changes: Any) -> cadis.RunResult:
    options: dict[str, Any] = {"workers": 1, "epochs": 1, "lr": 0.1, "test_clients": 1}
    options |= {"client_test": SHARE, "out": out, "rounds": rounds, "per_round": 3}
    return run_small(**options | changes)


def test_resumed_run_is_identical_and_needs_the_same_share(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    run(tmp_path / "part", rounds=2)
    for other in (0.0, 0.2):
        with pytest.raises(CadisError, match=f"has client_test = 0.3, not {other}"):
            run(tmp_path / "part", client_test=other, resume=True)
    rest = run(tmp_path / "part", resume=True)
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "part"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    accuracies = [record.client_accuracy for record in whole.history]
    assert accuracies == [record.client_accuracy for record in rest.history]


def test_held_out_samples_are_in_the_files_of_a_run(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    assert read_toml(tmp_path / "run" / "config.toml")["client_test"] == SHARE
    split = small_federation().hold_out(SHARE, seed=0)
    clients = RunFolder(tmp_path / "run").read_json("federation.json")["clients"]
    for client, train, test in zip(clients, split.clients, split.client_tests, strict=True):
        assert client["samples"] == torch.bincount(train.labels, minlength=5).tolist()
        assert client["test_samples"] == torch.bincount(test.labels, minlength=5).tolist()
    last = [accuracy or 0.0 for accuracy in result.history[-1].client_accuracy or []]
    assert result.summary["client_mean"] == pytest.approx(sum(last) / 5)
    assert result.summary["client_worst"] == min(last)
    plain = run(tmp_path / "plain", client_test=0.0)
    assert "client_mean" not in plain.summary
    clients = RunFolder(tmp_path / "plain").read_json("federation.json")["clients"]
    assert all(client.keys() == {"id", "cluster", "samples"} for client in clients)


@pytest.mark.parametrize("share", [-0.1, 1.0, 7, float("nan"), "a fifth"])
def test_invalid_share_is_an_error(share: object, tmp_path: Path) -> None:
    with pytest.raises(CadisError, match=r"client_test should be"):
        run(tmp_path / "run", client_test=share)
