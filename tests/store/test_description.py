"""What a model file says of itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from cadis.data import Examples, PicturePreprocessing, Scaling, TablePreprocessing
from cadis.data.preprocessing import CategoryColumn, NumberColumn
from cadis.store import DamagedError, ModelDescription, ModelInputs, parse_model
from cadis.store.description import without_folders
from cadis.store.model_file import model_bytes

PICTURES = PicturePreprocessing(3, 8, 8, Scaling((0.5, 0.4, 0.3), (0.2, 0.2, 0.2)))
TABLE = TablePreprocessing((NumberColumn("age", 40, 10, True), CategoryColumn("sex", ("f", "m"))))
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


def described(inputs: ModelInputs | None) -> ModelDescription:
    return ModelDescription.of_run(OPTIONS, 2, ["a", "b"], inputs)


@pytest.mark.parametrize("how", [PICTURES, TABLE, None], ids=["pictures", "table", "tensors"])
def test_it_survives_its_file(how: PicturePreprocessing | TablePreprocessing | None) -> None:
    told = described(ModelInputs((3, 8, 8), "uint8", how)).after(7, ["one", "other"])
    tensors = {"one/weight": torch.arange(3.0), "other/weight": torch.zeros(3)}
    found, again = parse_model(model_bytes(tensors, told), "a file")
    assert again == told
    assert (told.rounds, told.models) == (7, ("one", "other"))
    assert torch.equal(found["one/weight"], tensors["one/weight"])


def test_it_is_the_same_bits_each_time_and_plain_safetensors(tmp_path: Path) -> None:
    tensors = {"weight": torch.arange(3.0)}
    contents = {model_bytes(tensors, described(None).after(1, ["model"])) for _ in range(20)}
    assert len(contents) == 1
    (tmp_path / "model.safetensors").write_bytes(contents.pop())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert list(file.keys()) == ["weight"]
        told = json.loads(file.metadata()["cadis"])
    assert told["architecture"] == "nets.py:net"
    assert (told["format"], told["classes"], told["models"]) == (1, ["a", "b"], [])


def test_nothing_of_the_users_machine_is_in_it() -> None:
    text = described(None).to_text()
    assert "/home" not in text
    assert "data_dir" not in text
    assert "workers" not in text
    assert described(None).training == {
        "method": "mine.py:Mine",
        "transforms": ["clip"],
        "dataset": "images:pills",
        "lr": 0.1,
        "clip": {"norm": 1.0},
    }
    assert without_folders("pkg.module:Net") == "pkg.module:Net"


def test_inputs_of_examples() -> None:
    labels = torch.zeros(2).long()
    scaled = Examples(torch.zeros(2, 3, 8, 8).byte(), labels, PICTURES.scaling)
    assert ModelInputs.of(scaled) == ModelInputs((3, 8, 8), "uint8", PICTURES)
    plain = Examples(torch.zeros(2, 5), labels)
    assert ModelInputs.of(plain) == ModelInputs((5,), "float32")
    assert ModelInputs.of(plain, TABLE) == ModelInputs((5,), "float32", TABLE)


def test_a_file_without_one_and_damaged_ones() -> None:
    content = model_bytes({"w": torch.zeros(1)}, described(None))
    for wrong in (content.replace(b"cadis", b"other", 1), content[:-3]):
        with pytest.raises(DamagedError, match=r"^f is no model of cadis, or damaged; put back"):
            parse_model(wrong, "f")
    with pytest.raises(DamagedError, match=r"^The description of the model in f is damaged\."):
        ModelDescription.from_text('{"format": 1}', "f")
    newer = json.loads(replace(described(None)).to_text()) | {"format": 2}
    with pytest.raises(DamagedError, match="by a newer version of cadis"):
        ModelDescription.from_text(json.dumps(newer), "f")
