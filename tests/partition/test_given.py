import json
from pathlib import Path

import pytest
import torch

from cadis.core import CadisError, generator_for
from cadis.partition import MultiCluster, Partition, given_by_data, read_partition, write_partition


def test_written_and_read_back(tmp_path: Path) -> None:
    partition = MultiCluster((2, 1)).deal(torch.arange(100) % 4, 7, 2, generator_for(0))
    files = write_partition(tmp_path / "new" / "mc.json", partition)
    assert [file.name for file in files] == ["mc.json", "mc.clusters.json"]
    again = read_partition(files[0], 100, allow_overlap=False, minimum=2)
    assert again.client_ids == tuple(range(7))
    assert all(map(torch.equal, again.indices, partition.indices))
    assert again.cluster_of_client is not None
    assert again.cluster_of_client.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert json.loads(files[0].read_text())["3"] == partition.indices[3].tolist()


def test_names_stay_names_and_no_clusters_stay_none(tmp_path: Path) -> None:
    partition = Partition((torch.tensor([1, 2]), torch.tensor([0, 5])), client_ids=("ann", "7"))
    (file,) = write_partition(tmp_path / "p.json", partition)
    again = read_partition(file, 6, allow_overlap=False, minimum=1)
    assert again.client_ids == ("ann", "7")
    assert again.cluster_of_client is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"a": [0, 10]}, "client a has the index 10, but the training set has 10 samples"),
        ({"a": [0, -1]}, "client a has the index -1"),
        ({"a": [1, 2, 1]}, "client a has the index 1 twice"),
        ({"a": [1, 2], "b": [3, 2]}, "client b has the index 2 like client a"),
        ({"a": [1.5, 2]}, "whole numbers"),
        ({"a": "1"}, "whole numbers"),
        ({"a": [True, False]}, "whole numbers"),
        ({"a": [1]}, "client a has 1 samples, and 2 are the fewest"),
        ([1, 2], "must hold a JSON object"),
        ({}, "must hold a JSON object with something in it"),
    ],
)
def test_files_that_are_wrong(content: object, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    with pytest.raises(CadisError, match=sentence) as caught:
        read_partition(path, 10, allow_overlap=False, minimum=2)
    assert str(path) in str(caught.value)


def test_overlap_is_the_users_choice(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"a": [1, 2, 1], "b": [3, 2]}))
    partition = read_partition(path, 10, allow_overlap=True, minimum=2)
    assert [indices.tolist() for indices in partition.indices] == [[1, 2, 1], [3, 2]]


def test_other_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="cannot be read: No such file"):
        read_partition(tmp_path / "none.json", 10, allow_overlap=False, minimum=1)
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(CadisError, match="not valid JSON"):
        read_partition(tmp_path / "p.json", 10, allow_overlap=False, minimum=1)
    (tmp_path / "p.json").write_text('{"a": [1], "a": [2]}')
    with pytest.raises(CadisError, match="'a' stands there twice"):
        read_partition(tmp_path / "p.json", 10, allow_overlap=False, minimum=1)
    (tmp_path / "p.json").write_text("[" * 100_000)
    with pytest.raises(CadisError, match="not valid JSON"):
        read_partition(tmp_path / "p.json", 10, allow_overlap=False, minimum=1)
    (tmp_path / "p.json").write_text('{"a": [1]}')
    (tmp_path / "p.clusters.json").write_text('{"b": 0}')
    with pytest.raises(CadisError, match="number of a cluster for each client"):
        read_partition(tmp_path / "p.json", 10, allow_overlap=False, minimum=1)


def test_clusters_of_another_partition_do_not_stay(tmp_path: Path) -> None:
    path, clustered = tmp_path / "p.json", torch.tensor([0, 0])
    indices = (torch.tensor([1]), torch.tensor([2]))
    write_partition(path, Partition(indices, clustered))
    write_partition(path, Partition(indices))
    assert read_partition(path, 10, allow_overlap=False, minimum=1).cluster_of_client is None


def test_given_by_the_data() -> None:
    owners = {"ann": torch.tensor([0, 2]), "bob": torch.tensor([1])}
    partition = given_by_data(owners, minimum=1)
    assert partition.client_ids == ("ann", "bob")
    assert partition.indices[0].tolist() == [0, 2]
    assert given_by_data({"0": owners["ann"], "1": owners["bob"]}, 1).client_ids == (0, 1)
    with pytest.raises(CadisError, match="Client bob has 1 samples"):
        given_by_data(owners, minimum=2)
    with pytest.raises(CadisError, match="do not say which client owns what"):
        given_by_data({}, minimum=1)
