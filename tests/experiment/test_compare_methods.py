"""``cadis.compare``: the same as the command, from Python."""

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, ClassVar

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


def own_options(**changed: Any) -> dict[str, Any]:
    """Options of a comparison on a model and data of the user's own."""
    owned = small_federation()
    given: dict[str, Any] = {"clients": owned.clients, "test": owned.test, "model": small_model()}
    return given | {"rounds": 2, "epochs": 1, "lr": 0.1, "workers": 1, "progress": False} | changed


def test_own_model_is_compared_and_reused(tmp_path: Path) -> None:
    def compared() -> cadis.ComparisonResult:
        return cadis.compare(["fedavg", "cadis"], seeds=2, out=tmp_path, **own_options())

    result = compared()
    assert {row["method"] for row in result.table} == {"FedAvg", "CADIS"}
    assert sorted(run.seed for run in result.runs) == [0, 0, 1, 1]
    written = (tmp_path / "fedavg" / "seed-0" / "summary.json").stat().st_mtime_ns
    assert compared().table == result.table
    assert (tmp_path / "fedavg" / "seed-0" / "summary.json").stat().st_mtime_ns == written


def test_own_model_leaves_a_study_with_targets(tmp_path: Path) -> None:
    result = cadis.compare("fedavg,cadis", seeds=1, out=tmp_path, targets=[0.25], **own_options())
    study = StudyFolder(tmp_path).read()
    assert result.results.targets == study.targets == (0.25,)
    assert (study.kind, study.baseline, study.seeds) == ("compare", "fedavg", (0,))
    assert study.variants[0].options["rounds"] == 2
    assert result.results.kind == "compare"
    assert result.results.complete


@dataclass(frozen=True)
class Explosive(cadis.FedAvg):
    """FedAvg that diverges in its first round."""

    name: ClassVar[str] = "explosive"

    def aggregate(self, *given: Any) -> Any:
        result = super().aggregate(*given)
        models = {n: replace(m, parameters=m.parameters * inf) for n, m in result.models.items()}
        return replace(result, models=models)


def test_own_method_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    methods: list[Any] = [Explosive(), "fedavg"]
    result = cadis.compare(methods, seeds=2, out=tmp_path, **own_options())
    assert [row["method"] for row in result.table] == ["FedAvg"]
    assert len(result.runs) == 2
    assert [failure.split(":")[0] for failure in result.failures] == [
        "Explosive, seed 0",
        "Explosive, seed 1",
    ]


def test_own_model_refuses_other_data_in_the_same_folder(tmp_path: Path) -> None:
    cadis.compare(["fedavg"], seeds=1, out=tmp_path, **own_options())
    clients = own_options()["clients"]
    fewer = [clients[0].take(slice(0, 5)), *clients[1:]]
    with pytest.raises(cadis.CadisError, match="other clients or data"):
        cadis.compare(["fedavg"], seeds=1, out=tmp_path, **own_options(clients=fewer))
    with pytest.raises(cadis.CadisError, match=r"has lr = 0\.1 for fedavg, not 0\.2"):
        cadis.compare(["fedavg"], seeds=1, out=tmp_path, **own_options(lr=0.2))


def test_own_model_adds_methods_and_ablations_to_a_study(tmp_path: Path) -> None:
    started: list[Any] = [cadis.CADIS(threshold=0.6), "fedavg"]
    cadis.compare(started, seeds=1, out=tmp_path, **own_options())
    result = cadis.compare("cadis-uniform", seeds=2, out=tmp_path, **own_options())
    assert len(result.runs) == 6
    run = StudyFolder(tmp_path).run_folder
    variants = {variant.name: variant for variant in StudyFolder(tmp_path).read().variants}
    assert run(variants["cadis"], 1).read_config()["cadis"]["threshold"] == 0.6
    assert run(variants["cadis-uniform"], 0).read_config()["sampler"] == "uniform"


@dataclass(frozen=True)
class Nameless(cadis.FedAvg):
    """A method that has only the name of the class that it is derived from."""


@pytest.mark.parametrize(
    ("methods", "changed", "sentence"),
    [
        (["fedavg", "cadis"], {"method": "fedavg"}, "no single method"),
        (["fedavg"], {"dataset": "digits"}, "as cadis.run takes them"),
        ([Nameless()], {}, "Nameless cannot be called 'fedavg'"),
        (["fedavg", cadis.FedAvg()], {}, "given twice"),
        (["ablations", cadis.CADIS], {}, "not its class"),
        (["fedavg"], {"grid": {"lr": [0.1]}}, "dataset that is named"),
        (["fedavg"], {"track": "tensorboard"}, "give one as out"),
    ],
)
def test_own_model_refuses(methods: list[Any], changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(cadis.CadisError, match=sentence):
        cadis.compare(methods, seeds=1, **own_options(**changed))


def test_own_model_calls_back_after_each_round() -> None:
    heard: list[int] = []
    result = cadis.compare(
        ["fedavg", "fedprox"],
        seeds=1,
        on_round=lambda done: heard.append(done.record.round),
        **own_options(),
    )
    assert heard == [1, 2, 1, 2]
    assert result.folder is None
