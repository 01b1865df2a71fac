"""Our partitions on a real Hugging Face dataset, as Flower Datasets uses them."""

import sys
from importlib import import_module

import datasets
import pytest
import torch

from cadis.data.partition import PARTITIONERS, MultiCluster
from cadis.data.partition.flower_datasets import FlowerPartitioner
from cadis.errors import CadisError
from cadis.rng import generator_for

LABELS = [n % 5 for n in range(300)]
DATASET = datasets.Dataset.from_dict(
    {"text": [f"example {n}" for n in range(300)], "label": LABELS}
)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_deals_as_our_own(name: str) -> None:
    partitioner = FlowerPartitioner(PARTITIONERS[name](), num_partitions=6, seed=3)
    partitioner.dataset = DATASET
    own = PARTITIONERS[name]().deal(torch.tensor(LABELS), 6, 2, generator_for(3, "partition"))
    assert partitioner.num_partitions == 6
    for number, indices in enumerate(own.indices):
        loaded = partitioner.load_partition(number)
        assert loaded["text"][:] == [f"example {index}" for index in indices.tolist()]


def test_labels_may_be_names() -> None:
    names = DATASET.map(lambda row: {"fruit": "apple" if row["label"] < 2 else "pear"})
    partitioner = FlowerPartitioner(MultiCluster((2, 1)), 3, partition_by="fruit")
    partitioner.dataset = names
    kinds = [set(partitioner.load_partition(number)["fruit"]) for number in range(3)]
    assert kinds[0] == kinds[1] != kinds[2]
    assert partitioner.partition.true_clusters is not None
    assert partitioner.partition.true_clusters.tolist() == [0, 0, 1]


def test_wrong_use_is_a_sentence() -> None:
    partitioner = FlowerPartitioner(MultiCluster((1,)), 2, partition_by="fine_label")
    partitioner.dataset = DATASET
    with pytest.raises(
        CadisError, match="no column 'fine_label'; partition by one of: text, label"
    ):
        partitioner.load_partition(0)
    with pytest.raises(CadisError, match="no partition 2"):
        partitioner.load_partition(2)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.delitem(sys.modules, FlowerPartitioner.__module__)
    sentence = r"Install Flower Datasets first: pip install 'cadis\[datasets\]'\."
    with pytest.raises(CadisError, match=sentence):
        import_module(FlowerPartitioner.__module__)
