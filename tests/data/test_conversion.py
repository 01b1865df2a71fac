"""Tests of the conversion of users' data to samples."""

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from cadis.data import as_samples, to_float32
from cadis.data.conversion import get_class_names
from cadis.errors import CadisError

INPUTS = torch.arange(12.0).view(6, 2)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


class Rows(TorchDataset[Any]):
    """A map-style dataset as users write it."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(INPUTS, LABELS, strict=True)


def test_tensor_dataset_is_not_copied() -> None:
    samples = as_samples(TensorDataset(INPUTS, LABELS), "Client 0")
    assert samples.inputs is INPUTS
    assert samples.labels is LABELS


def test_subset_of_a_subset() -> None:
    part = Subset(Subset(TensorDataset(INPUTS, LABELS), [5, 3, 1]), [2, 0])
    samples = as_samples(part, "Client 0")
    assert samples.inputs.tolist() == [[2, 3], [10, 11]]
    assert samples.labels.tolist() == [1, 2]


EQUIVALENT: dict[str, Any] = {
    "pair": (INPUTS, LABELS),
    "arrays": (INPUTS.numpy(), LABELS.numpy()),
    "loader": DataLoader(TensorDataset(INPUTS, LABELS), batch_size=4),
    "items": Rows([(row.numpy(), int(y)) for row, y in zip(INPUTS, LABELS, strict=True)]),
    "dicts": Rows([{"x": r, "label": y} for r, y in zip(INPUTS, LABELS, strict=True)]),
    "stream": Stream(),
    "part of items": Subset(Rows([*zip(INPUTS, LABELS, strict=True)]), range(6)),
    "hugging face": datasets.Dataset.from_dict(
        {"id": [*"abcdef"], "features": INPUTS.tolist(), "label": LABELS.tolist()}
    ),
    "hugging face, columns": datasets.Dataset.from_dict(
        {"age": [0, 2, 4, 6, 8, 10], "weight": INPUTS[:, 1].tolist(), "label": LABELS.tolist()}
    ),
    "hugging face, torch": datasets.Dataset.from_dict(
        {"x": INPUTS.tolist(), "label": LABELS.tolist()}
    ).with_format("torch"),
}


@pytest.mark.parametrize("name", EQUIVALENT)
def test_equivalent_data_become_the_same_samples(name: str) -> None:
    samples = to_float32(as_samples(EQUIVALENT[name], "Client 0"))
    samples.check("Client 0")
    assert torch.equal(samples.inputs, INPUTS)
    assert torch.equal(samples.labels, LABELS)


def test_float64_becomes_float32_and_tokens_stay_integers() -> None:
    assert to_float32(as_samples((INPUTS.double(), LABELS), "")).inputs.dtype == torch.float32
    tokens = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3, 4]], "label": [0, 1]})
    assert to_float32(as_samples(tokens, "")).inputs.dtype == torch.int64


def make_images(mode: str, dtype: str = "uint8") -> list[Image.Image]:
    """Return a black and a white image."""
    shape = (3, 4, 3) if mode == "RGB" else (3, 4)
    arrays = [np.full(shape, value, dtype) for value in (0, 255)]
    return [Image.fromarray(array).convert(mode) for array in arrays]


def test_images_of_hugging_face() -> None:
    features = datasets.Features(
        {"img": datasets.Image(), "kind": datasets.ClassLabel(names=["dark", "light"])}
    )
    data = datasets.Dataset.from_dict(
        {"img": make_images("RGB"), "kind": [0, 1]}, features=features
    )
    samples = as_samples(data, "Client 0")
    assert samples.inputs.shape == (2, 3, 3, 4)
    assert samples.inputs.dtype == torch.uint8
    assert samples.scaled_inputs.unique().tolist() == [0.0, 1.0]
    assert samples.labels.tolist() == [0, 1]
    assert get_class_names(data) == ("dark", "light")


def test_gray_images_stay_gray_and_mixed_ones_become_rgb() -> None:
    gray = as_samples(Rows([*zip(make_images("L"), [0, 1], strict=True)]), "")
    assert gray.inputs.shape == (2, 1, 3, 4)
    mixed = [make_images("L")[0], make_images("RGB")[1]]
    assert as_samples(Rows([*zip(mixed, [0, 1], strict=True)]), "").inputs.shape == (2, 3, 3, 4)


class Failing(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.items[index] if index < 2 else 1 // 0


INVALID: dict[str, tuple[Any, str]] = {
    "three tensors": (TensorDataset(LABELS, LABELS, LABELS), "has 3 tensors; give two"),
    "failing": (
        Failing([*zip(INPUTS, LABELS, strict=True)]),
        "sample 2 that cannot be loaded: ZeroDivisionError",
    ),
    "not pairs": (Rows([1, 2]), "a sample that is not a pair"),
    "shapes": (Rows([(INPUTS[0], 0), (INPUTS, 1)]), "cannot be stacked to one tensor"),
    "words": (Rows([(INPUTS[0], "ill")]), "not class numbers"),
    "no label": (datasets.Dataset.from_dict({"a": [1], "b": [2]}), "columns a, b; name one"),
    "text": (datasets.Dataset.from_dict({"text": ["a"], "label": [0]}), "not numbers of one shape"),
    "sizes": (
        Rows([(Image.new("L", (2, 2)), 0), (Image.new("L", (3, 2)), 1)]),
        "several sizes; resize",
    ),
    "16 bits with a sign": (
        Rows([(Image.new("I", (2, 2)), 0)]),
        "so the value of white is unknown",
    ),
    "nothing": (7, "is not a pair of inputs and labels"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_data_are_rejected(case: str) -> None:
    data, sentence = INVALID[case]
    with pytest.raises(CadisError, match=f"Client 7.*{sentence}"):
        as_samples(data, "Client 7")
