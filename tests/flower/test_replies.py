"""One client among ten whose replies claim too much."""

from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result, Strategy

from cadis.flower.evaluation import server_test
from cadis.flower.strategy import MethodStrategy
from flower_support import (
    LocalGrid,
    ReplyChange,
    make_altered_app,
    read_history,
    run_strategy,
    small_app,
    small_arrays,
)
from lying_clients import Exponential, make_federation
from support import small_model

NODE = 1000 + 7 * 3
METHODS = ("fedavg", "fedcav", "fedfa", "fednova", "fedfv", "feddyn", "scaffold", "fedadp")


def make_grid(folder: Path, change: ReplyChange | None = None) -> LocalGrid:
    """Return ten nodes; the train replies of client 3 are changed."""
    app = small_app(folder / "state", make_federation(), small_model())
    grid = LocalGrid.with_app(app, number=10)
    if change is not None:
        grid.nodes[NODE].app = make_altered_app(app, change)
    return grid


def claim(name: str, value: float) -> ReplyChange:
    """Return a function that replaces or adds a metric of a reply."""

    def change(message: Message) -> Message:
        message.content.metric_records["metrics"][name] = value
        return message

    return change


def make_strategy(method: str, folder: Path) -> MethodStrategy:
    return MethodStrategy(method, seed=7, fraction_evaluate=0, out=folder / "run")


@pytest.mark.parametrize("method", METHODS)
def test_number_of_samples_gives_at_most_twice_an_equal_share(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = make_grid(tmp_path, claim("num-examples", 10**9))
    run_strategy(make_strategy(method, tmp_path), grid, rounds=2)
    for record in read_history(tmp_path):
        assert record.capped == [3]
        assert record.rejected == []
        assert record.weights[3] <= 0.2 + 1e-9
    assert caplog.text.count("Client 3 reports 1000000000 samples") == 1
    assert "raise count_limit" in caplog.text


@pytest.mark.parametrize("seconds", [1e308, -1.0, 1e30])
def test_impossible_training_time_is_unknown(seconds: float, tmp_path: Path) -> None:
    grid = make_grid(tmp_path, claim("train-seconds", seconds))
    run_strategy(make_strategy("fedavg", tmp_path), grid, rounds=1)
    (record,) = read_history(tmp_path)
    assert len(record.participants) == 10
    assert 0 < record.seconds.train < 600


def test_absurd_training_loss_is_unknown(tmp_path: Path) -> None:
    grid = make_grid(tmp_path, claim("train_loss", 1e308))
    run_strategy(make_strategy("fedavg", tmp_path), grid, rounds=1)
    (record,) = read_history(tmp_path)
    assert [loss is None for loss in record.client_loss] == [n == 3 for n in range(10)]


@pytest.mark.parametrize(
    ("name", "value", "is_used"),
    [
        ("accuracy", 1e308, False),
        ("accuracy", 1.5, False),
        ("accuracy", -0.1, False),
        ("loss", 1e308, False),
        ("num-examples", 10**9, True),
    ],
)
def test_evaluation_with_an_absurd_metric_is_ignored(
    name: str, value: float, is_used: bool, tmp_path: Path
) -> None:
    """A large number of samples is limited, so that the accuracy stays near the mean."""
    grid = make_grid(tmp_path)
    grid.nodes[NODE].app = make_evaluating_app(grid.nodes[NODE].app, claim(name, value))
    strategy = MethodStrategy("fedavg", seed=7, out=tmp_path / "run")
    result = run_strategy(strategy, grid, rounds=1)
    without = make_grid(tmp_path)
    without.nodes[NODE].app = make_evaluating_app(without.nodes[NODE].app, drop_evaluation)
    expected = run_strategy(MethodStrategy("fedavg", seed=7), without, rounds=1)
    ours, theirs = (r.evaluate_metrics_clientapp[1]["accuracy"] for r in (result, expected))
    assert isinstance(ours, float)
    assert isinstance(theirs, float)
    assert 0 <= ours <= 1
    assert (ours == theirs) is not is_used
    assert abs(ours - theirs) <= 0.2


def poison_second_round() -> ReplyChange:
    """Return a function that adds 10 to all parameters of the second reply."""
    count = 0

    def change(message: Message) -> Message:
        nonlocal count
        count += 1
        if count == 2:
            arrays = message.content.array_records["arrays"]
            for name, tensor in arrays.to_torch_state_dict().items():
                arrays[name] = Array(tensor + 10)
        return message

    return change


@pytest.mark.parametrize("start", [MethodStrategy.start, Strategy.start])
def test_poisoned_model_is_replaced_by_the_model_before(
    start: Callable[..., Result], tmp_path: Path
) -> None:
    """All clients diverge in round 3; Flower's own loop needs this round to return."""
    grid, model = make_grid(tmp_path), Exponential()
    app = small_app(tmp_path / "exponential", make_federation(), model)
    for node in grid.nodes.values():
        node.app = app
    grid.nodes[NODE].app = make_altered_app(app, poison_second_round())
    accuracies: list[float] = []

    def test(number: int, arrays: ArrayRecord) -> MetricRecord:
        record = server_test(model, make_federation().test)(number, arrays)
        assert record is not None
        accuracies.append(float(str(record["accuracy"])))
        return MetricRecord({"accuracy": accuracies[-1]})

    strategy = MethodStrategy("fedavg", seed=7, fraction_evaluate=0)
    config = ConfigRecord({"epochs": 2, "batch-size": 5, "lr": 0.1})
    start(strategy, grid, small_arrays(model), 5, 9.0, config, evaluate_fn=test)
    _, first, poisoned, *_, last = accuracies
    assert poisoned < first < last


def drop_evaluation(_message: Message) -> Message:
    raise ZeroDivisionError("by design")


def make_evaluating_app(app: ClientApp, change: Callable[[Message], Message]) -> ClientApp:
    """Return a ClientApp whose evaluate replies are changed."""
    altered = ClientApp()
    for register in (altered.train(), altered.query()):
        register(app)

    @altered.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return change(app(message, context))

    return altered
