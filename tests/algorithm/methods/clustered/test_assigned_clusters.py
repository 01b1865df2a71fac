"""FL+HC and CADIS's clusters: a model for each cluster that clients are assigned to."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, BaseMethod, ServerState, example_weights, mean_state
from cadis.algorithm.methods import CADIS, FLHC, CADISClusters, FedAvg
from cadis.algorithm.methods.clustered.cadis_clusters import certain_rounds
from cadis.algorithm.methods.clustered.cluster_models import (
    PerClientTable,
    aggregate_by_cluster,
    averaged,
)
from cadis.algorithm.methods.clustered.flhc import clusters_of_heads
from cadis.algorithm.samplers import Clusters
from cadis.data import Examples
from cadis.engine import Engine, Federation
from cadis.rng import generator_for
from cadis.server import RoundResult
from method_support import run_clusters, server_round, state_after
from support import (
    blobs,
    check_same_end,
    flat_model,
    model_after,
    planted,
    run_rounds,
    same,
    small_model,
    small_settings,
    update_of,
)


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
    state = ServerState({}, memory)
    assert FLHC().cluster_labels(server_round(), state, [4, 5]).tolist() == [2, -1]
    assert FLHC().model_name_for(4, state) == "cluster-2"
    assert FLHC().model_name_for(5, state) == "model"
    assert FLHC().model_name_for(5, ServerState({})) == "model"


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
    after = ServerState(models, made.memory)
    assert [FLHC().model_name_for(n, after) for n in (0, 1)] == ["cluster-0", "cluster-1"]


@pytest.mark.parametrize("method", [FLHC(warmup=2), CADISClusters(warmup=2)])
def test_models_in_double_precision_go_on_after_the_split(
    method: BaseMethod, tmp_path: Path
) -> None:
    known = planted()
    clients = [Examples(each.inputs.double(), each.labels) for each in known.clients]
    federation = Federation(clients, Examples(known.test.inputs.double(), known.test.labels))
    settings = small_settings(6, per_round=6)
    engine = Engine(small_model().double(), federation, Algorithm(method), settings, tmp_path)
    last = list(engine.rounds(engine.start))[-1]
    assert list(last.state.server.models) == ["model", "cluster-0", "cluster-1"]


def test_flhcs_clusters_by_hand() -> None:
    """0 and 2 are at a distance of 0.2; 1 is at 1 and 0.4 from them, 0.7 on the average."""
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    known = PerClientTable().put([0, 1, 2], updates)
    for distance, labels in ((0.1, [0, 1, 2]), (0.3, [0, 1, 0]), (0.75, [0, 0, 0])):
        found, centres = clusters_of_heads(known, distance)
        assert found.labels([0, 1, 2]).tolist() == labels
        assert len(centres) == max(labels) + 1
    mean = torch.tensor([1.8, 0.6]) / (1.8**2 + 0.6**2) ** 0.5
    torch.testing.assert_close(clusters_of_heads(known, 0.3)[1][0], mean)


def test_of_very_many_clients_some_are_clustered_and_all_are_assigned() -> None:
    angles = torch.linspace(0, 0.2, 1500)
    one = torch.stack([angles.cos(), angles.sin()], dim=1)
    updates = torch.cat([one, one.flip(1) * torch.tensor([-1.0, 1.0])])
    found, centres = clusters_of_heads(PerClientTable().put(range(3000), updates), 0.5)
    assert len(centres) == 2
    assert found.labels(range(1500)).unique().tolist() == [0]
    assert found.labels(range(1500, 3000)).unique().tolist() == [1]


def test_the_latest_update_of_each_client_counts() -> None:
    """Client 0 turns; the body, the first parameter, is not looked at."""
    method, head = FLHC(warmup=2), (slice(1, 3),)
    state = method.init(flat_model(0.0, 0.0, 0.0), generator_for(0))
    rounds = [
        {0: (5.0, 1.0, 0.0), 1: (5.0, 1.0, 0.0), 2: (5.0, 0.0, 1.0)},
        {0: (9.0, 0.0, 3.0)},  # on top of the mean of the first round
    ]
    for number, sent in enumerate(rounds, start=1):
        before = state.models["model"].parameters
        updates = [
            update_of(n, 10, flat_model(*(before + torch.tensor(change)).tolist()))
            for n, change in sent.items()
        ]
        made = method.aggregate(server_round(number, head, num_outputs=1), updates, state)
        state = state_after(state, made)
    used = [method.model_name_for(n, state) for n in (0, 1, 2, 3)]
    assert used == ["cluster-0", "cluster-1", "cluster-0", "model"]
    assert "heads.keys" not in state.memory
    common = state.models["model"].parameters
    assert torch.equal(state.models["cluster-1"].parameters, common)


def test_before_the_end_of_its_warm_up_flhc_is_fedavg(tmp_path: Path) -> None:
    mine = run_rounds(FLHC(warmup=9), tmp_path, small_settings(4))[-1]
    plain = run_rounds(FedAvg(), tmp_path, small_settings(4))[-1]
    assert same(model_after(mine).parameters, model_after(plain).parameters)
    assert "clusters" not in mine.record.report


@pytest.mark.parametrize("warmup", [1, 5])
def test_flhc_finds_the_clusters(warmup: int, tmp_path: Path) -> None:
    """Also after one round, in which two of the six clients were absent."""
    method = FLHC(warmup=warmup)
    results = run_clusters(method, tmp_path, 12)
    assert [len(r.state.server.models) for r in results[warmup - 1 : warmup + 1]] == [3, 3]
    state = results[-1].state.server
    used = [method.model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]
    assert results[-1].record.client_accuracy == pytest.approx([1.0] * 6)


def run(
    federation: Federation, method: CADIS | CADISClusters, folder: Path, rounds: int
) -> list[RoundResult]:
    return run_clusters(Algorithm(method, sampler=Clusters()), folder, rounds, federation)


def spread_out() -> Federation:
    """Nine clients in three clusters of two classes, of which the last two share none."""
    owned = [[0, 1]] * 4 + [[2, 3]] * 3 + [[4]] * 2
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(owned)]
    return Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99))


def test_rounds_in_a_row() -> None:
    memory: dict[str, torch.Tensor] = {}
    found = []
    for clusters in (1, 2, 2, 2, 3, 3, 1, 3):
        after = {"centres": torch.zeros(clusters, 4)}
        memory = {**after, "certain": certain_rounds(memory, after)}
        found.append(int(memory["certain"]))
    assert found == [0, 1, 2, 3, 1, 2, 0, 1]


def test_cadis_finds_the_clusters(tmp_path: Path) -> None:
    method = CADISClusters(warmup=2)
    results = run(spread_out(), method, tmp_path, 14)
    state = results[-1].state.server
    assert list(state.models) == ["model", "cluster-0", "cluster-1", "cluster-2"]
    used = [method.model_name_for(client, state) for client in range(9)]
    assert len({used[0], used[4], used[7]}) == 3
    assert used == [used[0]] * 4 + [used[4]] * 3 + [used[7]] * 2
    labels = method.cluster_labels(server_round(15), state, [0, 4, 7, "a stranger"])
    assert [f"cluster-{label}" for label in labels[:3].tolist()] == [used[0], used[4], used[7]]
    assert labels[3] == -1
    assert method.model_name_for("a stranger", state) == "model"
    assert results[-1].record.client_accuracy == pytest.approx([1.0] * 9)


def test_before_the_split_it_is_cadis_without_distillation(tmp_path: Path) -> None:
    mine = run(planted(), CADISClusters(warmup=99), tmp_path, 4)
    other = run(planted(), CADIS(distillation=0), tmp_path, 4)
    for one, two in zip(mine, other, strict=True):
        assert same(model_after(one).parameters, model_after(two).parameters)
        assert one.record.report == two.record.report


def test_where_everybody_is_alike_there_is_one_model(tmp_path: Path) -> None:
    clients = [blobs(25, [0, 1, 2, 3, 4], seed=n) for n in range(6)]
    federation = Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99))
    results = run(federation, CADISClusters(warmup=1), tmp_path, 12)
    assert all(list(r.state.server.models) == ["model"] for r in results)


@pytest.mark.parametrize(
    ("method", "federation", "per_round", "rounds"),
    [(FLHC(warmup=2), planted(), 3, 5), (CADISClusters(warmup=2), spread_out(), 5, 9)],
    ids=["flhc", "cadis-clusters"],
)
def test_a_run_that_was_stopped_at_the_split_goes_on(
    method: BaseMethod, federation: Federation, per_round: int, rounds: int, tmp_path: Path
) -> None:
    options = {"per_round": per_round, "epochs": 1, "lr": 0.1}
    check_same_end(method, federation, tmp_path, rounds=rounds, **options)
