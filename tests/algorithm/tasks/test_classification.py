"""Measures of any number of classes: of the confusion matrix, and of the outputs if asked for."""

from math import isnan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from cadis.algorithm.tasks import Classification
from cadis.training import Evaluation

NAN = float("nan")
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


def evaluation(truth: list[int], predicted: list[int]) -> Evaluation:
    confusion = torch.zeros(4, 4, dtype=torch.long)
    for true, said in zip(truth, predicted, strict=True):
        confusion[true, said] += 1
    return Evaluation(confusion, 0.0)


def test_balanced_accuracy_and_f1_by_hand() -> None:
    """Of class 0, 8 of 10 are found; of class 1, 1 of 2; nobody has the others."""
    confusion = torch.zeros(4, 4, dtype=torch.long)
    confusion[0, 0], confusion[0, 1], confusion[1, 1], confusion[1, 0] = 8, 2, 1, 1
    found = Evaluation(confusion, 0.0).measures(Classification())
    assert found["balanced_accuracy"] == pytest.approx((8 / 10 + 1 / 2) / 2)
    assert found["f1"] == pytest.approx((16 / (16 + 2 + 1) + 2 / (2 + 1 + 2)) / 2)
    assert list(found) == ["balanced_accuracy", "f1"]


@given(pairs)
@pytest.mark.filterwarnings("ignore:y_pred contains classes")
@pytest.mark.filterwarnings("ignore:A single label")
def test_they_are_those_of_scikit_learn(told: list[tuple[int, int]]) -> None:
    truth, predicted = map(list, zip(*told, strict=True))
    found = evaluation(truth, predicted).measures(Classification())
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, predicted))
    assert found["f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))


def test_auc_is_the_mean_of_each_class_against_the_rest() -> None:
    outputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    found = Classification(metric="auc").measures(outputs, labels)["auc"]
    chances = outputs.double().softmax(1).numpy()
    assert found == pytest.approx(roc_auc_score(labels, chances, multi_class="ovr"))


def test_auc_without_a_class_and_with_outputs_that_are_no_numbers() -> None:
    outputs = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    asked = Classification(metric="auc")
    assert asked.measures(outputs, torch.tensor([0, 1]))["auc"] == 1  # nobody has class 2
    assert asked.measures(outputs * NAN, torch.tensor([0, 1]))["auc"] == 0
    assert isnan(asked.measures(outputs, torch.tensor([0, 0]))["auc"])


def test_only_auc_needs_outputs() -> None:
    metrics = ("accuracy", "balanced_accuracy", "f1", "auc")
    assert [Classification(metric=m).needs_outputs for m in metrics] == [False, False, False, True]  # type: ignore[arg-type]
    assert Classification().headline == "accuracy"
