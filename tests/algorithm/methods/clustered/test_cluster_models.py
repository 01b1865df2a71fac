"""Who uses which model, and FedAvg in each of several."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, Method, ServerState, example_weights, mean_state
from cadis.algorithm.methods import FLHC, CADISClusters
from cadis.algorithm.methods.clustered.cluster_models import (
    PerClientTable,
    aggregate_by_cluster,
    assigned_labels,
    assigned_model,
    averaged,
)
from cadis.data import Examples
from cadis.engine import Engine, Federation
from support import flat_model, planted, small_model, small_settings, update_of


def test_the_latest_value_of_each_client() -> None:
    first = PerClientTable().put([7, "site", 3], torch.tensor([1, 2, 3]))
    second = first.put([3, 5], torch.tensor([30, 50]))
    assert second.labels([3, 5, 7, "site", "nobody", 4]).tolist() == [30, 50, 1, 2, -1, -1]
    assert first.labels([3, 5]).tolist() == [3, -1]  # it is as it was
    again = PerClientTable.from_tensors(second.to_tensors("x"), "x")
    assert again.labels([3, 5, 7]).tolist() == [30, 50, 1]
    assert PerClientTable.from_tensors({}, "x").labels([1]).tolist() == [-1]


def test_rows_are_kept_as_well_as_numbers() -> None:
    rows = PerClientTable().put([2, 1], torch.tensor([[2.0, 2.0], [1.0, 1.0]]))
    rows = rows.put([2], torch.tensor([[5.0, 6.0]]))
    assert rows.keys.tolist() == [1, 2]
    assert rows.values.tolist() == [[1, 1], [5, 6]]


def test_everybody_uses_the_common_model_until_assigned() -> None:
    memory = PerClientTable().put([4], torch.tensor([2])).to_tensors("assigned")
    assert assigned_labels([4, 5], memory).tolist() == [2, -1]
    assert assigned_model(4, memory) == "cluster-2"
    assert assigned_model(5, memory) == "model"
    assert assigned_model(5, {}) == "model"


def test_means_of_several_models_by_hand() -> None:
    updates = [update_of(n, 10 + 10 * n, flat_model(float(n))) for n in range(4)]
    models, weights = averaged(updates, ["b", None, "b", "a"])
    assert weights.tolist() == [10 / 40, 0, 30 / 40, 1]
    assert models["b"].parameters.tolist() == [(10 * 0 + 30 * 2) / 40]
    assert models["a"].parameters.tolist() == [3]
    assert averaged(updates, [None] * 4)[0] == {}


def test_one_model_is_averaged_as_fedavg_does() -> None:
    chance = torch.Generator().manual_seed(0)
    numbers = torch.randn(3, 5, generator=chance)
    updates = [update_of(n, 7 + n, flat_model(*row.tolist())) for n, row in enumerate(numbers)]
    models, weights = averaged(updates, ["model"] * 3)
    expected = example_weights([7, 8, 9])
    plain = mean_state([update.model for update in updates], expected)
    assert torch.equal(weights, expected)
    assert torch.equal(models["model"].parameters, plain.parameters)


def test_a_newcomer_is_assigned_and_not_averaged() -> None:
    memory = {
        "centres": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        **PerClientTable().put([0], torch.tensor([0])).to_tensors("assigned"),
    }
    models = {name: flat_model(0.0) for name in ("model", "cluster-0", "cluster-1")}
    updates = [update_of(1, 5, flat_model(9.0))]
    made = aggregate_by_cluster(updates, torch.tensor([[0.2, 0.7]]), ServerState(models, memory))
    assert made.models == {}
    assert made.weights.tolist() == [0]
    assert made.report["clusters"].tolist() == [1]
    assert assigned_model(1, made.memory) == "cluster-1"
    assert assigned_model(0, made.memory) == "cluster-0"


@pytest.mark.parametrize("method", [FLHC(warmup=2), CADISClusters(warmup=2)])
def test_models_in_double_precision_go_on_after_the_split(method: Method, tmp_path: Path) -> None:
    known = planted()
    clients = [Examples(each.inputs.double(), each.labels) for each in known.clients]
    federation = Federation(clients, Examples(known.test.inputs.double(), known.test.labels))
    settings = small_settings(6, per_round=6)
    engine = Engine(small_model().double(), federation, Algorithm(method), settings, tmp_path)
    last = list(engine.rounds(engine.start))[-1]
    assert list(last.state.server.models) == ["model", "cluster-0", "cluster-1"]
