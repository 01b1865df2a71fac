import json
import resource
from pathlib import Path

import pytest
import torch

from cadis.data.partition import (
    MultiCluster,
    Partition,
    given_by_data,
    read_partition,
    write_partition,
)
from cadis.errors import CadisError
from cadis.rng import generator_for


def test_written_and_read_back(tmp_path: Path) -> None:
    partition = MultiCluster((2, 1)).deal(torch.arange(100) % 4, 7, 2, generator_for(0))
    files = write_partition(tmp_path / "new" / "mc.json", partition)
    assert [file.name for file in files] == ["mc.json", "mc.clusters.json"]
    again = read_partition(files[0], 100, allow_overlap=False, minimum=2)
    assert again.client_ids == tuple(range(7))
    assert all(map(torch.equal, again.indices, partition.indices))
    assert again.true_clusters is not None
    assert again.true_clusters.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert json.loads(files[0].read_text())["3"] == partition.indices[3].tolist()


def test_names_stay_names_and_no_clusters_stay_none(tmp_path: Path) -> None:
    partition = Partition((torch.tensor([1, 2]), torch.tensor([0, 5])), client_ids=("ann", "7"))
    (file,) = write_partition(tmp_path / "p.json", partition)
    again = read(file)
    assert again.client_ids == ("ann", "7")
    assert again.true_clusters is None


WRONG: list[tuple[object, str]] = [
    ({"a": [0, 10]}, "client a has the index 10, but the training set has 10 samples"),
    ({"a": [0, -1]}, "client a has the index -1"),
    ({"a": [1, 2, 1]}, "client a has the index 1 twice"),
    ({"a": [1, 2], "b": [3, 2]}, "client b has the index 2 like client a"),
    ({"a": [1.5, 2]}, "whole numbers"),
    ({"a": [1.0, 2.0]}, "whole numbers"),
    ({"a": "1"}, "whole numbers"),
    ({"a": [True, False]}, "whole numbers"),
    ({"a": [1]}, "client a has 1 samples, and 2 are the fewest"),
    ([1, 2], "must hold a JSON object"),
    ({}, "must hold a JSON object with something in it"),
    ({"a": [float("nan"), 1]}, "not valid JSON: NaN is no number"),
    ({"a": [10**400, 1]}, "client a has the index 1000"),
    ({"a": [[[0, 1]]]}, "whole numbers"),
    ({"\ud800": [0, 1]}, "not valid JSON"),
]
MANY = [f'"{number}": [{number}]' for number in range(100_000)]
WRONG_TEXTS = [
    *((json.dumps(content), sentence) for content, sentence in WRONG),
    ("{", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ('{"a": [1], "a": [2]}', "'a' stands there twice"),
    ("{" + ",".join([*MANY, MANY[-1]]) + "}", "'99999' stands there twice"),  # at once
    ('{"a": [1e400]}', "whole numbers"),
    ('{"a": [' + "9" * 5000 + "]}", "not valid JSON"),
]


def read(path: Path, minimum: int = 1, allow_overlap: bool = False) -> Partition:
    return read_partition(path, 10, allow_overlap, minimum)


@pytest.mark.parametrize("case", range(len(WRONG_TEXTS)))
def test_files_that_are_wrong(case: int, tmp_path: Path) -> None:
    text, sentence = WRONG_TEXTS[case]
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(CadisError, match=sentence) as caught:
        read(path, minimum=2)
    assert str(path) in str(caught.value)


def test_overlap_is_the_users_choice(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"a": [1, 2, 1], "b": [3, 2]}))
    partition = read(path, minimum=2, allow_overlap=True)
    assert [indices.tolist() for indices in partition.indices] == [[1, 2, 1], [3, 2]]


def test_clusters_of_another_partition_do_not_stay(tmp_path: Path) -> None:
    path, clustered = tmp_path / "p.json", torch.tensor([0, 0])
    indices = (torch.tensor([1]), torch.tensor([2]))
    write_partition(path, Partition(indices, clustered))
    write_partition(path, Partition(indices))
    assert read(path).true_clusters is None


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


def test_names_of_very_many_digits_stay_names(tmp_path: Path) -> None:
    path, long = tmp_path / "p.json", "9" * 5000
    path.write_text(json.dumps({long: [1], "2": [3]}))
    assert read(path).client_ids == (long, "2")


@pytest.mark.parametrize("cluster", [2**63, 2**64, -(2**70), 1.5, True, "1", None])
def test_clusters_that_are_wrong(cluster: object, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"a": [1]}')
    for content in ({"a": cluster}, {"b": 0}):
        (tmp_path / "p.clusters.json").write_text(json.dumps(content))
        with pytest.raises(CadisError, match=r"p\.clusters\.json must have the number of a clus"):
            read(tmp_path / "p.json")
    with pytest.raises(CadisError, match="cannot be read: No such file"):
        read(tmp_path / "none.json")


ONE = Partition((torch.tensor([1]), torch.tensor([2])))
CLUSTERED = Partition(ONE.indices, torch.tensor([0, 1]))


@pytest.mark.parametrize("name", ["p.json", "p.clusters.json"])
@pytest.mark.parametrize("partition", [ONE, CLUSTERED])
@pytest.mark.parametrize("mine", ["my notes", '{"settings": {"a": 1}}', '["a"]', '{"a": "b"}'])
def test_a_file_of_the_users_own_stays(
    mine: str, partition: Partition, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(mine)
    with pytest.raises(CadisError, match=rf"{name} is there already .* name another file"):
        write_partition(tmp_path / "p.json", partition)
    assert (tmp_path / name).read_text() == mine
    assert len(list(tmp_path.iterdir())) == 1


def test_a_partition_is_replaced_and_so_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("")
    for partition in (CLUSTERED, ONE, CLUSTERED):
        files = write_partition(tmp_path / "p.json", partition)
        assert sorted(tmp_path.iterdir()) == sorted(files)
    assert files[0].stat().st_mode == (tmp_path / "p.clusters.json").stat().st_mode


def test_a_link_leads_to_the_partition(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "p.json").symlink_to(tmp_path / "there" / "real.json")
    write_partition(tmp_path / "p.json", ONE)
    assert (tmp_path / "p.json").is_symlink()
    assert json.loads((tmp_path / "there" / "real.json").read_text()) == {"0": [1], "1": [2]}


def test_what_was_there_stays_if_nothing_new_can_be_written(tmp_path: Path) -> None:
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
