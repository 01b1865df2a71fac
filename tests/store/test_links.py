"""Folders from a stranger: no file of the user changes, and damage is reported."""

import os
import shutil
from pathlib import Path

import pytest

from cadis.algorithm.methods import CADIS
from cadis.errors import CadisError
from cadis.report.exports import write_results
from cadis.report.page.watching import WatchedFolder
from cadis.store import RunFolder
from cli_support import refuse, succeed
from fabricated import compare_folders, write_run, write_study

QUICK = ("--clients", 4, "--per-round", 4, "--epochs", 1, "--workers", 1, "--partition", "iid")
OLD = "precious"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a real run of one round."""
    path = tmp_path_factory.mktemp("original") / "run"
    succeed("run", *QUICK, "--method", "fedavg", "--rounds", 1, "--out", path)
    return path


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    for name in ("notes", "results.csv", "client-0-round-1.safetensors", "round-1.json", "lock"):
        (tmp_path / "home" / name).write_text(OLD)
    return tmp_path / "home"


def read_home(home: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in home.iterdir()}


def resume(run: Path) -> str:
    return refuse("run", "--resume", "--rounds", 2, "--out", run)


def replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "name",
    [
        *("history.jsonl", "summary.json", "model.safetensors", "checkpoint/lock"),
        *("checkpoint/round-2.json", "tracking.json"),
    ],
)
def test_resumed_run_refuses_links_before_it_trains(name: str, run: Path, home: Path) -> None:
    replace_by_link(run / name, home / "notes")
    before = read_home(home)
    assert f"{name} is a link to {home / 'notes'}" in resume(run)
    assert read_home(home) == before


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint/clients", "figures"])
def test_resumed_run_refuses_linked_folders(name: str, run: Path, home: Path) -> None:
    replace_by_link(run / name, home)
    before = read_home(home)
    assert f"{name} is a link to {home}" in resume(run)
    assert read_home(home) == before


@pytest.mark.parametrize("name", ["history.jsonl", "checkpoint/lock"])
def test_files_that_are_changed_in_place_must_not_be_hard_links(
    name: str, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").hardlink_to(run / name)
    before = (run / name).read_bytes()
    assert f"{name} is a hard link" in resume(run)
    assert (tmp_path / "mine").read_bytes() == before


@pytest.mark.parametrize("command", ["run", "compare", "report", "layer", "partition"])
def test_out_must_not_be_a_link(command: str, run: Path, home: Path, tmp_path: Path) -> None:
    link = tmp_path / ("link.png" if command in ("layer", "partition") else "link")
    link.symlink_to(home / "notes" if link.suffix else home)
    options = {
        "run": ["run", *QUICK, "--out", link],
        "compare": ["compare", *QUICK, "--out", link],
        "report": ["report", run, "--out", link],
        "layer": ["layer", "--epochs", 1, "--figure", link],
        "partition": ["partition", "--figure", link],
    }
    before = read_home(home)
    assert "is a link to" in refuse(*options[command])
    assert read_home(home) == before


@pytest.mark.parametrize("name", ["results.csv", "report.html", "figures", "runs.csv"])
def test_report_does_not_write_through_links(name: str, tmp_path: Path, home: Path) -> None:
    run = write_run(tmp_path / "run", CADIS()).path
    (run / name).symlink_to(home if name == "figures" else home / "notes")
    before = read_home(home)
    assert f"{name} is a link" in refuse("report", run)
    assert read_home(home) == before


def test_report_does_not_write_to_linked_cells(tmp_path: Path, home: Path) -> None:
    for name, clients in (("a", 12), ("b", 18)):
        write_run(tmp_path / "runs" / name, CADIS(), clients=clients)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cells").symlink_to(home)
    before = read_home(home)
    assert "cells is a link" in refuse("report", tmp_path / "runs", "--out", tmp_path / "out")
    assert read_home(home) == before


@pytest.mark.parametrize("name", ["fedavg", "fedavg/seed-0", "study.json"])
def test_study_does_not_write_through_links(name: str, tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", {"fedavg": 0.5, "cadis": 0.6}, seeds=1).path
    moved = (study / name).rename(tmp_path / "moved")
    (study / name).symlink_to(moved)
    before = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    message = refuse("compare", "--methods", "fedavg,cadis", "--seeds", 1, *QUICK, "--out", study)
    assert "is a link to" in message or "choose another folder" in message
    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before


def test_out_inside_a_study_does_not_pass_a_link(run: Path, tmp_path: Path, home: Path) -> None:
    study = write_study(tmp_path / "study", {"fedavg": 0.5}, seeds=1).path
    (study / "more").symlink_to(home)
    before = read_home(home)
    out = study / "more" / "new"
    assert "more is a link" in refuse("report", run, "--out", out)
    assert "more is a link" in refuse("export", run, "--to", "state-dict", "--out", out)
    assert read_home(home) == before


@pytest.mark.parametrize("name", ["best.safetensors", "model.safetensors"])
def test_dangling_link_is_reported_as_damage(name: str, run: Path, tmp_path: Path) -> None:
    replace_by_link(run / name, tmp_path / "gone")
    with pytest.raises(CadisError, match=f"{name} is a link to a missing file"):
        RunFolder(run).read_model(best=name.startswith("best"))
    assert f"{name} is a link to" in resume(run)


def test_links_above_the_run_folder_are_allowed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to(tmp_path)
    succeed("run", "--resume", "--rounds", 2, "--out", tmp_path / "disk" / "run")
    assert (run / "summary.json").exists()


def test_pipes_are_reported_without_waiting(run: Path, tmp_path: Path) -> None:
    for name in ("history.jsonl", "federation.json", "config.toml"):
        copy = shutil.copytree(run, tmp_path / name.replace(".", "-"))
        (copy / name).unlink()
        os.mkfifo(copy / name)
        assert "regular file" in refuse("report", copy) or name == "config.toml"
        assert name in resume(copy)
        assert b"methods" in WatchedFolder(copy).get_data()
    os.mkfifo(tmp_path / "pipe")
    for arguments in (["run", tmp_path / "pipe"], ["predict", tmp_path / "pipe", run]):
        refuse(*arguments)
    assert "pipe" in refuse("predict", run, tmp_path / "pipe", "--out", tmp_path / "p.csv")


def test_folders_of_runs_and_studies_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        study = write_study(tmp_path / "study", {"fedavg": 0.5, "cadis": 0.6}, seeds=1)
        write_results(compare_folders(study), tmp_path / "page")
    finally:
        os.umask(before)
    folders = [p for p in tmp_path.rglob("*") if p.is_dir()]
    assert len(folders) == 10
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
