"""Several global models, of which every client trains the one that fits it best."""

from pathlib import Path

import pytest
import torch

import cadis
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import IFCA
from cadis.algorithm.samplers import Clusters
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.store import RunFolder
from method_support import run_clusters, server_round
from support import flat_model, planted, run_small, same, small_model


def test_initial_models_by_hand() -> None:
    """The given one, and others with noise of so many deviations of its parameters."""
    model = flat_model(1.0, 3.0)
    state = IFCA(num_models=3, spread=0.5).init(model, generator_for(0))
    assert list(state.models) == ["model-0", "model-1", "model-2"]
    chance, deviation = generator_for(0), 2**0.5
    for name in ("model-1", "model-2"):
        expected = model.parameters + torch.randn(2, generator=chance) * deviation * 0.5
        torch.testing.assert_close(state.models[name].parameters, expected)
    assert torch.equal(state.models["model-0"].parameters, model.parameters)


@pytest.mark.parametrize("workers", [1, 2])
def test_ifca_finds_the_clusters(workers: int, tmp_path: Path) -> None:
    state = run_clusters(IFCA(num_models=2), tmp_path, 8, workers=workers)[-1].state.server
    used = [IFCA().model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]


def test_several_models_in_the_record(tmp_path: Path) -> None:
    last = run_clusters(IFCA(num_models=2), tmp_path, 6)[-1]
    record, models = last.record, last.state.server.models
    assert [model.name for model in record.models] == ["model-0", "model-1"]
    assert sum(model.clients for model in record.models) == 6
    tested = []
    for told in record.models:
        flat = FlatModel(small_model())
        flat.load(models[told.name])
        flat.module.eval()
        test = planted().test
        right = (flat.module(test.inputs).argmax(dim=1) == test.labels).double().mean()
        assert told.accuracy == pytest.approx(float(right))
        tested.append(float(right) * told.clients)
    assert record.accuracy == pytest.approx(sum(tested) / 6)
    assert len(record.client_models) == len(record.participants)
    assert record.client_accuracy is not None
    assert len(record.client_accuracy) == 6


def test_several_models_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    def run(rounds: int, out: str, resume: bool = False) -> cadis.RunResult:
        owned = {"clients": planted().clients, "test": planted().test, "out": tmp_path / out}
        options = {"method": IFCA(num_models=12), "per_round": 4, "lr": 0.1}
        return run_small(**owned, **options, rounds=rounds, resume=resume)

    whole = run(5, "whole")
    run(2, "part")
    resumed = run(5, "part", resume=True)
    assert list(whole.models) == list(resumed.models) == [f"model-{n}" for n in range(12)]
    for name, model in whole.models.items():
        tensors = resumed.models[name].state_dict()
        assert all(same(tensors[key], tensor) for key, tensor in model.state_dict().items())
    for name in ("model.safetensors", "best.safetensors"):
        stored = (tmp_path / "whole" / name).read_bytes()
        assert stored == (tmp_path / "part" / name).read_bytes()
        assert b"model-1/7.weight" in stored
    for one, other in zip(whole.history, resumed.history, strict=True):
        told, again = one.to_json(), other.to_json()
        assert {k for k in told | again if told[k] != again[k]} <= {"seconds", "client_accuracy"}
    assert len(RunFolder(tmp_path / "part").read_history()) == 5


def test_the_clusters_that_a_sampler_sees(tmp_path: Path) -> None:
    """Those who chose the same model; nobody's is known before it was asked."""
    method = IFCA(num_models=2)
    last = run_clusters(Algorithm(method, sampler=Clusters()), tmp_path, 8)[-1]
    state = last.state.server
    labels = method.cluster_labels(server_round(9), state, [0, 1, 2, "a stranger"])
    assert labels[0] == labels[2] != labels[1]
    assert labels[3] == -1
    assert method.model_name_for("a stranger", state) == "model-0"


def test_models_that_nobody_chose_are_kept_with_batch_norm(tmp_path: Path) -> None:
    """They begin with the same buffers, which a checkpoint cannot hold as one."""
    owned = {"clients": planted().clients, "test": planted().test, "out": tmp_path}
    options = {"method": IFCA(num_models=4), "per_round": 2, "epochs": 1, **owned}
    model = small_model(batch_norm=True)
    run_small(model=model, rounds=1, **options)
    assert len(run_small(model=model, rounds=2, resume=True, **options).history) == 2
