"""Tests of the functions that a ClientApp calls."""

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
from cadis.data import Samples
from cadis.errors import CadisError
from cadis.flower.client import (
    ClientStates,
    get_state_folder,
    introduce,
    local_evaluate,
    local_train,
)
from cadis.flower.train_config import TrainConfig, make_local_config
from cadis.training import LocalSettings
from flower_support import TRAIN_CONFIG, LocalGrid, have_equal_arrays, small_arrays
from support import blobs, is_identical, small_model

RUN = "0123456789abcdef"
DATA = blobs(9, [0, 1], seed=0)
LOADER = DataLoader(TensorDataset(DATA.inputs, DATA.labels), batch_size=4)


def make_content(arrays: ArrayRecord | None = None, config: object = ()) -> RecordDict:
    """Return the content of a message from the server."""
    model = small_arrays() if arrays is None else arrays
    return RecordDict({"arrays": model, "config": ConfigRecord(dict(config))})  # type: ignore[call-overload]


def train(config: ConfigRecord, data: object = DATA, state_dir: Path | None = None) -> ArrayRecord:
    reply = local_train(small_model(), data, make_content(config=config), state_dir=state_dir)  # type: ignore[arg-type]
    return reply.array_records["arrays"]


def test_config_is_read_as_it_was_written() -> None:
    sent = TrainConfig(
        3, Algorithm(CADIS(threshold=0.5, bandwidth=2.0)), client="north", seed=4, head="7", run=RUN
    )
    received = TrainConfig.from_record(sent.to_record({**TRAIN_CONFIG, "mine": "kept"}))
    assert received.algorithm == sent.algorithm
    assert (received.round, received.client, received.seed) == (3, "north", 4)
    assert (received.head, received.run) == ("7", RUN)
    assert (received.local.epochs, received.local.batch_size, received.local.lr) == (2, 4, 0.1)
    assert sent.to_record({"mine": "kept"})["mine"] == "kept"
    local = LocalSettings(epochs=2, batch_size=3, lr=0.25, augment=("flip",), precision="bf16")
    assert TrainConfig.from_record(make_local_config(local)).local == local


@dataclass(frozen=True)
class Namesake(SGD):
    name: ClassVar[str] = "clip"


def test_parts_of_different_kinds_may_share_a_name() -> None:
    algorithm = Algorithm(transforms=(Clip(2.0),), local_optimizer=Namesake(momentum=0.5))
    config = TrainConfig(algorithm=algorithm).to_record(TRAIN_CONFIG)
    assert (
        TrainConfig.from_record(config, custom_classes=iter([Namesake, Clip])).algorithm
        == algorithm
    )


def test_empty_config_means_fedavg() -> None:
    assert TrainConfig.from_record({}) == TrainConfig()
    assert TrainConfig.from_record({}, method=FedProx(0.5)).algorithm.method == FedProx(0.5)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"cadis.method": "fedavgg"}, "no method 'fedavgg'; if it is your own"),
        ({"cadis.transforms": ["clipp"]}, "no transform 'clipp'; if it is your own"),
        ({"lr": float("inf")}, "lr should be a finite number"),
        ({"lr": -1.0}, "lr should be greater than 0"),
    ],
)
def test_invalid_config_is_an_error(config: dict[str, object], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        TrainConfig.from_record(config)


def test_all_kinds_of_data_give_the_same_model() -> None:
    config = TrainConfig(client=2).to_record(TRAIN_CONFIG)
    expected = train(config)
    for data in ((DATA.inputs, DATA.labels), LOADER, list(LOADER)):
        assert have_equal_arrays(train(config, data), expected)
    assert have_equal_arrays(train(config, list(LOADER)[:2]), train(config, DATA.take(slice(0, 8))))


def test_reply_contains_only_documented_entries() -> None:
    config = TrainConfig(algorithm=Algorithm(CADIS())).to_record(TRAIN_CONFIG)
    reply = local_train(small_model(), DATA, make_content(config=config))
    metrics = reply.metric_records["metrics"]
    assert set(reply) == {"arrays", "metrics"}
    assert set(metrics) == {"num-examples", "train-seconds", "train_loss"}
    assert metrics["num-examples"] == 9
    assert reply.array_records["arrays"].keys() == small_model().state_dict().keys()
    evaluation = local_evaluate(small_model(), DATA, make_content(reply.array_records["arrays"]))
    assert set(evaluation.metric_records["metrics"]) == {"num-examples", "accuracy", "loss"}


def test_local_train_does_not_change_the_model() -> None:
    model, before = small_model(), small_model().state_dict()
    local_train(model, DATA, make_content(config=TrainConfig().to_record(TRAIN_CONFIG)))
    assert all(is_identical(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model.get_submodule("7")._forward_pre_hooks


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ((torch.zeros(0, 1, 4, 4), torch.zeros(0).long()), "This client has no samples"),
        (blobs(9, [0, 4], seed=0).take(slice(0)), "no samples"),
        ((torch.zeros(2, 1, 4, 4), torch.tensor([0, 5])), "label 5, but the model has only 5"),
        ([], "nor an iterable of such batches"),
        (7, "not a pair of inputs and labels"),
        (([], []), "no samples"),
        ([{"img": DATA.inputs, "label": DATA.labels}], "convert batches that are dicts to pairs"),
        ((LOADER, LOADER), "not a pair of inputs and labels"),
        (
            (DATA.inputs / 0, DATA.labels),
            "This client has 9 samples with inputs that are NaN or infinite",
        ),
        ((torch.zeros(2, 3), torch.tensor([0, 1])), "The model cannot be applied to inputs of"),
    ],
)
def test_invalid_data_is_an_error(data: object, sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        train(TrainConfig().to_record(TRAIN_CONFIG), data)


def test_invalid_model_is_an_error() -> None:
    words = nn.Sequential(nn.Flatten(1, 2), nn.Linear(4, 5), nn.AvgPool2d((4, 1)), nn.Flatten())
    with pytest.raises(CadisError, match="for 2 samples, not one vector per sample; pool"):
        local_train(words, DATA, make_content(small_arrays(words)), method=CADIS())
    local_train(
        words, DATA, make_content(small_arrays(words))
    )  # other methods do not use the classifier layer
    with pytest.raises(CadisError, match="The global model does not fit the model of this client"):
        local_train(small_model(batch_norm=True), DATA, make_content())
    half, data = small_model().bfloat16(), Samples(DATA.inputs.bfloat16(), DATA.labels)
    with pytest.raises(CadisError, match="cannot hold bfloat16: convert the model to float32"):
        local_train(half, data, make_content())


def test_repeated_round_starts_from_the_same_client_state(tmp_path: Path) -> None:
    def train_round(number: int, state_round: int) -> ArrayRecord:
        entries: dict[str, Any] = {"client": "a/b", "run": RUN, "state_round": state_round}
        config = TrainConfig(number, Algorithm(FedDyn()), **entries).to_record(TRAIN_CONFIG)
        return train(config, state_dir=tmp_path)

    first, second = train_round(1, 0), train_round(2, 1)
    assert have_equal_arrays(train_round(2, 1), second)
    assert not have_equal_arrays(train_round(2, 0), second)
    assert have_equal_arrays(train_round(3, 2), train_round(3, 2))
    assert have_equal_arrays(train_round(1, 0), first)
    (stored,) = tmp_path.rglob("*.safetensors")
    assert stored.name.startswith("round-1-")
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


def test_lost_state_is_reported(tmp_path: Path) -> None:
    for number, lost in ((5, 1), (6, 0)):
        config = TrainConfig(number, Algorithm(FedDyn()), run=RUN, state_round=number - 1)
        message = make_content(config=config.to_record(TRAIN_CONFIG))
        reply = local_train(small_model(), DATA, message, state_dir=tmp_path)
        assert reply.metric_records["metrics"]["memory-lost"] == lost
    with pytest.raises(CadisError, match="Clients of feddyn keep a state"):
        local_train(small_model(), DATA, make_content(config=TRAIN_CONFIG), method=FedDyn())


def test_states_of_clients_are_separate_and_ids_are_not_paths(tmp_path: Path) -> None:
    names: Iterable[int | str] = (1, "1", "../1", "a/b")
    for number, client in enumerate(names):
        ClientStates(tmp_path / "here", RUN, client).save(number, {"a": torch.ones(2)}, 0)
    assert len(list((tmp_path / "here" / RUN).iterdir())) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    for run in ("", "..", "x" * 16, f"{RUN}/"):
        with pytest.raises(CadisError, match="not the id of a run"):
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


def test_state_folder_is_an_environment_variable_or_the_user_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CADIS_STATE", str(tmp_path))
    assert get_state_folder() == tmp_path
    monkeypatch.delenv("CADIS_STATE")
    assert get_state_folder().parts[-2:] == ("cadis", "clients")


def test_introduce_sends_the_partition_id_only() -> None:
    LocalGrid({})
    config: dict[str, float | int | str] = {"partition-id": 3, "secret": "x"}
    context = Context(1, 5, config, RecordDict(), {})
    reply = introduce(Message(RecordDict(), 5, "query"), context)
    assert dict(reply.content.config_records["identity"]) == {"partition-id": 3}


def test_evaluation_does_not_need_the_classifier_layer() -> None:
    """The linear layer that is defined last is not the classifier here."""

    class InnerLast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.inner = nn.Linear(4, 5), nn.Linear(16, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.inner(inputs.flatten(1))
            logits: torch.Tensor = self.fc(hidden)
            return logits

    arrays, data = ArrayRecord(InnerLast().state_dict()), blobs(10, [3, 4], seed=0)
    metrics = local_evaluate(InnerLast(), data, make_content(arrays)).metric_records["metrics"]
    assert metrics["num-examples"] == 10
    local_train(
        InnerLast(), data, make_content(arrays, TrainConfig(head="fc").to_record(TRAIN_CONFIG))
    )
    local_train(InnerLast(), data, make_content(arrays, TRAIN_CONFIG))
    with pytest.raises(CadisError, match=r"has 4 outputs, but the model has .* the right layer"):
        local_train(InnerLast(), data, make_content(arrays, TRAIN_CONFIG), method=CADIS())
    with pytest.raises(CadisError, match="This client has label 5, but the model has only 5"):
        local_train(InnerLast(), (data.inputs, data.labels + 1), make_content(arrays, TRAIN_CONFIG))
    with pytest.raises(CadisError, match="The test data has label 5"):
        local_evaluate(InnerLast(), (data.inputs, data.labels + 1), make_content(arrays))
