"""Tasks and their metrics, by hand and against scikit-learn."""

from math import exp, isnan, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss, roc_auc_score
from torch import Tensor

from cadis.algorithm.tasks import Binary, Classification
from cadis.errors import CadisError
from cadis.training import Evaluation

NAN = float("nan")

cases = st.lists(
    st.tuples(st.sampled_from([-30.0, -1.5, -0.5, 0.0, 0.25, 2.0, 40.0]), st.integers(0, 1)),
    min_size=1,
    max_size=30,
)
classes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


def make_column(*numbers: float) -> Tensor:
    return torch.tensor(numbers)[:, None]


def sigmoid(number: float) -> float:
    return 1 / (1 + exp(-number))


def test_loss_by_hand() -> None:
    outputs, labels = make_column(2.0, -1.0), torch.tensor([1, 0])
    first, second = -log(sigmoid(2.0)), -log(1 - sigmoid(-1.0))
    assert Binary().loss(outputs, labels, "sum").item() == pytest.approx(first + second)
    assert Binary().loss(outputs, labels, "mean").item() == pytest.approx((first + second) / 2)
    weighted = Binary(positive_weight=3.0).loss(outputs, labels, "sum").item()
    assert weighted == pytest.approx(3 * first + second)


def test_gradients_by_hand() -> None:
    """The gradient is weight * (p - 1) for label 1, and p for label 0."""
    outputs = make_column(0.3, 0.3).requires_grad_()
    Binary(positive_weight=2.0).loss(outputs, torch.tensor([1, 0]), "sum").backward()
    assert outputs.grad is not None
    p = sigmoid(0.3)
    assert outputs.grad[:, 0].tolist() == pytest.approx([2 * (p - 1), p])


def test_predictions() -> None:
    metrics = Binary().predict(make_column(2.0, -1.0, 0.0, NAN))
    assert metrics.tolist() == [1, 0, 0, 0]
    assert metrics.dtype == torch.int64


def test_metrics_by_hand() -> None:
    """The scores of positives are 3, 1, -1; of negatives 1, -2."""
    outputs, labels = make_column(3.0, 1.0, -1.0, 1.0, -2.0), torch.tensor([1, 1, 1, 0, 0])
    metrics = Binary().compute_metrics(outputs, labels)
    assert metrics == Binary(positive_weight=5.0).compute_metrics(outputs, labels)  # not weighted
    above = (1 + 1) + (0.5 + 1) + (0 + 1)  # positives with a higher score, per pair; ties are half
    assert metrics["auc"] == pytest.approx(above / (3 * 2))
    precision, recall = 2 / 3, 2 / 3
    assert metrics["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert metrics["balanced_accuracy"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    odds = [3.0, 1.0, -1.0, -1.0, 2.0]  # log-odds of the true label
    assert metrics["log_loss"] == pytest.approx(-sum(log(sigmoid(z)) for z in odds) / 5)


@given(cases)
def test_metrics_equal_scikit_learn(pairs: list[tuple[float, int]]) -> None:
    scores, labels = [score for score, _ in pairs], [label for _, label in pairs]
    metrics = Binary().compute_metrics(
        torch.tensor(scores, dtype=torch.float64)[:, None], torch.tensor(labels)
    )
    predicted = [int(score > 0) for score in scores]
    if len(set(labels)) == 2:
        assert metrics["auc"] == pytest.approx(roc_auc_score(labels, scores))
        assert metrics["balanced_accuracy"] == pytest.approx(
            balanced_accuracy_score(labels, predicted)
        )
    else:
        assert isnan(metrics["auc"])
        assert isnan(metrics["balanced_accuracy"])
    if any(labels) or any(predicted):
        assert metrics["f1"] == pytest.approx(f1_score(labels, predicted))
    else:
        assert isnan(metrics["f1"])
    probabilities = [sigmoid(score) for score in scores]
    if max(probabilities) < 1:  # scikit-learn clips probabilities of 1
        assert metrics["log_loss"] == pytest.approx(log_loss(labels, probabilities, labels=[0, 1]))


def test_nan_outputs_count_as_wrong() -> None:
    metrics = Binary().compute_metrics(make_column(NAN, 2.0, NAN, -2.0), torch.tensor([1, 1, 0, 0]))
    assert metrics["auc"] == 1 / 4  # only the pair without NaN is in order
    assert metrics["f1"] == 2 * 1 / (2 * 1 + 1 + 1)
    assert metrics["balanced_accuracy"] == 1 / 2
    assert isnan(metrics["log_loss"])


def test_half_precision_and_infinite_outputs() -> None:
    outputs = make_column(60000.0, -60000.0, torch.inf, -torch.inf).half()
    metrics = Binary().compute_metrics(outputs, torch.tensor([1, 0, 1, 0]))
    assert metrics["auc"] == metrics["f1"] == metrics["balanced_accuracy"] == 1
    assert Binary().loss(outputs[:2], torch.tensor([1, 0]), "sum").dtype == torch.float16


@pytest.mark.parametrize(("classes", "outputs"), [(1, 0), (3, 2), (10, 10)])
def test_binary_needs_two_classes_and_one_output(classes: int, outputs: int) -> None:
    assert (Binary().num_outputs(2), Binary().num_classes(1)) == (1, 2)
    with pytest.raises(CadisError, match=f"needs data of two classes, not {classes}; choose"):
        Binary().num_outputs(classes)
    sentence = f"needs a model with one output, not {outputs}; change"
    with pytest.raises(CadisError, match=sentence):
        Binary().num_classes(outputs)
    with pytest.raises(CadisError, match=sentence):
        Binary().loss(torch.zeros(3, outputs), torch.zeros(3).long(), "mean")


def test_minimum_of_the_loss_equals_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(80, generator=generator, dtype=torch.float64)
    labels = (inputs[:, 0] - 0.5 * inputs[:, 1] + noise > 0.4).long()
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        outputs = (inputs @ weights[:2] + weights[2])[:, None]
        loss = Binary(positive_weight=4.0).loss(outputs, labels, "mean")
        loss.backward()
        return loss.item()

    optimizer.step(closure)
    oracle = LogisticRegression(C=1e9, tol=1e-8, class_weight={0: 1, 1: 4}).fit(inputs, labels)
    expected = [*oracle.coef_[0], oracle.intercept_[0]]
    assert weights.tolist() == pytest.approx(expected, rel=1e-3)


def test_auc_of_a_large_test_set_equals_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (50_000,), generator=generator)
    noise = torch.randn(50_000, generator=generator, dtype=torch.float64)
    scores = (noise + labels).round(decimals=2)
    metrics = Binary().compute_metrics(scores[:, None], labels)["auc"]
    assert metrics == pytest.approx(roc_auc_score(labels, scores), rel=0, abs=1e-12)


def test_balanced_accuracy_and_f1_by_hand() -> None:
    """Recall is 8 of 10 for class 0 and 1 of 2 for class 1; the other classes have no samples."""
    confusion = torch.zeros(4, 4, dtype=torch.long)
    confusion[0, 0], confusion[0, 1], confusion[1, 1], confusion[1, 0] = 8, 2, 1, 1
    metrics = Evaluation(confusion, 0.0).compute_metrics(Classification())
    assert metrics["balanced_accuracy"] == pytest.approx((8 / 10 + 1 / 2) / 2)
    assert metrics["f1"] == pytest.approx((16 / (16 + 2 + 1) + 2 / (2 + 1 + 2)) / 2)
    assert list(metrics) == ["balanced_accuracy", "f1"]


@given(classes)
@pytest.mark.filterwarnings("ignore:y_pred contains classes")
@pytest.mark.filterwarnings("ignore:A single label")
def test_metrics_of_the_confusion_matrix_equal_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = map(list, zip(*pairs, strict=True))
    confusion = torch.zeros(4, 4, dtype=torch.long)
    for pair in pairs:
        confusion[pair] += 1
    metrics = Evaluation(confusion, 0.0).compute_metrics(Classification())
    assert metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, predicted))
    assert metrics["f1"] == pytest.approx(f1_score(truth, predicted, average="macro"))


def test_auc_is_one_vs_rest() -> None:
    outputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 3
    metrics = Classification(metric="auc").compute_metrics(outputs, labels)["auc"]
    probabilities = outputs.double().softmax(1).numpy()
    assert metrics == pytest.approx(roc_auc_score(labels, probabilities, multi_class="ovr"))
    outputs = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    task = Classification(metric="auc")
    assert task.compute_metrics(outputs, torch.tensor([0, 1]))["auc"] == 1  # class 2 has no samples
    assert task.compute_metrics(outputs * NAN, torch.tensor([0, 1]))["auc"] == 0
    assert isnan(task.compute_metrics(outputs, torch.tensor([0, 0]))["auc"])


def test_only_auc_needs_outputs() -> None:
    metrics = ("accuracy", "balanced_accuracy", "f1", "auc")
    assert [Classification(metric=m).needs_outputs for m in metrics] == [False, False, False, True]  # type: ignore[arg-type]
    assert Classification().main_metric == "accuracy"
