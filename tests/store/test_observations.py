"""Clusters and similarities in the records of rounds, and packed matrices."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cadis.algorithm import normalize
from cadis.algorithm.methods.cadis.cluster_participants import (
    assign_by_profiles,
    cluster_by_profiles,
)
from cadis.errors import CadisError
from cadis.rng import derive_generator
from cadis.server import PackedMatrix, RoundRecord, Seconds, to_json_array
from cadis.store import rebuild_similarity, summarize
from cadis.store.history import parse_records
from cadis.store.observations import (
    RunningSimilarities,
    assign_clusters,
    find_report_errors,
    get_clusters,
    get_gamma,
    get_similarity,
    get_threshold,
    list_compared_clients,
    list_other_scalars,
)
from cadis.types import ClientId


def make_record(number: int = 1, clients: Sequence[ClientId] = "abc", **report: Any) -> RoundRecord:
    weights, seconds = [1 / len(clients)] * len(clients), Seconds(1, 1, 1, 1)
    return RoundRecord(number, 0.5, 1.0, [], list(clients), weights, [], seconds, report=report)


def parse(*lines: dict[str, Any]) -> list[RoundRecord]:
    return parse_records("".join(f"{json.dumps(line)}\n" for line in lines).encode(), Path("h"))


def test_similarities_are_averaged_over_rounds() -> None:
    first = make_record(1, "ab", clusters=[0, 1], similarity=[[1, 0.25], [0.25, 1]])
    second = make_record(2, "ab", clusters=[0, 0], similarity=[[1, 0.75], [0.75, 1]], gamma=0.25)
    matrix = rebuild_similarity(parse(first.to_json(), second.to_json()))
    assert matrix is not None
    assert matrix.mean[0, 1] == (0.25 + 0.75) / 2


@pytest.mark.parametrize(
    ("change", "key"),
    [({"weights": [0.5, "x"]}, "weights.1"), ({"report": 3}, "report"), ({"more": 1}, "more")],
)
def test_damaged_line_is_an_error(change: dict[str, Any], key: str) -> None:
    with pytest.raises(CadisError, match=f"Line 1 of h is damaged: {key} "):
        parse(make_record().to_json() | change)


def test_report_with_known_names_and_valid_shapes_is_read() -> None:
    rows = [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]
    record = make_record(clusters=[0, 0, 1], similarity=rows, threshold=0.75, gamma=1)
    assert get_clusters(record) == [0, 0, 1]
    assert torch.equal(get_similarity(record), torch.tensor(rows))  # type: ignore[arg-type]
    assert (get_threshold(record), get_gamma(record)) == (0.75, 1)
    assert find_report_errors(record) == []
    nothing = make_record()
    assert (get_clusters(nothing), get_similarity(nothing)) == (None, None)
    assert (get_threshold(nothing), get_gamma(nothing), find_report_errors(nothing)) == (
        None,
        None,
        [],
    )


INVALID_REPORTS: list[dict[str, Any]] = [
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
    {"centres": [0.5]},
    {"centres": []},
    {"centres": [[3.0, 0.0]]},
]


@pytest.mark.parametrize("report", INVALID_REPORTS)
def test_invalid_report_is_ignored_and_has_an_error(
    report: dict[str, Any],
) -> None:
    record = make_record(**report)
    readers = (get_clusters, get_similarity, get_threshold, get_gamma)
    assert all(reader(record) is None for reader in readers)
    assert len(find_report_errors(record)) == 1
    assert list_compared_clients([record]) == ()


def test_similarity_from_clusters_is_the_share_of_common_rounds_in_one_cluster() -> None:
    history = [
        make_record(1, "abc", clusters=[0, 0, 1]),
        make_record(2, "acd", clusters=[5, 5, 2]),  # labels of different rounds are not compared
        make_record(3, "ab", clusters=[1, 0]),
        make_record(4, "ab"),
    ]
    means = RunningSimilarities(history)
    for record in history:
        means.add(record)
    assert means.client_ids == ("a", "b", "c", "d")
    expected = torch.tensor(
        [[3 / 3, 1 / 2, 1 / 2, 0], [1 / 2, 1, 0, torch.nan], [1 / 2, 0, 1, 0], [0, torch.nan, 0, 1]]
    )
    assert torch.equal(means.get_observed().nan_to_num(-1), expected.nan_to_num(-1))


def test_reported_similarities_take_precedence_over_clusters() -> None:
    history = [
        make_record(1, "ab", clusters=[0, 1]),
        make_record(2, "ab", clusters=[0, 1], similarity=[[1, 0.5], [0.5, 1]]),
    ]
    matrix = rebuild_similarity(history)
    assert matrix is not None
    assert (float(matrix.mean[0, 1]), int(matrix.count[0, 1])) == (0.5, 1)


def make_federation(**true_clusters: int) -> dict[str, Any]:
    clients = [{"id": c, "cluster": label, "samples": [1]} for c, label in true_clusters.items()]
    return {"classes": ["x"], "clients": clients}


def test_clusters_of_any_method_are_summarized() -> None:
    history = [make_record(1, "abc", clusters=[0, 0, 1]), make_record(2, "abd", clusters=[3, 3, 4])]
    summary = summarize("mine", history, make_federation(a=0, b=0, c=1, d=1), None)
    assert summary["method"] == "mine"
    assert summary["round_agreement"] == 1
    assert summary["clusters_found"] == 3  # 3: a and b, 1: c, 4: d


def test_label_of_a_client_is_that_of_its_last_participation() -> None:
    """After a method has split a cluster, the summary has its parts."""
    whole = [make_record(number, "abcd", clusters=[0, 0, 0, 0]) for number in range(1, 10)]
    split = [*whole, make_record(10, "abc", clusters=[1, 2, 2])]
    summary = summarize("cfl", split, make_federation(a=0, b=1, c=1, d=0), None)
    assert summary["clusters_found"] == 3  # 1: a, 2: b and c, 0: d, which did not take part
    assert summary["cluster_agreement"] == pytest.approx(4 / 7)  # by scikit-learn
    rejoined = [*split, make_record(11, "d", clusters=[1])]
    assert (
        summarize("cfl", rejoined, make_federation(a=0, b=1, c=1, d=0), None)["clusters_found"] == 2
    )


def test_summary_has_no_clusters_if_none_were_reported() -> None:
    without = summarize("mine", [make_record()], make_federation(a=0, b=0, c=1), None)
    assert "clusters_found" not in without
    assert "round_agreement" not in without


def make_symmetric(size: int) -> torch.Tensor:
    values = torch.rand(size, size, generator=torch.Generator().manual_seed(size))
    return ((values + values.T) / 2).fill_diagonal_(1)


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([torch.float16, torch.float32, torch.float64, torch.int32, torch.bool]),
    st.booleans(),
)
def test_packed_matrix_is_unpacked_without_loss(
    rows: int, columns: int, dtype: torch.dtype, symmetric: bool
) -> None:
    values = (10 * torch.randn(rows, columns, dtype=torch.float64)).to(dtype)
    if symmetric:
        values = values[:, :rows].double() @ values[:, :rows].double().T
    unpacked = PackedMatrix.pack(values).unpack()
    assert unpacked.shape == tuple(values.shape)
    assert np.array_equal(unpacked, values.double().numpy())


def test_packed_bytes_by_hand() -> None:
    packed = PackedMatrix.pack(torch.tensor([[1.0, -2.0], [-2.0, 0.5]]))
    by_hand = b"\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f"  # 1, -2, 0.5
    assert packed == PackedMatrix((2, 2), "float32", True, "AACAPwAAAMAAAAA/")
    assert np.frombuffer(by_hand, "<f4").tolist() == [1, -2, 0.5]
    other = PackedMatrix.pack(torch.tensor([[1.0, -2.0], [-2.5, 0.5]]))
    assert (other.symmetric, other.unpack().tolist()) == (False, [[1, -2], [-2.5, 0.5]])


def test_small_matrices_are_lists_and_large_ones_are_packed() -> None:
    assert to_json_array(make_symmetric(32))[0][1] == round(float(make_symmetric(32)[0, 1]), 6)
    assert isinstance(to_json_array(make_symmetric(33)), PackedMatrix)
    assert isinstance(to_json_array(torch.zeros(2000)), list)


def test_large_similarity_is_read_without_loss_and_is_not_a_scalar() -> None:
    before = make_record(clients=range(100), similarity=to_json_array(make_symmetric(100)), own=0.5)
    line = json.dumps(before.to_json())
    assert len(line) < 32_000  # as text, 10,000 numbers take three times as much
    (after,) = parse(json.loads(line))
    assert after == before
    assert torch.equal(get_similarity(after), make_symmetric(100))  # type: ignore[arg-type]
    assert find_report_errors(after) == []
    assert list_other_scalars(after) == ["own"]


def test_arrays_are_read_as_lists_and_packed() -> None:
    large = to_json_array(make_symmetric(40))
    record = make_record(clusters=[0, 1, 1], gaps=[[1.0, None]], large=large, one=2)
    assert record.array("clusters").tolist() == [0, 1, 1]  # type: ignore[union-attr]
    assert np.array_equal(record.array("gaps"), [[1, np.nan]], equal_nan=True)  # type: ignore[arg-type]
    assert np.array_equal(record.array("large"), make_symmetric(40))  # type: ignore[arg-type]
    assert float(record.array("one")) == 2  # type: ignore[arg-type]
    assert record.array("another") is None


@pytest.mark.parametrize(
    ("size", "matrix", "error"),
    [
        (40, make_symmetric(41), "similarity has 41 rows, not 40"),
        (40, torch.zeros(40, 41), "a row of similarity has 41 entries, not 40"),
        (40, 2 * make_symmetric(40), "a similarity is not between -1 and 1"),
        (40, make_symmetric(40) / torch.zeros(40, 40), "a similarity is not between -1 and 1"),
    ],
)
def test_invalid_similarity_has_an_error(size: int, matrix: torch.Tensor, error: str) -> None:
    record = make_record(clients=range(size), similarity=to_json_array(matrix))
    assert find_report_errors(record) == [error]
    assert get_similarity(record) is None


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
def test_damaged_matrix_is_an_error(change: dict[str, Any]) -> None:
    content = json.loads(
        json.dumps(
            make_record(clients=range(33), similarity=to_json_array(make_symmetric(33))).to_json()
        )
    )
    assert find_report_errors(*parse(content)) == []
    content["report"]["similarity"] |= change
    with pytest.raises(CadisError, match=r"Line 1 of h is damaged: report\.similarity"):
        parse(content)


def test_clusters_of_all_clients_are_those_of_the_server() -> None:
    """After each round, also for clients that did not take part."""
    generator, history = derive_generator(0), list[RoundRecord]()
    clean = torch.eye(6).repeat_interleave(2, dim=1)[[0] * 9 + [1] * 5 + [2] * 3]  # (17, 12)
    tensors: dict[str, torch.Tensor] = {}
    for number in range(1, 16):
        clients = torch.randperm(17, generator=generator)[:6].tolist()
        noise = 0.4 * torch.randn(6, 12, generator=generator)
        found = cluster_by_profiles(normalize(clean[clients] + noise), clients, tensors, None)
        tensors = dict(found.tensors)
        report = {name: to_json_array(array) for name, array in found.report.items()}
        history.append(make_record(number, clients, **report))
        assert find_report_errors(history[-1]) == []
        matrix = rebuild_similarity(history)
        assert matrix is not None
        labels = assign_clusters(matrix, history)
        assert torch.equal(labels, assign_by_profiles(matrix.client_ids, tensors))
    assert len(labels.unique()) == 3
