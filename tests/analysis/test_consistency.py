import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cadis.algorithm.methods import CADIS, FedAvg, SingleSet
from cadis.analysis import RunData, convert_read_errors, read_results
from cadis.errors import CadisError
from cadis.report.page.content import make_page_data
from cadis.store import RunFolder
from fabricated import write_run, write_study


def change(folder: RunFolder, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit a JSON file, or the last line of a JSONL file."""
    path = folder.path / name
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    content = json.loads(lines[-1])
    edit(content)
    path.write_text("\n".join([*lines[:-1], json.dumps(content)]) + "\n")


MODEL = {"name": "a", "clients": 1, "accuracy": 0.5, "loss": 0.5}
HISTORY: dict[str, Callable[[Any], object]] = {
    "client 77 took part but is not in": lambda r: r["participants"].__setitem__(0, 77),
    "a client took part twice": lambda r: r["participants"].__setitem__(0, r["participants"][1]),
    "no client took part": lambda r: r.update(participants=[], weights=[], report={}),
    "weights has 5 entries, not 6": lambda r: r["weights"].pop(),
    "clusters has 5 entries, not 6": lambda r: r["report"]["clusters"].pop(),
    "similarity has 5 rows, not 6": lambda r: r["report"]["similarity"].pop(),
    "a row of similarity has 5 entries, not 6": lambda r: r["report"]["similarity"][3].pop(),
    "a similarity is not between -1 and 1": lambda r: r["report"]["similarity"][3].__setitem__(
        0, 1e30
    ),
    "class_accuracy has 4 entries, not 5": lambda r: r["class_accuracy"].pop(),
    "client_accuracy has 2 entries, not 12": lambda r: r.update(client_accuracy=[0.5, 0.5]),
    "client_accuracy has 0 entries, not 12": lambda r: r.update(client_accuracy=[]),
    "a cluster label is not an integer": lambda r: r["report"]["clusters"].__setitem__(0, 10**30),
    "client_loss has 1 entries, not 6": lambda r: r.update(client_loss=[0.5]),
    "client_models has 1 entries, not 6": lambda r: r.update(client_models=["a"]),
    "a client trained the model b, which is not one": lambda r: r.update(client_models=["b"] * 6),
    "two models have the same name": lambda r: r.update(models=[MODEL, MODEL]),
    "clusters is not a list": lambda r: r["report"].update(clusters=2),
    "similarity is not a matrix": lambda r: r["report"].update(similarity=[1, 0]),
    "threshold is not a number": lambda r: r["report"].update(threshold=None),
    "gamma is not a number": lambda r: r["report"].update(gamma=[0.2]),
}


COUNT = "does not have a count for each class"
FEDERATION: dict[str, Callable[[Any], object]] = {
    "two clients have the same id": lambda f: f["clients"][0].update(id=1),
    f"client 3 {COUNT}": lambda f: f["clients"][3]["samples"].pop(),
    f"client 4 {COUNT}": lambda f: f["clients"][4]["samples"].__setitem__(0, -1),
    f"client 5 {COUNT}": lambda f: f["clients"][5]["samples"].__setitem__(0, 10**30),
    "client 6 is in cluster 1000000": lambda f: f["clients"][6].update(cluster=10**30),
}
SUMMARY: dict[str, Callable[[Any], object]] = {
    "confusion does not have a row and a column": lambda s: s["confusion"][0].pop(),
    "best_accuracy is .*, but .* in history.jsonl": lambda s: s.update(headline="auc"),
    "rare_accuracy is NaN or infinite": lambda s: s.update(rare_accuracy=float("nan")),
}
DAMAGES = {"history.jsonl": HISTORY, "federation.json": FEDERATION, "summary.json": SUMMARY}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [(name, sentence) for name, edits in DAMAGES.items() for sentence in edits],
)
def test_inconsistent_files_are_named(name: str, sentence: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2)
    change(folder, name, DAMAGES[name][sentence])
    with pytest.raises(CadisError, match=sentence) as error:
        read_results([folder.path])
    where = "in round 2," if name == "history.jsonl" else ""
    assert str(error.value).startswith(f"{folder.path / name} is missing or damaged: {where}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('method = "cadis"\nrounds = "many"', "rounds is 'many'"),
        ('method = "cadis"\nseed = 1.5', "seed is 1.5"),
        ("rounds = 2", "there is no 'method'"),
        ("method = 3", "method is 3, which is not a name"),
    ],
)
def test_invalid_options_are_named(text: str, sentence: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2)
    (folder.path / "config.toml").write_text(text)
    with pytest.raises(CadisError, match=sentence) as error:
        read_results([folder.path])
    assert str(folder.path) in str(error.value)


def test_a_study_without_rounds_is_named(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", {"fedavg": 0.5}, 1, rounds=2)
    text = (folder.path / "study.json").read_text()
    (folder.path / "study.json").write_text(text.replace('"rounds": 2', '"round": 2'))
    with pytest.raises(CadisError, match=r"study\.json is missing or damaged: rounds is None"):
        read_results([folder.path])


@pytest.mark.parametrize("method", [CADIS(), CADIS(transitive="off"), FedAvg(), SingleSet()])
def test_valid_runs_are_read(method: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method)
    assert RunData.read(folder).is_finished


def test_unknown_sample_counts_of_a_client_are_allowed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2, finished=False)
    change(folder, "federation.json", lambda content: content["clients"][2].update(samples=None))
    run_data = RunData.read(folder)
    assert run_data.rare == []
    assert make_page_data(read_results([folder.path]))["federation"] is None


def test_a_run_is_finished_if_its_summary_covers_all_rounds(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=3)
    assert RunData.read(folder).is_finished
    change(folder, "summary.json", lambda summary: summary.update(rounds=2, rejected=50))
    run_data = RunData.read(folder)  # as if it had been resumed
    assert not run_data.is_finished
    assert (run_data.summary["rounds"], run_data.summary["rejected"]) == (3, 1)
    assert not read_results([folder.path]).is_complete


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory"), "No such file or directory"),
        (KeyError("classes"), "there is no 'classes'"),
        (RecursionError("too deep"), "too deep"),
        (OverflowError(), "OverflowError"),
        (CadisError("The threshold is too high."), "The threshold is too high"),
    ],
)
def test_any_read_error_becomes_one_sentence(error: Exception, reason: str) -> None:
    with pytest.raises(CadisError) as caught, convert_read_errors(Path("runs/a/summary.json")):
        raise error
    assert str(caught.value) == f"runs/a/summary.json is missing or damaged: {reason}."


def test_an_error_that_names_the_folder_is_not_changed() -> None:
    sentence, path = "There is no run in the folder runs/a.", Path("runs/a/config.toml")
    with pytest.raises(CadisError, match=f"^{sentence}$"), convert_read_errors(path):
        raise CadisError(sentence)
