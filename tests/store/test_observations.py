"""Clusters and similarities in the records of rounds, and large matrices, which are packed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.errors import CadisError
from cadis.server import PackedMatrix, RoundRecord, Seconds, numbers
from cadis.store import replay, summarise
from cadis.store.history import read_records
from cadis.store.observations import (
    Observations,
    clusters_of,
    gamma_of,
    joined,
    similarity_of,
    threshold_of,
    told_scalars,
    unfit,
)
from cadis.types import ClientId


def told(number: int = 1, who: Sequence[ClientId] = "abc", **report: Any) -> RoundRecord:
    weights, seconds = [1 / len(who)] * len(who), Seconds(1, 1, 1, 1)
    return RoundRecord(number, 0.5, 1.0, [], list(who), weights, [], seconds, report=report)


def read(*lines: dict[str, Any]) -> list[RoundRecord]:
    return read_records("".join(f"{json.dumps(line)}\n" for line in lines).encode(), Path("h"))


def test_similarities_are_averaged_over_rounds() -> None:
    first = told(1, "ab", clusters=[0, 1], similarity=[[1, 0.25], [0.25, 1]])
    second = told(2, "ab", clusters=[0, 0], similarity=[[1, 0.75], [0.75, 1]], gamma=0.25)
    matrix = replay(read(first.to_json(), second.to_json()))
    assert matrix is not None
    assert matrix.mean[0, 1] == (0.25 + 0.75) / 2


@pytest.mark.parametrize(
    ("change", "place"),
    [({"weights": [0.5, "x"]}, "weights.1"), ({"report": 3}, "report"), ({"more": 1}, "more")],
)
def test_a_damaged_line_is_a_sentence(change: dict[str, Any], place: str) -> None:
    with pytest.raises(CadisError, match=f"Line 1 of h is damaged: {place} "):
        read(told().to_json() | change)


def test_what_has_the_known_names_and_shapes_is_understood() -> None:
    rows = [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]
    record = told(clusters=[0, 0, 1], similarity=rows, threshold=0.75, gamma=1)
    assert clusters_of(record) == [0, 0, 1]
    assert torch.equal(similarity_of(record), torch.tensor(rows))  # type: ignore[arg-type]
    assert (threshold_of(record), gamma_of(record)) == (0.75, 1)
    assert unfit(record) == []
    nothing = told()
    assert (clusters_of(nothing), similarity_of(nothing)) == (None, None)
    assert (threshold_of(nothing), gamma_of(nothing), unfit(nothing)) == (None, None, [])


UNFIT: list[dict[str, Any]] = [
    {"clusters": 3},
    {"clusters": [0, 1]},
    {"clusters": [0, 1, None]},
    {"clusters": [0, 1, 0.5]},
    {"clusters": [[0, 1, 1]] * 3},
    {"similarity": 0.5},
    {"similarity": [1, 1, 1]},
    {"similarity": [[1.0, 0.0], [0.0, 1.0]]},
    {"similarity": [[1, 1, 1], [1, 1, 1], [1, 1]]},
    {"similarity": [[1, 1, 1], [1, 1, 1], [1, 1, None]]},
    {"similarity": [[1, 1, 1], [1, 1, 1], [1, 1, 10**400]]},
    {"threshold": None},
    {"gamma": [0.5]},
]


@pytest.mark.parametrize("report", UNFIT)
def test_what_only_has_a_known_name_is_passed_over_and_can_be_told(report: dict[str, Any]) -> None:
    record = told(**report)
    readers = (clusters_of, similarity_of, threshold_of, gamma_of)
    assert all(reader(record) is None for reader in readers)
    assert len(unfit(record)) == 1
    assert joined([record]) == ()


def test_of_clusters_alone_the_part_of_common_rounds_that_two_were_together_is_kept() -> None:
    history = [
        told(1, "abc", clusters=[0, 0, 1]),
        told(2, "acd", clusters=[5, 5, 2]),  # labels of a round mean nothing in the next
        told(3, "ab", clusters=[1, 0]),
        told(4, "ab"),
    ]
    observations = Observations(history)
    for record in history:
        observations.add(record)
    assert observations.client_ids == ("a", "b", "c", "d")
    expected = torch.tensor(
        [[3 / 3, 1 / 2, 1 / 2, 0], [1 / 2, 1, 0, torch.nan], [1 / 2, 0, 1, 0], [0, torch.nan, 0, 1]]
    )
    assert torch.equal(observations.direct().nan_to_num(-1), expected.nan_to_num(-1))


def test_clusters_count_for_nothing_where_similarities_are_told() -> None:
    history = [
        told(1, "ab", clusters=[0, 1]),
        told(2, "ab", clusters=[0, 1], similarity=[[1, 0.5], [0.5, 1]]),
    ]
    matrix = replay(history)
    assert matrix is not None
    assert (float(matrix.mean[0, 1]), int(matrix.count[0, 1])) == (0.5, 1)


def described(**true_clusters: int) -> dict[str, Any]:
    clients = [{"id": who, "cluster": own, "samples": [1]} for who, own in true_clusters.items()]
    return {"classes": ["x"], "clients": clients}


def test_clusters_alone_are_summarised_whatever_the_method_is_called() -> None:
    history = [told(1, "abc", clusters=[0, 0, 1]), told(2, "abd", clusters=[3, 3, 4])]
    summary = summarise("mine", history, described(a=0, b=0, c=1, d=1), None)
    assert summary["method"] == "mine"
    assert summary["round_agreement"] == 1
    assert summary["clusters_found"] == 3  # 3: a and b, 1: c, 4: d


def test_clusters_alone_are_those_that_clients_were_in_last() -> None:
    """A method that has split a cluster after many rounds has found its parts."""
    whole = [told(number, "abcd", clusters=[0, 0, 0, 0]) for number in range(1, 10)]
    split = [*whole, told(10, "abc", clusters=[1, 2, 2])]
    summary = summarise("cfl", split, described(a=0, b=1, c=1, d=0), None)
    assert summary["clusters_found"] == 3  # 1: a, 2: b and c, 0: d, who was not there
    assert summary["cluster_agreement"] == pytest.approx(4 / 7)  # by scikit-learn
    rejoined = [*split, told(11, "d", clusters=[1])]
    assert summarise("cfl", rejoined, described(a=0, b=1, c=1, d=0), None)["clusters_found"] == 2


def test_nothing_is_said_of_clusters_where_none_are_told() -> None:
    without = summarise("mine", [told()], described(a=0, b=0, c=1), None)
    assert "clusters_found" not in without
    assert "round_agreement" not in without


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
    before = told(who=range(100), similarity=numbers(symmetric(100)), own=0.5)
    line = json.dumps(before.to_json())
    assert len(line) < 32_000  # 10,000 numbers as text are three times as much
    (after,) = read(json.loads(line))
    assert after == before
    assert torch.equal(similarity_of(after), symmetric(100))  # type: ignore[arg-type]
    assert unfit(after) == []
    assert told_scalars(after) == ["own"]


def test_an_array_is_read_however_it_is_stored() -> None:
    large = numbers(symmetric(40))
    record = told(clusters=[0, 1, 1], gaps=[[1.0, None]], large=large, one=2)
    assert record.array("clusters").tolist() == [0, 1, 1]  # type: ignore[union-attr]
    assert np.array_equal(record.array("gaps"), [[1, np.nan]], equal_nan=True)  # type: ignore[arg-type]
    assert np.array_equal(record.array("large"), symmetric(40))  # type: ignore[arg-type]
    assert float(record.array("one")) == 2  # type: ignore[arg-type]
    assert record.array("another") is None


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
    wrong = told(who=range(size), similarity=numbers(matrix))
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
    content = json.loads(
        json.dumps(told(who=range(33), similarity=numbers(symmetric(33))).to_json())
    )
    assert unfit(*read(content)) == []
    content["report"]["similarity"] |= change
    with pytest.raises(CadisError, match=r"Line 1 of h is damaged: report\.similarity"):
        read(content)
