"""Tables of users, and how their rows become inputs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cadis._io import Callbacks
from cadis.data import (
    CategoryColumn,
    Dataset,
    NumberColumn,
    PicturePreprocessing,
    Scaling,
    TableColumns,
    TablePreprocessing,
    digits,
    from_json,
    load,
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


def read(place: Path, columns: TableColumns = BY_SITE) -> tuple[Dataset, list[str]]:
    said: list[str] = []
    found = load(f"csv:{place}", columns=columns, callbacks=Callbacks(say=said.append))
    return found, said


def columns_of(found: Dataset) -> tuple[NumberColumn | CategoryColumn, ...]:
    assert isinstance(found.preprocessing, TablePreprocessing)
    return found.preprocessing.columns


def owners(owned: object) -> dict[str, list[int]]:
    assert isinstance(owned, dict)
    return {client: indices.tolist() for client, indices in owned.items()}


def test_a_table_with_columns_of_clients_classes_and_the_split(tmp_path: Path) -> None:
    found, _ = read(write(tmp_path / "cohort.csv", ROWS))
    assert found.classes == ("ill", "well")
    assert found.train.labels.tolist() == [0, 1, 0, 1]
    assert found.test.labels.tolist() == [0, 1]
    assert owners(found.owners) == {"a": [0, 1], "b": [2, 3]}
    assert owners(found.test_owners) == {"a": [0], "b": [1]}
    deviation = ((10**2 + 10**2) / 3) ** 0.5  # of 10, 30, 20 around 20
    age, sex = columns_of(found)
    assert isinstance(age, NumberColumn)
    assert (age.mean, age.may_lack) == (20.0, True)  # nothing of the 1000 that is tested on
    assert age.deviation == pytest.approx(deviation)
    assert sex == CategoryColumn("sex", ("f", "m", "x"))  # nor of its z
    expected = [
        [-10 / deviation, 0, 1, 0, 0],
        [10 / deviation, 0, 0, 1, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1],
    ]
    assert torch.allclose(found.train.inputs, torch.tensor(expected))
    assert found.train.inputs.dtype == torch.float32
    assert torch.allclose(found.test.inputs[0], torch.tensor([980 / deviation, 0, 0, 0, 0]))
    assert found.test.inputs[1].tolist() == [0, 1, 1, 0, 0]


def test_a_file_for_each_client(tmp_path: Path) -> None:
    for number in (10, 9):
        rows = [f"{number + n},{n % 2}.0" for n in range(20)]
        write(tmp_path / f"site{number}.csv", rows, "age,label")
    (tmp_path / "notes.txt").write_text("no table")
    found, said = read(tmp_path, TableColumns())
    assert found.classes == ("0", "1")
    assert list(found.owners) == ["site9", "site10"]
    assert {client: len(own) for client, own in found.owners.items()} == {
        client: 20 - len(found.test_owners[client]) for client in found.owners
    }
    assert len(found.test) == 4  # a tenth of each class
    assert any("Left out 1 of 3 entries" in line and "notes.txt" in line for line in said)


def test_train_and_test_folders(tmp_path: Path) -> None:
    for part, count in (("train", 6), ("test", 2)):
        for site in "ab":
            rows = [f"{n},{n % 2}" for n in range(count)]
            write(tmp_path / part / f"{site}.csv", rows, "age,label")
    found, _ = read(tmp_path, TableColumns())
    assert owners(found.owners) == {"a": [*range(6)], "b": [*range(6, 12)]}
    assert owners(found.test_owners) == {"a": [0, 1], "b": [2, 3]}


def test_a_file_called_test_is_nobodys(tmp_path: Path) -> None:
    for name in ("a", "b", "test"):
        write(tmp_path / f"{name}.csv", ["1,0", "2,1", "3,0"], "age,label")
    found, said = read(tmp_path, TableColumns())
    assert list(found.owners) == ["a", "b"]
    assert len(found.test) == 3
    assert not found.test_owners
    assert any("called test" in sentence for sentence in said)


def test_train_and_test_files_have_no_owners_unless_a_column_says_so(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"{name}.csv", ["1,0,x", "2,1,y", "3,0,x"], "age,label,site")
    assert not read(tmp_path, TableColumns())[0].owners
    named = read(tmp_path, TableColumns(client="site"))[0]
    assert owners(named.owners) == owners(named.test_owners) == {"x": [0, 2], "y": [1]}


def test_parquet_is_the_same_as_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cells = zip(*(row.split(",") for row in ROWS), strict=True)
    table: dict[str, list[Any]] = {
        title: [*column] for title, column in zip(HEADER.split(","), cells, strict=True)
    }
    table["age"] = [float(age) if age not in ("", "NA") else None for age in table["age"]]
    parquet.write_table(pyarrow.table(table), tmp_path / "cohort.parquet")
    one, _ = read(write(tmp_path / "cohort.csv", ROWS))
    other = load(f"parquet:{tmp_path / 'cohort.parquet'}", columns=BY_SITE)
    assert torch.equal(one.train.inputs, other.train.inputs)
    assert torch.equal(one.test.inputs, other.test.inputs)
    assert one.preprocessing == other.preprocessing


def test_rows_without_a_class_or_client_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [*ROWS, "a,1,f,,train", ",1,f,ill,train", "a,5,f,none,train"]
    found, said = read(write(tmp_path / "cohort.csv", rows))
    assert len(found.train) + len(found.test) == len(ROWS) + 1
    assert found.classes == ("ill", "none", "well")  # an outcome that is called none is one
    assert any("Left out 1 of 9 rows" in s and "outcome" in s and "line 8" in s for s in said)
    assert any("Left out 1 of 9 rows" in s and "site" in s and "line 9" in s for s in said)


def test_columns_that_are_ignored_or_categories(tmp_path: Path) -> None:
    rows = [f"{n},{n % 3},{n % 2}" for n in range(12)]
    place = write(tmp_path / "cohort.csv", rows, "patient,code,label")
    found, _ = read(place, TableColumns(ignored=("patient",), categories=("code",)))
    assert columns_of(found) == (CategoryColumn("code", ("0", "1", "2")),)


def test_other_delimiters_and_a_byte_order_mark(tmp_path: Path) -> None:
    for mark in ";\t|":
        text = "\ufeffage;label\n1;0\n2;1\n\n3;0\n4;1\n".replace(";", mark)
        (tmp_path / "cohort.csv").write_text(text, encoding="utf-8")
        found, _ = read(tmp_path / "cohort.csv", TableColumns())
        assert len(found.train) + len(found.test) == 4


REFUSED = {
    "no class": ("age,label", ["1,0", "2,0"], "has 1 classes; name a column"),
    "no label": ("age,outcome", ["1,0", "2,1"], "no column label; name one of age, outcome"),
    "ragged": ("age,label", ["1,0", "2,1,3"], "3 cells in line 3, but 2 titles"),
    "twice": ("age,age,label", ["1,1,0"], "two columns called age"),
    "untitled": ("age,,label", ["1,1,0"], "Column 2 of .* has no title"),
    "fraction": ("age,label", ["1,0", "2,1", "3,0.5"], r"column label has 0.5 \(.*line 4\)"),
    "infinite": ("age,label", ["1,0", "inf,1", "1,0", "2,1"], r"age has 'inf' \(.*line 3\)"),
    "decimal comma": (
        "age,label,split",
        ["1,0,train", '"1,5",0,train', '"2,5",1,train', "2,1,test"],
        r"age has '1,5' \(.*line 3\), a number with a comma; write a decimal point",
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
    "quotes": ("age,label", ['"1,0', "2,1"], "is no table: unexpected end of data"),
    "split": ("age,label,split", ["1,0,train", "2,1,val"], r"split has 'val' \(.*line 3\)"),
    "words": (
        "age,label,split",
        ["1,0,train", "2,1,train", "tall,0,test"],
        r"column age has 'tall' \(.*line 4\)",
    ),
    "ids": (
        "age,label",
        [f"id{n},{n % 2}" for n in range(1200)],
        r"1,080 different words such as 'id\d+' \(.*line \d+\)",
    ),
    "no rows": ("age,label", [], "There are no rows in"),
    "nothing": ("label", ["0", "1", "0", "1"], "no column left to learn from"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named(case: str, tmp_path: Path) -> None:
    header, rows, sentence = REFUSED[case]
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
def test_places_that_cannot_be_read(name: str, sentence: str, tmp_path: Path) -> None:
    write(tmp_path / "folder" / "a.csv", ["1,0"], "age,label")
    write(tmp_path / "folder" / "b.csv", ["1,0,1"], "age,label,weight")
    (tmp_path / "latin.csv").write_bytes("größe,label\n1,0\n".encode("latin-1"))
    with pytest.raises(CadisError, match=sentence):
        read(tmp_path / name, TableColumns())


def test_columns_without_a_value_are_left_out(tmp_path: Path) -> None:
    rows = [f"{n},,{n % 2}" for n in range(12)]
    found, said = read(write(tmp_path / "cohort.csv", rows, "age,gone,label"), TableColumns())
    assert found.train.inputs.shape[1] == 1
    assert any("left out: gone" in sentence for sentence in said)


def test_words_are_meant_where_a_few_are_numbers_or_the_user_says_so(tmp_path: Path) -> None:
    rows = [f"{n % 4 or 'unknown'},{n % 2}" for n in range(40)]
    found, _ = read(write(tmp_path / "cohort.csv", rows, "grade,label"), TableColumns())
    assert columns_of(found) == (CategoryColumn("grade", ("1", "2", "3", "unknown")),)
    rows = [*(f"{n % 3},{n % 2}" for n in range(40)), *["x,0", "x,1"] * 2]
    place = write(tmp_path / "cohort.csv", rows, "grade,label")
    with pytest.raises(CadisError, match="grade has 'x'"):
        read(place, TableColumns())
    found, _ = read(place, TableColumns(categories=("grade",)))
    assert columns_of(found) == (CategoryColumn("grade", ("0", "1", "2", "x")),)


def test_words_that_are_a_rows_own_are_told(tmp_path: Path) -> None:
    rows = [f"P{n},{n},{'fm'[n % 3 // 2]},{n % 2}" for n in range(60)]
    place = write(tmp_path / "cohort.csv", rows, "patient,age,sex,label")
    _, said = read(place, TableColumns())
    (told,) = [sentence for sentence in said if "--ignore-columns" in sentence]
    assert "The column patient has a word of its own in 54 of 54 rows" in told
    assert "--ignore-columns patient" in told
    for columns in (TableColumns(ignored=("patient",)), TableColumns(categories=("patient",))):
        assert not any("--ignore-columns" in sentence for sentence in read(place, columns)[1])


@pytest.mark.parametrize("content", ["", "\n", "age,label\n"])
def test_clients_without_rows_are_left_out(content: str, tmp_path: Path) -> None:
    for name in "bc":
        write(tmp_path / f"{name}.csv", [f"{n},{n % 2}" for n in range(12)], "age,label")
    (tmp_path / "a.csv").write_text(content)
    found, said = read(tmp_path, TableColumns())
    assert list(found.owners) == ["b", "c"]
    assert f"{tmp_path / 'a.csv'} has no rows; it is left out." in said


@pytest.mark.parametrize("cell", ["nan", "-nan", "+NaN"])
def test_numbers_that_are_none_are_missing(cell: str, tmp_path: Path) -> None:
    rows = [f"{age},{n % 2}" for n, age in enumerate(["40", cell, cell, cell] * 3)]
    found, _ = read(write(tmp_path / "rows.csv", rows, "age,label"), TableColumns())
    assert found.train.inputs.shape[1] == 2  # the number, and whether it is missing
    assert torch.cat([found.train.inputs, found.test.inputs]).isfinite().all()


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
    found = CategoryColumn("sex", ("f", "")).encode(["", "f", "null"])
    assert found.tolist() == [[0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"age": ["tall"], "sex": ["m"], "weight": ["1"]}, "column age has 'tall' where a number"),
        ({"age": ["inf"], "sex": ["m"], "weight": ["1"]}, "column age has 'inf', which is infini"),
        ({"age": ["1"], "sex": ["m"]}, "no column weight; it has: age, sex"),
    ],
)
def test_rows_that_cannot_become_inputs(table: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        TABLE.encode(table)


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
