"""IFCA: several global models, and every client trains the best one."""

from pathlib import Path

import pytest
import torch

import cadis
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import IFCA
from cadis.algorithm.samplers import Clusters
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.store import RunFolder
from method_support import make_server_round, run_with_clusters
from support import flat_model, is_identical, planted_federation, run_small, small_model


def test_initial_models_by_hand() -> None:
    """Noise is relative to the standard deviation of the model's parameters."""
    model = flat_model(1.0, 3.0)
    state = IFCA(num_models=3, spread=0.5).init(model, derive_generator(0))
    assert list(state.models) == ["model-0", "model-1", "model-2"]
    generator, deviation = derive_generator(0), 2**0.5
    for name in ("model-1", "model-2"):
        expected = model.parameters + torch.randn(2, generator=generator) * deviation * 0.5
        torch.testing.assert_close(state.models[name].parameters, expected)
    assert torch.equal(state.models["model-0"].parameters, model.parameters)


@pytest.mark.parametrize("workers", [1, 2])
def test_ifca_finds_the_clusters(workers: int, tmp_path: Path) -> None:
    state = run_with_clusters(IFCA(num_models=2), tmp_path, 8, workers=workers)[-1].state.server
    used = [IFCA().model_name_for(client, state) for client in range(6)]
    assert used[0] == used[2] == used[3] == used[5] != used[1] == used[4]


def test_record_contains_all_models(tmp_path: Path) -> None:
    last = run_with_clusters(IFCA(num_models=2), tmp_path, 6)[-1]
    record, models = last.record, last.state.server.models
    assert [model.name for model in record.models] == ["model-0", "model-1"]
    assert sum(model.clients for model in record.models) == 6
    weighted = []
    for entry in record.models:
        flat = FlatModel(small_model())
        flat.load(models[entry.name])
        flat.module.eval()
        test = planted_federation().test
        accuracy = (flat.module(test.inputs).argmax(dim=1) == test.labels).double().mean()
        assert entry.accuracy == pytest.approx(float(accuracy))
        weighted.append(float(accuracy) * entry.clients)
    assert record.accuracy == pytest.approx(sum(weighted) / 6)
    assert len(record.client_models) == len(record.participants)
    assert record.client_accuracy is not None
    assert len(record.client_accuracy) == 6


def test_a_run_with_several_models_can_be_resumed(tmp_path: Path) -> None:
    def run(rounds: int, out: str, resume: bool = False) -> cadis.RunResult:
        data = {
            "clients": planted_federation().clients,
            "test": planted_federation().test,
            "out": tmp_path / out,
        }
        options = {"method": IFCA(num_models=12), "per_round": 4, "lr": 0.1}
        return run_small(**data, **options, rounds=rounds, resume=resume)

    whole = run(5, "whole")
    run(2, "part")
    resumed = run(5, "part", resume=True)
    assert list(whole.models) == list(resumed.models) == [f"model-{n}" for n in range(12)]
    for name, model in whole.models.items():
        tensors = resumed.models[name].state_dict()
        assert all(is_identical(tensors[key], tensor) for key, tensor in model.state_dict().items())
    for name in ("model.safetensors", "best.safetensors"):
        stored = (tmp_path / "whole" / name).read_bytes()
        assert stored == (tmp_path / "part" / name).read_bytes()
        assert b"model-1/7.weight" in stored
    for one, other in zip(whole.history, resumed.history, strict=True):
        first, second = one.to_json(), other.to_json()
        assert {k for k in first | second if first[k] != second[k]} <= {
            "seconds",
            "client_accuracy",
        }
    assert len(RunFolder(tmp_path / "part").read_history()) == 5


def test_clients_with_the_same_model_form_a_cluster(tmp_path: Path) -> None:
    method = IFCA(num_models=2)
    last = run_with_clusters(Algorithm(method, sampler=Clusters()), tmp_path, 8)[-1]
    state = last.state.server
    labels = method.cluster_labels(make_server_round(9), state, [0, 1, 2, "unknown"])
    assert labels[0] == labels[2] != labels[1]
    assert labels[3] == -1
    assert method.model_name_for("unknown", state) == "model-0"


def test_unused_models_with_batch_norm_are_stored(tmp_path: Path) -> None:
    """Their initial buffers are one shared tensor, which a checkpoint must store as copies."""
    data = {
        "clients": planted_federation().clients,
        "test": planted_federation().test,
        "out": tmp_path,
    }
    options = {"method": IFCA(num_models=4), "per_round": 2, "epochs": 1, **data}
    model = small_model(batch_norm=True)
    run_small(model=model, rounds=1, **options)
    assert len(run_small(model=model, rounds=2, resume=True, **options).history) == 2
