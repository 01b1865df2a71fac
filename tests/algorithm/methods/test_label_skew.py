"""FedLC, FedRS, FedNTD, BalanceFL and MOON: losses by hand, and unchanged parameters."""

from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cadis.algorithm import Algorithm, BaseMethod, Step
from cadis.algorithm.methods import MOON, BalanceFL, FedAvg, FedLC, FedNTD, FedRS
from cadis.algorithm.tasks import Binary
from cadis.data import Samples
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.training import LocalSettings
from method_support import compute_penalty
from support import (
    blobs,
    check_matches_plain_loop,
    get_model,
    is_identical,
    iter_plain_batches,
    list_gradients,
    make_model_outputs,
    run_rounds,
    small_federation,
    small_model,
    small_settings,
    train_locally,
)

LOGITS = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
LABELS = torch.tensor([1, 0])
COUNTS = torch.tensor([16, 1, 0])  # the last class is missing


def make_label_step(logits: Tensor = LOGITS, teacher: Tensor | None = None) -> Step:
    none = torch.zeros(1)
    extras = {} if teacher is None else {"teacher": teacher}
    inputs = logits, torch.zeros(2, 4), LABELS, none, none
    return Step(*inputs, {}, extras, {}, class_counts=COUNTS)


def test_fedlc_by_hand() -> None:
    """n^(-1/4) is 0.5 for 16, 1 for 1, and infinite for 0."""
    logits = FedLC(tau=2.0).calibrate(make_label_step())
    assert logits[:, :2].tolist() == [[1 - 2 * 0.5, 2 - 2 * 1], [0 - 2 * 0.5, -1 - 2 * 1]]
    expected = [
        -log(exp(2 - 2) / (exp(1 - 1) + exp(2 - 2))),
        -log(exp(0 - 1) / (exp(0 - 1) + exp(-1 - 2))),
    ]
    assert F.cross_entropy(logits, LABELS, reduction="none").tolist() == pytest.approx(expected)


def test_fedlc_has_no_gradient_for_missing_classes() -> None:
    logits = LOGITS.clone().requires_grad_()
    F.cross_entropy(FedLC().calibrate(make_label_step(logits)), LABELS).backward()
    assert logits.grad is not None
    assert logits.grad[:, 2].tolist() == [0, 0]
    assert logits.grad.isfinite().all()


def test_fedrs_by_hand() -> None:
    logits = FedRS(alpha=0.25).calibrate(make_label_step())
    assert logits.tolist() == [[1, 2, 0.25 * 0.5], [0, -1, 0.25 * 3]]


def test_fedrs_reduces_the_gradient_of_missing_classes() -> None:
    """The gradient by the logit of a missing class is alpha times its probability."""
    logits = LOGITS.clone().requires_grad_()
    calibrated = FedRS(alpha=0.5).calibrate(make_label_step(logits))
    F.cross_entropy(calibrated, LABELS, reduction="sum").backward()
    likely = [exp(0.25) / (exp(1) + exp(2) + exp(0.25)), exp(1.5) / (exp(0) + exp(-1) + exp(1.5))]
    assert logits.grad is not None
    assert logits.grad[:, 2].tolist() == pytest.approx([0.5 * p for p in likely])


def test_fedntd_by_hand() -> None:
    """The true classes 1 and 0 are excluded from both distributions."""
    teacher = torch.tensor([[0.0, 9.0, 1.0], [9.0, 2.0, 0.0]])

    def divergence(q: list[float], p: list[float]) -> float:
        q, p = ([exp(x) / sum(map(exp, row)) for x in row] for row in (q, p))
        return sum(a * log(a / b) for a, b in zip(q, p, strict=True))

    total = divergence([0, 1], [1, 0.5]) + divergence([2, 0], [-1, 3])
    penalty = compute_penalty(FedNTD(beta=3.0), make_label_step(teacher=teacher))
    assert penalty.item() == pytest.approx(3 / 2 * total)
    extras = FedNTD().prepare(make_model_outputs(LOGITS, torch.zeros(2, 4), LABELS))
    assert torch.equal(extras.per_sample["teacher"], LOGITS)
    assert compute_penalty(FedNTD(beta=3.0), make_label_step(teacher=LOGITS)).item() == 0


def test_balancefl_distills_missing_classes() -> None:
    counts = torch.tensor([5, 0, 0])
    teacher = torch.tensor([[9.0, 0.0, 1.0], [9.0, 2.0, 0.0]])
    step = replace(make_label_step(teacher=teacher), class_counts=counts)
    q = [exp(0) / (exp(0) + exp(1)), exp(2) / (exp(2) + exp(0))]
    p = [exp(2) / (exp(2) + exp(0.5)), exp(-1) / (exp(-1) + exp(3))]
    expected = sum(
        a * log(a / b) + (1 - a) * log((1 - a) / (1 - b)) for a, b in zip(q, p, strict=True)
    )
    penalty = compute_penalty(BalanceFL(inheritance=2.0), step)
    assert penalty.item() == pytest.approx(2.0 / 2 * expected)
    complete = replace(step, class_counts=torch.tensor([5, 1, 1]))
    assert compute_penalty(BalanceFL(), complete).item() == 0


def test_balancefl_draws_all_classes_equally() -> None:
    labels = torch.tensor([0] * 90 + [2] * 10)
    orders = [BalanceFL().epoch_order(labels, derive_generator(n)) for n in range(50)]
    assert all(len(order) == 100 for order in orders)
    rare = torch.stack([(labels[order] == 2).float().mean() for order in orders])
    assert rare.mean().item() == pytest.approx(0.5, abs=4 * 0.5 / (100 * 50) ** 0.5)
    assert torch.equal(orders[3], BalanceFL().epoch_order(labels, derive_generator(3)))
    order = BalanceFL(balanced=False).epoch_order(labels, derive_generator(0))
    assert sorted(order.tolist()) == list(range(100))


def train_head(method: BaseMethod, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the rows of the classifier layer before and after local training."""
    flat = FlatModel(small_model())
    before = flat.copy_state()
    settings = LocalSettings(epochs=3, batch_size=4, lr=0.1)
    train_locally(flat, method, samples, before, {}, settings, derive_generator(1))
    head = flat.layout.head_slices[0]
    return before.parameters[head].view(5, -1), flat.copy_state().parameters[head].view(5, -1)


def test_rows_of_missing_classes_change_less() -> None:
    """For a client with two of five classes, FedAvg changes the other rows most."""
    change = {}
    for method in (FedAvg(), FedRS(), FedLC()):
        before, after = train_head(method, blobs(24, [0, 1], seed=3))
        change[method.name] = (after - before)[2:].norm().item()
    assert change["fedlc"] == 0
    assert 0 < change["fedrs"] < change["fedavg"]


def test_models_with_one_output_are_rejected() -> None:
    for method in (FedLC(), FedRS(), FedNTD(), BalanceFL()):
        with pytest.raises(CadisError, match=f"'{method.name}' needs a model with one output"):
            Algorithm(method, task=Binary())


def test_moon_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    received, previous = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.0, 1.0], [1, 1]])
    none = torch.zeros(1)
    extras = {"received": received, "previous": previous}
    step = Step(torch.zeros(2, 3), z, torch.zeros(2).long(), none, none, {}, extras, {})
    cosines = [(1.0, 0.0), (1 / sqrt(2), 1.0)]  # with the received, with the previous model
    terms = [-log(exp(a / 0.5) / (exp(a / 0.5) + exp(b / 0.5))) for a, b in cosines]
    assert compute_penalty(MOON(mu=3.0), step).item() == pytest.approx(3 * sum(terms) / 2)


def test_the_first_round_of_moon_equals_fedavg(tmp_path: Path) -> None:
    settings = replace(small_settings(rounds=1), stack=False)  # clients of MOON are never stacked
    (first,), (second,) = (run_rounds(m, tmp_path, settings) for m in (MOON(), FedAvg()))
    assert is_identical(get_model(first).parameters, get_model(second).parameters)


def compute_representations(model: nn.Module, inputs: Tensor) -> Tensor:
    body: Tensor = model[:-1](inputs)  # type: ignore[index]
    return body


def run_plain_moon(rounds: int, lr: float, mu: float, tau: float) -> nn.Module:
    """Run MOON with all clients as a plain loop, with Eq. 3 as in the paper."""
    model, other, clients = small_model(), small_model(), small_federation().clients
    previous: list[dict[str, Tensor] | None] = [None for _ in clients]
    counts = [len(samples) for samples in clients]
    for number in range(1, rounds + 1):
        start = {name: t.clone() for name, t in model.state_dict().items()}
        sent: list[dict[str, Tensor]] = []
        for client, samples in enumerate(clients):
            other.load_state_dict(start)
            with torch.no_grad():
                z_received = compute_representations(other, samples.inputs)
                if (before := previous[client]) is not None:
                    other.load_state_dict(before)
                z_previous = compute_representations(other, samples.inputs)
            model.load_state_dict(start)
            for batch in iter_plain_batches(samples, number, client):
                z = compute_representations(model, samples.inputs[batch])
                to_received = F.cosine_similarity(z, z_received[batch]) / tau
                to_previous = F.cosine_similarity(z, z_previous[batch]) / tau
                contrast = -torch.log(
                    to_received.exp() / (to_received.exp() + to_previous.exp())
                ).mean()
                loss = F.cross_entropy(model[-1](z), samples.labels[batch])  # type: ignore[index]
                total = loss + mu * contrast if previous[client] is not None else loss
                for _, parameter, gradient in list_gradients(total, model):
                    parameter.sub_(lr * gradient)
            previous[client] = {name: t.clone() for name, t in model.state_dict().items()}
            sent.append(previous[client] or {})
        shares = [count / sum(counts) for count in counts]
        model.load_state_dict(
            {name: sum(s * m[name] for s, m in zip(shares, sent, strict=True)) for name in start}
        )
    return model


def test_moon_matches_a_plain_loop(tmp_path: Path) -> None:
    expected = run_plain_moon(rounds=3, lr=0.1, mu=2.0, tau=0.5)
    check_matches_plain_loop(MOON(mu=2.0), expected, tmp_path)
