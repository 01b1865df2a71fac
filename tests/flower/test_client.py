"""The client's side."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cadis.algorithm import Algorithm
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import CADIS, FedDyn, FedProx
from cadis.algorithm.transforms import Clip
from cadis.data import Examples
from cadis.errors import CadisError
from cadis.flower.client import ClientStates, introduce, local_evaluate, local_train, memory_folder
from cadis.flower.train_config import TrainConfig, local_config
from cadis.training import LocalSettings
from flower_support import SMALL, LocalGrid, equal, small_arrays
from support import blobs, same, small_model

RUN = "0123456789abcdef"
OWN = blobs(9, [0, 1], seed=0)
LOADER = DataLoader(TensorDataset(OWN.inputs, OWN.labels), batch_size=4)


def content(arrays: ArrayRecord | None = None, config: object = ()) -> RecordDict:
    """What a server sends."""
    sent = small_arrays() if arrays is None else arrays
    return RecordDict({"arrays": sent, "config": ConfigRecord(dict(config))})  # type: ignore[call-overload]


def trained(config: ConfigRecord, data: object = OWN, memory: Path | None = None) -> ArrayRecord:
    answer = local_train(small_model(), data, content(config=config), memory=memory)  # type: ignore[arg-type]
    return answer.array_records["arrays"]


def test_orders_survive_the_way() -> None:
    given = TrainConfig(
        3, Algorithm(CADIS(threshold=0.5, bandwidth=2.0)), client="north", seed=4, head="7", run=RUN
    )
    read = TrainConfig.read(given.config({**SMALL, "mine": "kept"}))
    assert read.algorithm == given.algorithm
    assert (read.round, read.client, read.seed, read.head, read.run) == (3, "north", 4, "7", RUN)
    assert (read.local.epochs, read.local.batch_size, read.local.lr) == (2, 4, 0.1)
    assert given.config({"mine": "kept"})["mine"] == "kept"
    local = LocalSettings(epochs=2, batch_size=3, lr=0.25, augment=("flip",), precision="bf16")
    assert TrainConfig.read(local_config(local)).local == local


@dataclass(frozen=True)
class Namesake(SGD):
    name: ClassVar[str] = "clip"


def test_parts_of_different_kinds_may_share_a_name() -> None:
    algorithm = Algorithm(transforms=(Clip(2.0),), local_optimizer=Namesake(momentum=0.5))
    config = TrainConfig(algorithm=algorithm).config(SMALL)
    assert TrainConfig.read(config, own=iter([Namesake, Clip])).algorithm == algorithm


def test_without_orders_it_is_plain_averaging() -> None:
    assert TrainConfig.read({}) == TrainConfig()
    assert TrainConfig.read({}, method=FedProx(0.5)).algorithm.method == FedProx(0.5)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"cadis.method": "fedavgg"}, "no method 'fedavgg'; if it is one of your own"),
        ({"cadis.transforms": ["clipp"]}, "no transform 'clipp'; if it is one of your own"),
        ({"lr": float("inf")}, "lr should be a finite number"),
        ({"lr": -1.0}, "lr should be greater than 0"),
    ],
)
def test_orders_that_cannot_be_followed(config: dict[str, object], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        TrainConfig.read(config)


def test_all_kinds_of_data_are_the_same() -> None:
    config = TrainConfig(client=2).config(SMALL)
    expected = trained(config)
    for data in ((OWN.inputs, OWN.labels), LOADER, list(LOADER)):
        assert equal(trained(config, data), expected)
    assert equal(trained(config, list(LOADER)[:2]), trained(config, OWN.take(slice(0, 8))))


def test_what_leaves_a_client() -> None:
    config = TrainConfig(algorithm=Algorithm(CADIS())).config(SMALL)
    answer = local_train(small_model(), OWN, content(config=config))
    metrics = answer.metric_records["metrics"]
    assert set(answer) == {"arrays", "metrics"}
    assert set(metrics) == {"num-examples", "train-seconds", "train_loss"}
    assert metrics["num-examples"] == 9
    assert answer.array_records["arrays"].keys() == small_model().state_dict().keys()
    tested = local_evaluate(small_model(), OWN, content(answer.array_records["arrays"]))
    assert set(tested.metric_records["metrics"]) == {"num-examples", "accuracy", "loss"}


def test_the_model_given_is_not_changed() -> None:
    model, before = small_model(), small_model().state_dict()
    local_train(model, OWN, content(config=TrainConfig().config(SMALL)))
    assert all(same(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model.get_submodule("7")._forward_pre_hooks


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ((torch.zeros(0, 1, 4, 4), torch.zeros(0).long()), "This client has no samples"),
        (blobs(9, [0, 4], seed=0).take(slice(0)), "no samples"),
        ((torch.zeros(2, 1, 4, 4), torch.tensor([0, 5])), "label 5, but the model tells only 5"),
        ([], "nor an iterable of such batches"),
        (7, "not a pair of inputs and labels"),
        (([], []), "no samples"),
        ([{"img": OWN.inputs, "label": OWN.labels}], "make pairs of batches that are dicts"),
        ((LOADER, LOADER), "not a pair of inputs and labels"),
        ((OWN.inputs / 0, OWN.labels), "This client has 9 samples with inputs that are infinite"),
        ((torch.zeros(2, 3), torch.tensor([0, 1])), "The model cannot be applied to inputs of"),
    ],
)
def test_data_that_cannot_be_used(data: object, sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        trained(TrainConfig().config(SMALL), data)


def test_models_that_cannot_be_used() -> None:
    words = nn.Sequential(nn.Flatten(1, 2), nn.Linear(4, 5), nn.AvgPool2d((4, 1)), nn.Flatten())
    with pytest.raises(CadisError, match="for 2 samples, not one vector for each; pool"):
        local_train(words, OWN, content(small_arrays(words)), method=CADIS())
    local_train(words, OWN, content(small_arrays(words)))  # others do not look at the classifier
    with pytest.raises(CadisError, match="The global model does not fit this client's"):
        local_train(small_model(batch_norm=True), OWN, content())
    half, own = small_model().bfloat16(), Examples(OWN.inputs.bfloat16(), OWN.labels)
    with pytest.raises(CadisError, match="cannot hold bfloat16; make the model float32"):
        local_train(half, own, content())


def test_a_client_remembers_by_round(tmp_path: Path) -> None:
    """A round that is asked for again begins with the memory that it began with before."""

    def go(number: int, remembered: int) -> ArrayRecord:
        orders: dict[str, Any] = {"client": "a/b", "run": RUN, "memory_round": remembered}
        config = TrainConfig(number, Algorithm(FedDyn()), **orders).config(SMALL)
        return trained(config, memory=tmp_path)

    first, second = go(1, 0), go(2, 1)
    assert equal(go(2, 1), second)
    assert not equal(go(2, 0), second)
    assert equal(go(3, 2), go(3, 2))
    assert equal(go(1, 0), first)
    (kept,) = tmp_path.rglob("*.safetensors")
    assert kept.name.startswith("round-1-")
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


def test_a_lost_memory_is_told(tmp_path: Path) -> None:
    for number, lost in ((5, 1), (6, 0)):
        told = TrainConfig(number, Algorithm(FedDyn()), run=RUN, memory_round=number - 1)
        sent = content(config=told.config(SMALL))
        answer = local_train(small_model(), OWN, sent, memory=tmp_path)
        assert answer.metric_records["metrics"]["memory-lost"] == lost
    with pytest.raises(CadisError, match="Clients of feddyn remember"):  # it needs our server
        local_train(small_model(), OWN, content(config=SMALL), method=FedDyn())


def test_memories_are_kept_apart_and_names_are_no_paths(tmp_path: Path) -> None:
    names: Iterable[int | str] = (1, "1", "../1", "a/b")
    for number, client in enumerate(names):
        ClientStates(tmp_path / "here", RUN, client).save(number, {"a": torch.ones(2)}, 0)
    assert len(list((tmp_path / "here" / RUN).iterdir())) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    for run in ("", "..", "x" * 16, f"{RUN}/"):
        with pytest.raises(CadisError, match="not the name of a run"):
            ClientStates(tmp_path, run, 1)
    states, (path,) = (
        ClientStates(tmp_path / "here", RUN, 1),
        (tmp_path / f"here/{RUN}/1").iterdir(),
    )
    assert states.load(0) is not None
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    assert states.load(0) is None


def test_where_memories_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CADIS_STATE", str(tmp_path))
    assert memory_folder() == tmp_path
    monkeypatch.delenv("CADIS_STATE")
    assert memory_folder().parts[-2:] == ("cadis", "clients")


def test_a_client_introduces_itself() -> None:
    LocalGrid({})
    config: dict[str, float | int | str] = {"partition-id": 3, "secret": "x"}
    context = Context(1, 5, config, RecordDict(), {})
    reply = introduce(Message(RecordDict(), 5, "query"), context)
    assert dict(reply.content.config_records["identity"]) == {"partition-id": 3}


def test_testing_needs_no_head() -> None:
    """The last linear layer that was defined need not be the classifier."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.inner = nn.Linear(4, 5), nn.Linear(16, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.inner(inputs.flatten(1))
            logits: torch.Tensor = self.fc(hidden)
            return logits

    arrays, data = ArrayRecord(Odd().state_dict()), blobs(10, [3, 4], seed=0)
    tested = local_evaluate(Odd(), data, content(arrays)).metric_records["metrics"]
    assert tested["num-examples"] == 10
    local_train(Odd(), data, content(arrays, TrainConfig(head="fc").config(SMALL)))
    local_train(Odd(), data, content(arrays, SMALL))
    with pytest.raises(CadisError, match=r"has 4 outputs, but the model has .* the right layer"):
        local_train(Odd(), data, content(arrays, SMALL), method=CADIS())
    with pytest.raises(CadisError, match="This client has label 5, but the model tells only 5"):
        local_train(Odd(), (data.inputs, data.labels + 1), content(arrays, SMALL))
    with pytest.raises(CadisError, match="The test data has label 5"):
        local_evaluate(Odd(), (data.inputs, data.labels + 1), content(arrays))
