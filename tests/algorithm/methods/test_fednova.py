"""FedNova: normalised averaging against arithmetic, and identities."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, ServerRound
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import FedAvg, FedNova
from cadis.rng import generator_for
from cadis.training.local import effective_steps
from support import (
    flat_model,
    model_after,
    run_rounds,
    small_settings,
    state_of,
    update_of,
)


def test_by_hand() -> None:
    """Two clients, of 10 and 30 samples, that took 2 and 8 steps."""
    updates = [
        update_of(0, 10, flat_model(2.0, 0.0), effective_steps=2.0),
        update_of(1, 30, flat_model(1.0, 5.0), effective_steps=8.0),
    ]
    state = state_of(flat_model(1.0, 1.0))
    made = FedNova().aggregate(ServerRound(1, (), 4, generator_for(0)), updates, state)
    tau = 0.25 * 2 + 0.75 * 8
    by_step = [0.25 * (2 - 1) / 2 + 0.75 * (1 - 1) / 8, 0.25 * (0 - 1) / 2 + 0.75 * (5 - 1) / 8]
    expected = [1 + tau * by_step[0], 1 + tau * by_step[1]]
    assert made.models["model"].parameters.tolist() == pytest.approx(expected)
    shares = [0.25 / 2, 0.75 / 8]
    assert made.weights.tolist() == pytest.approx([s / sum(shares) for s in shares])


def test_equal_many_steps_are_fedavg() -> None:
    updates = [update_of(n, 10 + n, flat_model(0.3 * n, -n), effective_steps=7.0) for n in range(4)]
    server_round, state = ServerRound(1, (), 4, generator_for(0)), state_of(flat_model(1.0, 1.0))
    nova, plain = (m.aggregate(server_round, updates, state) for m in (FedNova(), FedAvg()))
    torch.testing.assert_close(nova.weights, plain.weights)
    torch.testing.assert_close(nova.models["model"].parameters, plain.models["model"].parameters)


def test_a_client_with_many_steps_pulls_no_more_than_its_share() -> None:
    """Both want the same gradient descended; only one of them takes ten times as many steps."""
    few, many = torch.tensor([-1.0, 0.0]), torch.tensor([0.0, -1.0])
    steps = {0: 1, 1: 10}
    updates = [
        update_of(n, 10, flat_model(*(steps[n] * slope).tolist()), effective_steps=float(steps[n]))
        for n, slope in enumerate((few, many))
    ]
    state = state_of(flat_model(0.0, 0.0))
    made = FedNova().aggregate(ServerRound(1, (), 2, generator_for(0)), updates, state)
    x, y = made.models["model"].parameters.tolist()
    assert x == pytest.approx(y)  # FedAvg: one tenth of the way towards the first


def test_effective_steps_are_the_norm_of_a() -> None:
    """||a||_1 of the paper for momentum rho: sum over k of (1 - rho^k) / (1 - rho)."""
    rho, steps = 0.9, 7
    expected = sum((1 - rho**k) / (1 - rho) for k in range(1, steps + 1))
    assert effective_steps(SGD(momentum=rho), steps, 0.1) == pytest.approx(expected)
    assert effective_steps(SGD(), steps, 0.1) == steps
    decay, lr = 0.2, 0.5  # as a proximal term: a = ((1 - lr decay)^(K-1), ..., 1)
    expected = sum((1 - lr * decay) ** k for k in range(steps))
    assert effective_steps(SGD(weight_decay=decay), steps, lr) == pytest.approx(expected)


def test_clients_tell_their_steps(tmp_path: Path) -> None:
    """Nine to seventeen samples in batches of four, two epochs; a batch of one joins another."""
    settings = small_settings(rounds=1, per_round=5)
    algorithm = Algorithm(FedNova())
    (result,) = run_rounds(algorithm, tmp_path, settings)
    steps, samples = [2 * s for s in (2, 3, 3, 4, 4)], [9, 11, 13, 15, 17]
    shares = [n / s for n, s in zip(samples, steps, strict=True)]
    assert result.record.weights == pytest.approx([s / sum(shares) for s in shares])
    assert model_after(result).is_finite()
