"""Clients are tested on those test samples that are their own."""

from pathlib import Path

import pytest
import torch

from cadis.data import Dataset, Examples
from cadis.errors import CadisError
from cadis.experiment import ExperimentConfig, build_experiment, resolve, run_experiment
from cadis.store import RunFolder
from support import run_small, small_federation


def own_data() -> Dataset:
    """Three sites, of which the last has no test samples."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    inputs = torch.randn(60, 4, generator=generator) + labels[:, None]
    everything = Examples(inputs, labels)
    return Dataset(
        "csv:own.csv",
        everything.take(slice(0, 48)),
        everything.take(slice(48, None)),
        ("ill", "well"),
        {"a": torch.arange(0, 20), "b": torch.arange(20, 40), "c": torch.arange(40, 48)},
        {"b": torch.arange(0, 8), "a": torch.arange(8, 12)},
    )


def config_of(**given: object) -> ExperimentConfig:
    common = {"dataset": "csv:own.csv", "rounds": 2, "epochs": 1, "workers": 1, "test_clients": 1}
    return resolve({}, {**common, **given})


def test_everybody_is_tested_on_the_own_test_samples(tmp_path: Path) -> None:
    built = build_experiment(config_of(), dataset=own_data())
    assert built.federation.client_ids == ("a", "b", "c")
    assert [len(own) for own in built.federation.client_tests] == [4, 8, 0]
    result = run_experiment(config_of(), tmp_path / "run", dataset=own_data())
    told = result.history[-1].client_accuracy
    assert told is not None
    assert [accuracy is None for accuracy in told] == [False, False, True]
    logits = result.model(own_data().test.inputs)
    correct = (logits.argmax(dim=1) == own_data().test.labels).float()
    assert told[:2] == pytest.approx([correct[8:].mean().item(), correct[:8].mean().item()])
    described = RunFolder(tmp_path / "run").read_json("federation.json")
    assert [sum(client["test_samples"]) for client in described["clients"]] == [4, 8, 0]


def test_a_share_that_is_held_out_comes_instead() -> None:
    built = build_experiment(config_of(client_test=0.5), dataset=own_data())
    split = built.federation.split(0.5, 0)
    assert [len(own) for own in split.client_tests] == [10, 10, 4]


@pytest.mark.parametrize("given", [{"own_tests": False}, {"partition": "iid", "clients": 3}])
def test_others_are_tested_on_what_they_train_on(given: dict[str, object]) -> None:
    built = build_experiment(config_of(**given), dataset=own_data())
    assert not len(built.federation.client_tests)


def test_from_python_they_are_given() -> None:
    federation = small_federation()
    clients = {f"site {n}": own for n, own in enumerate(federation.clients)}
    tests = {"site 2": federation.test.take(slice(0, 4))}
    common = {"clients": clients, "client_tests": tests, "rounds": 1, "epochs": 1, "workers": 1}
    result = run_small(**common, test_clients=1)
    told = result.history[-1].client_accuracy or []
    assert [accuracy is not None for accuracy in told] == [n == 2 for n in range(len(clients))]
    alone = run_small(**common, test=None)
    assert sum(map(sum, alone.summary["confusion"])) == 4


def test_what_is_wrong_with_them_is_named() -> None:
    test = small_federation().test
    broken = Examples(test.inputs.clone().fill_(float("nan")), test.labels)
    cases: dict[str, dict[str, object]] = {
        "as test": {"test": None},
        "eve, which is no client": {"client_tests": {"eve": test}},
        "test data of 1 clients, but 5 clients": {"client_tests": [test]},
        r"The test data of client 1 has .* not a number": {"client_tests": {1: broken}},
    }
    for sentence, given in cases.items():
        with pytest.raises(CadisError, match=sentence):
            run_small(rounds=1, **given)


def test_numbers_of_64_bits_are_accepted() -> None:
    double = [(own.inputs.double(), own.labels) for own in small_federation().clients]
    common = {"rounds": 1, "epochs": 1, "workers": 1}
    one, other = (run_small(**common, **given) for given in ({}, {"clients": double}))
    assert one.accuracy == other.accuracy
