"""The strategy on a grid in this process: resume, identities, records, options."""

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
from cadis.flower import CADIS, READY_MADE, FedAvg, FedDyn, FedFA, MethodStrategy
from cadis.report import draw_figures, summary_text
from cadis.report.page.content import page_data
from cadis.rng import generator_for
from cadis.store import RunFolder
from flower_support import (
    SMALL,
    LocalGrid,
    Node,
    equal,
    history,
    own_data,
    small_app,
    small_arrays,
    start,
)
from support import run_small, small_federation, small_model


@pytest.mark.parametrize("name", READY_MADE)
def test_going_on_is_exact(name: str, tmp_path: Path) -> None:
    """Also under other node ids, as in a simulation, and after clients began the next round."""
    strategy, app = getattr(cadis.flower, name), small_app(tmp_path / "state")
    options = {"seed": 7, "per_round": 3, "fraction_evaluate": 0.0}
    whole = start(strategy(**options), LocalGrid.of(app), rounds=4)
    grid, out, ahead = LocalGrid.of(app), tmp_path / "run", tmp_path / "ahead"
    start(strategy(out=out, **options), grid, rounds=2)
    shutil.copytree(out, ahead)
    for folder in [path for path in ahead.rglob("*") if path.is_dir() and not any(path.iterdir())]:
        folder.rmdir()  # as some ways of copying have it
    start(strategy(out=ahead, resume=True, **options), grid, rounds=3)  # then it was killed
    elsewhere = LocalGrid.of(app, first=50_000)
    resumed = start(strategy(out=out, resume=True, **options), elsewhere, rounds=4)
    assert equal(resumed.arrays, whole.arrays)
    assert [record.round for record in history(tmp_path)] == [1, 2, 3, 4]


def test_the_checkpoint_knows_who_is_who(tmp_path: Path) -> None:
    grid = LocalGrid.small(tmp_path)
    grid.nodes[1000].name = "north"
    start(CADIS(seed=7, per_round=3, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    checkpoint = RunFolder(tmp_path / "run").checkpoint
    state = checkpoint.read(checkpoint.manifests()[0])
    chosen = [1, 2, 3, 4, "north"]
    order = torch.randperm(5, generator=generator_for(7, "participants", 1))
    taken = [chosen[place] for place in order[:3]]
    expected = {client: int(client in taken) for client in chosen}
    assert {member.client: member.last_round for member in state.members} == expected
    assert {member.client: member.node for member in state.members}["north"] == 1000


def test_two_nodes_that_claim_to_be_one_client_are_refused_by_name(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.of(app)
    grid.nodes[9] = Node(app, {"partition-id": 3})
    start(CADIS(fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = history(tmp_path)
    assert record.participants == [0, 1, 2, 4]
    assert {(r.client, r.reason) for r in record.rejected} == {
        (3, "node 9 claims to be it, and so does node 1021"),
        (3, "node 1021 claims to be it, and so does node 9"),
    }


def test_a_client_that_does_not_introduce_itself_is_known_by_its_node(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    del app._registered_funcs["query.default"]
    start(CADIS(fraction_evaluate=0, out=tmp_path / "run"), LocalGrid.of(app), rounds=2)
    for record in history(tmp_path):
        assert record.participants == [f"node-{1000 + 7 * n}" for n in range(5)]


def plain_app() -> ClientApp:
    """Flower's own plain PyTorch client: a state_dict and num-examples, and nothing of ours."""
    app = ClientApp()

    def received(message: Message) -> nn.Module:
        model = small_model(batch_norm=True)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        return model

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, data = received(message), own_data(context, small_federation())
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
        model, data = received(message), own_data(context, small_federation())
        right = (model.eval()(data.inputs).argmax(dim=1) == data.labels).float().mean()
        metrics = MetricRecord({"eval_acc": right.item(), "num-examples": len(data)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def test_a_users_plain_app_gets_clusters_by_changing_one_line(tmp_path: Path) -> None:
    strategy = CADIS(fraction_train=1.0, min_available_nodes=5, out=tmp_path / "run")
    model = small_model(batch_norm=True)
    result = strategy.start(LocalGrid.of(plain_app()), ArrayRecord(model.state_dict()), 3)
    counter = result.arrays["1.num_batches_tracked"].numpy()
    assert (counter.dtype.name, int(counter)) == ("int64", 15)
    assert set(result.train_metrics_clientapp) == {1, 2, 3}
    record = history(tmp_path)[-1]
    assert record.report["clusters"] == [0, 0, 0, 1, 2]
    assert record.accuracy == pytest.approx(result.evaluate_metrics_clientapp[3]["eval_acc"])
    weights = dict(zip(record.participants, record.weights, strict=True))
    samples = [len(client) for client in small_federation().clients]
    shares = [*(count / 3 for count in samples[:3]), *samples[3:]]
    assert list(weights.values()) == pytest.approx([share / sum(shares) for share in shares])


def test_a_plain_app_cannot_do_what_fedfa_needs() -> None:
    arrays = small_arrays(small_model(batch_norm=True))
    with pytest.raises(RunError, match=r"it did not send received_accuracy, which fedfa needs"):
        FedFA(attempts=1).start(LocalGrid.of(plain_app()), arrays, 1)


def test_the_run_folder_is_like_that_of_the_engine(tmp_path: Path) -> None:
    engine, flower = (RunFolder(tmp_path / name) for name in ("engine", "flower"))
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1, "stack": False}
    run_small(rounds=3, per_round=3, seed=7, test_clients=0, out=engine.path, **local)
    strategy = CADIS(seed=7, per_round=3, fraction_evaluate=0, out=flower.path)
    start(strategy, LocalGrid.small(tmp_path))
    for one, other in zip(engine.read_history(), flower.read_history(), strict=True):
        assert one.clock is not None  # on Flower nothing is simulated
        assert replace(one, seconds=other.seconds, loss=other.loss, clock=None) == other
        assert one.loss == pytest.approx(other.loss)
    for name in ("model.safetensors", "best.safetensors", "summary.json", "config.toml"):
        assert (flower.path / name).is_file()
    keys = [json.loads((f.path / "summary.json").read_text()).keys() for f in (engine, flower)]
    assert keys[0] == keys[1]
    results = read_results([flower.path])
    assert page_data(results)["title"] == "Own data: 5 clients, 3 a round, 3 rounds"
    drawn = draw_figures(results, flower.figures)
    names = {"accuracy", "measures", "loss", "confusion", "similarity", "clusters", "flow"}
    assert {path.stem for path in drawn} == names
    assert "clusters found" in summary_text(flower)


def test_a_run_that_nobody_tests_is_kept_all_the_same(tmp_path: Path) -> None:
    strategy = CADIS(fraction_evaluate=0, out=tmp_path / "run")
    strategy.start(LocalGrid.small(tmp_path), small_arrays(), 2)
    folder = RunFolder(tmp_path / "run")
    assert [record.accuracy for record in folder.read_history()] == [None, None]
    assert not (folder.path / "best.safetensors").exists()
    drawn = draw_figures(read_results([folder.path]), folder.figures)
    assert {path.stem for path in drawn} == {"loss", "similarity", "clusters", "flow"}
    assert "accuracy" not in summary_text(folder)


def test_a_resumed_run_without_rounds_left_is_tested_again(tmp_path: Path) -> None:
    grid = LocalGrid.small(tmp_path)
    options = {"fraction_evaluate": 0.0, "out": tmp_path / "run"}
    first = start(CADIS(**options), grid, rounds=1)
    (tmp_path / "run" / "summary.json").unlink()
    again = start(CADIS(resume=True, **options), grid, rounds=1)
    assert equal(first.arrays, again.arrays)
    assert RunFolder(tmp_path / "run").read_json("summary.json")["confusion"] is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": 0.5}, r"has cadis\.threshold = auto, not 0\.5"),
        ({"seed": 8}, "has seed = 7, not 8"),
        ({"federation": {"classes": [], "clients": [{"id": 9}]}}, "other clients or data"),
    ],
)
def test_another_run_is_not_gone_on_with(
    options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    grid = LocalGrid.small(tmp_path)
    kept = {"seed": 7, "fraction_evaluate": 0.0, "out": tmp_path / "run"}
    start(CADIS(**kept), grid, rounds=1)
    with pytest.raises(CadisError, match=sentence):
        start(CADIS(resume=True, **kept | options), grid, rounds=2)


def test_what_no_file_can_hold_is_not_kept(tmp_path: Path) -> None:
    grid = LocalGrid.small(tmp_path)
    strategy = FedAvg(fraction_evaluate=0, out=tmp_path / "run")
    config = ConfigRecord({**SMALL, "a": b"1", "b": [b"1"], "c": [1, 2], "d": '\x7f"\\\n'})
    strategy.start(grid, small_arrays(), 1, train_config=config)
    kept = RunFolder(tmp_path / "run").read_config()
    assert kept["c"] == [1, 2]
    assert kept["d"] == '\x7f"\\\n'
    assert not {"a", "b"} & kept.keys()


CLASS: Any = cadis.CADIS


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (partial(MethodStrategy, "fedat"), "fedat needs a simulated clock, which there is not"),
        (partial(MethodStrategy, cadis.SingleSet()), "singleset needs everybody's data in one pl"),
        (partial(MethodStrategy, CLASS), r"Give a method such as CADIS\(\), not its class"),
        (partial(MethodStrategy, "fedavg", fraction_train=0), "fraction_train should be greater"),
        (partial(CADIS, treshold=0.5), r"no option 'tresh.*did you mean 'threshold'"),
        (partial(CADIS, threshold=1.5), "threshold should be less than or equal to 1"),
        (partial(CADIS, gamma=float("inf")), "gamma should be a finite number, not inf"),
        (partial(FedAvg, patience=float("inf")), "patience should be a finite number, not inf"),
        (partial(FedAvg, seed=2**64), "seed should be an integer of at most 64 bits"),
        (partial(FedAvg, count_limit=0.5), "count_limit should be greater than or equal to 1"),
        (partial(CADIS().aggregate_train, 1, []), "call configure_train before"),
    ],
)
def test_wrong_wishes_are_sentences(wish: Callable[[], object], sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence):
        wish()


@pytest.mark.parametrize(
    ("options", "model", "sentence"),
    [
        ({"resume": True}, small_model(), "Give the folder of the run to resume as out"),
        ({"resume": True, "out": Path("none")}, small_model(), "There is no run in the folder"),
        ({}, nn.Conv2d(1, 2, 3), "cadis looks at the model's classifier layer"),
        ({"head": "fc"}, small_model(), "no linear layer 'fc'; it has: 5, 7"),
    ],
)
def test_runs_that_cannot_begin(
    options: dict[str, object], model: nn.Module, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(CadisError, match=sentence):
        CADIS(**options).start(LocalGrid.small(tmp_path), small_arrays(model))


def test_too_few_clients_end_the_wait(tmp_path: Path) -> None:
    grid = LocalGrid.small(tmp_path, number=1)
    with pytest.raises(RunError, match=r"Only 1 clients are there after 0\.1 seconds"):
        start(CADIS(patience=0.1), grid)
    start(CADIS(patience=0.1, num_clients=9, min_available_nodes=1), grid, rounds=1)


def test_flowers_own_loop_works_with_it(tmp_path: Path) -> None:
    """As when another strategy is wrapped around it."""
    strategy = FedDyn(seed=7, per_round=3, fraction_evaluate=0)
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        strategy, noise_multiplier=0.0, clipping_norm=1e9, num_sampled_clients=3
    )
    grid = LocalGrid.small(tmp_path)
    found = wrapped.start(grid, small_arrays(), 2, train_config=ConfigRecord(dict(SMALL)))
    plain = start(FedDyn(seed=7, per_round=3, fraction_evaluate=0), grid, rounds=2)
    for name, tensor in plain.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(found.arrays.to_torch_state_dict()[name], tensor)


def test_own_functions_make_one_record_of_many(tmp_path: Path) -> None:
    def count(records: list[RecordDict], key: str) -> MetricRecord:
        sent = [array for r in records for arrays in r.array_records.values() for array in arrays]
        return MetricRecord({"replies": len(records), "arrays": len(sent), key: 1})

    strategy = CADIS(train_metrics_aggr_fn=count, evaluate_metrics_aggr_fn=count)
    result = start(strategy, LocalGrid.small(tmp_path), rounds=1)
    counts = {"replies": 5, "num-examples": 1}
    assert result.train_metrics_clientapp[1] == counts | {"arrays": 5 * len(small_arrays())}
    assert result.evaluate_metrics_clientapp[1] == counts | {"arrays": 0}
    assert set(result.evaluate_metrics_serverapp) == {0, 1}


def test_a_client_that_cannot_test_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = LocalGrid.small(tmp_path)
    grid.spoil(lambda message: message)  # client 2: it can only train
    config = ConfigRecord(dict(SMALL))
    result = CADIS(seed=7).start(grid, small_arrays(), 1, train_config=config)
    model = small_model()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    right, samples = 0.0, 0
    for number, own in enumerate(small_federation().clients):
        if number != 2:
            right += float((model.eval()(own.inputs).argmax(dim=1) == own.labels).sum())
            samples += len(own)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(right / samples)
    assert "Client 2 has not tested: its app failed" in caplog.text


def test_there_is_a_strategy_for_every_federated_method() -> None:
    assert {*READY_MADE} <= {*dir(cadis.flower)}
    assert all(getattr(cadis.flower, name).__name__ == name for name in READY_MADE)
    assert "SingleSet" not in READY_MADE
    assert not hasattr(cadis.flower, "Nothing")


@pytest.mark.parametrize("code", ["import cadis.flower", "import cadis; cadis.flower"])
def test_without_flower_a_sentence_says_what_to_install(code: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.modules['flwr'] = None; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "CadisError: Install Flower first: pip install 'cadis[flower]'." in done.stderr
