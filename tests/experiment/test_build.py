"""Build experiments from options."""

import json
from pathlib import Path

import pytest
import torch

from cadis.analysis import PartitionSummary
from cadis.data.partition import PARTITIONERS
from cadis.errors import CadisError
from cadis.experiment import Experiment, load_dataset, make_experiment, resolve
from support import draw_picture, draw_pills


def build(**options: object) -> Experiment:
    return make_experiment(resolve({}, options))


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partition_is_built_by_name_and_seed(name: str) -> None:
    experiment = build(partition=name, clients=10, seed=3)
    assert len(experiment.federation.clients) == 10
    assert experiment.config.settings.partition == name
    again = build(partition=name, clients=10, seed=3)
    for one, other in zip(experiment.federation.labels(), again.federation.labels(), strict=True):
        assert torch.equal(one, other)


def test_auto_is_resolved_and_recorded() -> None:
    settings = build().config.settings
    assert (settings.partition, settings.clients, settings.per_round) == ("mc", 20, 10)
    assert (settings.model, settings.lr) == ("small-cnn", 0.1)
    few = build(clients=7, per_round="auto", model="cnn").config.settings
    assert (few.clients, few.per_round, few.lr) == (7, 7, 0.01)
    again = resolve(build().config.to_dict(), {})
    assert again == build().config


@pytest.mark.parametrize(
    ("clients", "sizes"), [(1, [1]), (2, [2]), (3, [2, 1]), (4, [3, 1]), (5, [1, 1, 1, 1, 1])]
)
def test_few_clients_form_fewer_clusters(clients: int, sizes: list[int]) -> None:
    truth = build(clients=clients).federation.true_clusters
    assert truth is not None
    assert sorted(truth.bincount().tolist(), reverse=True) == sizes


def test_image_folder_with_clients_resolves_auto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    draw_pills(tmp_path / "pill", clients=4, beside=True)
    dataset = f"images:{tmp_path / 'pill'}"
    experiment = build(dataset=dataset, image_size=64)
    settings = experiment.config.settings
    assert (settings.partition, settings.clients, settings.per_round) == ("clients", 4, 4)
    assert (settings.model, settings.lr) == ("resnet18", 0.001)
    assert experiment.federation.client_ids == (0, 1, 2, 3)
    assert experiment.federation.classes == ("pill-a", "pill-b", "pill-c")
    assert build(dataset=dataset, image_size=32).config.settings.model == "resnet9"
    split = build(dataset=dataset, image_size=32, ratio="2:1", clients=3)
    assert split.config.settings.partition == "mc"
    with pytest.raises(CadisError, match="The partition has 4 clients, not 3"):
        build(dataset=dataset, image_size=32, clients=3)


def test_partition_clients_is_refused_if_the_data_name_no_clients() -> None:
    with pytest.raises(CadisError, match="do not say which client owns which samples"):
        build(partition="clients")


def test_partition_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"ann": [0, 5, 7], "bob": [1, 2]}))
    experiment = build(partition=str(path))
    assert experiment.federation.client_ids == ("ann", "bob")
    assert experiment.federation.sizes() == [3, 2]
    train = load_dataset(resolve({}, {}).settings).train
    assert torch.equal(experiment.federation.clients[0].inputs, train.inputs[[0, 5, 7]])
    path.write_text(json.dumps({"ann": [0, 5, 7], "bob": [1, 5]}))
    with pytest.raises(CadisError, match="which client ann has too"):
        build(partition=str(path))
    assert build(partition=str(path), allow_overlap=True).federation.sizes() == [3, 2]


def test_min_samples_is_an_option() -> None:
    sizes = build(partition="dirichlet", concentration=0.05, clients=40).federation.sizes()
    assert min(sizes) < 20
    many = build(partition="dirichlet", concentration=0.05, clients=40, min_samples=20)
    assert min(many.federation.sizes()) >= 20


def test_partition_summary_computed_by_hand() -> None:
    counts = torch.tensor([[6, 0, 0], [0, 3, 0], [3, 0, 0]])
    summary = PartitionSummary(
        "t", ("a", "b", "c"), ("x", "y", "z"), counts, torch.tensor([0, 1, 0]), 20, 5
    )
    # All clients: 3/4 a, 1/4 b. Distances: 1/4 (only a), 3/4 (only b), 1/4; the mean is 5/12.
    assert summary.label_skew == pytest.approx(5 / 12)
    # Sizes 6, 3, 3: mean 4, variance (4 + 1 + 1) / 3 = 2.
    assert summary.size_skew == pytest.approx(2**0.5 / 4)
    assert summary.group_clients() == [[0, 2], [1]]
    assert summary.find_missing_classes() == ["c"]


def test_label_skew_is_0_for_equal_and_1_for_disjoint_classes() -> None:
    equals, disjoint = torch.full((4, 5), 3), 7 * torch.eye(50).long()
    for counts, skew in ((equals, 0), (disjoint, 0.98)):
        names = tuple(map(str, range(counts.shape[1])))
        summary = PartitionSummary("t", names, tuple(range(len(counts))), counts, None, 1000, 5)
        assert summary.label_skew == pytest.approx(skew)


def test_task_decides_the_number_of_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CadisError, match="The task 'binary' needs data of two classes, not 10"):
        build(task="binary")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(24):
        draw_picture(tmp_path / "two" / "ab"[number % 2] / f"{number}.png", number % 2, number)
    options = {"dataset": f"images:{tmp_path / 'two'}", "image_size": 16, "clients": 3}
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def net(num_classes): return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))\n"
    )
    for model in ("cnn", f"{tmp_path / 'mine.py'}:net"):
        for task, outputs in (("binary", 1), ("classification", 2)):
            experiment = build(**options, task=task, model=model)
            assert len(list(experiment.model.parameters())[-1]) == outputs
            assert experiment.federation.classes == ("a", "b")
