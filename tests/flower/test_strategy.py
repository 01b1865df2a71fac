"""Tests of the strategy on a grid in this process: resume, identities, records, options."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from torch import nn

import cadis
from cadis.analysis import read_results
from cadis.errors import CadisError, RunError
from cadis.flower import CADIS, STRATEGY_METHODS, FedAvg, FedDyn, FedFA, MethodStrategy
from cadis.report import draw_figures, format_summary
from cadis.report.page.content import make_page_data
from cadis.rng import derive_generator
from cadis.store import RunFolder
from flower_support import (
    TRAIN_CONFIG,
    LocalGrid,
    Node,
    get_client_data,
    have_equal_arrays,
    read_history,
    run_strategy,
    small_app,
    small_arrays,
)
from support import run_small, small_federation, small_model


@pytest.mark.parametrize("name", STRATEGY_METHODS)
def test_resumed_run_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    """Node ids may change, and clients may have started the next round before the stop."""
    strategy, app = getattr(cadis.flower, name), small_app(tmp_path / "state")
    options = {"seed": 7, "per_round": 3, "fraction_evaluate": 0.0}
    uninterrupted = run_strategy(strategy(**options), LocalGrid.with_app(app), rounds=4)
    grid, out, ahead = LocalGrid.with_app(app), tmp_path / "run", tmp_path / "ahead"
    run_strategy(strategy(out=out, **options), grid, rounds=2)
    shutil.copytree(out, ahead)
    for folder in [path for path in ahead.rglob("*") if path.is_dir() and not any(path.iterdir())]:
        folder.rmdir()  # some programs do not copy empty folders
    run_strategy(
        strategy(out=ahead, resume=True, **options), grid, rounds=3
    )  # then the server was killed
    elsewhere = LocalGrid.with_app(app, first=50_000)
    resumed = run_strategy(strategy(out=out, resume=True, **options), elsewhere, rounds=4)
    assert have_equal_arrays(resumed.arrays, uninterrupted.arrays)
    assert [record.round for record in read_history(tmp_path)] == [1, 2, 3, 4]


def test_checkpoint_stores_the_nodes_and_rounds_of_clients(tmp_path: Path) -> None:
    grid = LocalGrid.with_small_app(tmp_path)
    grid.nodes[1000].name = "north"
    run_strategy(
        CADIS(seed=7, per_round=3, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1
    )
    checkpoint = RunFolder(tmp_path / "run").checkpoint
    state = checkpoint.read(checkpoint.list_manifests()[0])
    clients = [1, 2, 3, 4, "north"]
    order = torch.randperm(5, generator=derive_generator(7, "participants", 1))
    participants = [clients[index] for index in order[:3]]
    expected = {client: int(client in participants) for client in clients}
    assert {member.client: member.last_round for member in state.members} == expected
    assert {member.client: member.node for member in state.members}["north"] == 1000


def test_two_nodes_with_the_same_client_id_are_refused(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.with_app(app)
    grid.nodes[9] = Node(app, {"partition-id": 3})
    run_strategy(CADIS(fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = read_history(tmp_path)
    assert record.participants == [0, 1, 2, 4]
    assert {(r.client, r.reason) for r in record.rejected} == {
        (3, "node 9 claims this client id, as does node 1021"),
        (3, "node 1021 claims this client id, as does node 9"),
    }


def test_client_without_query_function_is_identified_by_its_node(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    del app._registered_funcs["query.default"]
    run_strategy(
        CADIS(fraction_evaluate=0, out=tmp_path / "run"), LocalGrid.with_app(app), rounds=2
    )
    for record in read_history(tmp_path):
        assert record.participants == [f"node-{1000 + 7 * n}" for n in range(5)]


def plain_app() -> ClientApp:
    """Return a plain PyTorch ClientApp that sends state_dict and num-examples, without cadis."""
    app = ClientApp()

    def load_model(message: Message) -> nn.Module:
        model = small_model(batch_norm=True)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        return model

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, data = load_model(message), get_client_data(context, small_federation())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(data.inputs), data.labels)
            loss.backward()
            optimizer.step()
        metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(data)})
        arrays = ArrayRecord(model.state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model, data = load_model(message), get_client_data(context, small_federation())
        accuracy = (model.eval()(data.inputs).argmax(dim=1) == data.labels).float().mean()
        metrics = MetricRecord({"eval_acc": accuracy.item(), "num-examples": len(data)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def test_plain_client_app_works_with_the_strategy(tmp_path: Path) -> None:
    strategy = CADIS(fraction_train=1.0, min_available_nodes=5, out=tmp_path / "run")
    model = small_model(batch_norm=True)
    result = strategy.start(LocalGrid.with_app(plain_app()), ArrayRecord(model.state_dict()), 3)
    counter = result.arrays["1.num_batches_tracked"].numpy()
    assert (counter.dtype.name, int(counter)) == ("int64", 15)
    assert set(result.train_metrics_clientapp) == {1, 2, 3}
    record = read_history(tmp_path)[-1]
    assert record.report["clusters"] == [0, 0, 0, 1, 2]
    assert record.accuracy == pytest.approx(result.evaluate_metrics_clientapp[3]["eval_acc"])
    weights = dict(zip(record.participants, record.weights, strict=True))
    samples = [len(client) for client in small_federation().clients]
    shares = [*(count / sum(samples[:3]) for count in samples[:3]), 1, 1]  # of three clusters
    assert list(weights.values()) == pytest.approx([share / 3 for share in shares], abs=1e-3)


def test_plain_client_app_does_not_work_with_fedfa() -> None:
    arrays = small_arrays(small_model(batch_norm=True))
    with pytest.raises(RunError, match=r"it did not send received_accuracy, which fedfa needs"):
        FedFA(attempts=1).start(LocalGrid.with_app(plain_app()), arrays, 1)


def test_run_folder_equals_that_of_the_engine(tmp_path: Path) -> None:
    engine, flower = (RunFolder(tmp_path / name) for name in ("engine", "flower"))
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1, "stack": False}
    run_small(rounds=3, per_round=3, seed=7, test_clients=0, out=engine.path, **local)
    strategy = CADIS(seed=7, per_round=3, fraction_evaluate=0, out=flower.path)
    run_strategy(strategy, LocalGrid.with_small_app(tmp_path))
    for one, other in zip(engine.read_history(), flower.read_history(), strict=True):
        assert one.clock is not None  # Flower has no simulated clock
        assert replace(one, seconds=other.seconds, loss=other.loss, clock=None) == other
        assert one.loss == pytest.approx(other.loss)
    for name in ("model.safetensors", "best.safetensors", "summary.json", "config.toml"):
        assert (flower.path / name).is_file()
    keys = [json.loads((f.path / "summary.json").read_text()).keys() for f in (engine, flower)]
    assert keys[0] == keys[1]
    results = read_results([flower.path])
    assert make_page_data(results)["title"] == "User data: 5 clients, 3 per round, 3 rounds"
    drawn = draw_figures(results, flower.figures)
    names = {"accuracy", "metrics", "loss", "confusion", "similarity", "clusters", "flow"}
    assert {path.stem for path in drawn} == names
    assert "clusters found" in format_summary(flower)


def test_run_without_evaluation_is_saved(tmp_path: Path) -> None:
    strategy = CADIS(fraction_evaluate=0, out=tmp_path / "run")
    strategy.start(LocalGrid.with_small_app(tmp_path), small_arrays(), 2)
    folder = RunFolder(tmp_path / "run")
    assert [record.accuracy for record in folder.read_history()] == [None, None]
    assert not (folder.path / "best.safetensors").exists()
    drawn = draw_figures(read_results([folder.path]), folder.figures)
    assert {path.stem for path in drawn} == {"loss", "similarity", "clusters", "flow"}
    assert "accuracy" not in format_summary(folder)


def test_finished_run_is_evaluated_again_on_resume(tmp_path: Path) -> None:
    grid = LocalGrid.with_small_app(tmp_path)
    options = {"fraction_evaluate": 0.0, "out": tmp_path / "run"}
    first = run_strategy(CADIS(**options), grid, rounds=1)
    (tmp_path / "run" / "summary.json").unlink()
    resumed = run_strategy(CADIS(resume=True, **options), grid, rounds=1)
    assert have_equal_arrays(first.arrays, resumed.arrays)
    assert RunFolder(tmp_path / "run").read_json("summary.json")["confusion"] is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": 0.5}, r"has cadis\.threshold = auto, not 0\.5"),
        ({"seed": 8}, "has seed = 7, not 8"),
        ({"federation": {"classes": [], "clients": [{"id": 9}]}}, "other clients or data"),
    ],
)
def test_resume_with_other_options_is_an_error(
    options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    grid = LocalGrid.with_small_app(tmp_path)
    original = {"seed": 7, "fraction_evaluate": 0.0, "out": tmp_path / "run"}
    run_strategy(CADIS(**original), grid, rounds=1)
    with pytest.raises(CadisError, match=sentence):
        run_strategy(CADIS(resume=True, **original | options), grid, rounds=2)


def test_bytes_in_the_config_are_not_saved(tmp_path: Path) -> None:
    grid = LocalGrid.with_small_app(tmp_path)
    strategy = FedAvg(fraction_evaluate=0, out=tmp_path / "run")
    config = ConfigRecord({**TRAIN_CONFIG, "a": b"1", "b": [b"1"], "c": [1, 2], "d": '\x7f"\\\n'})
    strategy.start(grid, small_arrays(), 1, train_config=config)
    config_file = RunFolder(tmp_path / "run").read_config()
    assert config_file["c"] == [1, 2]
    assert config_file["d"] == '\x7f"\\\n'
    assert not {"a", "b"} & config_file.keys()


CLASS: Any = cadis.CADIS


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (partial(MethodStrategy, "fedat"), "fedat needs a simulated clock, which Flower lacks"),
        (
            partial(MethodStrategy, cadis.SingleSet()),
            "singleset needs the data of all clients in one",
        ),
        (partial(MethodStrategy, CLASS), r"Give a method such as CADIS\(\), not its class"),
        (partial(MethodStrategy, "fedavg", fraction_train=0), "fraction_train should be greater"),
        (partial(CADIS, treshold=0.5), r"no option 'tresh.*did you mean 'threshold'"),
        (partial(CADIS, threshold=1.5), "threshold should be less than or equal to 1"),
        (partial(CADIS, gamma=float("inf")), "gamma should be a finite number, not inf"),
        (partial(FedAvg, patience=float("inf")), "patience should be a finite number, not inf"),
        (partial(FedAvg, seed=2**64), "seed should be an integer of at most 64 bits"),
        (partial(FedAvg, count_limit=0.5), "count_limit should be greater than or equal to 1"),
        (partial(CADIS().aggregate_train, 1, []), "Call configure_train before"),
    ],
)
def test_invalid_argument_is_an_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("options", "model", "sentence"),
    [
        ({"resume": True}, small_model(), "Give the folder of the run to resume: out="),
        ({"resume": True, "out": Path("none")}, small_model(), "There is no run in the folder"),
        ({}, nn.Conv2d(1, 2, 3), "'cadis' needs the classifier layer"),
        ({"head": "fc"}, small_model(), "no linear layer 'fc'; it has: 5, 7"),
    ],
)
def test_invalid_settings_of_a_run_are_an_error(
    options: dict[str, object], model: nn.Module, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CadisError, match=sentence):
        CADIS(**options).start(LocalGrid.with_small_app(tmp_path), small_arrays(model))


def test_waiting_for_clients_ends_after_patience(tmp_path: Path) -> None:
    grid = LocalGrid.with_small_app(tmp_path, number=1)
    with pytest.raises(
        RunError, match=r"Only 1 of at least 2 clients connected within 0\.1 seconds"
    ):
        run_strategy(CADIS(patience=0.1), grid)
    run_strategy(CADIS(patience=0.1, num_clients=9, min_available_nodes=1), grid, rounds=1)


def test_strategy_works_in_flowers_loop(tmp_path: Path) -> None:
    """A wrapper such as differential privacy uses the loop of Flower."""
    strategy = FedDyn(seed=7, per_round=3, fraction_evaluate=0)
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        strategy, noise_multiplier=0.0, clipping_norm=1e9, num_sampled_clients=3
    )
    grid = LocalGrid.with_small_app(tmp_path)
    result = wrapped.start(grid, small_arrays(), 2, train_config=ConfigRecord(dict(TRAIN_CONFIG)))
    plain = run_strategy(FedDyn(seed=7, per_round=3, fraction_evaluate=0), grid, rounds=2)
    for name, tensor in plain.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(result.arrays.to_torch_state_dict()[name], tensor)


def test_custom_functions_aggregate_metrics(tmp_path: Path) -> None:
    def count(records: list[RecordDict], key: str) -> MetricRecord:
        arrays = [array for r in records for record in r.array_records.values() for array in record]
        return MetricRecord({"replies": len(records), "arrays": len(arrays), key: 1})

    strategy = CADIS(train_metrics_aggr_fn=count, evaluate_metrics_aggr_fn=count)
    result = run_strategy(strategy, LocalGrid.with_small_app(tmp_path), rounds=1)
    counts = {"replies": 5, "num-examples": 1}
    assert result.train_metrics_clientapp[1] == counts | {"arrays": 5 * len(small_arrays())}
    assert result.evaluate_metrics_clientapp[1] == counts | {"arrays": 0}
    assert set(result.evaluate_metrics_serverapp) == {0, 1}


def test_client_without_evaluate_function_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = LocalGrid.with_small_app(tmp_path)
    grid.alter_client(lambda message: message)  # the altered app of client 2 can only train
    config = ConfigRecord(dict(TRAIN_CONFIG))
    result = CADIS(seed=7).start(grid, small_arrays(), 1, train_config=config)
    model = small_model()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    correct, samples = 0.0, 0
    for number, data in enumerate(small_federation().clients):
        if number != 2:
            correct += float((model.eval()(data.inputs).argmax(dim=1) == data.labels).sum())
            samples += len(data)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(correct / samples)
    assert "No evaluation of client 2: its ClientApp failed" in caplog.text


def test_each_federated_method_has_a_strategy() -> None:
    assert {*STRATEGY_METHODS} <= {*dir(cadis.flower)}
    assert all(getattr(cadis.flower, name).__name__ == name for name in STRATEGY_METHODS)
    assert "SingleSet" not in STRATEGY_METHODS
    assert not hasattr(cadis.flower, "Nothing")


@pytest.mark.parametrize("code", ["import cadis.flower", "import cadis; cadis.flower"])
def test_missing_flower_is_an_error(code: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.modules['flwr'] = None; {code}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "CadisError: Install Flower first: pip install 'cadis[flower]'." in result.stderr
