"""FedAvg, FedProx, FedOpt and SingleSet."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, compose_algorithm
from cadis.algorithm.methods import METHODS, FedAvg, FedProx, SingleSet
from cadis.algorithm.server_optimizers import SERVER_OPTIMIZERS, Momentum
from cadis.errors import CadisError
from cadis.experiment import resolve
from cadis.models import FlatModel
from cadis.rng import derive_generator
from method_support import compute_penalty, make_server_round
from support import (
    flat_model,
    get_model,
    is_identical,
    make_server_state,
    make_step,
    make_update,
    run_rounds,
    small_federation,
    small_model,
    small_settings,
    train_locally,
)

NAMES = {"fedavgm": "momentum", "fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad"}


def test_fedavg_by_hand() -> None:
    updates = [
        make_update("a", 30, flat_model(1.0, 0.0)),
        make_update("b", 10, flat_model(5.0, 4.0)),
    ]
    result = FedAvg().aggregate(
        make_server_round(), updates, make_server_state(flat_model(0.0, 0.0))
    )
    assert result.weights.tolist() == [30 / 40, 10 / 40]
    assert result.models["model"].parameters.tolist() == pytest.approx(
        [(30 * 1 + 10 * 5) / 40, (30 * 0 + 10 * 4) / 40]
    )


def test_fedprox_by_hand() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    penalty = compute_penalty(FedProx(mu=0.1), make_step(w, torch.tensor([0.0, 4.0])))
    assert penalty.item() == pytest.approx(0.1 / 2 * ((1 - 0) ** 2 + (2 - 4) ** 2))
    penalty.backward()
    assert w.grad is not None
    assert w.grad.tolist() == pytest.approx([0.1 * 1, 0.1 * -2])


def test_a_strong_proximal_term_reduces_movement(tmp_path: Path) -> None:
    def compute_distance(method: FedAvg | FedProx) -> float:
        results = run_rounds(method, tmp_path)
        change = get_model(results[-1]).parameters - get_model(results[0]).parameters
        return float(change.norm())

    assert compute_distance(FedProx(mu=5)) < 0.5 * compute_distance(FedAvg())


@pytest.mark.parametrize(("name", "optimizer"), NAMES.items())
def test_fedopt_method_equals_fedavg_with_the_server_optimizer(
    name: str, optimizer: str, tmp_path: Path
) -> None:
    named = resolve({}, {"method": name}).algorithm
    composed = Algorithm(FedAvg(), server_optimizer=SERVER_OPTIMIZERS[optimizer]())
    assert named.server_optimizer == composed.server_optimizer
    first, second = (run_rounds(algorithm, tmp_path)[-1] for algorithm in (named, composed))
    assert is_identical(get_model(first).parameters, get_model(second).parameters)


def test_parameters_of_the_server_optimizer_are_options() -> None:
    algorithm = resolve({}, {"method": "fedavgm", "server_momentum": 0.7}).algorithm
    assert algorithm.server_optimizer == Momentum(server_momentum=0.7)
    with pytest.raises(CadisError, match="server_momentum"):
        resolve({}, {"method": "fedadam", "server_momentum": 0.7})


def test_the_default_server_optimizer_can_be_replaced() -> None:
    parts = {"sampler": "auto", "transforms": (), "task": "classification"}
    chosen = {"server_optimizer": "plain", "local_optimizer": "sgd", **parts}
    algorithm = compose_algorithm(method=METHODS["fedavgm"](), **chosen)
    assert algorithm.server_optimizer.name == "plain"


def test_singleset_is_sgd_on_pooled_data(tmp_path: Path) -> None:
    result = run_rounds(SingleSet(), tmp_path, small_settings(rounds=1))[-1]
    model = FlatModel(small_model())
    pooled = small_federation().pool().clients[0]
    generator = derive_generator(7, "train", 1, "everyone")
    train_locally(
        model, FedAvg(), pooled, model.copy_state(), {}, small_settings().local, generator
    )
    assert is_identical(get_model(result).parameters, model.copy_state().parameters)
    assert len(pooled) == sum(small_federation().sizes())
    assert result.record.participants == ["everyone"]
    assert torch.tensor(result.record.weights).tolist() == [1]
