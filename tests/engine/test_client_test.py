"""Data that clients hold out: tested on, and seen by nothing else."""

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
from cadis.data import Examples, Subsets
from cadis.engine import Engine, EngineSettings, Federation
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.server import RoundResult
from cadis.store import RunFolder
from support import (
    ALL_METHODS,
    blobs,
    model_after,
    models_after,
    run_small,
    same,
    small_federation,
    small_model,
    small_settings,
)

SHARE = 0.3


def rounds_of(
    method: BaseMethod, federation: Federation, settings: EngineSettings, folder: Path
) -> list[RoundResult]:
    folder.mkdir(exist_ok=True)
    engine = Engine(small_model(), federation, Algorithm(method), settings, folder)
    return list(engine.rounds(engine.start))


def told(result: RoundResult, *but: str) -> dict[str, object]:
    return {k: v for k, v in result.record.to_json().items() if k not in ("seconds", *but)}


def rows(examples: Examples) -> set[tuple[float, ...]]:
    return {tuple(row) for row in examples.inputs.flatten(1).tolist()}


def test_both_parts_are_all_that_a_client_has_and_share_nothing() -> None:
    federation = small_federation()
    split = federation.split(SHARE, seed=7)
    for own, kept, test in zip(federation.clients, split.clients, split.client_tests, strict=True):
        assert len(kept) + len(test) == len(own)
        assert rows(kept) | rows(test) == rows(own)
        assert not rows(kept) & rows(test)
        assert len(test) == round(SHARE * len(own))
        assert set(kept.labels.tolist()) == set(test.labels.tolist()) == set(own.labels.tolist())
    assert split.sizes() == [len(kept) for kept in split.clients]
    assert federation.split(0.0, seed=7) is federation
    assert len(split.pooled().clients[0]) == sum(split.sizes())


def test_the_seed_and_the_clients_name_decide() -> None:
    everybody = [blobs(20, [0, 1], seed=1)] * 3
    federation = Federation(everybody, small_federation().test, ("a", "b", "c"))
    first, again, other = (federation.split(SHARE, seed).client_tests for seed in (1, 1, 2))
    assert all(rows(one) == rows(two) for one, two in zip(first, again, strict=True))
    assert rows(first[0]) != rows(first[1])
    assert rows(first[0]) != rows(other[0])
    alone = Federation(everybody[:1], federation.test, ("b",)).split(SHARE, seed=1)
    assert rows(alone.client_tests[0]) == rows(first[1])


def test_clients_that_share_a_dataset_go_on_sharing_it() -> None:
    everything, indices = blobs(40, [0, 1, 2], seed=4), tuple(torch.randperm(40).split(8))
    test = small_federation().test
    shared = Federation(Subsets(everything, indices), test).split(SHARE, seed=3)
    copied = Federation([everything.take(own) for own in indices], test).split(SHARE, seed=3)
    for ours, theirs in zip(
        (shared.clients, shared.client_tests), (copied.clients, copied.client_tests), strict=True
    ):
        assert isinstance(ours, Subsets)
        assert ours.examples is everything
        assert all(same(a.inputs, b.inputs) for a, b in zip(ours, theirs, strict=True))


def test_a_sample_of_several_clients_cannot_be_held_out() -> None:
    everything = blobs(10, [0, 1], seed=4)
    overlapping = Subsets(everything, (torch.arange(6), torch.arange(4, 10)))
    federation = Federation(overlapping, small_federation().test)
    assert federation.split(0.0, seed=0) is federation
    with pytest.raises(CadisError, match="belong to several clients, or twice to one"):
        federation.split(0.2, seed=0)


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
def test_nothing_but_the_test_knows_what_is_held_out(method: BaseMethod, tmp_path: Path) -> None:
    """It is as if clients never had it: models, weights, reports, all that is remembered."""
    federation, settings = small_federation(), replace(small_settings(rounds=2), client_test=SHARE)
    kept = replace(federation.split(SHARE, settings.seed), client_tests=())
    results = rounds_of(method, federation, settings, tmp_path / "one")
    others = rounds_of(method, kept, replace(settings, client_test=0.0), tmp_path / "other")
    for ours, theirs in zip(results, others, strict=True):
        assert told(ours, "client_accuracy") == told(theirs, "client_accuracy")
        for one, other in zip(models_after(ours), models_after(theirs), strict=True):
            assert same(one.parameters, other.parameters)
        for name, tensor in ours.state.server.memory.items():
            assert same(tensor, theirs.state.server.memory[name])


@pytest.mark.parametrize("method", [FedAvg(), SingleSet()], ids=lambda method: method.name)
@pytest.mark.parametrize("workers", [1, 2])
def test_accuracy_is_that_of_a_plain_loop(method: BaseMethod, workers: int, tmp_path: Path) -> None:
    federation = small_federation()
    settings = replace(small_settings(rounds=2, workers=workers), client_test=SHARE)
    results = rounds_of(method, federation, settings, tmp_path)
    tests = federation.split(SHARE, settings.seed).client_tests
    model = FlatModel(small_model(), "7")
    for result in results:
        model.load(model_after(result))
        model.module.eval()
        by_hand = [
            float((model.module(test.inputs).argmax(dim=1) == test.labels).double().mean())
            for test in tests
        ]
        assert result.record.client_accuracy == pytest.approx(by_hand)


def test_workers_make_no_difference(tmp_path: Path) -> None:
    settings = replace(small_settings(rounds=3), client_test=SHARE)
    alone, pair = (
        rounds_of(CADIS(), small_federation(), replace(settings, workers=n), tmp_path / str(n))
        for n in (1, 2)
    )
    assert [told(result) for result in alone] == [told(result) for result in pair]
    assert same(model_after(alone[-1]).parameters, model_after(pair[-1]).parameters)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_single_sample_is_trained_on_and_not_tested(workers: int, tmp_path: Path) -> None:
    test, settings = small_federation().test, small_settings(1, workers=workers, per_round=None)
    settings = replace(settings, client_test=SHARE)
    single, several = blobs(1, [2], seed=0), blobs(10, [0, 1], seed=1)
    (result,) = rounds_of(FedAvg(), Federation([single, several], test), settings, tmp_path)
    assert result.record.participants == [0, 1]
    assert result.record.weights == pytest.approx([1 / 8, 7 / 8])  # 1 and 10 - 3
    assert result.record.client_accuracy is not None
    assert [found is None for found in result.record.client_accuracy] == [True, False]
    (result,) = rounds_of(FedAvg(), Federation([single] * 2, test), settings, tmp_path)
    assert result.record.client_accuracy == [None, None]


def run(out: Path, rounds: int = 4, **changes: Any) -> cadis.RunResult:
    given: dict[str, Any] = {"workers": 1, "epochs": 1, "lr": 0.1, "test_clients": 1}
    given |= {"client_test": SHARE, "out": out, "rounds": rounds, "per_round": 3}
    return run_small(**given | changes)


def test_a_run_goes_on_exactly_and_only_with_the_same_share(tmp_path: Path) -> None:
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


def test_what_is_kept_of_it(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    assert read_toml(tmp_path / "run" / "config.toml")["client_test"] == SHARE
    split = small_federation().split(SHARE, seed=0)
    clients = RunFolder(tmp_path / "run").read_json("federation.json")["clients"]
    for client, kept, test in zip(clients, split.clients, split.client_tests, strict=True):
        assert client["samples"] == torch.bincount(kept.labels, minlength=5).tolist()
        assert client["test_samples"] == torch.bincount(test.labels, minlength=5).tolist()
    last = [accuracy or 0.0 for accuracy in result.history[-1].client_accuracy or []]
    assert result.summary["client_mean"] == pytest.approx(sum(last) / 5)
    assert result.summary["client_worst"] == min(last)
    plain = run(tmp_path / "plain", client_test=0.0)
    assert "client_mean" not in plain.summary
    clients = RunFolder(tmp_path / "plain").read_json("federation.json")["clients"]
    assert all(client.keys() == {"id", "cluster", "samples"} for client in clients)


@pytest.mark.parametrize("share", [-0.1, 1.0, 7, float("nan"), "a fifth"])
def test_shares_that_are_none(share: object, tmp_path: Path) -> None:
    with pytest.raises(CadisError, match=r"client_test should be"):
        run(tmp_path / "run", client_test=share)
