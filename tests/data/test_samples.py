"""Tests of samples, the digits, and the report of dataset sizes."""

from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from cadis._io import Callbacks
from cadis.data import Dataset, Samples, Scaling, Subsets, concatenate, digits
from cadis.data.loading import report_sizes
from cadis.errors import CadisError

digits_module = import_module("cadis.data.digits")


def test_digits_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, split and order are the same, whether scikit-learn or we read the file."""
    bunch, dataset = load_digits(), digits()
    pixels = torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16
    train, test = train_test_split(
        torch.arange(1797), test_size=0.2, stratify=torch.tensor(bunch.target), random_state=0
    )
    mean, deviation = pixels[train].mean(), pixels[train].std()
    for part, indices in ((dataset.train, train), (dataset.test, test)):
        assert torch.equal(part.inputs, (pixels[indices] - mean) / deviation)
        assert torch.equal(part.labels, torch.tensor(bunch.target)[indices])
    assert dataset.classes == tuple(map(str, bunch.target_names))
    monkeypatch.setattr(digits_module, "_SHA256", "of another file")
    assert digits_module._read_file() is None
    loaded_by_sklearn = digits()
    assert torch.equal(loaded_by_sklearn.train.inputs, dataset.train.inputs)
    assert torch.equal(loaded_by_sklearn.test.labels, dataset.test.labels)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_stratified_split_equals_that_of_scikit_learn(share: float) -> None:
    labels = np.random.default_rng(1).integers(0, 4, 103)
    expected = train_test_split(np.arange(103), test_size=share, stratify=labels, random_state=0)
    result = digits_module.split_stratified(labels, share)
    assert [part.tolist() for part in result] == [part.tolist() for part in expected]


def test_concatenation_keeps_the_order_and_the_scaling() -> None:
    scaling = Scaling((0.5,), (0.25,))
    parts = [
        Samples(torch.full((n, 1, 2, 2), n, dtype=torch.uint8), torch.full((n,), n), scaling)
        for n in (1, 3, 2)
    ]
    result = concatenate(parts)
    assert result.labels.tolist() == [1, 3, 3, 3, 2, 2]
    assert result.inputs[:, 0, 0, 0].tolist() == [1, 3, 3, 3, 2, 2]
    assert result.scaling == scaling
    assert concatenate(parts[:1]) is parts[0]


def test_subsets_index_one_dataset() -> None:
    samples = Samples(torch.arange(10.0)[:, None], torch.arange(10))
    subsets = Subsets(samples, (torch.tensor([3, 1]), torch.tensor([9]), torch.tensor([0])))
    assert subsets[0].labels.tolist() == [3, 1]
    assert subsets[0].inputs[:, 0].tolist() == [3, 1]
    assert len(subsets) == 3
    assert subsets.sizes() == [2, 1, 1]
    assert [labels.tolist() for labels in subsets.labels()] == [[3, 1], [9], [0]]
    assert subsets.pool()[0].labels.tolist() == [3, 1, 9, 0]
    assert [len(client) for client in subsets[1:]] == [1, 1]


@pytest.mark.parametrize(
    ("inputs", "labels", "sentence"),
    [
        (torch.zeros(0, 2), torch.zeros(0).long(), "Client 3 has no samples"),
        (torch.zeros(2, 2), torch.zeros(3).long(), "Client 3 has 2 inputs but 3 labels"),
        (torch.zeros(2, 2), torch.zeros(2), "vector of torch.int64"),
        (torch.zeros(2, 2), torch.zeros(2, 1).long(), "vector of torch.int64"),
        (torch.zeros(2, 2), torch.tensor([0, -1]), "negative label"),
        (torch.tensor(1.0), torch.tensor([0, 1]), "Client 3 has a single number as inputs"),
        (torch.zeros(2, 2), torch.tensor(1), "vector of torch.int64"),
        (torch.tensor([1, torch.nan]), torch.tensor([0, 1]), r"has 1 sample with .* sample 1 \("),
        (
            torch.full((3, 2), torch.inf).half(),
            torch.tensor([0, 1, 1]),
            "has 3 samples .* sample 0",
        ),
    ],
)
def test_invalid_examples_are_rejected(
    inputs: torch.Tensor, labels: torch.Tensor, sentence: str
) -> None:
    with pytest.raises(CadisError, match=sentence):
        Samples(inputs, labels).check("Client 3")


def get_size_report(train: dict[str, int], test: dict[str, int], largest: float = 1.0) -> list[str]:
    """Return the sentences about a dataset with these numbers of samples per client."""

    def list_indices(sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        parts = torch.arange(sum(sizes.values())).split([*sizes.values()])
        return dict(zip(sizes, parts, strict=True))

    def make_samples(sizes: dict[str, int]) -> Samples:
        number = sum(sizes.values())
        return Samples(torch.full((number, 2), largest), torch.zeros(number, dtype=torch.int64))

    messages: list[str] = []
    dataset = Dataset(
        "mine",
        make_samples(train),
        make_samples(test),
        ("a",),
        list_indices(train),
        list_indices(test),
    )
    report_sizes(dataset, Callbacks(say=messages.append))
    return messages


def test_sizes_of_few_clients_are_listed() -> None:
    assert get_size_report({"north": 400, "south": 90}, {"north": 40, "south": 11}) == [
        "Training + test samples: north 400 + 40, south 90 + 11.",
        "1 of 2 clients have fewer than 30 test samples; south has 11, so its accuracy changes in "
        "steps of 0.091.",
    ]


def test_sizes_of_many_clients_are_summarized() -> None:
    clients = {f"client {n}": 100 + n for n in range(12)}
    (message,) = get_size_report(clients, dict.fromkeys(clients, 40))
    assert message == "12 clients have 100 to 111 training samples, and 40 to 40 test samples."


def test_small_test_set_and_clients_without_test_samples_are_reported() -> None:
    messages = get_size_report({"north": 50, "south": 50, "east": 50}, {"north": 11, "west": 2})
    assert messages[0] == "The test set has 13 samples: accuracy changes in steps of 0.077."
    assert "west has only test samples" in messages[2]
    assert messages[3] == "south, east have no test samples, so no accuracy is computed for them."


def test_large_inputs_are_reported() -> None:
    messages = get_size_report({"north": 50}, {"north": 50}, largest=25_000.0)
    assert messages[0].startswith("The largest input is 25,000, so training may diverge")
