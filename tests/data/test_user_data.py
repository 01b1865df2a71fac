"""Tests of datasets that a user's function returns."""

from collections.abc import Mapping
from typing import Any

import datasets
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from cadis._io import Callbacks
from cadis.data import Dataset, as_dataset, load
from cadis.errors import CadisError


def make_data(number: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Return inputs that are consecutive numbers, and their labels."""
    numbers = torch.arange(first, first + number)
    return numbers[:, None].double(), numbers % 2


def convert(data: object) -> tuple[Dataset, list[str]]:
    """Return the dataset and the warnings."""
    messages: list[str] = []
    return as_dataset(data, "mine.py:load", Callbacks(say=messages.append)), messages


def to_lists(indices: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {client: part.tolist() for client, part in indices.items()}


def test_clients_by_name_and_a_test_set() -> None:
    clients = {"ann": make_data(4), "bob": TensorDataset(*make_data(3, 4)), "eve": make_data(0)}
    dataset, messages = convert(
        {"clients": clients, "test": make_data(2, 50), "classes": ["ill", "well"]}
    )
    assert (dataset.name, dataset.classes) == ("mine.py:load", ("ill", "well"))
    assert to_lists(dataset.client_indices) == {"ann": [0, 1, 2, 3], "bob": [4, 5, 6]}
    assert dataset.train.inputs[:, 0].tolist() == [*range(7)]
    assert dataset.train.inputs.dtype == torch.float32
    assert dataset.test.inputs[:, 0].tolist() == [50, 51]
    assert not dataset.client_test_indices
    assert messages == ["Client eve has no samples; it is left out."]


def test_pair_of_clients_and_a_test_set() -> None:
    dataset, _ = convert(([make_data(2), make_data(2)], make_data(2)))
    assert list(dataset.client_indices) == ["0", "1"]
    assert dataset.classes == ("0", "1")


def test_client_tests_are_the_test_set_or_separate_from_it() -> None:
    dataset, _ = convert(
        {"clients": [make_data(2), make_data(2)], "client_tests": {"1": make_data(3, 9)}}
    )
    assert dataset.test.inputs[:, 0].tolist() == [9, 10, 11]
    assert to_lists(dataset.client_test_indices) == {"1": [0, 1, 2]}
    dataset, _ = convert(
        {"clients": [make_data(2)], "client_tests": [make_data(3, 9)], "test": make_data(2, 90)}
    )
    assert dataset.test.inputs[:, 0].tolist() == [90, 91]
    assert dataset.client_tests["0"].inputs[:, 0].tolist() == [9, 10, 11]


def test_without_test_data_a_tenth_of_each_client_is_held_out() -> None:
    dataset, _ = convert({"clients": {"ann": make_data(20), "bob": make_data(20, 20)}})
    assert len(dataset.test) == 4
    for samples, client_indices in (
        (dataset.train, dataset.client_indices),
        (dataset.test, dataset.client_test_indices),
    ):
        for name, indices in client_indices.items():
            numbers = samples.inputs[indices][:, 0]
            assert bool(((numbers < 20) == (name == "ann")).all())
    inputs = torch.cat([dataset.train.inputs, dataset.test.inputs])[:, 0]
    assert sorted(inputs.tolist()) == [*range(40)]


@pytest.mark.parametrize(
    "tests", [{}, {"test": make_data(3)}, {"client_tests": {"bob": make_data(3)}}]
)
def test_sample_with_nan_is_named_by_its_index_in_the_client(tests: dict[str, Any]) -> None:
    inputs, labels = make_data(30)
    inputs[17] = torch.nan
    data = {"clients": {"ann": make_data(40), "bob": (inputs, labels)}, **tests}
    sentence = r"Client bob has 1 sample with .*, sample 17 \(NaN at position 0\); repair"
    with pytest.raises(CadisError, match=sentence):
        convert(data)


def test_infinite_samples_of_client_tests_are_named() -> None:
    inputs, labels = make_data(9)
    inputs[2:4] = torch.inf
    clients = {"ann": make_data(9), "bob": make_data(9)}
    with pytest.raises(CadisError, match=r"The test data of client bob has 2 samples .* sample 2 "):
        convert(
            {"clients": clients, "client_tests": {"ann": make_data(4), "bob": (inputs, labels)}}
        )


def test_dataset_is_only_renamed() -> None:
    dataset, _ = convert(load("digits"))
    assert dataset.name == "mine.py:load"
    assert dataset.classes == tuple("0123456789")


def test_names_of_classes_come_from_hugging_face() -> None:
    features = datasets.Features(
        {"x": datasets.Value("float32"), "label": datasets.ClassLabel(names=["ill", "well"])}
    )
    data = datasets.Dataset.from_dict({"x": [1.0, 2.0], "label": [0, 1]}, features=features)
    assert convert({"clients": {"ann": data}, "test": data})[0].classes == ("ill", "well")


INVALID: dict[str, tuple[Any, str]] = {
    "nothing": (None, "must return a cadis.data.Dataset or"),
    "misspelt": ({"clients": [make_data(2)], "tests": make_data(2)}, "must return"),
    "empty": ({"clients": {}}, "no client with samples"),
    "shapes": (
        ([make_data(2), (torch.zeros(2, 3), torch.zeros(2).long())], make_data(2)),
        "1 has inputs of",
    ),
    "stranger": (
        {"clients": [make_data(2)], "client_tests": {"eve": make_data(2)}},
        "eve, which is not a client",
    ),
    "few names": (
        {"clients": [make_data(2)], "test": make_data(2), "classes": ["ill"]},
        "label 1, but only 1",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_data_are_rejected(case: str) -> None:
    data, sentence = INVALID[case]
    with pytest.raises(CadisError, match=sentence):
        convert(data)


def test_error_in_the_users_function_is_reported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def load():\n    return 1 / 0\nnumber = 3\n")
    with pytest.raises(CadisError, match=r"could not load its data: ZeroDivisionError"):
        load("mine.py:load")
    with pytest.raises(CadisError, match="is not a function; name one that returns data"):
        load("mine.py:number")
