import json

import pytest
import torch

from cadis.data import PicturePreprocessing, Scaling, TablePreprocessing, digits
from cadis.data.preprocessing import CategoryColumn, NumberColumn, from_json, to_json
from cadis.errors import CadisError

TABLE = TablePreprocessing(
    (
        NumberColumn("age", 50.0, 10.0, may_lack=True),
        CategoryColumn("sex", ("f", "m", "")),
        NumberColumn("weight", 70.0, 20.0, may_lack=False),
    )
)
PICTURES = PicturePreprocessing(1, 8, 8, Scaling((0.5,), (0.25,)))


def test_rows_become_inputs() -> None:
    table = {"weight": ["90", "NA"], "sex": [" m", "x"], "age": ["40", "?"], "site": ["a", "b"]}
    found = TABLE.encode(table)
    assert found.tolist() == [[(40 - 50) / 10, 0, 0, 1, 0, (90 - 70) / 20], [0, 1, 0, 0, 0, 0]]
    assert found.dtype == torch.float32


def test_a_missing_word_is_a_category_of_its_own() -> None:
    assert CategoryColumn("sex", ("f", "")).encode(["", "f", "null"]).tolist() == [
        [0, 1],
        [1, 0],
        [0, 1],
    ]


@pytest.mark.parametrize("value", ["tall", "inf"])
def test_what_is_no_number_is_named_with_its_column(value: str) -> None:
    with pytest.raises(CadisError, match=f"column age has '{value}'"):
        TABLE.encode({"age": [value], "sex": ["m"], "weight": ["1"]})


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(CadisError, match="no column weight; it has: age, sex"):
        TABLE.encode({"age": ["1"], "sex": ["m"]})


@pytest.mark.parametrize("preprocessing", [TABLE, PICTURES], ids=["table", "pictures"])
def test_it_survives_json(preprocessing: PicturePreprocessing | TablePreprocessing) -> None:
    assert from_json(json.loads(json.dumps(to_json(preprocessing)))) == preprocessing


def test_a_digit_of_bytes_becomes_the_same_input() -> None:
    dataset = digits()
    how = dataset.preprocessing
    assert isinstance(how, PicturePreprocessing)
    sixteenths = dataset.train.inputs[:5] * how.scaling.deviation[0] + how.scaling.mean[0]
    found = how(sixteenths * 255)
    assert torch.allclose(found, dataset.train.inputs[:5], atol=1e-5)
