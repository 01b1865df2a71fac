"""FL+HC: FedAvg, then once clusters of updates, and a model for each."""

from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, ServerRound, ServerState
from cadis.algorithm.methods import FLHC, FedAvg
from cadis.algorithm.methods.clustered.cluster_models import PerClientTable
from cadis.algorithm.methods.clustered.flhc import clusters_of_heads
from cadis.engine import Engine
from cadis.rng import generator_for
from cadis.server import RoundResult
from support import (
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


def test_clusters_by_hand() -> None:
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
        told = ServerRound(number, head, 3, generator_for(0), num_outputs=1)
        made = method.aggregate(told, updates, state)
        state = ServerState({**state.models, **made.models}, made.memory)
    assert [method.model_name_for(n, state) for n in (0, 1, 2, 3)] == [
        "cluster-0",
        "cluster-1",
        "cluster-0",
        "model",
    ]
    assert "heads.keys" not in state.memory
    common = state.models["model"].parameters
    assert torch.equal(state.models["cluster-1"].parameters, common)


def test_before_the_end_of_the_warm_up_it_is_fedavg(tmp_path: Path) -> None:
    mine = run_rounds(FLHC(warmup=9), tmp_path, small_settings(4))[-1]
    plain = run_rounds(FedAvg(), tmp_path, small_settings(4))[-1]
    assert same(model_after(mine).parameters, model_after(plain).parameters)
    assert "clusters" not in mine.record.report


def run_planted(folder: Path, method: FLHC, rounds: int) -> list[RoundResult]:
    settings = small_settings(rounds, per_round=4)
    engine = Engine(small_model(), planted(), Algorithm(method), settings, folder)
    return list(engine.rounds(engine.start))


@pytest.mark.parametrize("warmup", [1, 5])
def test_it_finds_the_clusters(warmup: int, tmp_path: Path) -> None:
    """Also after one round, in which two of the six clients were absent."""
    method = FLHC(warmup=warmup)
    results = run_planted(tmp_path, method, 12)
    assert [len(r.state.server.models) for r in results[warmup - 1 : warmup + 1]] == [3, 3]
    state = results[-1].state.server
    used = [method.model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]
    assert results[-1].record.client_accuracy == pytest.approx([1.0] * 6)


def test_a_run_that_was_stopped_at_the_split_goes_on(tmp_path: Path) -> None:
    options = {"per_round": 3, "epochs": 1, "lr": 0.1}
    check_same_end(FLHC(warmup=2), planted(), tmp_path, rounds=5, **options)
