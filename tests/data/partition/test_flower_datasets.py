"""Tests of the partitioners with Flower Datasets, on a Hugging Face dataset."""

import sys
from importlib import import_module

import datasets
import pytest
import torch

from cadis.data.partition import PARTITIONERS, MultiCluster
from cadis.data.partition.flower_datasets import FlowerPartitioner
from cadis.errors import CadisError
from cadis.rng import derive_generator

LABELS = [n % 5 for n in range(300)]
DATASET = datasets.Dataset.from_dict(
    {"text": [f"example {n}" for n in range(300)], "label": LABELS}
)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partitions_equal_those_of_cadis(name: str) -> None:
    partitioner = FlowerPartitioner(PARTITIONERS[name](), num_partitions=6, seed=3)
    partitioner.dataset = DATASET
    generator = derive_generator(3, "partition")
    expected = PARTITIONERS[name]().split(torch.tensor(LABELS), 6, 2, generator)
    assert partitioner.num_partitions == 6
    for number, indices in enumerate(expected.indices):
        loaded = partitioner.load_partition(number)
        assert loaded["text"][:] == [f"example {index}" for index in indices.tolist()]


def test_labels_may_be_text() -> None:
    names = DATASET.map(lambda row: {"fruit": "apple" if row["label"] < 2 else "pear"})
    partitioner = FlowerPartitioner(MultiCluster((2, 1)), 3, partition_by="fruit")
    partitioner.dataset = names
    fruits = [set(partitioner.load_partition(number)["fruit"]) for number in range(3)]
    assert fruits[0] == fruits[1] != fruits[2]
    assert partitioner.partition.true_clusters is not None
    assert partitioner.partition.true_clusters.tolist() == [0, 0, 1]


def test_unknown_columns_and_partitions_are_rejected() -> None:
    partitioner = FlowerPartitioner(MultiCluster((1,)), 2, partition_by="fine_label")
    partitioner.dataset = DATASET
    with pytest.raises(
        CadisError, match="no column 'fine_label'; partition by one of: text, label"
    ):
        partitioner.load_partition(0)
    with pytest.raises(CadisError, match="no partition 2"):
        partitioner.load_partition(2)


def test_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.delitem(sys.modules, FlowerPartitioner.__module__)
    sentence = r"Install Flower Datasets first: pip install 'cadis\[datasets\]'\."
    with pytest.raises(CadisError, match=sentence):
        import_module(FlowerPartitioner.__module__)
