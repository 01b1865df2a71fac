import pytest
import torch

from cadis.core import CadisError
from cadis.data import Examples, Subsets, digits


def test_digits_are_split_without_overlap_and_by_class() -> None:
    dataset = digits()
    assert len(dataset.train) + len(dataset.test) == 1797
    assert dataset.train.inputs.shape[1:] == (1, 8, 8)
    share = torch.bincount(dataset.test.labels) / torch.bincount(dataset.train.labels)
    assert ((share - 0.25).abs() < 0.02).all()
    assert dataset.train.inputs.mean().abs() < 1e-5
    assert dataset.train.inputs.std().item() == pytest.approx(1, abs=1e-4)
    again = digits()
    assert torch.equal(again.test.inputs, dataset.test.inputs)


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
        (torch.tensor([1, torch.nan]), torch.tensor([0, 1]), "has 1 samples .* sample 1 being"),
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
