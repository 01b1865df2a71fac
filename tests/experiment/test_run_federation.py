"""Arguments of ``cadis.run`` are accepted, or refused in one sentence before training."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cadis
from cadis._io import read_toml
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import METHODS, FedAvg
from cadis.algorithm.transforms import Clip
from cadis.data import Subsets
from cadis.engine import Federation
from cadis.errors import CadisError
from cadis.models import MODELS
from cadis.store import RunFolder
from support import blobs, small_federation, small_model

CLIENTS = [(blobs(9, [0, 1], seed=n).inputs, blobs(9, [0, 1], seed=n).labels) for n in range(3)]
TEST = (blobs(15, [0, 1, 2], seed=9).inputs, blobs(15, [0, 1, 2], seed=9).labels)


def run(**changes: Any) -> cadis.RunResult:
    arguments = {"clients": CLIENTS, "test": TEST, "rounds": 1, "workers": 1, "epochs": 1}
    model = changes.pop("model", None) or small_model()
    return cadis.run(model, **{**arguments, **changes})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_models_of_any_dtype_are_trained(method: str, dtype: torch.dtype) -> None:
    clients = [(inputs.to(dtype), labels) for inputs, labels in CLIENTS]
    model = small_model(batch_norm=True).to(dtype)
    test = (TEST[0].to(dtype), TEST[1])
    result = run(model=model, clients=clients, test=test, method=method, rounds=2)
    assert {p.dtype for p in result.model.parameters()} == {dtype}
    assert all(p.isfinite().all() for p in result.model.parameters())
    assert result.history[-1].loss is not None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_inputs_that_are_not_finite_are_refused(value: float) -> None:
    clients = [(inputs.clone(), labels) for inputs, labels in CLIENTS]
    clients[1][0][4, 0, 1, 1] = clients[1][0][7, 0, 0, 0] = value
    value_text = "NaN" if math.isnan(value) else "infinite"
    sentence = (
        "Client b has 2 samples with inputs that are NaN or infinite; the first is sample "
        rf"4 \({value_text} at position 0, 1, 1\)"
    )
    with pytest.raises(CadisError, match=sentence):
        run(clients=clients, client_ids=["a", "b", "c"])
    test = (TEST[0].clone(), TEST[1])
    test[0][3] = value
    with pytest.raises(CadisError, match=r"The test set has 1 sample with inputs .* sample 3 "):
        run(test=test)


def test_large_finite_inputs_are_accepted_but_not_the_update() -> None:
    clients = [(torch.full_like(CLIENTS[0][0], 3e38), CLIENTS[0][1]), *CLIENTS[1:]]
    assert clients[0][0].sum().isinf()  # but all inputs are finite
    with pytest.warns(UserWarning, match="client 0 was rejected: its update is more than 1,000"):
        assert len(run(clients=clients).history) == 1


def test_client_of_a_broken_sample_in_a_shared_dataset_is_named() -> None:
    shared = blobs(20, [0, 1, 2, 3, 4], seed=0)
    shared.inputs[13] = torch.nan
    parts = (torch.arange(0, 10), torch.tensor([19, 13, 14]))
    federation = Federation(Subsets(shared, parts), small_federation().test, ("a", "b"))
    with pytest.raises(CadisError, match=r"Client b has 1 sample with .* sample 13 of the "):
        federation.check(5)
    Federation(Subsets(shared, parts[:1]), small_federation().test).check(5)  # no client has it


class PerWord(nn.Module):
    """Model of four words with four numbers each; the classifier gets each word."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.pooled, self.words, self.head = pooled, nn.Linear(4, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.words(x.flatten(1, 2)))  # (b, 4, 5)
        return logits.mean(dim=1) if self.pooled else logits


class Unused(nn.Module):
    """Model with a linear layer that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(16, 5), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.used(x.flatten(1))
        return logits


def make_broken_model() -> nn.Module:
    model = small_model()
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = torch.nan
    return model


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": PerWord(pooled=True)}, r"has shape \(2, 4, 6\) for 2 samples, not one vector"),
        ({"model": PerWord(pooled=False)}, r"returns shape \(2, 4, 5\) for 2 samples"),
        (
            {"model": PerWord(pooled=False), "head": "head"},
            r"returns shape \(2, 4, 5\) for 2 samples",
        ),
        ({"model": Unused(), "head": "unused"}, "does not use its classifier layer"),
        ({"model": "resnet"}, "The model must be a torch.nn.Module, not a str"),
        ({"model": nn.Linear}, "The model must be a torch.nn.Module, not a type"),
        ({"clients": 3}, "must be a list or dict of .inputs, labels., not a int"),
        ({"clients": []}, "A federation needs at least one client"),
        ({"test": (TEST[0][:0], TEST[1][:0])}, "The test set has no samples"),
        ({"test": (TEST[0], TEST[1].float())}, "The test set has labels .* type torch.float32"),
        ({"test": (TEST[0], TEST[1][:4])}, "The test set has 15 inputs but 4 labels"),
        ({"test": (TEST[0], torch.tensor(1))}, r"The test set has labels of shape \(\)"),
        ({"test": (torch.tensor(1.0), TEST[1])}, "The test set has a single number as inputs"),
        ({"true_clusters": [0.5, 1.0, 1.0]}, "true_clusters must be a list of integers"),
        ({"true_clusters": ["a", "b", "c"]}, "true_clusters must be a list of integers"),
        ({"true_clusters": [None, 0, 1]}, "true_clusters must be a list of integers"),
        ({"true_clusters": [[0], [1], [1]]}, "true_clusters must be a list of integers"),
        ({"true_clusters": [2**70, 0, 1]}, "true_clusters must be a list of integers"),
        ({"true_clusters": [0, 1]}, "True clusters are given for 2 clients, but there are 3"),
        ({"client_ids": [True, 0, 2]}, "id must be a 64-bit integer.* not True"),
        ({"client_ids": [0.0, 1.0, 2.0]}, "id must be a 64-bit integer.* not 0.0"),
        ({"client_ids": [None, 1, 2]}, "id must be a 64-bit integer.* not None"),
        ({"client_ids": ["", "a", "b"]}, "id must be a 64-bit integer.* not ''"),
        ({"client_ids": ["a\nb", "a", "b"]}, r"id must be a 64-bit integer.* not 'a\\nb'"),
        ({"client_ids": ["\udcff", "a", "b"]}, r"id must be a 64-bit integer.* not '\\udcff'"),
        ({"client_ids": ["x" * 101, "a", "b"]}, "id must be a 64-bit integer"),
        ({"client_ids": [2**63, 1, 2]}, "id must be a 64-bit integer.* not a int"),
        ({"client_ids": [1, "1", 2]}, "2 clients have the id 1; give every client its own id"),
        ({"client_ids": ["a", "a", "b"]}, "2 clients have the id a"),
        ({"client_ids": ["a", "b"]}, "2 ids are given for 3 clients"),
        ({"lr": float("inf")}, "lr should be a finite number"),
        ({"seed": 10**30}, "seed should be an integer of at most 64 bits"),
        ({"workers": 10**6}, "workers should be less than or equal to 1024"),
        ({"method": "fedavgg"}, "There is no method 'fedavgg'; did you mean 'fedavg'"),
        ({"method": FedAvg}, r"Give a method such as FedAvg\(\), not its class"),
        ({"method": "none.py:Mine"}, "There is no file none.py"),
        ({"sampler": 3}, "int is not a dataclass"),
        ({"server_optimizer": "none"}, "There is no server optimizer 'none'; there are: plain"),
        ({"transforms": ["clip", Clip(2.0)]}, "A transform is given twice: clip, clip"),
        ({"transforms": [Clip(-1.0)]}, "clip should be greater than 0, not -1.0"),
        ({"task": FedAvg()}, "FedAvg lacks main_metric, "),
        ({"local_optimizer": SGD(momentum=2)}, "momentum should be less than 1, not 2"),
        ({"augment": ["flop"]}, "There is no augmentation 'flop'; did you mean 'flip'"),
        ({"lr": "fast"}, "lr should be a valid number"),
        ({"lr": 0}, "lr should be greater than 0"),
        ({"rounds": 0}, "rounds should be greater than 0"),
        ({"per_round": 6}, "per_round is 6, but"),
        ({"head": "nose"}, "no linear layer 'nose'"),
        ({"head": "5"}, "classifier layer has 7 outputs, but the model has"),
        ({"method": cadis.CADIS(gamma=-1)}, "gamma should be greater than 0"),
        ({"model": make_broken_model()}, "initial model has NaN or infinite parameters"),
    ],
)
def test_wrong_arguments_are_refused_and_write_nothing(
    arguments: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CadisError, match=sentence) as caught:
        run(out=tmp_path / "run", **arguments)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("ids", "config"),
    [
        (np.array([4, 5, 6]), [4, 5, 6]),
        (np.array(["a", "b", "c"]), ["a", "b", "c"]),
        (["a/b", "..", "x y"], ["a/b", "..", "x y"]),
        ([-1, 0, "Ünal"], [-1, 0, "Ünal"]),
    ],
)
@pytest.mark.parametrize("method", ["fedfa", "feddyn", "cadis"])
def test_client_names_are_stored(
    ids: Any, config: list[int | str], method: str, tmp_path: Path
) -> None:
    run(client_ids=ids, out=tmp_path / "run", method=method)
    (record,) = RunFolder(tmp_path / "run").read_history()
    assert record.participants == config
    description = json.loads((tmp_path / "run" / "federation.json").read_text())
    assert [client["id"] for client in description["clients"]] == config


def test_resolved_options_are_stored(tmp_path: Path) -> None:
    run(lr="0.05", seed=np.int64(4), workers=1.0, out=tmp_path / "run")
    config = read_toml(tmp_path / "run" / "config.toml")
    assert (config["lr"], config["seed"], config["workers"]) == (0.05, 4, 1)
    assert type(config["workers"]) is int
    run(lr=0.05, seed=4, workers=1, out=tmp_path / "run", resume=True, rounds=2)


def test_parts_are_instances_names_or_files(here: Path) -> None:
    parts = {
        "method": "own.py:Mine",
        "sampler": "own.py:AllClients",
        "server_optimizer": "Momentum",
        "transforms": [Clip(0.5), "own.py:Halve"],
        "task": "classification",
        "local_optimizer": SGD(momentum=0.5),
        "augment": ["flip", "crop"],
    }
    result = run(**parts, out=here / "run")
    config = read_toml(here / "run" / "config.toml")
    assert (config["method"], config["sampler"]) == ("own.py:Mine", "own.py:AllClients")
    assert (config["server_optimizer"], config["transforms"]) == (
        "momentum",
        ["clip", "own.py:Halve"],
    )
    assert (config["clip"], config["sgd"]["momentum"]) == ({"clip": 0.5}, 0.5)
    assert config["augment"] == ["flip", "crop"]
    again = run(**parts, out=here / "run", resume=True, rounds=2)
    assert again.history[0] == result.history[0]
    with pytest.raises(CadisError, match=r"has clip\.clip = 0\.5, not 0\.6"):
        run(**parts | {"transforms": [Clip(0.6), "own.py:Halve"]}, out=here / "run", resume=True)


def test_default_learning_rate_equals_that_of_the_command_line(tmp_path: Path) -> None:
    run(out=tmp_path / "own")
    assert read_toml(tmp_path / "own" / "config.toml")["lr"] == 0.01
    run(model=MODELS["small-cnn"](1, 4, 4, 5), out=tmp_path / "ours")
    assert read_toml(tmp_path / "ours" / "config.toml")["lr"] == 0.1
