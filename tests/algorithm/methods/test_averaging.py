"""FedAvg, and what is FedAvg but for a term, a server optimiser or pooled data."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, given_algorithm
from cadis.algorithm.methods import METHODS, FedAvg, FedProx, SingleSet
from cadis.algorithm.server_optimizers import SERVER_OPTIMIZERS, Momentum
from cadis.errors import CadisError
from cadis.experiment import resolve
from cadis.models import FlatModel
from cadis.rng import generator_for
from method_support import penalty_of, server_round
from support import (
    flat_model,
    model_after,
    run_rounds,
    same,
    small_federation,
    small_model,
    small_settings,
    state_of,
    step_of,
    train_locally,
    update_of,
)

NAMES = {"fedavgm": "momentum", "fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad"}


def test_fedavg_is_the_mean_by_number_of_samples() -> None:
    updates = [update_of("a", 30, flat_model(1.0, 0.0)), update_of("b", 10, flat_model(5.0, 4.0))]
    result = FedAvg().aggregate(server_round(), updates, state_of(flat_model(0.0, 0.0)))
    assert result.weights.tolist() == [30 / 40, 10 / 40]
    assert result.models["model"].parameters.tolist() == pytest.approx(
        [(30 * 1 + 10 * 5) / 40, (30 * 0 + 10 * 4) / 40]
    )


def test_fedprox_by_hand() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    penalty = penalty_of(FedProx(mu=0.1), step_of(w, torch.tensor([0.0, 4.0])))
    assert penalty.item() == pytest.approx(0.1 / 2 * ((1 - 0) ** 2 + (2 - 4) ** 2))
    penalty.backward()
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx([0.1 * 1, 0.1 * -2])


def test_a_strong_penalty_holds_clients_near(tmp_path: Path) -> None:
    def distance(method: FedAvg | FedProx) -> float:
        results = run_rounds(method, tmp_path)
        moved = model_after(results[-1]).parameters - model_after(results[0]).parameters
        return float(moved.norm())

    assert distance(FedProx(mu=5)) < 0.5 * distance(FedAvg())


@pytest.mark.parametrize(("name", "optimizer"), NAMES.items())
def test_a_name_is_fedavg_with_the_optimiser(name: str, optimizer: str, tmp_path: Path) -> None:
    named = resolve({}, {"method": name}).algorithm
    composed = Algorithm(FedAvg(), server_optimizer=SERVER_OPTIMIZERS[optimizer]())
    assert named.server_optimizer == composed.server_optimizer
    first, second = (run_rounds(algorithm, tmp_path)[-1] for algorithm in (named, composed))
    assert same(model_after(first).parameters, model_after(second).parameters)


def test_parameters_of_the_optimiser_are_options() -> None:
    algorithm = resolve({}, {"method": "fedavgm", "server_momentum": 0.7}).algorithm
    assert algorithm.server_optimizer == Momentum(server_momentum=0.7)
    with pytest.raises(CadisError, match="server_momentum"):
        resolve({}, {"method": "fedadam", "server_momentum": 0.7})


def test_another_optimiser_may_be_chosen() -> None:
    parts = {"sampler": "auto", "transforms": (), "task": "classification"}
    chosen = {"server_optimizer": "plain", "local_optimizer": "sgd", **parts}
    algorithm = given_algorithm(method=METHODS["fedavgm"](), **chosen)
    assert algorithm.server_optimizer.name == "plain"


def test_singleset_is_plain_sgd_on_everybodys_data(tmp_path: Path) -> None:
    result = run_rounds(SingleSet(), tmp_path, small_settings(rounds=1))[-1]
    model = FlatModel(small_model())
    pooled = small_federation().pooled().clients[0]
    generator = generator_for(7, "train", 1, "everyone")
    train_locally(model, FedAvg(), pooled, model.state(), {}, small_settings().local, generator)
    assert same(model_after(result).parameters, model.state().parameters)
    assert len(pooled) == sum(small_federation().sizes())
    assert result.record.participants == ["everyone"]
    assert torch.tensor(result.record.weights).tolist() == [1]
