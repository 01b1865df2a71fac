"""MOON: the contrastive term by hand, and against a plain loop."""

from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cadis.algorithm import Step
from cadis.algorithm.methods import MOON, FedAvg
from support import (
    check_like_plain_loop,
    gradients_of,
    model_after,
    plain_batches,
    run_rounds,
    same,
    small_federation,
    small_model,
    small_settings,
)


def test_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    received, previous = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.0, 1.0], [1, 1]])
    none = torch.zeros(1)
    prepared = {"received": received, "previous": previous}
    step = Step(torch.zeros(2, 3), z, torch.zeros(2).long(), none, none, {}, prepared, {})
    cosines = [(1.0, 0.0), (1 / sqrt(2), 1.0)]  # with the received model's, with the previous one's
    terms = [-log(exp(a / 0.5) / (exp(a / 0.5) + exp(b / 0.5))) for a, b in cosines]
    found = MOON(mu=3.0).penalty(step)
    assert found is not None
    assert found.item() == pytest.approx(3 * sum(terms) / 2)


def test_a_first_round_is_fedavgs(tmp_path: Path) -> None:
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


def test_it_is_what_a_plain_loop_does(tmp_path: Path) -> None:
    expected = plain_moon(rounds=3, lr=0.1, mu=2.0, tau=0.5)
    check_like_plain_loop(MOON(mu=2.0), expected, tmp_path)
