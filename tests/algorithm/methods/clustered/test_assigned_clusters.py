"""FL+HC and cadis-clusters: one model per cluster, with permanent assignments."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import (
    Algorithm,
    BaseMethod,
    ServerState,
    average_models,
    compute_sample_weights,
)
from cadis.algorithm.methods import CADIS, FLHC, CADISClusters, FedAvg
from cadis.algorithm.methods.clustered.cadis_clusters import count_certain_rounds
from cadis.algorithm.methods.clustered.cluster_models import (
    PerClientTable,
    aggregate_by_cluster,
    average_by_model,
)
from cadis.algorithm.methods.clustered.flhc import cluster_heads
from cadis.algorithm.samplers import Clusters
from cadis.data import Samples
from cadis.engine import Engine, Federation
from cadis.rng import derive_generator
from cadis.server import RoundResult
from method_support import get_next_state, make_server_round, run_with_clusters
from support import (
    blobs,
    check_resumed_runs_are_identical,
    flat_model,
    get_model,
    is_identical,
    make_update,
    planted_federation,
    run_rounds,
    small_model,
    small_settings,
)


def test_table_returns_the_latest_value_of_each_client() -> None:
    first = PerClientTable().update([7, "site", 3], torch.tensor([1, 2, 3]))
    second = first.update([3, 5], torch.tensor([30, 50]))
    assert second.get_labels([3, 5, 7, "site", "unknown", 4]).tolist() == [30, 50, 1, 2, -1, -1]
    assert first.get_labels([3, 5]).tolist() == [3, -1]  # not changed
    again = PerClientTable.from_tensors(second.to_tensors("x"), "x")
    assert again.get_labels([3, 5, 7]).tolist() == [30, 50, 1]
    assert PerClientTable.from_tensors({}, "x").get_labels([1]).tolist() == [-1]


def test_table_stores_vectors() -> None:
    rows = PerClientTable().update([2, 1], torch.tensor([[2.0, 2.0], [1.0, 1.0]]))
    rows = rows.update([2], torch.tensor([[5.0, 6.0]]))
    assert rows.keys.tolist() == [1, 2]
    assert rows.values.tolist() == [[1, 1], [5, 6]]


def test_clients_use_the_common_model_until_assigned() -> None:
    tensors = PerClientTable().update([4], torch.tensor([2])).to_tensors("assigned")
    state = ServerState({}, tensors)
    assert FLHC().cluster_labels(make_server_round(), state, [4, 5]).tolist() == [2, -1]
    assert FLHC().model_name_for(4, state) == "cluster-2"
    assert FLHC().model_name_for(5, state) == "model"
    assert FLHC().model_name_for(5, ServerState({})) == "model"


def test_means_of_several_models_by_hand() -> None:
    updates = [make_update(n, 10 + 10 * n, flat_model(float(n))) for n in range(4)]
    models, weights = average_by_model(updates, ["b", None, "b", "a"])
    assert weights.tolist() == [10 / 40, 0, 30 / 40, 1]
    assert models["b"].parameters.tolist() == [(10 * 0 + 30 * 2) / 40]
    assert models["a"].parameters.tolist() == [3]
    assert average_by_model(updates, [None] * 4)[0] == {}


def test_average_of_one_model_equals_fedavg() -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(3, 5, generator=generator)
    updates = [make_update(n, 7 + n, flat_model(*row.tolist())) for n, row in enumerate(numbers)]
    models, weights = average_by_model(updates, ["model"] * 3)
    expected = compute_sample_weights([7, 8, 9])
    plain = average_models([update.model for update in updates], expected)
    assert torch.equal(weights, expected)
    assert torch.equal(models["model"].parameters, plain.parameters)


def test_a_new_client_is_assigned_and_not_averaged() -> None:
    tensors = {
        "centres": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        **PerClientTable().update([0], torch.tensor([0])).to_tensors("assigned"),
    }
    models = {name: flat_model(0.0) for name in ("model", "cluster-0", "cluster-1")}
    updates = [make_update(1, 5, flat_model(9.0))]
    result = aggregate_by_cluster(updates, torch.tensor([[0.2, 0.7]]), ServerState(models, tensors))
    assert result.models == {}
    assert result.weights.tolist() == [0]
    assert result.report["clusters"].tolist() == [1]
    after = ServerState(models, result.tensors)
    assert [FLHC().model_name_for(n, after) for n in (0, 1)] == ["cluster-0", "cluster-1"]


@pytest.mark.parametrize("method", [FLHC(warmup=2), CADISClusters(warmup=2)])
def test_models_in_double_precision_are_split(method: BaseMethod, tmp_path: Path) -> None:
    known = planted_federation()
    clients = [Samples(samples.inputs.double(), samples.labels) for samples in known.clients]
    federation = Federation(clients, Samples(known.test.inputs.double(), known.test.labels))
    settings = small_settings(6, per_round=6)
    engine = Engine(small_model().double(), federation, Algorithm(method), settings, tmp_path)
    last = list(engine.rounds(engine.start))[-1]
    assert list(last.state.server.models) == ["model", "cluster-0", "cluster-1"]


def test_clusters_of_flhc_by_hand() -> None:
    """The distance of 0 and 2 is 0.2; client 1 has distances 1 and 0.4, with mean 0.7."""
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    known = PerClientTable().update([0, 1, 2], updates)
    for distance, labels in ((0.1, [0, 1, 2]), (0.3, [0, 1, 0]), (0.75, [0, 0, 0])):
        table, centres = cluster_heads(known, distance)
        assert table.get_labels([0, 1, 2]).tolist() == labels
        assert len(centres) == max(labels) + 1
    mean = torch.tensor([1.8, 0.6]) / (1.8**2 + 0.6**2) ** 0.5
    torch.testing.assert_close(cluster_heads(known, 0.3)[1][0], mean)


def test_many_clients_are_assigned_by_the_clusters_of_a_subset() -> None:
    angles = torch.linspace(0, 0.2, 1500)
    one = torch.stack([angles.cos(), angles.sin()], dim=1)
    updates = torch.cat([one, one.flip(1) * torch.tensor([-1.0, 1.0])])
    table, centres = cluster_heads(PerClientTable().update(range(3000), updates), 0.5)
    assert len(centres) == 2
    assert table.get_labels(range(1500)).unique().tolist() == [0]
    assert table.get_labels(range(1500, 3000)).unique().tolist() == [1]


def test_flhc_uses_the_latest_update_of_each_client() -> None:
    """Client 0 changes its direction; the first parameter is not in the head."""
    method, head = FLHC(warmup=2), (slice(1, 3),)
    state = method.init(flat_model(0.0, 0.0, 0.0), derive_generator(0))
    rounds = [
        {0: (5.0, 1.0, 0.0), 1: (5.0, 1.0, 0.0), 2: (5.0, 0.0, 1.0)},
        {0: (9.0, 0.0, 3.0)},  # relative to the mean of the first round
    ]
    for number, sent in enumerate(rounds, start=1):
        before = state.models["model"].parameters
        updates = [
            make_update(n, 10, flat_model(*(before + torch.tensor(change)).tolist()))
            for n, change in sent.items()
        ]
        result = method.aggregate(make_server_round(number, head, num_outputs=1), updates, state)
        state = get_next_state(state, result)
    used = [method.model_name_for(n, state) for n in (0, 1, 2, 3)]
    assert used == ["cluster-0", "cluster-1", "cluster-0", "model"]
    assert "heads.keys" not in state.tensors
    common = state.models["model"].parameters
    assert torch.equal(state.models["cluster-1"].parameters, common)


def test_flhc_equals_fedavg_during_the_warm_up(tmp_path: Path) -> None:
    flhc = run_rounds(FLHC(warmup=9), tmp_path, small_settings(4))[-1]
    fedavg = run_rounds(FedAvg(), tmp_path, small_settings(4))[-1]
    assert is_identical(get_model(flhc).parameters, get_model(fedavg).parameters)
    assert "clusters" not in flhc.record.report


@pytest.mark.parametrize("warmup", [1, 5])
def test_flhc_finds_the_clusters(warmup: int, tmp_path: Path) -> None:
    """Also after one round without two of the six clients."""
    method = FLHC(warmup=warmup)
    results = run_with_clusters(method, tmp_path, 12)
    assert [len(r.state.server.models) for r in results[warmup - 1 : warmup + 1]] == [3, 3]
    state = results[-1].state.server
    used = [method.model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]
    assert results[-1].record.client_accuracy == pytest.approx([1.0] * 6)


def run(
    federation: Federation, method: CADIS | CADISClusters, folder: Path, rounds: int
) -> list[RoundResult]:
    return run_with_clusters(Algorithm(method, sampler=Clusters()), folder, rounds, federation)


def make_three_clusters() -> Federation:
    """Return nine clients in three clusters without common classes."""
    class_sets = [[0, 1]] * 4 + [[2, 3]] * 3 + [[4]] * 2
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(class_sets)]
    return Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99))


def test_certain_rounds_are_consecutive() -> None:
    tensors: dict[str, torch.Tensor] = {}
    counts = []
    for clusters in (1, 2, 2, 2, 3, 3, 1, 3):
        after = {"centres": torch.zeros(clusters, 4)}
        tensors = {**after, "certain": count_certain_rounds(tensors, after)}
        counts.append(int(tensors["certain"]))
    assert counts == [0, 1, 2, 3, 1, 2, 0, 1]


def test_cadis_finds_the_clusters(tmp_path: Path) -> None:
    method = CADISClusters(warmup=2)
    results = run(make_three_clusters(), method, tmp_path, 14)
    state = results[-1].state.server
    assert list(state.models) == ["model", "cluster-0", "cluster-1", "cluster-2"]
    used = [method.model_name_for(client, state) for client in range(9)]
    assert len({used[0], used[4], used[7]}) == 3
    assert used == [used[0]] * 4 + [used[4]] * 3 + [used[7]] * 2
    labels = method.cluster_labels(make_server_round(15), state, [0, 4, 7, "a stranger"])
    assert [f"cluster-{label}" for label in labels[:3].tolist()] == [used[0], used[4], used[7]]
    assert labels[3] == -1
    assert method.model_name_for("a stranger", state) == "model"
    assert results[-1].record.client_accuracy == pytest.approx([1.0] * 9)


def test_cadis_clusters_equals_cadis_without_distillation_before_the_split(tmp_path: Path) -> None:
    results_split = run(planted_federation(), CADISClusters(warmup=99), tmp_path, 4)
    results_cadis = run(planted_federation(), CADIS(distillation=0), tmp_path, 4)
    for one, two in zip(results_split, results_cadis, strict=True):
        assert is_identical(get_model(one).parameters, get_model(two).parameters)
        assert one.record.report == two.record.report


def test_similar_clients_share_one_model(tmp_path: Path) -> None:
    clients = [blobs(25, [0, 1, 2, 3, 4], seed=n) for n in range(6)]
    federation = Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99))
    results = run(federation, CADISClusters(warmup=1), tmp_path, 12)
    assert all(list(r.state.server.models) == ["model"] for r in results)


@pytest.mark.parametrize(
    ("method", "federation", "per_round", "rounds"),
    [
        (FLHC(warmup=2), planted_federation(), 3, 5),
        (CADISClusters(warmup=2), make_three_clusters(), 5, 9),
    ],
    ids=["flhc", "cadis-clusters"],
)
def test_a_run_stopped_at_the_split_can_be_resumed(
    method: BaseMethod, federation: Federation, per_round: int, rounds: int, tmp_path: Path
) -> None:
    options = {"per_round": per_round, "epochs": 1, "lr": 0.1}
    check_resumed_runs_are_identical(method, federation, tmp_path, rounds=rounds, **options)
