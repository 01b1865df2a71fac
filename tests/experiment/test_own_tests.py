"""Clients are tested on their own test samples."""

from pathlib import Path

import pytest
import torch

from cadis.data import Dataset, Samples
from cadis.errors import CadisError
from cadis.experiment import ExperimentConfig, make_experiment, resolve, run_experiment
from cadis.store import RunFolder
from support import run_small, small_federation


def make_dataset() -> Dataset:
    """Return data of three clients, the last without test samples."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    inputs = torch.randn(60, 4, generator=generator) + labels[:, None]
    dataset = Samples(inputs, labels)
    return Dataset(
        "csv:own.csv",
        dataset.take(slice(0, 48)),
        dataset.take(slice(48, None)),
        ("ill", "well"),
        {"a": torch.arange(0, 20), "b": torch.arange(20, 40), "c": torch.arange(40, 48)},
        {"b": torch.arange(0, 8), "a": torch.arange(8, 12)},
    )


def make_config(**options: object) -> ExperimentConfig:
    common = {"dataset": "csv:own.csv", "rounds": 2, "epochs": 1, "workers": 1, "test_clients": 1}
    return resolve({}, {**common, **options})


def test_clients_are_tested_on_their_own_test_samples(tmp_path: Path) -> None:
    experiment = make_experiment(make_config(), dataset=make_dataset())
    assert experiment.federation.client_ids == ("a", "b", "c")
    assert [len(samples) for samples in experiment.federation.client_tests] == [4, 8, 0]
    result = run_experiment(make_config(), tmp_path / "run", dataset=make_dataset())
    accuracies = result.history[-1].client_accuracy
    assert accuracies is not None
    assert [accuracy is None for accuracy in accuracies] == [False, False, True]
    logits = result.model(make_dataset().test.inputs)
    correct = (logits.argmax(dim=1) == make_dataset().test.labels).float()
    assert accuracies[:2] == pytest.approx([correct[8:].mean().item(), correct[:8].mean().item()])
    description = RunFolder(tmp_path / "run").read_json("federation.json")
    assert [sum(client["test_samples"]) for client in description["clients"]] == [4, 8, 0]


def test_held_out_samples_replace_own_test_samples() -> None:
    experiment = make_experiment(make_config(client_test=0.5), dataset=make_dataset())
    split = experiment.federation.hold_out(0.5, 0)
    assert [len(samples) for samples in split.client_tests] == [10, 10, 4]


@pytest.mark.parametrize("options", [{"own_tests": False}, {"partition": "iid", "clients": 3}])
def test_clients_without_test_samples_are_tested_on_training_data(
    options: dict[str, object],
) -> None:
    experiment = make_experiment(make_config(**options), dataset=make_dataset())
    assert not len(experiment.federation.client_tests)


def test_client_tests_from_python() -> None:
    federation = small_federation()
    clients = {f"site {n}": samples for n, samples in enumerate(federation.clients)}
    tests = {"site 2": federation.test.take(slice(0, 4))}
    common = {"clients": clients, "client_tests": tests, "rounds": 1, "epochs": 1, "workers": 1}
    result = run_small(**common, test_clients=1)
    accuracies = result.history[-1].client_accuracy or []
    assert [accuracy is not None for accuracy in accuracies] == [
        n == 2 for n in range(len(clients))
    ]
    alone = run_small(**common, test=None)
    assert sum(map(sum, alone.summary["confusion"])) == 4


def test_wrong_client_tests_are_refused() -> None:
    test = small_federation().test
    broken = Samples(test.inputs.clone().fill_(float("nan")), test.labels)
    cases: dict[str, dict[str, object]] = {
        "give a test set as test": {"test": None},
        "test data of eve, but there is no such client": {"client_tests": {"eve": test}},
        "client_tests has 1 entries, but there are 5 clients": {"client_tests": [test]},
        r"The test data of client 1 has .* NaN": {"client_tests": {1: broken}},
    }
    for sentence, options in cases.items():
        with pytest.raises(CadisError, match=sentence):
            run_small(rounds=1, **options)


def test_float64_inputs_are_accepted() -> None:
    clients64 = [
        (samples.inputs.double(), samples.labels) for samples in small_federation().clients
    ]
    common = {"rounds": 1, "epochs": 1, "workers": 1}
    one, other = (run_small(**common, **options) for options in ({}, {"clients": clients64}))
    assert one.accuracy == other.accuracy
