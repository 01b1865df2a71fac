"""Tests of users' tables and their preprocessing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cadis._io import Callbacks, format_csv
from cadis.data import (
    CategoryColumn,
    Dataset,
    ImagePreprocessing,
    NumberColumn,
    Scaling,
    TableColumns,
    TablePreprocessing,
    digits,
    from_json,
    load,
    read_table,
    to_json,
)
from cadis.errors import CadisError

HEADER = "site,age,sex,outcome,split"
ROWS = [
    "a,10,f,ill,train",
    "a,30,m,well,train",
    "b,,f,ill,train",
    "b,20,x,well,train",
    "a,1000,z,ill,test",
    "b,NA,f,well,test",
]
BY_SITE = TableColumns("site", "outcome")


def write(path: Path, rows: Sequence[str], header: str = HEADER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def read(path: Path, columns: TableColumns = BY_SITE) -> tuple[Dataset, list[str]]:
    """Return the dataset of a table or folder, and the warnings."""
    messages: list[str] = []
    dataset = load(f"csv:{path}", columns=columns, callbacks=Callbacks(say=messages.append))
    return dataset, messages


def get_columns(dataset: Dataset) -> tuple[NumberColumn | CategoryColumn, ...]:
    assert isinstance(dataset.preprocessing, TablePreprocessing)
    return dataset.preprocessing.columns


def to_lists(client_indices: Mapping[str, torch.Tensor]) -> dict[str, list[int]]:
    return {client: indices.tolist() for client, indices in client_indices.items()}


def test_columns_define_clients_classes_and_split(tmp_path: Path) -> None:
    dataset, _ = read(write(tmp_path / "cohort.csv", ROWS))
    assert dataset.classes == ("ill", "well")
    assert dataset.train.labels.tolist() == [0, 1, 0, 1]
    assert dataset.test.labels.tolist() == [0, 1]
    assert to_lists(dataset.client_indices) == {"a": [0, 1], "b": [2, 3]}
    assert to_lists(dataset.client_test_indices) == {"a": [0], "b": [1]}
    deviation = ((10**2 + 10**2) / 3) ** 0.5  # of 10, 30, 20 around 20
    age, sex = get_columns(dataset)
    assert isinstance(age, NumberColumn)
    assert (age.mean, age.may_lack) == (20.0, True)  # the 1000 is a test row
    assert age.deviation == pytest.approx(deviation)
    assert sex == CategoryColumn("sex", ("f", "m", "x"))  # z is in a test row
    expected = [
        [-10 / deviation, 0, 1, 0, 0],
        [10 / deviation, 0, 0, 1, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1],
    ]
    assert torch.allclose(dataset.train.inputs, torch.tensor(expected))
    assert dataset.train.inputs.dtype == torch.float32
    assert torch.allclose(dataset.test.inputs[0], torch.tensor([980 / deviation, 0, 0, 0, 0]))
    assert dataset.test.inputs[1].tolist() == [0, 1, 1, 0, 0]


def test_folder_with_one_file_per_client(tmp_path: Path) -> None:
    for number in (10, 9):
        rows = [f"{number + n},{n % 2}.0" for n in range(20)]
        write(tmp_path / f"site{number}.csv", rows, "age,label")
    (tmp_path / "notes.txt").write_text("not a table")
    dataset, messages = read(tmp_path, TableColumns())
    assert dataset.classes == ("0", "1")
    assert list(dataset.client_indices) == ["site9", "site10"]
    assert {client: len(indices) for client, indices in dataset.client_indices.items()} == {
        client: 20 - len(dataset.client_test_indices[client]) for client in dataset.client_indices
    }
    assert len(dataset.test) == 4  # a tenth of each class
    assert any("Skipped 1 of 3 entries" in line and "notes.txt" in line for line in messages)


def test_train_and_test_folders(tmp_path: Path) -> None:
    for part, count in (("train", 6), ("test", 2)):
        for site in "ab":
            rows = [f"{n},{n % 2}" for n in range(count)]
            write(tmp_path / part / f"{site}.csv", rows, "age,label")
    dataset, _ = read(tmp_path, TableColumns())
    assert to_lists(dataset.client_indices) == {"a": [*range(6)], "b": [*range(6, 12)]}
    assert to_lists(dataset.client_test_indices) == {"a": [0, 1], "b": [2, 3]}


def test_file_named_test_is_the_test_set(tmp_path: Path) -> None:
    for name in ("a", "b", "test"):
        write(tmp_path / f"{name}.csv", ["1,0", "2,1", "3,0"], "age,label")
    dataset, messages = read(tmp_path, TableColumns())
    assert list(dataset.client_indices) == ["a", "b"]
    assert len(dataset.test) == 3
    assert not dataset.client_test_indices
    assert any("named test" in message for message in messages)


def test_train_and_test_files_are_not_clients(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"{name}.csv", ["1,0,x", "2,1,y", "3,0,x"], "age,label,site")
    assert not read(tmp_path, TableColumns())[0].client_indices
    dataset, _ = read(tmp_path, TableColumns(client="site"))
    assert to_lists(dataset.client_indices) == {"x": [0, 2], "y": [1]}
    assert to_lists(dataset.client_test_indices) == {"x": [0, 2], "y": [1]}


def test_parquet_and_csv_give_the_same_dataset(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cells = zip(*(row.split(",") for row in ROWS), strict=True)
    table: dict[str, list[Any]] = {
        title: [*column] for title, column in zip(HEADER.split(","), cells, strict=True)
    }
    table["age"] = [float(age) if age not in ("", "NA") else None for age in table["age"]]
    parquet.write_table(pyarrow.table(table), tmp_path / "cohort.parquet")
    from_csv, _ = read(write(tmp_path / "cohort.csv", ROWS))
    from_parquet = load(f"parquet:{tmp_path / 'cohort.parquet'}", columns=BY_SITE)
    assert torch.equal(from_csv.train.inputs, from_parquet.train.inputs)
    assert torch.equal(from_csv.test.inputs, from_parquet.test.inputs)
    assert from_csv.preprocessing == from_parquet.preprocessing


def test_nested_columns_of_parquet_are_rejected(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"age": [[1], [2]], "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(CadisError, match=r"column age of .*a\.parquet has type list<"):
        read(tmp_path / "a.parquet", TableColumns())


def test_rows_without_a_class_or_client_are_left_out_and_reported(tmp_path: Path) -> None:
    rows = [*ROWS, "a,1,f,,train", ",1,f,ill,train", "a,5,f,none,train"]
    dataset, messages = read(write(tmp_path / "cohort.csv", rows))
    assert len(dataset.train) + len(dataset.test) == len(ROWS) + 1
    assert dataset.classes == ("ill", "none", "well")  # none is a valid class
    assert any("Left out 1 of 9 rows" in s and "outcome" in s and "line 8" in s for s in messages)
    assert any("Left out 1 of 9 rows" in s and "site" in s and "line 9" in s for s in messages)


def test_ignored_and_categorical_columns(tmp_path: Path) -> None:
    rows = [f"{n},{n % 3},{n % 2}" for n in range(12)]
    path = write(tmp_path / "cohort.csv", rows, "patient,code,label")
    dataset, _ = read(path, TableColumns(ignored=("patient",), categories=("code",)))
    assert get_columns(dataset) == (CategoryColumn("code", ("0", "1", "2")),)


def test_other_delimiters_and_a_byte_order_mark(tmp_path: Path) -> None:
    for delimiter in ";\t|":
        text = "\ufeffage;label\n1;0\n2;1\n\n3;0\n4;1\n".replace(";", delimiter)
        (tmp_path / "cohort.csv").write_text(text, encoding="utf-8")
        dataset, _ = read(tmp_path / "cohort.csv", TableColumns())
        assert len(dataset.train) + len(dataset.test) == 4


INVALID = {
    "no class": ("age,label", ["1,0", "2,0"], "has 1 classes; use --label-column"),
    "no label": (
        "age,outcome",
        ["1,0", "2,1"],
        "no column label; name one of these with --label-column: age, outcome",
    ),
    "long row": ("age,label", ["1,0", "2,1,3"], "3 cells in line 3, but 2 titles"),
    "short row": ("age,label", ['"1",0', "", "2"], "1 cells in line 4, but 2 titles"),
    "cell of two lines": ("age,label", ['"1\n",0', "2"], "1 cells in line 4, but 2 titles"),
    "twice": ("age,age,label", ["1,1,0"], "two columns named age"),
    "untitled": ("age,,label", ["1,1,0"], "Column 2 of .* has no title"),
    "fraction": ("age,label", ["1,0", "2,1", "3,0.5"], r"column label has 0.5 \(.*line 4\)"),
    "infinite": ("age,label", ["1,0", "inf,1", "1,0", "2,1"], r"age has 'inf' \(.*line 3\)"),
    "decimal comma": (
        "age,label,split",
        ["1,0,train", '"1,5",0,train', '"2,5",1,train', "2,1,test"],
        r"age has '1,5' \(.*line 3\), a number with a comma; use a decimal point",
    ),
    "too large": (
        "age,label,split",
        ["1,0,train", "1e308,1,train", "-1e308,0,train", "2,1,test"],
        r"1e\+308 \(.*line 3\); scale",
    ),
    "a word among numbers": (
        "age,label,split",
        [*(f"{n},{n % 2},train" for n in range(30)), "n.d.,0,train", "n.d.,1,train", "1,1,test"],
        r"age has 'n\.d\.' \(.*line 32\), but 30 of 32 values are numbers; .*--category-columns",
    ),
    "underscore": (
        "age,label,split",
        [*(f"{n},{n % 2},train" for n in range(30)), "1_000,0,train", "1,1,test"],
        r"age has '1_000' \(.*line 32\), but 30 of 31 values are numbers",
    ),
    "quotes": ("age,label", ['"1,0', "2,1"], "is not a valid table: unexpected end of data"),
    "split": ("age,label,split", ["1,0,train", "2,1,val"], r"split has 'val' \(.*line 3\)"),
    "words": (
        "age,label,split",
        ["1,0,train", "2,1,train", "tall,0,test"],
        r"column age has 'tall' \(.*line 4\)",
    ),
    "ids": (
        "age,label",
        [f"id{n},{n % 2}" for n in range(1200)],
        r"1,080 different values such as 'id\d+' \(.*line \d+\)",
    ),
    "no rows": ("age,label", [], "There are no rows in"),
    "nothing": ("label", ["0", "1", "0", "1"], "no column with inputs"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_tables_are_rejected_with_file_and_line(case: str, tmp_path: Path) -> None:
    header, rows, sentence = INVALID[case]
    with pytest.raises(CadisError, match=sentence):
        read(write(tmp_path / "cohort.csv", rows, header), TableColumns())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("folder", r"b\.csv has a column weight, which .*a\.csv lacks"),
        ("latin.csv", "not valid UTF-8"),
        ("none.csv", "There is no file"),
        ("none.xlsx", "neither a folder nor a table"),
        ("none", "neither a folder nor a table"),
    ],
)
def test_invalid_paths_are_rejected(name: str, sentence: str, tmp_path: Path) -> None:
    write(tmp_path / "folder" / "a.csv", ["1,0"], "age,label")
    write(tmp_path / "folder" / "b.csv", ["1,0,1"], "age,label,weight")
    (tmp_path / "latin.csv").write_bytes("größe,label\n1,0\n".encode("latin-1"))
    with pytest.raises(CadisError, match=sentence):
        read(tmp_path / name, TableColumns())


def test_columns_without_a_value_are_left_out(tmp_path: Path) -> None:
    rows = [f"{n},,{n % 2}" for n in range(12)]
    dataset, messages = read(write(tmp_path / "cohort.csv", rows, "age,gone,label"), TableColumns())
    assert dataset.train.inputs.shape[1] == 1
    assert any("Left out columns" in m and "gone" in m for m in messages)


def test_columns_with_text_and_numbers(tmp_path: Path) -> None:
    rows = [f"{n % 4 or 'unknown'},{n % 2}" for n in range(40)]
    dataset, _ = read(write(tmp_path / "cohort.csv", rows, "grade,label"), TableColumns())
    assert get_columns(dataset) == (CategoryColumn("grade", ("1", "2", "3", "unknown")),)
    rows = [*(f"{n % 3},{n % 2}" for n in range(40)), *["x,0", "x,1"] * 2]
    path = write(tmp_path / "cohort.csv", rows, "grade,label")
    with pytest.raises(CadisError, match="grade has 'x'"):
        read(path, TableColumns())
    dataset, _ = read(path, TableColumns(categories=("grade",)))
    assert get_columns(dataset) == (CategoryColumn("grade", ("0", "1", "2", "x")),)


def test_column_of_identifiers_is_reported(tmp_path: Path) -> None:
    rows = [f"P{n},{n},{'fm'[n % 3 // 2]},{n % 2}" for n in range(60)]
    path = write(tmp_path / "cohort.csv", rows, "patient,age,sex,label")
    _, messages = read(path, TableColumns())
    (warning,) = [message for message in messages if "--ignore-columns" in message]
    assert "In the column patient, 54 of 54 rows have a value that occurs only once" in warning
    assert "--ignore-columns patient" in warning
    for columns in (TableColumns(ignored=("patient",)), TableColumns(categories=("patient",))):
        assert not any("--ignore-columns" in message for message in read(path, columns)[1])


@pytest.mark.parametrize("content", ["", "\n", "age,label\n"])
def test_clients_without_rows_are_left_out(content: str, tmp_path: Path) -> None:
    for name in "bc":
        write(tmp_path / f"{name}.csv", [f"{n},{n % 2}" for n in range(12)], "age,label")
    (tmp_path / "a.csv").write_text(content)
    dataset, messages = read(tmp_path, TableColumns())
    assert list(dataset.client_indices) == ["b", "c"]
    assert f"{tmp_path / 'a.csv'} has no rows; it is left out." in messages


@pytest.mark.parametrize("cell", ["nan", "-nan", "+NaN"])
def test_nan_is_a_missing_value(cell: str, tmp_path: Path) -> None:
    rows = [f"{age},{n % 2}" for n, age in enumerate(["40", cell, cell, cell] * 3)]
    dataset, _ = read(write(tmp_path / "rows.csv", rows, "age,label"), TableColumns())
    assert dataset.train.inputs.shape[1] == 2  # the value, and whether it is missing
    assert torch.cat([dataset.train.inputs, dataset.test.inputs]).isfinite().all()


TABLE = TablePreprocessing(
    (
        NumberColumn("age", 50.0, 10.0, may_lack=True),
        CategoryColumn("sex", ("f", "m", "")),
        NumberColumn("weight", 70.0, 20.0, may_lack=False),
    )
)
IMAGES = ImagePreprocessing(1, 8, 8, Scaling((0.5,), (0.25,)))


def test_table_is_encoded() -> None:
    table = {"weight": ["90", "NA"], "sex": [" m", "x"], "age": ["40", "?"], "site": ["a", "b"]}
    inputs = TABLE.encode(table)
    assert inputs.tolist() == [[(40 - 50) / 10, 0, 0, 1, 0, (90 - 70) / 20], [0, 1, 0, 0, 0, 0]]
    assert inputs.dtype == torch.float32


def test_missing_value_may_be_a_category() -> None:
    inputs = CategoryColumn("sex", ("f", "")).encode(["", "f", "null"])
    assert inputs.tolist() == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"age": ["tall"], "sex": ["m"], "weight": ["1"]}, "column age has 'tall', which is not a"),
        ({"age": ["inf"], "sex": ["m"], "weight": ["1"]}, "column age has 'inf', which is infini"),
        ({"age": ["1"], "sex": ["m"]}, "no column weight, only age, sex; add it"),
    ],
)
def test_invalid_cells_are_rejected(table: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        TABLE.encode(table)


@pytest.mark.parametrize("preprocessing", [TABLE, IMAGES], ids=["table", "images"])
def test_preprocessing_is_restored_from_json(
    preprocessing: ImagePreprocessing | TablePreprocessing,
) -> None:
    assert from_json(json.loads(json.dumps(to_json(preprocessing)))) == preprocessing


def test_preprocessing_of_digits_gives_the_training_inputs() -> None:
    dataset = digits()
    preprocessing = dataset.preprocessing
    assert isinstance(preprocessing, ImagePreprocessing)
    scaling = preprocessing.scaling
    pixels = dataset.train.inputs[:5] * scaling.deviation[0] + scaling.mean[0]
    inputs = preprocessing(pixels * 255)
    assert torch.allclose(inputs, dataset.train.inputs[:5], atol=1e-5)


def test_apostrophes_that_cadis_writes_before_formulas_are_removed(tmp_path: Path) -> None:
    names = ["=A", "-b", "plain", "-1"]
    path = tmp_path / "table.csv"
    path.write_text(format_csv([["kind", "label"], *([name, "x"] for name in names)]))
    assert "'=A" in path.read_text()
    assert list(read_table(path)["kind"]) == names
