from importlib import import_module

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from cadis._io import Callbacks
from cadis.data import Dataset, Examples, Scaling, Subsets, digits, joined
from cadis.data.loading import tell_amounts
from cadis.errors import CadisError

digits_module = import_module("cadis.data.digits")


def test_digits_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is read and split without it, to the same numbers in the same order."""
    bunch, dataset = load_digits(), digits()
    pixels = torch.tensor(bunch.images, dtype=torch.float32)[:, None] / 16
    positions = torch.arange(1797)
    train, test = train_test_split(
        positions, test_size=0.2, stratify=torch.tensor(bunch.target), random_state=0
    )
    mean, deviation = pixels[train].mean(), pixels[train].std()
    for part, places in ((dataset.train, train), (dataset.test, test)):
        assert torch.equal(part.inputs, (pixels[places] - mean) / deviation)
        assert torch.equal(part.labels, torch.tensor(bunch.target)[places])
    assert dataset.classes == tuple(map(str, bunch.target_names))
    monkeypatch.setattr(digits_module, "_SHA256", "of another file")
    assert digits_module._read_file() is None
    asked = digits()
    assert torch.equal(asked.train.inputs, dataset.train.inputs)
    assert torch.equal(asked.test.labels, dataset.test.labels)


@pytest.mark.parametrize("part", [0.1, 0.25, 0.5])
def test_a_stratified_split_is_that_of_scikit_learn(part: float) -> None:
    labels = np.random.default_rng(1).integers(0, 4, 103)
    expected = train_test_split(np.arange(103), test_size=part, stratify=labels, random_state=0)
    for found, places in zip(digits_module.stratified_split(labels, part), expected, strict=True):
        assert found.tolist() == places.tolist()


def test_what_several_own_is_joined_in_their_order() -> None:
    scaling = Scaling((0.5,), (0.25,))
    parts = [
        Examples(torch.full((n, 1, 2, 2), n, dtype=torch.uint8), torch.full((n,), n), scaling)
        for n in (1, 3, 2)
    ]
    together = joined(parts)
    assert together.labels.tolist() == [1, 3, 3, 3, 2, 2]
    assert together.inputs[:, 0, 0, 0].tolist() == [1, 3, 3, 3, 2, 2]
    assert together.scaling == scaling
    assert joined(parts[:1]) is parts[0]


def test_subsets_gather_on_demand() -> None:
    examples = Examples(torch.arange(10.0)[:, None], torch.arange(10))
    subsets = Subsets(examples, (torch.tensor([3, 1]), torch.tensor([9]), torch.tensor([0])))
    assert subsets[0].labels.tolist() == [3, 1]
    assert subsets[0].inputs[:, 0].tolist() == [3, 1]
    assert len(subsets) == 3
    assert subsets.sizes() == [2, 1, 1]
    assert [labels.tolist() for labels in subsets.labels()] == [[3, 1], [9], [0]]
    assert subsets.pooled()[0].labels.tolist() == [3, 1, 9, 0]
    assert [len(client) for client in subsets[1:]] == [1, 1]


@pytest.mark.parametrize(
    ("inputs", "labels", "sentence"),
    [
        (torch.zeros(0, 2), torch.zeros(0).long(), "Client 3 has no samples"),
        (torch.zeros(2, 2), torch.zeros(3).long(), "Client 3 has 2 inputs but 3 labels"),
        (torch.zeros(2, 2), torch.zeros(2), "vector of torch.int64"),
        (torch.zeros(2, 2), torch.zeros(2, 1).long(), "vector of torch.int64"),
        (torch.zeros(2, 2), torch.tensor([0, -1]), "negative label"),
        (torch.tensor(1.0), torch.tensor([0, 1]), "Client 3 has a single number for inputs"),
        (torch.zeros(2, 2), torch.tensor(1), "vector of torch.int64"),
        (torch.tensor([1, torch.nan]), torch.tensor([0, 1]), r"has 1 sample with .* sample 1 \("),
        (
            torch.full((3, 2), torch.inf).half(),
            torch.tensor([0, 1, 1]),
            "has 3 samples .* sample 0",
        ),
    ],
)
def test_examples_that_cannot_be_learned(
    inputs: torch.Tensor, labels: torch.Tensor, sentence: str
) -> None:
    with pytest.raises(CadisError, match=sentence):
        Examples(inputs, labels).check("Client 3")


def told(train: dict[str, int], test: dict[str, int], largest: float = 1.0) -> list[str]:
    def spans(sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        parts = torch.arange(sum(sizes.values())).split([*sizes.values()])
        return dict(zip(sizes, parts, strict=True))

    def examples(sizes: dict[str, int]) -> Examples:
        number = sum(sizes.values())
        return Examples(torch.full((number, 2), largest), torch.zeros(number, dtype=torch.int64))

    said: list[str] = []
    dataset = Dataset("own", examples(train), examples(test), ("a",), spans(train), spans(test))
    tell_amounts(dataset, Callbacks(say=said.append))
    return said


def test_few_sites_are_named_with_what_they_have() -> None:
    assert told({"north": 400, "south": 90}, {"north": 40, "south": 11}) == [
        "Samples to train on + to test on: north 400 + 40, south 90 + 11.",
        "1 of 2 clients have fewer than 30 test samples of their own; south has 11, so that its "
        "accuracy moves in steps of 0.091.",
    ]


def test_many_sites_are_told_by_the_smallest_and_the_largest() -> None:
    sites = {f"site {n}": 100 + n for n in range(12)}
    (sentence,) = told(sites, dict.fromkeys(sites, 40))
    assert sentence == "12 clients have 100 to 111 samples to train on, and 40 to 40 to test on."


def test_a_small_test_set_and_sites_without_one() -> None:
    said = told({"north": 50, "south": 50, "east": 50}, {"north": 11, "west": 2})
    assert said[0] == "The test set has 13 samples: accuracy moves in steps of 0.077."
    assert "west has only test samples" in said[2]
    assert said[3] == "south, east have no test samples, so that nothing is known of them."


def test_large_numbers_are_told() -> None:
    said = told({"north": 50}, {"north": 50}, largest=25_000.0)
    assert said[0].startswith("Inputs are as large as 25,000, at which training may diverge")
