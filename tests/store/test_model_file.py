"""Descriptions in model files, and model cards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from cadis.data import ImagePreprocessing, Samples, Scaling, TablePreprocessing
from cadis.data.preprocessing import CategoryColumn, NumberColumn
from cadis.experiment import resolve, run_experiment
from cadis.store import DamagedError, ModelDescription, ModelInputs, parse_model
from cadis.store.model_card import format_model_card
from cadis.store.model_file import encode_model, strip_folders

PICTURES = ImagePreprocessing(3, 8, 8, Scaling((0.5, 0.4, 0.3), (0.2, 0.2, 0.2)))
TABLE = TablePreprocessing((NumberColumn("age", 40, 10, True), CategoryColumn("sex", ("f", "m"))))
SHAPES = {"pictures": (3, 8, 8), "table": (4,)}
OPTIONS = {
    "method": "/home/me/mine.py:Mine",
    "task": "classification",
    "transforms": ["clip"],
    "model": "/home/me/nets.py:net",
    "dataset": "images:/home/me/pills",
    "data_dir": "/home/me/data",
    "workers": 8,
    "per_round": None,
    "lr": 0.1,
    "clip": {"norm": 1.0, "unset": None},
}


def make_description(inputs: ModelInputs | None) -> ModelDescription:
    return ModelDescription.from_options(OPTIONS, 2, ["a", "b"], inputs)


@pytest.mark.parametrize(
    "preprocessing", [PICTURES, TABLE, None], ids=["pictures", "table", "tensors"]
)
def test_description_is_the_same_after_reading(
    preprocessing: ImagePreprocessing | TablePreprocessing | None,
) -> None:
    shape = SHAPES[preprocessing.kind] if preprocessing else (5, 2)
    inputs = ModelInputs(shape, "uint8", preprocessing)
    description = make_description(inputs).with_rounds(7, ["one", "other"])
    tensors = {"one/weight": torch.arange(3.0), "other/weight": torch.zeros(3)}
    result, parsed = parse_model(encode_model(tensors, description), "a file")
    assert parsed == description
    assert (parsed.rounds, parsed.models) == (7, ("one", "other"))
    assert torch.equal(result["one/weight"], tensors["one/weight"])


def test_file_is_deterministic_and_plain_safetensors(tmp_path: Path) -> None:
    tensors = {"weight": torch.arange(3.0)}
    contents = {
        encode_model(tensors, make_description(None).with_rounds(1, ["model"])) for _ in range(20)
    }
    assert len(contents) == 1
    (tmp_path / "model.safetensors").write_bytes(contents.pop())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert list(file.keys()) == ["weight"]
        content = json.loads(file.metadata()["cadis"])
    assert content["architecture"] == "nets.py:net"
    assert (content["format"], content["classes"], content["models"]) == (1, ["a", "b"], [])


def test_description_has_no_paths_and_no_options_of_the_machine() -> None:
    text = make_description(None).to_text()
    assert "/home" not in text
    assert "data_dir" not in text
    assert "workers" not in text
    assert make_description(None).training == {
        "method": "mine.py:Mine",
        "transforms": ["clip"],
        "dataset": "images:pills",
        "lr": 0.1,
        "clip": {"norm": 1.0},
    }
    assert strip_folders("pkg.module:Net") == "pkg.module:Net"


def test_inputs_of_samples() -> None:
    labels = torch.zeros(2).long()
    scaled = Samples(torch.zeros(2, 3, 8, 8).byte(), labels, PICTURES.scaling)
    assert ModelInputs.from_samples(scaled) == ModelInputs((3, 8, 8), "uint8", PICTURES)
    plain = Samples(torch.zeros(2, 5), labels)
    assert ModelInputs.from_samples(plain) == ModelInputs((5,), "float32")
    assert ModelInputs.from_samples(plain, TABLE) == ModelInputs((5,), "float32", TABLE)


def test_missing_or_damaged_description_is_an_error() -> None:
    content = encode_model({"w": torch.zeros(1)}, make_description(None))
    for wrong in (content.replace(b"cadis", b"other", 1), content[:-3]):
        with pytest.raises(
            DamagedError, match=r"^f is not a model of cadis, or it is damaged; restore"
        ):
            parse_model(wrong, "f")
    with pytest.raises(
        DamagedError, match=r"^The description of the model in f is damaged; restore"
    ):
        ModelDescription.from_text('{"format": 1}', "f")
    newer = json.loads(replace(make_description(None)).to_text()) | {"format": 2}
    with pytest.raises(DamagedError, match="by a newer version of cadis"):
        ModelDescription.from_text(json.dumps(newer), "f")


QUICK = {"rounds": 1, "epochs": 1, "workers": 1, "clients": 4, "method": "fedavg"}
FEDERATION: dict[str, Any] = {
    "classes": ['a|"b"', "ß: c"],
    "clients": [
        {"id": "clinic of Dr. X", "cluster": 0, "samples": [3, 1]},
        {"id": "other", "cluster": 1, "samples": [0, 6]},
    ],
}
SUMMARY: dict[str, Any] = {
    "accuracy": 0.75,
    "best_accuracy": 0.8,
    "measures": {"auc": 0.91234, "f1": None},
    "rare_accuracy": None,
    "client_worst": 0.25,
    "confusion": [[3, 1], [0, 0]],
    "versions": {"cadis": "0", "torch": "1"},
}


def make_picture_model(dataset: str | None = "images:pills") -> ModelDescription:
    preprocessing = ImagePreprocessing(1, 8, 8, Scaling((0.0,), (1.0,)))
    options = {"method": "cadis", "model": "cnn", "dataset": dataset, "sgd": {"momentum": 0.5}}
    inputs = ModelInputs((1, 8, 8), "uint8", preprocessing)
    return ModelDescription.from_options(options, 2, FEDERATION["classes"], inputs).with_rounds(
        7, ["model"]
    )


def parse_front_matter(card: str) -> Any:
    yaml = pytest.importorskip("yaml")
    assert card.startswith("---\n")
    return yaml.safe_load(card.split("\n---\n", maxsplit=1)[0].removeprefix("---\n"))


def test_front_matter_has_the_keys_of_the_hub() -> None:
    content = parse_front_matter(format_model_card(make_picture_model(), SUMMARY, FEDERATION))
    (model,) = content.pop("model-index")
    assert content == {
        "library_name": "cadis",
        "pipeline_tag": "image-classification",
        "tags": ["federated-learning", "pytorch", "cadis"],
        "metrics": ["accuracy", "auc"],
    }
    (result,) = model["results"]
    assert model["name"] == "CADIS on images:pills"
    assert result["task"] == {"type": "image-classification"}
    assert result["dataset"] == {"name": "images:pills", "type": "images-pills"}
    assert result["metrics"] == [
        {"type": "accuracy", "value": 0.75},
        {"type": "auc", "value": 0.9123},
    ]
    assert parse_front_matter(format_model_card(make_picture_model("digits"), SUMMARY, FEDERATION))[
        "datasets"
    ] == ["digits"]
    untested = SUMMARY | {"accuracy": None, "measures": {}, "confusion": None}
    assert "model-index" not in parse_front_matter(
        format_model_card(make_picture_model(None), untested, FEDERATION)
    )


def test_hub_can_parse_the_card() -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(format_model_card(make_picture_model(), SUMMARY, FEDERATION))
    accuracy, auc = card.data.eval_results
    assert (accuracy.metric_type, accuracy.metric_value) == ("accuracy", 0.75)
    assert (auc.metric_type, auc.dataset_name) == ("auc", "images:pills")


def test_card_has_options_data_and_results() -> None:
    card = format_model_card(make_picture_model(), SUMMARY, FEDERATION)
    assert "federated learning for 7 rounds" in card
    assert 'cadis.load("model.safetensors")' in card
    assert "| sgd: momentum | 0.5 |" in card
    assert "There are 10 training samples, with 4 to 6 samples per client." in card
    assert '| a\\|"b" | 3 | 4 | 0.750 |\n| ß: c | 7 | 0 |  |' in card
    assert "worst client | 0.25 |" in card
    assert "Dr. X" not in card  # a card has no client ids
    assert "None" not in card


def test_card_of_a_binary_task_on_a_table() -> None:
    columns = (
        NumberColumn("age|years", 60.0, 10.0, may_lack=True),
        NumberColumn("marker", 5.0, 1.0, may_lack=False),
        CategoryColumn("sex", ("f", "m", "")),
        CategoryColumn("ward", tuple(f"Dr. {n}" for n in range(11))),
    )
    inputs = ModelInputs((17,), "float32", TablePreprocessing(columns))
    options = {"dataset": "csv:cohort.csv", "label_column": "outcome", "task": "binary"}
    description = ModelDescription.from_options(options, 1, ["ill", "well"], inputs).with_rounds(
        3, ["model"]
    )
    card = format_model_card(
        description, SUMMARY | {"headline": "auc", "best_auc": 0.95}, FEDERATION
    )
    assert "predicts one of 2 classes from rows of a table (17 input features)." in card
    assert "The positive class is well" in card
    assert "| age\\|years | a number; may be missing |\n| marker | a number |\n" in card
    assert "| sex | one of 2 categories: f, m; may be missing |\n" in card
    assert "| ward | one of 11 categories |" in card
    assert "| label_column | outcome |" in card
    assert "| best AUC of all rounds | 0.95 |\n" in card
    assert "| accuracy in the round with the best AUC | 0.8 |" in card
    assert "best accuracy" not in card
    assert "best accuracy of all rounds | 0.8 |" in format_model_card(
        make_picture_model(), SUMMARY, FEDERATION
    )


def test_run_does_not_overwrite_a_card_that_the_user_changed(tmp_path: Path) -> None:
    config = resolve({}, QUICK)
    card = tmp_path / "run" / "MODEL_CARD.md"
    run_experiment(config, tmp_path / "run")
    first = card.read_text()
    assert "FedAvg on digits" in first
    run_experiment(resolve({}, QUICK | {"rounds": 2}), tmp_path / "run", resume=True)
    second = card.read_text()
    assert "for 2 rounds" in second  # an unchanged card is written again
    card.write_text(second + "Reviewed by me.\n")
    run_experiment(resolve({}, QUICK | {"rounds": 3}), tmp_path / "run", resume=True)
    assert card.read_text() == second + "Reviewed by me.\n"
    card.unlink()
    run_experiment(resolve({}, QUICK | {"rounds": 3}), tmp_path / "run", resume=True)
    assert "for 3 rounds" in card.read_text()
