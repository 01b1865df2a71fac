from pathlib import Path

import pytest

from cadis.algorithm import BaseMethod
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.analysis import read_folder, read_results, write_verdict
from cadis.errors import CadisError
from cadis.store import RunFolder
from fabricated import compare_folders, make_federation, write_run, write_study


def test_runs_that_differ_only_by_seed_are_one_group(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / "a", CADIS(), 1).path,
        write_run(tmp_path / "b", FedAvg(), 0).path,
        write_run(tmp_path / "c", CADIS(), 0, workers=2).path,
        write_run(tmp_path / "d", CADIS(threshold=0.8), 0).path,
    ]
    results = read_results([*paths, paths[0]])  # a path that is given twice counts once
    labels = [group.label for group in results.groups]
    assert labels == ["CADIS (threshold=auto)", "FedAvg", "CADIS (threshold=0.8)"]
    assert [[s.seed for s in group.runs] for group in results.groups] == [[0, 1], [0], [0]]
    assert results.kind == "runs"
    assert results.baseline == 1


def test_a_study_keeps_its_order_and_baseline(tmp_path: Path) -> None:
    folder = write_study(tmp_path, {"cadis": 0.8, "fedavg": 0.7}, 2)
    results = read_results([folder.path])
    assert [group.name for group in results.groups] == ["cadis", "fedavg"]
    assert (results.kind, results.baseline, results.planned) == ("compare", 1, 4)
    assert results.planned_rounds == 4 * 12


def test_unfinished_runs_are_not_averaged(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / "a", CADIS(), 0).path,
        write_run(tmp_path / "b", CADIS(), 1, finished=False).path,
    ]
    group = read_results(paths).groups[0]
    assert len(group.runs) == 2
    assert [scores.seed for scores in group.scores] == [0]
    assert len(read_results(paths[1:]).groups[0].scores) == 1  # unless no run is finished


def test_runs_of_different_data_are_not_compared(tmp_path: Path) -> None:
    one, other = (write_run(tmp_path / name, CADIS()) for name in "ab")
    other.write_json("federation.json", make_federation(12) | {"classes": ["x"] * 5})
    verdict = write_verdict(compare_folders(one, other))
    assert verdict.startswith("These runs differ in classes, ")


def test_runs_of_different_columns_of_a_table_are_not_compared(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / column, CADIS(), dataset="csv:t.csv", label_column=column)
        for column in ("outcome", "stage")
    ]
    verdict = write_verdict(compare_folders(*runs))
    assert verdict.startswith("These runs differ in label_column, ")


def test_folders_without_runs_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="no run and no comparison in"):
        read_results([tmp_path])
    folder = write_run(tmp_path / "empty", CADIS(), rounds=0, finished=False)
    with pytest.raises(CadisError, match="has no finished round yet"):
        read_results([folder.path])


def test_all_runs_in_a_folder_are_read(tmp_path: Path) -> None:
    write_study(tmp_path / "deep" / "study", {"fedavg": 0.5, "cadis": 0.8}, 2)
    write_run(tmp_path / "run", CADIS(), 5)
    write_run(tmp_path / "copy", CADIS(), 5)
    write_run(tmp_path / ".hidden", CADIS(), 6)
    write_run(tmp_path / "a" / "b" / "c" / "too-deep", CADIS(), 7)
    write_run(tmp_path / "damaged", CADIS(), 8)
    (tmp_path / "damaged" / "history.jsonl").write_text("{")
    (tmp_path / "notes").mkdir()
    messages: list[str] = []
    results = read_folder(tmp_path, messages.append)
    assert results.kind == "runs"
    assert {run.seed for run in results.runs} == {0, 1, 5}
    assert len(results.runs) == 5
    assert f"Found in {tmp_path}: 1 comparisons or sweeps and 2 runs." in messages
    assert [text for text in messages if text.startswith("Skipped: ") and "damaged" in text]
    assert [text for text in messages if text.startswith("Skipped: ") and "same seed" in text]
    with pytest.raises(CadisError, match="no run and no comparison in the folder"):
        read_folder(tmp_path / "notes", messages.append)


def test_runs_with_the_partition_clients_are_compared(tmp_path: Path) -> None:
    """The name of this partition is also the name of an option, which is a number."""

    def write(method: BaseMethod) -> RunFolder:
        folder = write_run(tmp_path / method.name, method, partition="clients")
        config = folder.path / "config.toml"
        config.write_text(f"clients = 12\n{config.read_text()}")
        return folder

    assert compare_folders(write(FedAvg()), write(CADIS())).all_comparable


def test_labels_name_the_partition_and_not_its_parameters(tmp_path: Path) -> None:
    mc = write_run(tmp_path / "a", CADIS(), partition="mc", mc={"ratio": [3, 2], "classes": 2})
    other = write_run(tmp_path / "b", CADIS(), partition="dirichlet", dirichlet={"alpha": 0.1})
    labels = [group.label for group in read_results([mc.path, other.path]).groups]
    assert labels == ["CADIS (partition=mc)", "CADIS (partition=dirichlet)"]
