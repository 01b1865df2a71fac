"""CADIS's clusters with a model each."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, ServerRound
from cadis.algorithm.methods import CADIS, CADISClusters
from cadis.algorithm.methods.cadis.cluster_participants import Grouping
from cadis.algorithm.methods.clustered.cadis_clusters import certain_rounds
from cadis.algorithm.samplers import Clusters
from cadis.engine import Engine, Federation
from cadis.rng import generator_for
from cadis.server import RoundResult
from support import blobs, check_same_end, planted, same, small_model, small_settings


def run(
    federation: Federation, method: CADIS | CADISClusters, folder: Path, rounds: int
) -> list[RoundResult]:
    algorithm = Algorithm(method, sampler=Clusters())
    settings = small_settings(rounds, per_round=4)
    engine = Engine(small_model(), federation, algorithm, settings, folder)
    return list(engine.rounds(engine.start))


def spread_out() -> Federation:
    """Nine clients in three clusters of two classes, of which the last two share none."""
    owned = [[0, 1]] * 4 + [[2, 3]] * 3 + [[4]] * 2
    clients = [blobs(24, labels, seed=n) for n, labels in enumerate(owned)]
    return Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99))


def test_rounds_in_a_row() -> None:
    def grouping(clusters: int) -> Grouping:
        none = torch.zeros(0)
        return Grouping(none, none, {"centres": torch.zeros(clusters, 4)}, {})

    memory: dict[str, torch.Tensor] = {}
    found = []
    for clusters in (1, 2, 2, 2, 3, 3, 1, 3):
        certain = certain_rounds(memory, grouping(clusters))
        memory = {**grouping(clusters).memory, "certain": certain}
        found.append(int(certain))
    assert found == [0, 1, 2, 3, 1, 2, 0, 1]


def test_it_finds_the_clusters(tmp_path: Path) -> None:
    method = CADISClusters(warmup=2)
    results = run(spread_out(), method, tmp_path, 14)
    state = results[-1].state.server
    assert list(state.models) == ["model", "cluster-0", "cluster-1", "cluster-2"]
    used = [method.model_name_for(client, state) for client in range(9)]
    assert len({used[0], used[4], used[7]}) == 3
    assert used == [used[0]] * 4 + [used[4]] * 3 + [used[7]] * 2
    told = ServerRound(15, (), 9, generator_for(0))
    labels = method.cluster_labels(told, state, [0, 4, 7, "a stranger"])
    assert [f"cluster-{label}" for label in labels[:3].tolist()] == [used[0], used[4], used[7]]
    assert labels[3] == -1
    assert method.model_name_for("a stranger", state) == "model"
    assert results[-1].record.client_accuracy == pytest.approx([1.0] * 9)


def test_before_the_split_it_is_cadis_without_distillation(tmp_path: Path) -> None:
    mine = run(planted(), CADISClusters(warmup=99), tmp_path, 4)
    other = run(planted(), CADIS(distillation=0), tmp_path, 4)
    for one, two in zip(mine, other, strict=True):
        first, second = (r.state.server.models["model"].parameters for r in (one, two))
        assert same(first, second)
        assert one.record.report == two.record.report


def test_where_everybody_is_alike_there_is_one_model(tmp_path: Path) -> None:
    clients = [blobs(25, [0, 1, 2, 3, 4], seed=n) for n in range(6)]
    federation = Federation(clients, blobs(25, [0, 1, 2, 3, 4], seed=99))
    results = run(federation, CADISClusters(warmup=1), tmp_path, 12)
    assert all(list(r.state.server.models) == ["model"] for r in results)


def test_a_run_that_was_stopped_at_the_split_goes_on(tmp_path: Path) -> None:
    options = {"per_round": 5, "epochs": 1, "lr": 0.1}
    check_same_end(CADISClusters(warmup=2), spread_out(), tmp_path, rounds=9, **options)
