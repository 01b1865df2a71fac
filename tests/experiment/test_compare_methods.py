"""``cadis.compare``: the same as the command, from Python."""

from pathlib import Path
from typing import Any

import pytest

import cadis
from cadis.store import StudyFolder
from support import small_federation, small_model

QUICK: dict[str, Any] = {
    "rounds": 2,
    "epochs": 1,
    "clients": 6,
    "per_round": 3,
    "workers": 1,
    "progress": False,
}


def test_methods_by_name_and_as_they_are(tmp_path: Path) -> None:
    methods: list[Any] = ["fedavg", cadis.CADIS(threshold=0.6)]
    result = cadis.compare(methods, seeds=2, out=tmp_path / "kept", **QUICK)
    assert {row["method"] for row in result.table} == {"FedAvg", "CADIS"}
    assert result.folder == tmp_path / "kept"
    variants = StudyFolder(tmp_path / "kept").read().variants
    assert variants[1].options["cadis"]["threshold"] == 0.6
    assert len(result.runs) == 4
    assert repr(result).startswith(result.answer)
    assert "10-round mean" in repr(result)
    assert "| FedAvg |" in result.to_markdown()
    assert result.failures == ()
    with pytest.raises(cadis.CadisError, match="given twice"):
        cadis.compare(["cadis", cadis.CADIS()], **QUICK)


def test_a_grid_without_a_folder() -> None:
    result = cadis.compare("fedavg,fedprox", seeds=1, grid={"partition": ["mc", "iid"]}, **QUICK)
    assert result.folder is None
    assert list(result.table[0]) == ["method", "mc", "iid", "mean"]
    assert result.answer.startswith("partition=mc: One seed: ")


def test_a_federation_of_ones_own(tmp_path: Path) -> None:
    owned = small_federation()
    given: dict[str, Any] = {"clients": owned.clients, "test": owned.test, "model": small_model()}
    given |= {"rounds": 2, "epochs": 1, "lr": 0.1, "workers": 1}

    def compared() -> cadis.ComparisonResult:
        return cadis.compare(["fedavg", "cadis"], seeds=2, out=tmp_path, **given)

    result = compared()
    assert {row["method"] for row in result.table} == {"FedAvg", "CADIS"}
    assert sorted(run.seed for run in result.runs) == [0, 0, 1, 1]
    assert compared().table == result.table
