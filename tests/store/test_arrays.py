"""Large matrices in a line of history: packed, exact, and read as small ones are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.errors import CadisError
from cadis.server import PackedMatrix, RoundRecord, Seconds, numbers
from cadis.store.history import read_records
from cadis.store.observations import similarity_of, told_scalars, unfit


def record(size: int, **report: Any) -> RoundRecord:
    weights, seconds = [1 / size] * size, Seconds(1, 1, 1, 1)
    return RoundRecord(1, 0.5, 1.0, [], list(range(size)), weights, [], seconds, report=report)


def read(content: dict[str, Any]) -> RoundRecord:
    (found,) = read_records(f"{json.dumps(content)}\n".encode(), Path("h"))
    return found


def symmetric(size: int) -> torch.Tensor:
    values = torch.rand(size, size, generator=torch.Generator().manual_seed(size))
    return ((values + values.T) / 2).fill_diagonal_(1)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([torch.float16, torch.float32, torch.float64, torch.int32, torch.bool]),
    st.booleans(),
)
def test_a_matrix_comes_back_as_it_was(
    rows: int, columns: int, dtype: torch.dtype, mirrored: bool
) -> None:
    values = (10 * torch.randn(rows, columns, dtype=torch.float64)).to(dtype)
    if mirrored:
        values = values[:, :rows].double() @ values[:, :rows].double().T
    again = PackedMatrix.pack(values).unpacked()
    assert again.shape == tuple(values.shape)
    assert np.array_equal(again, values.double().numpy())


def test_the_bytes_by_hand() -> None:
    packed = PackedMatrix.pack(torch.tensor([[1.0, -2.0], [-2.0, 0.5]]))
    by_hand = b"\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f"  # 1, -2, 0.5
    assert packed == PackedMatrix((2, 2), "float32", True, "AACAPwAAAMAAAAA/")
    assert np.frombuffer(by_hand, "<f4").tolist() == [1, -2, 0.5]
    other = PackedMatrix.pack(torch.tensor([[1.0, -2.0], [-2.5, 0.5]]))
    assert (other.symmetric, other.unpacked().tolist()) == (False, [[1, -2], [-2.5, 0.5]])


def test_small_matrices_stay_readable_and_large_ones_do_not() -> None:
    assert numbers(symmetric(32))[0][1] == round(float(symmetric(32)[0, 1]), 6)
    assert isinstance(numbers(symmetric(33)), PackedMatrix)
    assert isinstance(numbers(torch.zeros(2000)), list)


def test_a_large_similarity_is_read_exactly_and_is_no_single_number() -> None:
    before = record(100, similarity=numbers(symmetric(100)), own=0.5)
    line = json.dumps(before.to_json())
    assert len(line) < 32_000  # 10,000 numbers as text are three times as much
    after = read(json.loads(line))
    assert after == before
    assert torch.equal(similarity_of(after), symmetric(100))  # type: ignore[arg-type]
    assert unfit(after) == []
    assert told_scalars(after) == ["own"]


def test_an_array_is_read_however_it_is_stored() -> None:
    told = record(3, clusters=[0, 1, 1], gaps=[[1.0, None]], large=numbers(symmetric(40)), one=2)
    assert told.array("clusters").tolist() == [0, 1, 1]  # type: ignore[union-attr]
    assert np.array_equal(told.array("gaps"), [[1, np.nan]], equal_nan=True)  # type: ignore[arg-type]
    assert np.array_equal(told.array("large"), symmetric(40))  # type: ignore[arg-type]
    assert float(told.array("one")) == 2  # type: ignore[arg-type]
    assert told.array("another") is None


@pytest.mark.parametrize(
    ("size", "matrix", "complaint"),
    [
        (40, symmetric(41), "similarity has 41 entries, not 40"),
        (40, torch.zeros(40, 41), "a row of similarity has 41 entries, not 40"),
        (40, 2 * symmetric(40), "a similarity is not between -1 and 1"),
        (40, symmetric(40) / torch.zeros(40, 40), "a similarity is not between -1 and 1"),
    ],
)
def test_what_is_no_similarity_is_told(size: int, matrix: torch.Tensor, complaint: str) -> None:
    wrong = record(size, similarity=numbers(matrix))
    assert unfit(wrong) == [complaint]
    assert similarity_of(wrong) is None


@pytest.mark.parametrize(
    "change",
    [
        {"base64": "AAAA"},
        {"base64": "no base64!"},
        {"shape": [33, 34]},
        {"shape": [-33, -33]},
        {"shape": [33]},
        {"dtype": "complex64"},
        {"symmetric": False},
        {"more": 1},
    ],
)
def test_a_damaged_matrix_is_a_sentence(change: dict[str, Any]) -> None:
    content = json.loads(json.dumps(record(33, similarity=numbers(symmetric(33))).to_json()))
    assert unfit(read(content)) == []
    content["report"]["similarity"] |= change
    with pytest.raises(CadisError, match=r"Line 1 of h is damaged: report\.similarity"):
        read(content)
