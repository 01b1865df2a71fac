"""The cases cover all parts, and the hashes detect every change except timings."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save

from cadis.algorithm import KINDS
from cadis.algorithm.methods import METHODS as REGISTERED_METHODS
from cadis.experiment import PARTITION
from cadis.experiment.variants import VARIANTS as REGISTERED_VARIANTS
from goldens import cases, hashing
from goldens.__main__ import main, select
from goldens.cases import CASES
from goldens.record import Goldens, describe_machine, find_differences
from goldens.running import run_method

NAMES = [case.name for case in CASES]
ROUND: dict[str, Any] = {
    "round": 1,
    "accuracy": 0.5,
    "participants": [0, "ann"],
    "report": {"clusters": [0, 1], "cut": 0.1},
    "clock": 3.5,
    "seconds": {"train": 0.1, "total": 0.2},
}


def to_jsonl(*rounds: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in rounds)


def test_every_method_has_a_case_for_each_way_of_training() -> None:
    assert {*cases.METHODS} == {*REGISTERED_METHODS}
    assert {*cases.VARIANTS} == {*REGISTERED_VARIANTS} - {*REGISTERED_METHODS}
    for method in (*REGISTERED_METHODS, *REGISTERED_VARIANTS):
        for how in ("stacked", "one-by-one"):
            for workers in (1, 2):
                assert f"method/{method}/{how}/workers-{workers}" in NAMES
    assert len(NAMES) == len(set(NAMES))


def test_every_part_and_partition_has_a_case() -> None:
    for key, kind in KINDS.items():
        if key != "method":
            prefix = key.replace("_", "-").removesuffix("s")
            assert {f"{prefix}/{name}" for name in kind.registry} <= {*NAMES}
    assert {f"partition/{name}/run" for name in PARTITION.registry} <= {*NAMES}


def test_file_has_the_hashes_of_all_cases() -> None:
    assert sorted(Goldens.read().cases) == sorted(NAMES)


def test_workers_and_interruptions_do_not_change_results() -> None:
    hashes = Goldens.read().cases
    for name in NAMES:
        if name.startswith("method/") and name.endswith("/workers-2"):
            assert hashes[name] == hashes[name.replace("workers-2", "workers-1")], name
    assert hashes["python/run/workers-2"] == hashes["python/run"]
    assert hashes["command/resume"] == hashes["command/run"]
    assert hashes["python/resume"] == hashes["python/uninterrupted"]


def test_hash_of_a_history_ignores_timings() -> None:
    slower = ROUND | {"seconds": {"train": 9.0, "total": 10.0}}
    assert hashing.hash_history(to_jsonl(ROUND)) == hashing.hash_history(to_jsonl(slower))


@pytest.mark.parametrize("key", [key for key in ROUND if key != "seconds"])
def test_hash_of_a_history_depends_on_every_other_key(key: str) -> None:
    reference = hashing.hash_history(to_jsonl(ROUND))
    assert hashing.hash_history(to_jsonl(ROUND | {key: None})) != reference
    without_key = {name: value for name, value in ROUND.items() if name != key}
    assert hashing.hash_history(to_jsonl(without_key)) != reference


def test_hash_of_a_history_depends_on_the_last_digit_and_number_of_rounds() -> None:
    reference = hashing.hash_history(to_jsonl(ROUND))
    assert hashing.hash_history(to_jsonl(ROUND | {"accuracy": 0.5000000000000001})) != reference
    assert hashing.hash_history(to_jsonl(ROUND, ROUND)) != reference


def test_tensors_and_metadata_of_a_model_have_separate_hashes() -> None:
    tensors = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    metadata = {"cadis": json.dumps({"rounds": 3, "version": "1"})}
    model, description = hashing.hash_model(save(tensors, metadata))
    newer = {"cadis": json.dumps({"rounds": 3, "version": "2"})}
    assert hashing.hash_model(save(tensors, newer)) == (model, description)
    longer = {"cadis": json.dumps({"rounds": 4, "version": "1"})}
    assert hashing.hash_model(save(tensors, longer))[0] == model
    assert hashing.hash_model(save(tensors, longer))[1] != description
    for changed in (
        tensors | {"bias": torch.tensor([0.0, 1e-30])},
        tensors | {"weight": torch.ones(3, 2)},
        {"weight": tensors["weight"], "offset": tensors["bias"]},
    ):
        assert hashing.hash_model(save(changed, metadata))[0] != model


def make_table(accuracy: str = "0.9", seconds: str = "0.1", label: str = "FedAvg") -> str:
    text = io.StringIO()
    rows = [
        ["method", "measure", "mean"],
        [label, "last", accuracy],
        [label, "server_seconds", seconds],
    ]
    csv.writer(text).writerows(rows)
    return text.getvalue()


def test_hash_of_a_table_ignores_timings_and_labels() -> None:
    reference = hashing.hash_csv(make_table())
    assert hashing.hash_csv(make_table(seconds="7", label="Federated averaging")) == reference
    assert hashing.hash_csv(make_table(accuracy="0.91")) != reference


def test_hash_of_markdown_depends_on_numbers_of_all_tables_but_the_last() -> None:
    text = "**Best**\n\n| method | last |\n| --- | ---: |\n| FedAvg 2 | {}±0.1 |\n\n"
    cost = "**Cost**\n\n| method | ms |\n| --- | ---: |\n| FedAvg | {} |\n"
    reference = hashing.hash_numbers(text.format("0.9") + cost.format("5"))
    reworded = text.replace("FedAvg 2", "FedAvg 3").replace("Best", "Good")
    assert hashing.hash_numbers(reworded.format("**0.9**") + cost.format("6")) == reference
    assert hashing.hash_numbers(text.format("0.8") + cost.format("5")) != reference


def test_differences_are_named() -> None:
    assert find_differences({"model": "1", "history": "2"}, {"model": "1", "history": "2"}) == []
    assert find_differences({"model": "1", "history": "2"}, {"model": "3", "best": "4"}) == [
        *("model", "history", "best")
    ]
    assert find_differences(None, {"model": "1"}) == ["new"]


def test_differences_of_the_machine_are_reported() -> None:
    machine = describe_machine()
    assert Goldens(machine, {}).machine_differences(machine) == []
    other = machine | {"cpu": "another"}
    assert Goldens(other, {}).machine_differences(machine) == [
        f"cpu: another in the file, {machine['cpu']} here"
    ]


def test_words_select_cases() -> None:
    names = [case.name for case in select(["fedavg", "flower"])]
    assert len(names) == 5
    assert "flower/simulation" in names
    assert not any("fedavgm" in name for name in names)
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2


def test_hashes_of_a_run_depend_on_the_seed_only(tmp_path: Path) -> None:
    one, again, other = (
        run_method("fedavg", tmp_path / name, rounds=1, seed=seed)
        for name, seed in (("one", 0), ("again", 0), ("other", 1))
    )
    assert one == again
    assert all(one[name] != other[name] for name in one)
