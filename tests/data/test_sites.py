"""What is told of who has how much."""

import torch

from cadis._io import Callbacks
from cadis.data import Dataset, Examples
from cadis.data.data_warnings import tell_sites


def told(train: dict[str, int], test: dict[str, int], largest: float = 1.0) -> list[str]:
    def spans(sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        ends = [sum([*sizes.values()][: n + 1]) for n in range(len(sizes))]
        return {
            name: torch.arange(end - sizes[name], end)
            for name, end in zip(sizes, ends, strict=True)
        }

    def examples(sizes: dict[str, int]) -> Examples:
        number = sum(sizes.values())
        return Examples(torch.full((number, 2), largest), torch.zeros(number, dtype=torch.int64))

    said: list[str] = []
    dataset = Dataset("own", examples(train), examples(test), ("a",), spans(train), spans(test))
    tell_sites(dataset, Callbacks(say=said.append))
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
