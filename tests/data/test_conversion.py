"""Data as users have them, as examples."""

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from cadis.data import as_examples, single
from cadis.data.conversion import class_names
from cadis.errors import CadisError

INPUTS = torch.arange(12.0).view(6, 2)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


class Rows(TorchDataset[Any]):
    """Samples one by one, as users write them."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return self.items[number]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(INPUTS, LABELS, strict=True)


def test_a_tensor_dataset_is_not_copied() -> None:
    found = as_examples(TensorDataset(INPUTS, LABELS), "Client 0")
    assert found.inputs is INPUTS
    assert found.labels is LABELS


def test_a_subset_of_a_subset() -> None:
    part = Subset(Subset(TensorDataset(INPUTS, LABELS), [5, 3, 1]), [2, 0])
    found = as_examples(part, "Client 0")
    assert found.inputs.tolist() == [[2, 3], [10, 11]]
    assert found.labels.tolist() == [1, 2]


ALIKE: dict[str, Any] = {
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


@pytest.mark.parametrize("kind", ALIKE)
def test_the_same_examples_in_many_forms(kind: str) -> None:
    found = single(as_examples(ALIKE[kind], "Client 0"))
    found.check("Client 0")
    assert torch.equal(found.inputs, INPUTS)
    assert torch.equal(found.labels, LABELS)


def test_numbers_of_64_bits_become_32_and_tokens_stay_whole() -> None:
    assert single(as_examples((INPUTS.double(), LABELS), "")).inputs.dtype == torch.float32
    tokens = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3, 4]], "label": [0, 1]})
    assert single(as_examples(tokens, "")).inputs.dtype == torch.int64


def pictures(mode: str, dtype: str = "uint8") -> list[Image.Image]:
    shape = (3, 4, 3) if mode == "RGB" else (3, 4)
    numbers = [np.full(shape, value, dtype) for value in (0, 255)]
    return [Image.fromarray(each).convert(mode) for each in numbers]


def test_pictures_of_hugging_face() -> None:
    kinds = datasets.Features(
        {"img": datasets.Image(), "kind": datasets.ClassLabel(names=["dark", "light"])}
    )
    data = datasets.Dataset.from_dict({"img": pictures("RGB"), "kind": [0, 1]}, features=kinds)
    found = as_examples(data, "Client 0")
    assert found.inputs.shape == (2, 3, 3, 4)
    assert found.inputs.dtype == torch.uint8
    assert found.scaled.unique().tolist() == [0.0, 1.0]
    assert found.labels.tolist() == [0, 1]
    assert class_names(data) == ("dark", "light")


def test_grey_pictures_stay_grey_and_others_become_colours() -> None:
    grey = as_examples(Rows([*zip(pictures("L"), [0, 1], strict=True)]), "")
    assert grey.inputs.shape == (2, 1, 3, 4)
    mixed = [pictures("L")[0], pictures("RGB")[1]]
    assert as_examples(Rows([*zip(mixed, [0, 1], strict=True)]), "").inputs.shape == (2, 3, 3, 4)


class Failing(Rows):
    def __getitem__(self, number: int) -> Any:
        return self.items[number] if number < 2 else 1 // 0


REFUSED: dict[str, tuple[Any, str]] = {
    "three tensors": (TensorDataset(LABELS, LABELS, LABELS), "has 3 tensors; give two"),
    "failing": (Failing([*zip(INPUTS, LABELS, strict=True)]), "sample 2 with: ZeroDivisionError"),
    "no pair": (Rows([1, 2]), "no pair of an input and a label"),
    "shapes": (Rows([(INPUTS[0], 0), (INPUTS, 1)]), "do not make one tensor"),
    "words": (Rows([(INPUTS[0], "ill")]), "no class numbers"),
    "no label": (datasets.Dataset.from_dict({"a": [1], "b": [2]}), "columns a, b; call one"),
    "text": (datasets.Dataset.from_dict({"text": ["a"], "label": [0]}), "no numbers of one shape"),
    "sizes": (
        Rows([(Image.new("L", (2, 2)), 0), (Image.new("L", (3, 2)), 1)]),
        "several sizes; resize",
    ),
    "16 bits with a sign": (Rows([(Image.new("I", (2, 2)), 0)]), "which do not say what is white"),
    "nothing": (7, "is not a pair of inputs and labels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named(case: str) -> None:
    data, sentence = REFUSED[case]
    with pytest.raises(CadisError, match=f"Client 7.*{sentence}"):
        as_examples(data, "Client 7")
