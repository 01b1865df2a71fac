"""FedAvg with a server optimiser, by the names of the literature."""

from pathlib import Path

import pytest

from cadis.algorithm import Algorithm, given_algorithm
from cadis.algorithm.methods import METHODS, FedAvg
from cadis.algorithm.server_optimizers import SERVER_OPTIMIZERS, Momentum
from cadis.errors import CadisError
from cadis.experiment import resolve
from support import model_after, run_rounds, same

NAMES = {"fedavgm": "momentum", "fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad"}


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


def test_another_optimiser_may_be_chosen() -> None:
    method = METHODS["fedavgm"]()
    parts = {"sampler": "auto", "transforms": (), "task": "classification"}
    algorithm = given_algorithm(
        method=method, server_optimizer="plain", local_optimizer="sgd", **parts
    )
    assert algorithm.server_optimizer.name == "plain"
    with pytest.raises(CadisError, match="server_momentum"):
        resolve({}, {"method": "fedadam", "server_momentum": 0.7})
