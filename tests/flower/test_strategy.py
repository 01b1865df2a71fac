"""The strategy on a grid in this process: failures, checkpoints, records."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, Result
from torch import nn

import cadis
from cadis.core import CadisError, RunError, sample_participants
from cadis.flower import CADIS, FedAvg, FedDyn, FedFA, FedProx, MethodStrategy, server_test
from cadis.report import draw_figures, summary_text
from cadis.runs import RunFolder
from flower_support import SMALL, LocalGrid, Node, small_app, small_arrays
from support import same, small_federation, small_model

Change = Callable[[Message], Message]


def start(strategy: MethodStrategy, grid: LocalGrid, rounds: int = 3) -> Result:
    test = server_test(small_model(), small_federation().test)
    return strategy.start(
        grid, small_arrays(), rounds, 9.0, ConfigRecord(dict(SMALL)), evaluate_fn=test
    )


def equal(first: ArrayRecord, second: ArrayRecord) -> bool:
    tensors = second.to_torch_state_dict()
    return all(same(t, tensors[n]) for n, t in first.to_torch_state_dict().items())


def spoilt(app: ClientApp, change: Change) -> ClientApp:
    """A client app whose trained models are changed on the way."""
    other = ClientApp()

    @other.train()
    def train(message: Message, context: Context) -> Message:
        return change(app(message, context))

    @other.query()
    def query(message: Message, context: Context) -> Message:
        return app(message, context)

    return other


def arrays_of(message: Message) -> ArrayRecord:
    return message.content.array_records["arrays"]


def not_a_number(message: Message) -> Message:
    arrays_of(message)["7.bias"] = Array(torch.full((5,), torch.nan))
    return message


def another_shape(message: Message) -> Message:
    arrays_of(message)["7.bias"] = Array(torch.zeros(6))
    return message


def empty(message: Message) -> Message:
    message.content.metric_records["metrics"]["num-examples"] = 0
    return message


def uncounted(message: Message) -> Message:
    del message.content.metric_records["metrics"]["num-examples"]
    return message


def no_model(message: Message) -> Message:
    del message.content["arrays"]
    return message


def broken(_message: Message) -> Message:
    raise ZeroDivisionError("by design")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (not_a_number, "its model is infinite or not a number"),
        (another_shape, "its 7.bias has shape (6,), not (5,)"),
        (empty, "it trained on 0 samples"),
        (uncounted, "it did not send num-examples"),
        (no_model, "it sent 0 models, not one"),
        (broken, "its app failed: <class 'ZeroDivisionError'>:<'by design'>"),
    ],
)
def test_a_bad_update_is_left_out_by_name(change: Change, reason: str, tmp_path: Path) -> None:
    """And the rest gives what it gives without that client."""
    good = small_app(tmp_path / "state")
    grid = LocalGrid.of(good)
    grid.nodes[1014].app = spoilt(good, change)  # client 2
    found = start(CADIS(seed=7, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = RunFolder(tmp_path / "run").read_history()
    assert record.participants == [0, 1, 3, 4]
    assert [(r.client, r.reason) for r in record.rejected] == [(2, reason)]
    without = LocalGrid.of(good)
    del without.nodes[1014]
    assert equal(found.arrays, start(CADIS(seed=7, fraction_evaluate=0), without, 1).arrays)


@pytest.mark.parametrize("silent", [True, False])
def test_a_late_or_lost_client_is_left_out(silent: bool, tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.of(app)

    def vanish(message: Message) -> Message:
        grid.nodes[1014] = replace(grid.nodes[1014], online=silent, silent=silent)
        return message

    grid.nodes[1028].app = spoilt(app, vanish)  # client 4 answers before client 2
    start(FedAvg(seed=7, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=2)
    last = RunFolder(tmp_path / "run").read_history()[-1]
    assert last.participants == [0, 1, 3, 4]
    reasons = [(r.client, r.reason) for r in last.rejected]
    assert reasons == ([(2, "it did not answer within 9 seconds")] if silent else [])


def test_a_round_is_tried_again_then_the_run_stops_with_what_it_has(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.of(app)
    start(CADIS(seed=7, out=tmp_path / "run", fraction_evaluate=0), grid, rounds=2)
    for node in list(grid.nodes.values())[:3]:
        node.app = spoilt(app, broken)
    options = {"seed": 7, "out": tmp_path / "run", "fraction_evaluate": 0.0}
    strategy = CADIS(min_replies=3, attempts=2, resume=True, **options)
    with pytest.raises(
        RunError, match=r"Round 3 had 2 good updates of at least 3, 2 times .*by de"
    ):
        start(strategy, grid, rounds=4)
    assert [node.asked.count("train") for node in grid.nodes.values()] == [4] * 5
    assert len(RunFolder(tmp_path / "run").read_history()) == 2
    for node in grid.nodes.values():
        node.app = app
    resumed = start(CADIS(min_replies=3, resume=True, **options), grid, rounds=4)
    whole = start(CADIS(seed=7, fraction_evaluate=0), LocalGrid.of(app), rounds=4)
    assert equal(resumed.arrays, whole.arrays)


@pytest.mark.parametrize("strategy", [CADIS, FedAvg, FedDyn, FedFA, FedProx])
def test_going_on_is_exact(strategy: Callable[..., MethodStrategy], tmp_path: Path) -> None:
    """Also under other node ids, as in a simulation, and after clients began the next round."""
    app = small_app(tmp_path / "state")
    options = {"seed": 7, "per_round": 3, "fraction_evaluate": 0.0}
    whole = start(strategy(**options), LocalGrid.of(app), rounds=4)
    grid, out = LocalGrid.of(app), tmp_path / "run"
    start(strategy(out=out, **options), grid, rounds=2)
    ahead = tmp_path / "ahead"
    for path in out.rglob("*"):  # without empty folders, as some ways of copying have it
        target = ahead / path.relative_to(out)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    start(strategy(out=ahead, resume=True, **options), grid, rounds=3)  # then it was killed
    resumed = start(
        strategy(out=out, resume=True, **options), LocalGrid.of(app, first=50_000), rounds=4
    )
    assert equal(resumed.arrays, whole.arrays)
    rounds = [record.round for record in RunFolder(out).read_history()]
    assert rounds == [1, 2, 3, 4]


def test_the_checkpoint_knows_who_is_who(tmp_path: Path) -> None:
    grid = LocalGrid.of(small_app(tmp_path / "state"))
    grid.nodes[1000].name = "north"
    start(CADIS(seed=7, per_round=3, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    state = RunFolder(tmp_path / "run").checkpoint.load()
    assert state is not None
    chosen = [1, 2, 3, 4, "north"]
    taken = [chosen[place] for place in sample_participants(7, 1, 5, 3)]
    expected = {client: int(client in taken) for client in chosen}
    assert {member.client: member.last_round for member in state.members} == expected
    assert {member.client: member.node for member in state.members}["north"] == 1000


def test_two_nodes_that_claim_to_be_one_client_are_refused_by_name(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.of(app)
    grid.nodes[9] = Node(app, {"partition-id": 3})
    start(CADIS(fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = RunFolder(tmp_path / "run").read_history()
    assert record.participants == [0, 1, 2, 4]
    assert {(r.client, r.reason) for r in record.rejected} == {
        (3, "node 9 claims to be it, and so does node 1021"),
        (3, "node 1021 claims to be it, and so does node 9"),
    }


def test_a_client_that_does_not_introduce_itself_is_known_by_its_node(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    del app._registered_funcs["query.default"]
    start(CADIS(fraction_evaluate=0, out=tmp_path / "run"), LocalGrid.of(app), rounds=2)
    for record in RunFolder(tmp_path / "run").read_history():
        assert record.participants == [f"node-{1000 + 7 * n}" for n in range(5)]


def plain_app() -> ClientApp:
    """Flower's own plain PyTorch client: a state_dict and num-examples, and nothing of ours."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, owned = small_model(batch_norm=True), small_federation().clients
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        data = owned[int(context.node_config["partition-id"])]
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
        data = small_federation().clients[int(context.node_config["partition-id"])]
        model = small_model(batch_norm=True)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
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
    record = RunFolder(tmp_path / "run").read_history()[-1]
    assert record.clusters == [0, 0, 0, 1, 2]
    assert record.accuracy == pytest.approx(result.evaluate_metrics_clientapp[3]["eval_acc"])
    weights = dict(zip(record.participants, record.weights, strict=True))
    samples = [len(client) for client in small_federation().clients]
    shares = [samples[0] / 3, samples[1] / 3, samples[2] / 3, samples[3], samples[4]]
    assert list(weights.values()) == pytest.approx([share / sum(shares) for share in shares])


def test_a_plain_app_cannot_do_what_fedfa_needs() -> None:
    with pytest.raises(RunError, match=r"it did not send received_accuracy, which fedfa needs"):
        FedFA(attempts=1).start(
            LocalGrid.of(plain_app()), small_arrays(small_model(batch_norm=True)), 1
        )


def test_the_run_folder_is_like_that_of_the_engine(tmp_path: Path) -> None:
    federation = small_federation()
    cadis.run(
        small_model(),
        federation.clients,
        federation.test,
        rounds=3,
        per_round=3,
        seed=7,
        epochs=2,
        batch_size=4,
        lr=0.1,
        out=tmp_path / "engine",
    )
    start(
        CADIS(seed=7, per_round=3, fraction_evaluate=0, out=tmp_path / "flower"),
        LocalGrid.of(small_app(tmp_path / "state")),
    )
    engine, flower = (RunFolder(tmp_path / name) for name in ("engine", "flower"))
    for one, other in zip(engine.read_history(), flower.read_history(), strict=True):
        assert replace(one, seconds=other.seconds, loss=other.loss) == other
        assert one.loss == pytest.approx(other.loss)
    for name in ("model.safetensors", "best.safetensors", "summary.json", "config.toml"):
        assert (flower.path / name).is_file()
    keys = [json.loads((f.path / "summary.json").read_text()).keys() for f in (engine, flower)]
    assert keys[0] == keys[1]
    names = [path.name for path in draw_figures(flower)]
    assert names == ["accuracy.png", "confusion.png", "similarity.png", "clusters.png"]
    assert "clusters found" in summary_text(flower)


def test_a_run_that_nobody_tests_is_kept_all_the_same(tmp_path: Path) -> None:
    strategy = CADIS(fraction_evaluate=0, out=tmp_path / "run")
    strategy.start(LocalGrid.of(small_app(tmp_path / "state")), small_arrays(), 2)
    folder = RunFolder(tmp_path / "run")
    assert [record.accuracy for record in folder.read_history()] == [None, None]
    assert not (folder.path / "best.safetensors").exists()
    assert [path.name for path in draw_figures(folder)] == ["similarity.png", "clusters.png"]
    assert "accuracy" not in summary_text(folder)


def test_a_resumed_run_without_rounds_left_is_tested_again(tmp_path: Path) -> None:
    grid = LocalGrid.of(small_app(tmp_path / "state"))
    options = {"fraction_evaluate": 0.0, "out": tmp_path / "run"}
    first = start(CADIS(**options), grid, rounds=1)
    (tmp_path / "run" / "summary.json").unlink()
    again = start(CADIS(resume=True, **options), grid, rounds=1)
    assert equal(first.arrays, again.arrays)
    assert RunFolder(tmp_path / "run").read_json("summary.json")["confusion"] is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": 0.5}, "has cadis = .*'threshold': 0.7"),
        ({"seed": 8}, "has seed = 7, not 8"),
        ({"federation": {"classes": [], "clients": [{"id": 9}]}}, "other clients or data"),
    ],
)
def test_another_run_is_not_gone_on_with(
    options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    grid = LocalGrid.of(small_app(tmp_path / "state"))
    kept = {"seed": 7, "fraction_evaluate": 0.0, "out": tmp_path / "run"}
    start(CADIS(**kept), grid, rounds=1)
    with pytest.raises(CadisError, match=sentence):
        start(CADIS(resume=True, **kept | options), grid, rounds=2)


def test_wrong_wishes_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="singleset needs everybody's data in one place"):
        MethodStrategy(cadis.SingleSet())
    with pytest.raises(CadisError, match=r"Give a method such as CADIS\(\), not its class"):
        MethodStrategy(cadis.CADIS)  # type: ignore[arg-type]
    with pytest.raises(CadisError, match=r"no option 'tresh.*did you mean 'threshold'"):
        CADIS(treshold=0.5)
    with pytest.raises(CadisError, match="threshold should be less than or equal to 1"):
        CADIS(threshold=1.5)
    with pytest.raises(CadisError, match="fraction_train should be greater than 0"):
        MethodStrategy(cadis.FedAvg(), fraction_train=0)
    grid = LocalGrid.of(small_app(tmp_path))
    with pytest.raises(CadisError, match="Give the folder of the run to resume as out"):
        start(CADIS(resume=True), grid)
    with pytest.raises(CadisError, match="There is no run in the folder"):
        start(CADIS(resume=True, out=tmp_path / "none"), grid)
    with pytest.raises(CadisError, match="cadis compares the classifier layers"):
        CADIS().start(grid, ArrayRecord(nn.Conv2d(1, 2, 3).state_dict()))
    with pytest.raises(CadisError, match="no linear layer 'fc'; it has: 5, 7"):
        CADIS(head="fc").start(grid, small_arrays())
    with pytest.raises(CadisError, match="call configure_train before"):
        CADIS().aggregate_train(1, [])


def test_too_few_clients_end_the_wait(tmp_path: Path) -> None:
    grid = LocalGrid.of(small_app(tmp_path), number=1)
    with pytest.raises(RunError, match=r"Only 1 clients are there after 0\.1 seconds"):
        start(CADIS(patience=0.1), grid)
    start(CADIS(patience=0.1, num_clients=9, min_available_nodes=1), grid, rounds=1)


def test_flowers_own_loop_works_with_it(tmp_path: Path) -> None:
    """As when another strategy is wrapped around it."""
    strategy = FedDyn(seed=7, per_round=3, fraction_evaluate=0)
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        strategy, noise_multiplier=0.0, clipping_norm=1e9, num_sampled_clients=3
    )
    grid = LocalGrid.of(small_app(tmp_path))
    found = wrapped.start(grid, small_arrays(), 2, train_config=ConfigRecord(dict(SMALL)))
    plain = start(FedDyn(seed=7, per_round=3, fraction_evaluate=0), grid, rounds=2)
    for name, tensor in plain.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(found.arrays.to_torch_state_dict()[name], tensor)


def test_own_functions_make_one_record_of_many(tmp_path: Path) -> None:
    def count(records: list[RecordDict], key: str) -> MetricRecord:
        return MetricRecord({"replies": len(records), key: 1})

    strategy = CADIS(train_metrics_aggr_fn=count, evaluate_metrics_aggr_fn=count)
    result = start(strategy, LocalGrid.of(small_app(tmp_path)), rounds=1)
    assert result.train_metrics_clientapp[1]["replies"] == 5
    assert result.evaluate_metrics_clientapp[1] == {"replies": 5, "num-examples": 1}
    assert set(result.evaluate_metrics_serverapp) == {0, 1}


def test_a_client_that_cannot_test_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = small_app(tmp_path)
    grid = LocalGrid.of(app)
    grid.nodes[1014].app = spoilt(app, lambda message: message)  # client 2: it can only train
    start_one = CADIS(seed=7).start
    result = start_one(grid, small_arrays(), 1, train_config=ConfigRecord(dict(SMALL)))
    model = small_model()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    right, samples = 0.0, 0
    for number, own in enumerate(small_federation().clients):
        if number != 2:
            right += float((model.eval()(own.inputs).argmax(dim=1) == own.labels).sum())
            samples += len(own)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(right / samples)
    assert "Client 2 has not tested: its app failed" in caplog.text
