"""Predictions on what users have: pictures, tables, tensors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cadis import CadisError, Predictor
from cadis._io import Callbacks
from cadis.data import PicturePreprocessing, Scaling, TablePreprocessing
from cadis.data.preprocessing import CategoryColumn, NumberColumn
from cadis.store import ModelDescription, ModelInputs


class Darker(nn.Module):
    """Logits (-mean, mean) of a scaled picture: the second class is what is bright."""

    def forward(self, inputs: Tensor) -> Tensor:
        mean = inputs.flatten(1).mean(dim=1, keepdim=True)
        return torch.cat([-mean, mean], dim=1)


def of_pictures(channels: int = 1, height: int = 4, width: int = 4) -> Predictor:
    scaling = Scaling((0.5,) * channels, (0.5,) * channels)
    how = PicturePreprocessing(channels, height, width, scaling)
    inputs = ModelInputs((channels, height, width), "uint8", how)
    told = ModelDescription("", 2, "classification", ("dark", "bright"), inputs)
    return Predictor(Darker(), told)


def of_tables() -> Predictor:
    columns = (NumberColumn("age", 40.0, 10.0, False), CategoryColumn("sex", ("f", "m")))
    inputs = ModelInputs((3,), "float32", TablePreprocessing(columns))
    told = ModelDescription("", 2, "classification", ("well", "ill"), inputs)
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]))
    return Predictor(model, told)


def paint(path: Path, shade: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (9, 5), (shade,) * 3).save(path)
    return path


def test_by_hand() -> None:
    white = of_pictures()(torch.full((1, 1, 4, 4), 255.0))
    e = torch.e
    # (255 / 255 - 0.5) / 0.5 = 1, so the logits are -1 and 1.
    assert torch.allclose(white, torch.tensor([[1 / e, e]]) / (e + 1 / e))


def test_a_folder_of_pictures_with_the_truth_and_a_broken_one(tmp_path: Path) -> None:
    paint(tmp_path / "dark" / "2.png", 0)
    paint(tmp_path / "dark" / "10.png", 200)
    paint(tmp_path / "elsewhere" / "a.jpg", 255)
    (tmp_path / "bright").mkdir()
    (tmp_path / "bright" / "broken.png").write_bytes(b"none")
    with pytest.warns(UserWarning, match=r"Left out bright/broken.png: it is not a picture"):
        found = of_pictures().predict(tmp_path)
    assert [(each.name, each.label, each.truth) for each in found] == [
        ("dark/2.png", "dark", "dark"),
        ("dark/10.png", "bright", "dark"),
        ("elsewhere/a.jpg", "bright", None),
    ]
    assert found[0].probability == max(found[0].probabilities)
    assert sum(found[0].probabilities) == pytest.approx(1)


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 4, 4), (3, 4, 6)])
def test_one_picture_or_a_list_of_any_channels(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    path = paint(tmp_path / "a.png", 51)
    predictor = of_pictures(*shape)
    (one,), (other,) = predictor.predict(str(path)), predictor.predict([path])
    assert one == other
    (expected,) = predictor(torch.full((1, *shape), 51)).tolist()
    assert one.probabilities == pytest.approx(expected)


def test_tables_in_all_their_forms(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sex,age,label,more\nf,40,well,1\nm,30,ill,2\n?,70,,3\n")
    predictor = of_tables()
    found = predictor.predict(path)
    # Logits of "ill": 0; (30 - 40) / 10 + 2 = 1; (70 - 40) / 10 = 3.
    expected = torch.sigmoid(torch.tensor([0.0, 1.0, 3.0])).tolist()
    assert [each.probabilities[1] for each in found] == pytest.approx(expected)
    assert [each.name for each in found] == ["1", "2", "3"]
    assert [each.truth for each in found] == ["well", "ill", None]
    path.with_suffix(".tsv").write_text(path.read_text().replace(",", "\t"))
    assert predictor.predict(path.with_suffix(".tsv")) == found
    columns: dict[str, list[Any]] = {"age": [40, 30, 70], "sex": ["f", "m", None]}
    unlabelled = [replace(each, truth=None) for each in found]
    assert predictor.predict(columns) == unlabelled
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    assert predictor.predict(pandas.read_csv(path)) == found
    parquet.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / "rows.parquet")
    assert predictor.predict(tmp_path / "rows.parquet") == unlabelled


def test_a_named_column_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sex,age,state\nf,40,ill\n")
    predictor = of_tables()
    assert [each.truth for each in predictor.predictions(path, Callbacks(), "state")] == ["ill"]
    with pytest.raises(CadisError, match="no column other; it has: sex, age, state"):
        list(predictor.predictions(path, Callbacks(), "other"))


def test_numbers_as_labels_and_the_column_that_was_trained_on() -> None:
    trained = of_tables()
    options = {"label_column": "outcome", "method": "fedavg"}
    told = replace(trained.description, classes=("0", "1"), training=options)
    predictor = Predictor(trained.module, told)
    table: dict[str, list[Any]] = {"age": [30, 50], "sex": ["f", "f"]}
    table |= {"outcome": [0.0, 1.0], "label": ["a", "b"]}
    assert [each.truth for each in predictor.predict(table)] == ["0", "1"]


def test_many_rows_keep_their_order_and_their_truth() -> None:
    table: dict[str, list[Any]] = {"age": list(range(150)), "sex": ["f"] * 150}
    table["label"] = ["well", "ill"] * 75
    found = of_tables().predict(table)
    assert [each.name for each in found] == [str(n) for n in range(1, 151)]
    assert [each.truth for each in found] == table["label"]
    assert [each.label for each in found] == ["well"] * 41 + ["ill"] * 109


def test_what_cannot_be_predicted_on(tmp_path: Path) -> None:
    picture = paint(tmp_path / "some" / "a.png", 1)
    (tmp_path / "cut.csv").write_text("age,sex\n1\n")
    (tmp_path / "empty").mkdir()
    table = {"age": [1, 2], "sex": ["f"]}
    cases: list[tuple[Predictor, Any, str]] = [
        (of_pictures(), tmp_path / "none", "There is no picture, folder or table"),
        (of_pictures(), tmp_path / "empty", "There are no pictures in"),
        (of_pictures(), {"age": [1]}, "does not take tables, but pictures"),
        (of_tables(), picture, "does not take pictures, but table"),
        (of_tables(), {"age": [1]}, "The table has no column sex"),
        (of_tables(), table, "The columns age and sex have 2 and 1 values; give each"),
        (of_tables(), tmp_path / "cut.csv", "cut.csv has 1 cells in line 2, but 2 titles"),
    ]
    for predictor, inputs, sentence in cases:
        with pytest.raises(CadisError, match=sentence):
            predictor.predict(inputs)
    sentence = r"takes pictures of shape \(n, 1, 4, 4\), not \(1, 4, 4\)"
    with pytest.raises(CadisError, match=sentence):
        of_pictures()(torch.zeros(1, 4, 4))


def test_a_task_of_a_users_own_must_say_what_is_probable(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Task:\n    pass\n")
    told = ModelDescription("", 2, f"{tmp_path / 'mine.py'}:Task", ("a", "b"), None)
    with pytest.raises(CadisError, match=r"give it a function probabilities\(outputs\)"):
        Predictor(Darker(), told)
