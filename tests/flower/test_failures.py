"""Bad answers, and none, on a grid in this process."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from cadis.errors import RunError
from cadis.flower import CADIS, FedAvg
from cadis.store import RunFolder
from flower_support import Change, LocalGrid, equal, small_app, spoilt, start


def arrays_of(message: Message) -> ArrayRecord:
    return message.content.array_records["arrays"]


def not_a_number(message: Message) -> Message:
    arrays_of(message)["7.bias"] = Array(torch.full((5,), torch.nan))
    return message


def another_shape(message: Message) -> Message:
    arrays_of(message)["7.bias"] = Array(torch.zeros(6))
    return message


def telling(count: float) -> Change:
    """Says that it has so many samples."""

    def change(message: Message) -> Message:
        message.content.metric_records["metrics"]["num-examples"] = count
        return message

    return change


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
        (telling(0), "it says that it has 0 samples"),
        (telling(-3), "it says that it has -3 samples"),
        (telling(2.5), "it says that it has 2.5 samples"),
        (telling(1.7e308), "it says that it has 1.7e+308 samples"),
        (telling(2**53 + 1), "it says that it has 9007199254740993 samples"),
        (telling(float("nan")), "it says that it has nan samples"),
        (telling(float("inf")), "it says that it has inf samples"),
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


def test_who_says_too_much_counts_for_no_more_than_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.of(app)
    grid.nodes[1014].app = spoilt(app, telling(10**9))  # client 2
    start(FedAvg(seed=7, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = RunFolder(tmp_path / "run").read_history()
    assert record.capped == [2]
    assert record.rejected == []
    counts = [9, 11, 100 * 15, 15, 17]  # the median of 9, 11, 15, 17 and 10^9 is 15
    assert record.weights == pytest.approx([count / sum(counts) for count in counts])
    assert "Client 2 says that it has 1000000000 samples, and counts as if it had 1500" in str(
        caplog.messages
    )


def test_the_limit_is_the_operators(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.of(app)
    grid.nodes[1014].app = spoilt(app, telling(10**9))  # client 2
    start(FedAvg(count_limit=1, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = RunFolder(tmp_path / "run").read_history()
    assert record.weights == pytest.approx([n / 65 for n in (9, 11, 15, 15, 15)])
    assert record.capped == [2, 4]


@pytest.mark.parametrize("count", [float("nan"), 1.7e308, 0])
def test_a_test_on_no_samples_does_not_count(count: float, tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    liar, honest = ClientApp(), start(FedAvg(seed=7), LocalGrid.of(app), rounds=1)

    @liar.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return telling(count)(app(message, context))

    for kind in (liar.train(), liar.query()):
        kind(app)
    grid = LocalGrid.of(app)
    for node in (1000, 1014):
        grid.nodes[node].app = liar
    found = start(FedAvg(seed=7), grid, rounds=1).evaluate_metrics_clientapp[1]["accuracy"]
    assert isinstance(found, float)
    assert 0 <= found <= 1
    assert found != honest.evaluate_metrics_clientapp[1]["accuracy"]


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
