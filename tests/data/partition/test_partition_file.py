"""Tests of partitions that are read from a file or given by the data."""

import json
import resource
from pathlib import Path

import pytest
import torch

from cadis.data.partition import (
    MultiCluster,
    Partition,
    partition_by_owner,
    read_partition,
    write_partition,
)
from cadis.errors import CadisError
from cadis.rng import derive_generator


def test_partition_is_written_and_read(tmp_path: Path) -> None:
    partition = MultiCluster((2, 1)).split(torch.arange(100) % 4, 7, 2, derive_generator(0))
    files = write_partition(tmp_path / "new" / "mc.json", partition)
    assert [file.name for file in files] == ["mc.json", "mc.clusters.json"]
    result = read_partition(files[0], 100, allow_overlap=False, minimum=2)
    assert result.client_ids == tuple(range(7))
    assert all(map(torch.equal, result.indices, partition.indices))
    assert result.true_clusters is not None
    assert result.true_clusters.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert json.loads(files[0].read_text())["3"] == partition.indices[3].tolist()


def test_names_of_clients_and_unknown_clusters_are_kept(tmp_path: Path) -> None:
    partition = Partition((torch.tensor([1, 2]), torch.tensor([0, 5])), client_ids=("ann", "7"))
    (file,) = write_partition(tmp_path / "p.json", partition)
    result = read(file)
    assert result.client_ids == ("ann", "7")
    assert result.true_clusters is None


INVALID: list[tuple[object, str]] = [
    ({"a": [0, 10]}, "client a has the index 10, but the training set has 10 samples"),
    ({"a": [0, -1]}, "client a has the index -1"),
    ({"a": [1, 2, 1]}, "client a has the index 1 twice"),
    ({"a": [1, 2], "b": [3, 2]}, "client b has the index 2, which client a has too"),
    ({"a": [1.5, 2]}, "must have a list of integers"),
    ({"a": [1.0, 2.0]}, "must have a list of integers"),
    ({"a": "1"}, "must have a list of integers"),
    ({"a": [True, False]}, "must have a list of integers"),
    ({"a": [1]}, "client a has 1 samples, but the minimum is 2"),
    ([1, 2], "must contain a JSON object"),
    ({}, "must contain a JSON object that is not empty"),
    ({"a": [float("nan"), 1]}, "not valid JSON: NaN is not a number"),
    ({"a": [10**400, 1]}, "client a has the index 1000"),
    ({"a": [[[0, 1]]]}, "must have a list of integers"),
    ({"\ud800": [0, 1]}, "not valid JSON"),
]
MANY = [f'"{number}": [{number}]' for number in range(100_000)]
INVALID_TEXTS = [
    *((json.dumps(content), sentence) for content, sentence in INVALID),
    ("{", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ('{"a": [1], "a": [2]}', "'a' occurs twice"),
    ("{" + ",".join([*MANY, MANY[-1]]) + "}", "'99999' occurs twice"),  # found in linear time
    ('{"a": [1e400]}', "must have a list of integers"),
    ('{"a": [' + "9" * 5000 + "]}", "not valid JSON"),
]


def read(path: Path, minimum: int = 1, allow_overlap: bool = False) -> Partition:
    return read_partition(path, 10, allow_overlap, minimum)


@pytest.mark.parametrize("case", range(len(INVALID_TEXTS)))
def test_invalid_files_are_rejected(case: int, tmp_path: Path) -> None:
    text, sentence = INVALID_TEXTS[case]
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(CadisError, match=sentence) as caught:
        read(path, minimum=2)
    assert str(path) in str(caught.value)


def test_overlap_may_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"a": [1, 2, 1], "b": [3, 2]}))
    partition = read(path, minimum=2, allow_overlap=True)
    assert [indices.tolist() for indices in partition.indices] == [[1, 2, 1], [3, 2]]


def test_clusters_of_a_replaced_partition_are_removed(tmp_path: Path) -> None:
    path, clusters = tmp_path / "p.json", torch.tensor([0, 0])
    indices = (torch.tensor([1]), torch.tensor([2]))
    write_partition(path, Partition(indices, clusters))
    write_partition(path, Partition(indices))
    assert read(path).true_clusters is None


def test_data_define_the_partition() -> None:
    client_indices = {"ann": torch.tensor([0, 2]), "bob": torch.tensor([1])}
    partition = partition_by_owner(client_indices, minimum=1)
    assert partition.client_ids == ("ann", "bob")
    assert partition.indices[0].tolist() == [0, 2]
    numbered = dict(zip("01", client_indices.values(), strict=True))
    assert partition_by_owner(numbered, 1).client_ids == (0, 1)
    with pytest.raises(CadisError, match="Client bob has 1 samples"):
        partition_by_owner(client_indices, minimum=2)
    with pytest.raises(CadisError, match="do not say which client owns which samples"):
        partition_by_owner({}, minimum=1)


def test_names_with_very_many_digits_stay_text(tmp_path: Path) -> None:
    path, long = tmp_path / "p.json", "9" * 5000
    path.write_text(json.dumps({long: [1], "2": [3]}))
    assert read(path).client_ids == (long, "2")


@pytest.mark.parametrize("cluster", [2**63, 2**64, -(2**70), 1.5, True, "1", None])
def test_invalid_clusters_are_rejected(cluster: object, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"a": [1]}')
    for content in ({"a": cluster}, {"b": 0}):
        (tmp_path / "p.clusters.json").write_text(json.dumps(content))
        with pytest.raises(CadisError, match=r"p\.clusters\.json must give each client the number"):
            read(tmp_path / "p.json")
    with pytest.raises(CadisError, match="cannot be read: No such file"):
        read(tmp_path / "none.json")


ONE = Partition((torch.tensor([1]), torch.tensor([2])))
CLUSTERED = Partition(ONE.indices, torch.tensor([0, 1]))


@pytest.mark.parametrize("name", ["p.json", "p.clusters.json"])
@pytest.mark.parametrize("partition", [ONE, CLUSTERED])
@pytest.mark.parametrize("text", ["my notes", '{"settings": {"a": 1}}', '["a"]', '{"a": "b"}'])
def test_other_files_are_not_overwritten(
    text: str, partition: Partition, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CadisError, match=rf"{name} exists and does not .* choose another file"):
        write_partition(tmp_path / "p.json", partition)
    assert (tmp_path / name).read_text() == text
    assert len(list(tmp_path.iterdir())) == 1


def test_partitions_and_empty_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("")
    for partition in (CLUSTERED, ONE, CLUSTERED):
        files = write_partition(tmp_path / "p.json", partition)
        assert sorted(tmp_path.iterdir()) == sorted(files)
    assert files[0].stat().st_mode == (tmp_path / "p.clusters.json").stat().st_mode


@pytest.mark.parametrize("name", ["p.json", "p.clusters.json"])
def test_link_is_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "there" / "real.json")
    with pytest.raises(CadisError, match=rf"{name} is a link to .* does not write through links"):
        write_partition(tmp_path / "p.json", CLUSTERED)
    assert not list((tmp_path / "there").iterdir())


def test_old_partition_is_kept_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    write_partition(path, CLUSTERED)
    before = {file: file.read_text() for file in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(CadisError, match=r"p\.json cannot be written: File too large"):
            write_partition(path, Partition((torch.arange(100_000),)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {file: file.read_text() for file in tmp_path.iterdir()} == before
