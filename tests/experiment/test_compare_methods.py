"""``cadis.compare``."""

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


def test_methods_are_given_by_name_or_as_instances(tmp_path: Path) -> None:
    methods: list[Any] = ["fedavg", cadis.CADIS(threshold=0.6)]
    result = cadis.compare(methods, seeds=2, out=tmp_path / "kept", **QUICK)
    assert {row["method"] for row in result.table} == {"FedAvg", "CADIS"}
    assert result.folder == tmp_path / "kept"
    variants = StudyFolder(tmp_path / "kept").read().variants
    assert variants[1].options["cadis"]["threshold"] == 0.6
    assert len(result.runs) == 4
    assert repr(result).startswith(result.verdict)
    assert "last 10 rounds" in repr(result)
    assert "| FedAvg |" in result.to_markdown()
    assert result.failures == ()
    with pytest.raises(cadis.CadisError, match="given twice"):
        cadis.compare(["cadis", cadis.CADIS()], **QUICK)


def test_grid_without_a_folder() -> None:
    result = cadis.compare("fedavg,fedprox", seeds=1, grid={"partition": ["mc", "iid"]}, **QUICK)
    assert result.folder is None
    assert list(result.table[0]) == ["method", "mc", "iid", "mean"]
    assert "One seed is not enough to say which method is better." in result.verdict


def make_options(**changes: Any) -> dict[str, Any]:
    """Return arguments of a comparison with a model object and data."""
    federation = small_federation()
    options: dict[str, Any] = {
        "clients": federation.clients,
        "test": federation.test,
        "model": small_model(),
    }
    return (
        options | {"rounds": 2, "epochs": 1, "lr": 0.1, "workers": 1, "progress": False} | changes
    )


def test_finished_runs_of_a_model_object_are_reused(tmp_path: Path) -> None:
    def run_comparison() -> cadis.ComparisonResult:
        return cadis.compare(["fedavg", "cadis"], seeds=2, out=tmp_path, **make_options())

    result = run_comparison()
    assert {row["method"] for row in result.table} == {"FedAvg", "CADIS"}
    assert sorted(run.seed for run in result.runs) == [0, 0, 1, 1]
    written = (tmp_path / "fedavg" / "seed-0" / "summary.json").stat().st_mtime_ns
    assert run_comparison().table == result.table
    assert (tmp_path / "fedavg" / "seed-0" / "summary.json").stat().st_mtime_ns == written


def test_comparison_of_a_model_object_writes_a_study(tmp_path: Path) -> None:
    result = cadis.compare("fedavg,cadis", seeds=1, out=tmp_path, targets=[0.25], **make_options())
    study = StudyFolder(tmp_path).read()
    assert result.results.targets == study.targets == (0.25,)
    assert (study.kind, study.baseline, study.seeds) == ("compare", "fedavg", (0,))
    assert study.variants[0].options["rounds"] == 2
    assert result.results.kind == "compare"
    assert result.results.is_complete


@dataclass(frozen=True)
class Explosive(cadis.FedAvg):
    """FedAvg that diverges in its first round."""

    name: ClassVar[str] = "explosive"

    def aggregate(self, *options: Any) -> Any:
        result = super().aggregate(*options)
        models = {n: replace(m, parameters=m.parameters * inf) for n, m in result.models.items()}
        return replace(result, models=models)


def test_diverging_user_method_does_not_stop_the_others(tmp_path: Path) -> None:
    methods: list[Any] = [Explosive(), "fedavg"]
    result = cadis.compare(methods, seeds=2, out=tmp_path, **make_options())
    assert [row["method"] for row in result.table] == ["FedAvg"]
    assert len(result.runs) == 2
    assert [failure.split(":")[0] for failure in result.failures] == [
        "Explosive, seed 0",
        "Explosive, seed 1",
    ]


def test_other_data_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    cadis.compare(["fedavg"], seeds=1, out=tmp_path, **make_options())
    clients = make_options()["clients"]
    fewer = [clients[0].take(slice(0, 5)), *clients[1:]]
    with pytest.raises(cadis.CadisError, match="other clients or data"):
        cadis.compare(["fedavg"], seeds=1, out=tmp_path, **make_options(clients=fewer))
    with pytest.raises(cadis.CadisError, match=r"has lr = 0\.1 for fedavg, not 0\.2"):
        cadis.compare(["fedavg"], seeds=1, out=tmp_path, **make_options(lr=0.2))


def test_methods_and_ablations_are_added_to_a_study(tmp_path: Path) -> None:
    started: list[Any] = [cadis.CADIS(threshold=0.6), "fedavg"]
    cadis.compare(started, seeds=1, out=tmp_path, **make_options())
    result = cadis.compare("cadis-uniform", seeds=2, out=tmp_path, **make_options())
    assert len(result.runs) == 6
    run = StudyFolder(tmp_path).get_run_folder
    variants = {variant.name: variant for variant in StudyFolder(tmp_path).read().variants}
    assert run(variants["cadis"], 1).read_config()["cadis"]["threshold"] == 0.6
    assert run(variants["cadis-uniform"], 0).read_config()["sampler"] == "uniform"


@dataclass(frozen=True)
class Nameless(cadis.FedAvg):
    """Method without a name of its own."""


@pytest.mark.parametrize(
    ("methods", "changes", "sentence"),
    [
        (["fedavg", "cadis"], {"method": "fedavg"}, "not as method="),
        (["fedavg"], {"dataset": "digits"}, "give the arguments of cadis.run"),
        ([Nameless()], {}, "Nameless cannot have the name 'fedavg'"),
        (["fedavg", cadis.FedAvg()], {}, "given twice"),
        (["ablations", cadis.CADIS], {}, "not its class"),
        (["fedavg"], {"grid": {"lr": [0.1]}}, "leave out grid and preset"),
        (["fedavg"], {"track": "tensorboard"}, "give one as out"),
    ],
)
def test_wrong_arguments_with_a_model_object_are_refused(
    methods: list[Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(cadis.CadisError, match=sentence):
        cadis.compare(methods, seeds=1, **make_options(**changes))


def test_on_round_is_called_after_each_round() -> None:
    rounds: list[int] = []
    result = cadis.compare(
        ["fedavg", "fedprox"],
        seeds=1,
        on_round=lambda done: rounds.append(done.record.round),
        **make_options(),
    )
    assert rounds == [1, 2, 1, 2]
    assert result.folder is None
