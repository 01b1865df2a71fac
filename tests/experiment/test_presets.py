"""Presets: the experiments of the paper."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm
from cadis.algorithm.methods import CADIS, CADISPaper, FedDyn, FedFA, FedProx
from cadis.algorithm.samplers import Uniform
from cadis.algorithm.server_optimizers import Plain
from cadis.cli.run import read_file_options
from cadis.errors import CadisError
from cadis.experiment import (
    Settings,
    list_presets,
    read_paper,
    read_preset,
    read_preset_text,
    resolve,
)
from cadis.experiment.presets import match_paper_results
from cadis.store import PaperResults

ROWS = {
    *(f"{dataset}-mc-{k}" for dataset in ("mnist", "cifar100") for k in (10, 20, 30, 40, 50)),
    *(f"{d}-{p}-10" for d in ("mnist", "cifar10", "cifar100") for p in ("pa", "bc", "uc")),
    "cifar10-mc-10",
    "pill-clients-3",
}
THRESHOLDS = {"mnist": 0.975, "cifar10": 0.95, "cifar100": 0.9}
MODELS = {"mnist": "cnn", "cifar10": "resnet9", "cifar100": "resnet9", "pill": "resnet18"}


def test_every_row_of_the_paper_has_a_preset() -> None:
    names = list_presets()
    assert set(names) == {*ROWS, "mnist-case-10", "paper"}
    assert len(names) == len(ROWS) + 2
    assert names[:4] == ["paper", "pill-clients-3", "mnist-case-10", "mnist-mc-10"]


def test_preset_paper_equals_the_class_cadis_paper() -> None:
    config = resolve(read_preset("paper"), {})
    assert config.algorithm == Algorithm(CADISPaper())
    assert read_paper("paper").place == ""
    assert config.settings == Settings()


def test_case_study_has_six_clients_with_the_same_classes() -> None:
    config = resolve(read_preset("mnist-case-10"), {})
    labels = torch.arange(10).repeat_interleave(600)
    partition = config.partitioner.split(labels, 10, 2, torch.Generator().manual_seed(0))
    class_sets = [set(labels[indices].tolist()) for indices in partition.indices]
    assert all(classes == class_sets[0] for classes in class_sets[:6])
    assert len({frozenset(classes) for classes in class_sets}) == 5
    assert (config.settings.per_round, config.settings.rounds) == (10, 100)
    assert read_paper("mnist-case-10") == PaperResults("Fig. 2", {})


@pytest.mark.parametrize("name", sorted(ROWS))
def test_presets_have_the_parameters_of_the_paper(name: str) -> None:
    dataset, partition, per_round = name.split("-")
    config = resolve(read_preset(name), {})
    settings = config.settings
    assert settings.dataset == ("images:pill" if dataset == "pill" else dataset)
    assert settings.model == MODELS[dataset]
    assert settings.partition == partition
    assert settings.clients == ("auto" if dataset == "pill" else 100)
    resolved = settings.resolve_auto(10 if dataset == "pill" else 100, (3, 224))
    assert resolved.per_round == int(per_round)
    assert (settings.epochs, settings.batch_size, settings.lr) == (5, 8, 0.001)
    assert settings.rounds == 500
    if dataset in THRESHOLDS:
        assert read_preset(name)["cadis-paper"]["threshold"] == THRESHOLDS[dataset]
    assert isinstance(config.method, CADISPaper)
    assert (config.algorithm.sampler, config.algorithm.server_optimizer) == (Uniform(), Plain())
    for method in (CADIS(), FedProx(mu=0.01), FedFA(alpha=1.0, beta=0.0), FedDyn(alpha=0.5)):
        assert resolve(read_preset(name), {"method": method.name}).method == method
    place, accuracies = read_paper(name).place, read_paper(name).accuracy
    assert place == ("Table I" if "-mc-" in name or name.startswith("pill") else "Table III")
    assert set(accuracies) == {"cadis", "fedavg", "fedprox", "fedfa", "feddyn", "singleset"}
    assert all(1 <= accuracy <= 100 for accuracy in accuracies.values())


def test_some_accuracies_of_the_paper() -> None:
    assert read_paper("pill-clients-3").accuracy["cadis"] == 79.71
    expected = {"singleset": 52.36, "fedavg": 32.07, "fedprox": 32.37}
    expected |= {"fedfa": 35.42, "feddyn": 5.73, "cadis": 38.55}
    assert read_paper("cifar100-mc-30").accuracy == expected
    assert read_paper("cifar10-bc-10").accuracy["fedavg"] == 20.22
    assert read_paper("mnist-uc-10").accuracy["fedfa"] == 96.29


@pytest.mark.parametrize(("clients", "participants"), [(2, 1), (5, 2), (10, 3), (12, 4)])
def test_pill_preset_takes_a_fraction_of_any_number_of_clients(
    clients: int, participants: int
) -> None:
    settings = resolve(read_preset("pill-clients-3"), {}).settings
    assert settings.resolve_auto(clients, (3, 224)).per_round == participants


def test_paper_results_list_options_that_differ() -> None:
    options = resolve(read_preset("mnist-mc-10"), {}).to_dict()
    results = match_paper_results("mnist-mc-10", options)
    assert results is not None
    assert (results.place, results.accuracy["fedavg"], results.changed) == ("Table I", 93.04, ())
    fewer = match_paper_results("mnist-mc-10", options | {"rounds": 3})
    assert fewer is not None
    assert fewer.changed == ("rounds 3 instead of 500",)
    assert match_paper_results("mnist-mc-10", options | {"dataset": "digits"}) is None
    assert match_paper_results("mnist-case-10", options) is None
    pills = resolve(read_preset("pill-clients-3"), {"dataset": "images:mine"}).to_dict()
    assert match_paper_results("pill-clients-3", pills) is not None


def test_options_override_a_preset() -> None:
    overrides = {"rounds": "3", "threshold": "0.7", "ratio": "1:1"}
    config = resolve(read_preset("mnist-mc-10"), overrides)
    assert config.settings.rounds == 3
    assert config.to_dict()["cadis-paper"]["threshold"] == 0.7
    assert config.to_dict()["mc"]["ratio"] == (1, 1)


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(CadisError, match=r"no preset 'mnist-mc'; did you mean 'mnist-mc-\d0'"):
        read_preset_text("mnist-mc")


def test_text_of_a_preset_is_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(read_preset_text("mnist-mc-10"))
    assert read_file_options(path, None) == read_preset("mnist-mc-10")
