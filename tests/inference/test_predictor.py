"""Tests of predictions for images, tables and tensors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cadis import CadisError, Predictor
from cadis._io import Callbacks
from cadis.data import ImagePreprocessing, Scaling, TablePreprocessing
from cadis.data.preprocessing import CategoryColumn, NumberColumn
from cadis.store import ModelDescription, ModelInputs


class Brightness(nn.Module):
    """Returns the logits (-mean, mean) of a scaled image: the second class is bright."""

    def forward(self, inputs: Tensor) -> Tensor:
        mean = inputs.flatten(1).mean(dim=1, keepdim=True)
        return torch.cat([-mean, mean], dim=1)


def make_image_predictor(channels: int = 1, height: int = 4, width: int = 4) -> Predictor:
    scaling = Scaling((0.5,) * channels, (0.5,) * channels)
    preprocessing = ImagePreprocessing(channels, height, width, scaling)
    inputs = ModelInputs((channels, height, width), "uint8", preprocessing)
    description = ModelDescription("", 2, "classification", ("dark", "bright"), inputs)
    return Predictor(Brightness(), description)


def make_table_predictor() -> Predictor:
    columns = (NumberColumn("age", 40.0, 10.0, False), CategoryColumn("sex", ("f", "m", "")))
    inputs = ModelInputs((4,), "float32", TablePreprocessing(columns))
    description = ModelDescription("", 2, "classification", ("well", "ill"), inputs)
    model = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0]]))
    return Predictor(model, description)


def save_image(path: Path, shade: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (9, 5), (shade,) * 3).save(path)
    return path


def test_probabilities_of_a_white_image() -> None:
    white = make_image_predictor()(torch.full((1, 1, 4, 4), 255.0))
    e = torch.e
    # (255 / 255 - 0.5) / 0.5 = 1, so the logits are -1 and 1.
    assert torch.allclose(white, torch.tensor([[1 / e, e]]) / (e + 1 / e))


def test_folder_of_images_with_true_classes_and_a_damaged_file(tmp_path: Path) -> None:
    save_image(tmp_path / "dark" / "2.png", 0)
    save_image(tmp_path / "dark" / "10.png", 200)
    save_image(tmp_path / "elsewhere" / "a.jpg", 255)
    (tmp_path / "bright").mkdir()
    (tmp_path / "bright" / "broken.png").write_bytes(b"none")
    with pytest.warns(UserWarning, match=r"Skipped bright/broken.png: it is not an image"):
        predictions = make_image_predictor().predict(tmp_path)
    assert [(p.name, p.label, p.truth) for p in predictions] == [
        ("dark/2.png", "dark", "dark"),
        ("dark/10.png", "bright", "dark"),
        ("elsewhere/a.jpg", "bright", None),
    ]
    assert predictions[0].probability == max(predictions[0].probabilities)
    assert sum(predictions[0].probabilities) == pytest.approx(1)


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 4, 4), (3, 4, 6)])
def test_single_image_and_list_give_the_same_prediction(
    tmp_path: Path, shape: tuple[int, int, int]
) -> None:
    path = save_image(tmp_path / "a.png", 51)
    predictor = make_image_predictor(*shape)
    (one,), (other,) = predictor.predict(str(path)), predictor.predict([path])
    assert one == other
    (expected,) = predictor(torch.full((1, *shape), 51)).tolist()
    assert one.probabilities == pytest.approx(expected)


def test_tables_as_files_columns_and_data_frames(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sex,age,label,more\nf,40,well,1\nm,30,ill,2\n?,70,,3\n")
    predictor = make_table_predictor()
    predictions = predictor.predict(path)
    # Logits of "ill": 0; (30 - 40) / 10 + 2 = 1; (70 - 40) / 10 = 3.
    expected = torch.sigmoid(torch.tensor([0.0, 1.0, 3.0])).tolist()
    assert [prediction.probabilities[1] for prediction in predictions] == pytest.approx(expected)
    assert [prediction.name for prediction in predictions] == ["1", "2", "3"]
    assert [prediction.truth for prediction in predictions] == ["well", "ill", None]
    path.with_suffix(".tsv").write_text(path.read_text().replace(",", "\t"))
    assert predictor.predict(path.with_suffix(".tsv")) == predictions
    columns: dict[str, list[Any]] = {"age": [40, 30, 70], "sex": ["f", "m", None]}
    without_labels = [replace(prediction, truth=None) for prediction in predictions]
    assert predictor.predict(columns) == without_labels
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    assert predictor.predict(pandas.read_csv(path)) == predictions
    parquet.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / "rows.parquet")
    assert predictor.predict(tmp_path / "rows.parquet") == without_labels


def test_label_column_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sex,age,state\nf,40,ill\n")
    predictor = make_table_predictor()
    assert [
        prediction.truth for prediction in predictor.iter_predictions(path, Callbacks(), "state")
    ] == ["ill"]
    with pytest.raises(CadisError, match="no column other; it has: sex, age, state"):
        list(predictor.iter_predictions(path, Callbacks(), "other"))


def test_label_column_of_the_training_and_numeric_labels() -> None:
    original = make_table_predictor()
    options = {"label_column": "outcome", "method": "fedavg"}
    description = replace(original.description, classes=("0", "1"), training=options)
    predictor = Predictor(original.module, description)
    table: dict[str, list[Any]] = {"age": [30, 50], "sex": ["f", "f"]}
    table |= {"outcome": [0.0, 1.0], "label": ["a", "b"]}
    assert [prediction.truth for prediction in predictor.predict(table)] == ["0", "1"]


def test_order_of_many_rows_is_kept() -> None:
    table: dict[str, list[Any]] = {"age": list(range(150)), "sex": ["f"] * 150}
    table["label"] = ["well", "ill"] * 75
    predictions = make_table_predictor().predict(table)
    assert [prediction.name for prediction in predictions] == [str(n) for n in range(1, 151)]
    assert [prediction.truth for prediction in predictions] == table["label"]
    assert [prediction.label for prediction in predictions] == ["well"] * 41 + ["ill"] * 109


def test_invalid_inputs_are_an_error(tmp_path: Path) -> None:
    image = save_image(tmp_path / "some" / "a.png", 1)
    (tmp_path / "cut.csv").write_text("age,sex\n1\n")
    (tmp_path / "empty").mkdir()
    table = {"age": [1, 2], "sex": ["f"]}
    cases: list[tuple[Predictor, Any, str]] = [
        (make_image_predictor(), tmp_path / "none", "There is no image, folder or table"),
        (make_image_predictor(), tmp_path / "empty", "There are no images in"),
        (make_image_predictor(), {"age": [1]}, "does not take tables, but images"),
        (make_table_predictor(), image, "does not take images, but tables"),
        (make_table_predictor(), {"age": [1]}, "The table has no column sex"),
        (make_table_predictor(), table, "The columns age and sex have 2 and 1 values; give each"),
        (
            make_table_predictor(),
            tmp_path / "cut.csv",
            "cut.csv has 1 cells in line 2, but 2 titles",
        ),
    ]
    for predictor, inputs, sentence in cases:
        with pytest.raises(CadisError, match=sentence):
            predictor.predict(inputs)
    sentence = r"takes inputs of shape \(n, 1, 4, 4\), not \(1, 4, 4\)"
    with pytest.raises(CadisError, match=sentence):
        make_image_predictor()(torch.zeros(1, 4, 4))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("30,x,1", "sex has 'x', which is not in the training rows .they have: f, m, ."),
        ("30,F,1", "sex has 'F', which is not in the training rows"),
        ("NA,f,1", "age has no value, but all training rows have one"),
        (",f,1", "age has no value, but all training rows have one"),
        ("1e300,f,1", "age has '1e300', more than 1,000,000 standard deviations from the mean"),
        ("-1e8,f,1", "age has '-1e8', more than 1,000,000 standard deviations"),
        ("inf,f,1", "age has 'inf', which is not a finite number"),
        ("1e999,f,1", "age has '1e999', which is not a finite number"),
        ("old,f,1", "age has 'old', which is not a finite number"),
        ("30,f,", "dose has no value, but all training rows have one"),
        ("30,f,3", "dose has '3', which is not in the training rows"),
    ],
)
def test_values_unlike_all_training_rows_are_refused(
    row: str, problem: str, tmp_path: Path
) -> None:
    dose = CategoryColumn("dose", ("1", "2"))
    columns = (NumberColumn("age", 40.0, 10.0, False), CategoryColumn("sex", ("f", "m", "")), dose)
    inputs = ModelInputs((6,), "float32", TablePreprocessing(columns))
    description = ModelDescription("", 2, "classification", ("well", "ill"), inputs)
    predictor = Predictor(nn.Linear(6, 2), description)
    path = tmp_path / "rows.csv"
    path.write_text(f"age,sex,dose\n30,f,1\n\n{row}\n")
    with pytest.raises(
        CadisError, match=rf"column {problem}.* \(.*rows\.csv, line 4\); correct it"
    ):
        predictor.predict(path)
    cells = row.split(",")
    table = {"age": ["30", cells[0]], "sex": ["f", cells[1]], "dose": ["1", cells[2]]}
    with pytest.raises(CadisError, match=rf"column {problem}.* \(row 2\); correct it"):
        predictor.predict(table)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
def test_probability_is_never_nan(value: float) -> None:
    images, rows = torch.zeros(3, 1, 4, 4), torch.zeros(3, 4)
    images[1, 0, 2, 3], rows[1, 2] = value, value
    with pytest.raises(CadisError, match=r"Row 2 of the inputs has the value .* \[0, 2, 3\]"):
        make_image_predictor().predict(images)
    with pytest.raises(CadisError, match=r"Row 2 of the inputs has the value .* \[2\]"):
        make_table_predictor()(rows)


def test_model_that_returns_nan_is_an_error() -> None:
    broken = make_table_predictor()
    broken.module.weight[1, 2] = float("nan")  # type: ignore[operator]
    with pytest.raises(CadisError, match="no finite probability for row 1"):
        broken.predict({"age": [30], "sex": ["m"]})


def test_own_task_needs_probabilities(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Task:\n    pass\n")
    task = f"{tmp_path / 'mine.py'}:Task"
    description = ModelDescription("", 2, task, ("a", "b"), None)
    with pytest.raises(CadisError, match=r"has no method probabilities\(outputs\)"):
        Predictor(Brightness(), description, task)
