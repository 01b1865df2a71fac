"""FedLC, FedRS, FedNTD, BalanceFL and MOON: losses by hand, and what they leave alone."""

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
from cadis.data import Examples
from cadis.errors import CadisError
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.training import LocalSettings
from method_support import penalty_of
from support import (
    blobs,
    check_like_plain_loop,
    gradients_of,
    model_after,
    plain_batches,
    run_rounds,
    same,
    small_federation,
    small_model,
    small_settings,
    train_locally,
    view,
)

LOGITS = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
LABELS = torch.tensor([1, 0])
COUNTS = torch.tensor([16, 1, 0])  # of three classes the last is missing


def step_with(logits: Tensor = LOGITS, teacher: Tensor | None = None) -> Step:
    none = torch.zeros(1)
    prepared = {} if teacher is None else {"teacher": teacher}
    inputs = logits, torch.zeros(2, 4), LABELS, none, none
    return Step(*inputs, {}, prepared, {}, class_counts=COUNTS)


def test_fedlc_by_hand() -> None:
    """n^(-1/4) of 16 is a half, of 1 it is 1, of 0 infinite."""
    told = FedLC(tau=2.0).calibrate(step_with())
    assert told[:, :2].tolist() == [[1 - 2 * 0.5, 2 - 2 * 1], [0 - 2 * 0.5, -1 - 2 * 1]]
    expected = [
        -log(exp(2 - 2) / (exp(1 - 1) + exp(2 - 2))),
        -log(exp(0 - 1) / (exp(0 - 1) + exp(-1 - 2))),
    ]
    assert F.cross_entropy(told, LABELS, reduction="none").tolist() == pytest.approx(expected)


def test_fedlc_leaves_missing_classes_alone() -> None:
    logits = LOGITS.clone().requires_grad_()
    F.cross_entropy(FedLC().calibrate(step_with(logits)), LABELS).backward()
    assert logits.grad is not None
    assert logits.grad[:, 2].tolist() == [0, 0]
    assert logits.grad.isfinite().all()


def test_fedrs_by_hand() -> None:
    told = FedRS(alpha=0.25).calibrate(step_with())
    assert told.tolist() == [[1, 2, 0.25 * 0.5], [0, -1, 0.25 * 3]]


def test_fedrs_pushes_missing_classes_less() -> None:
    """The gradient by a missing class's logit is alpha times its (restricted) probability."""
    logits = LOGITS.clone().requires_grad_()
    told = FedRS(alpha=0.5).calibrate(step_with(logits))
    F.cross_entropy(told, LABELS, reduction="sum").backward()
    likely = [exp(0.25) / (exp(1) + exp(2) + exp(0.25)), exp(1.5) / (exp(0) + exp(-1) + exp(1.5))]
    assert logits.grad is not None
    assert logits.grad[:, 2].tolist() == pytest.approx([0.5 * p for p in likely])


def test_fedntd_by_hand() -> None:
    """The true classes 1 and 0 are left out of both distributions."""
    teacher = torch.tensor([[0.0, 9.0, 1.0], [9.0, 2.0, 0.0]])

    def divergence(q: list[float], p: list[float]) -> float:
        q, p = ([exp(x) / sum(map(exp, each)) for x in each] for each in (q, p))
        return sum(a * log(a / b) for a, b in zip(q, p, strict=True))

    sum_of = divergence([0, 1], [1, 0.5]) + divergence([2, 0], [-1, 3])
    found = penalty_of(FedNTD(beta=3.0), step_with(teacher=teacher))
    assert found.item() == pytest.approx(3 / 2 * sum_of)
    prepared = FedNTD().prepare(view(LOGITS, torch.zeros(2, 4), LABELS))
    assert torch.equal(prepared.per_example["teacher"], LOGITS)
    assert penalty_of(FedNTD(beta=3.0), step_with(teacher=LOGITS)).item() == 0


def test_balancefl_inherits_what_is_known_of_missing_classes() -> None:
    counts = torch.tensor([5, 0, 0])
    teacher = torch.tensor([[9.0, 0.0, 1.0], [9.0, 2.0, 0.0]])
    step = replace(step_with(teacher=teacher), class_counts=counts)
    q = [exp(0) / (exp(0) + exp(1)), exp(2) / (exp(2) + exp(0))]
    p = [exp(2) / (exp(2) + exp(0.5)), exp(-1) / (exp(-1) + exp(3))]
    expected = sum(
        a * log(a / b) + (1 - a) * log((1 - a) / (1 - b)) for a, b in zip(q, p, strict=True)
    )
    found = penalty_of(BalanceFL(inheritance=2.0), step)
    assert found.item() == pytest.approx(2.0 / 2 * expected)
    whole = replace(step, class_counts=torch.tensor([5, 1, 1]))
    assert penalty_of(BalanceFL(), whole).item() == 0


def test_balancefl_draws_all_classes_alike() -> None:
    labels = torch.tensor([0] * 90 + [2] * 10)
    orders = [BalanceFL().epoch_order(labels, generator_for(n)) for n in range(50)]
    assert all(len(order) == 100 for order in orders)
    rare = torch.stack([(labels[order] == 2).float().mean() for order in orders])
    assert rare.mean().item() == pytest.approx(0.5, abs=4 * 0.5 / (100 * 50) ** 0.5)
    assert torch.equal(orders[3], BalanceFL().epoch_order(labels, generator_for(3)))
    everybody = BalanceFL(balanced=False).epoch_order(labels, generator_for(0))
    assert sorted(everybody.tolist()) == list(range(100))


def trained(method: BaseMethod, examples: Examples) -> tuple[Tensor, Tensor]:
    """The rows of the classifier's weight before and after local training."""
    flat = FlatModel(small_model())
    before = flat.state()
    settings = LocalSettings(epochs=3, batch_size=4, lr=0.1)
    train_locally(flat, method, examples, before, {}, settings, generator_for(1))
    head = flat.layout.head_slices[0]
    return before.parameters[head].view(5, -1), flat.state().parameters[head].view(5, -1)


def test_missing_classes_are_moved_less() -> None:
    """A client with two of five classes: FedAvg pushes the other rows away."""
    moved = {}
    for method in (FedAvg(), FedRS(), FedLC()):
        before, after = trained(method, blobs(24, [0, 1], seed=3))
        moved[method.name] = (after - before)[2:].norm().item()
    assert moved["fedlc"] == 0
    assert 0 < moved["fedrs"] < moved["fedavg"]


def test_one_output_is_refused_at_once() -> None:
    for method in (FedLC(), FedRS(), FedNTD(), BalanceFL()):
        with pytest.raises(CadisError, match=f"{method.name} compares the outputs of the classes"):
            Algorithm(method, task=Binary())


def test_moon_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    received, previous = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.0, 1.0], [1, 1]])
    none = torch.zeros(1)
    prepared = {"received": received, "previous": previous}
    step = Step(torch.zeros(2, 3), z, torch.zeros(2).long(), none, none, {}, prepared, {})
    cosines = [(1.0, 0.0), (1 / sqrt(2), 1.0)]  # with the received model's, with the previous one's
    terms = [-log(exp(a / 0.5) / (exp(a / 0.5) + exp(b / 0.5))) for a, b in cosines]
    assert penalty_of(MOON(mu=3.0), step).item() == pytest.approx(3 * sum(terms) / 2)


def test_moons_first_round_is_fedavgs(tmp_path: Path) -> None:
    settings = replace(small_settings(rounds=1), stack=False)  # which MOON never is
    (first,), (second,) = (run_rounds(m, tmp_path, settings) for m in (MOON(), FedAvg()))
    assert same(model_after(first).parameters, model_after(second).parameters)


def representations(model: nn.Module, inputs: Tensor) -> Tensor:
    body: Tensor = model[:-1](inputs)  # type: ignore[index]
    return body


def plain_moon(rounds: int, lr: float, mu: float, tau: float) -> nn.Module:
    """Everybody takes part; models as state dicts, and the term as the paper writes it."""
    model, other, clients = small_model(), small_model(), small_federation().clients
    previous: list[dict[str, Tensor] | None] = [None for _ in clients]
    counts = [len(own) for own in clients]
    for number in range(1, rounds + 1):
        start = {name: t.clone() for name, t in model.state_dict().items()}
        sent: list[dict[str, Tensor]] = []
        for client, own in enumerate(clients):
            other.load_state_dict(start)
            with torch.no_grad():
                z_received = representations(other, own.inputs)
                if (before := previous[client]) is not None:
                    other.load_state_dict(before)
                z_previous = representations(other, own.inputs)
            model.load_state_dict(start)
            for batch in plain_batches(own, number, client):
                z = representations(model, own.inputs[batch])
                towards = F.cosine_similarity(z, z_received[batch]) / tau
                away = F.cosine_similarity(z, z_previous[batch]) / tau
                contrast = -torch.log(towards.exp() / (towards.exp() + away.exp())).mean()
                loss = F.cross_entropy(model[-1](z), own.labels[batch])  # type: ignore[index]
                total = loss + mu * contrast if previous[client] is not None else loss
                for _, parameter, gradient in gradients_of(total, model):
                    parameter.sub_(lr * gradient)
            previous[client] = {name: t.clone() for name, t in model.state_dict().items()}
            sent.append(previous[client] or {})
        shares = [count / sum(counts) for count in counts]
        model.load_state_dict(
            {name: sum(s * m[name] for s, m in zip(shares, sent, strict=True)) for name in start}
        )
    return model


def test_moon_is_what_a_plain_loop_does(tmp_path: Path) -> None:
    expected = plain_moon(rounds=3, lr=0.1, mu=2.0, tau=0.5)
    check_like_plain_loop(MOON(mu=2.0), expected, tmp_path)
