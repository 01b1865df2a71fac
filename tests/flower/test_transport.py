"""Tests of invalid and missing replies, on a grid in this process."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Array, Message
from flwr.clientapp import ClientApp

from cadis.errors import RunError
from cadis.flower import CADIS, FedAvg
from flower_support import (
    LocalGrid,
    ReplyChange,
    have_equal_arrays,
    make_altered_app,
    read_history,
    run_strategy,
    small_app,
)


def send_bias(bias: torch.Tensor) -> ReplyChange:
    """Replace the bias of the classifier layer in a reply."""

    def change(message: Message) -> Message:
        message.content.array_records["arrays"]["7.bias"] = Array(bias)
        return message

    return change


def send_count(count: float) -> ReplyChange:
    """Replace the number of samples in a reply."""

    def change(message: Message) -> Message:
        message.content.metric_records["metrics"]["num-examples"] = count
        return message

    return change


INVALID_COUNTS = (0, -3, 2.5, 1.7e308, 2**53 + 1, float("nan"), float("inf"))


def remove_count(message: Message) -> Message:
    del message.content.metric_records["metrics"]["num-examples"]
    return message


def remove_model(message: Message) -> Message:
    del message.content["arrays"]
    return message


def fail(_message: Message) -> Message:
    raise ZeroDivisionError("by design")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (send_bias(torch.full((5,), torch.nan)), "its model has NaN or infinite values"),
        (send_bias(torch.zeros(6)), "its 7.bias has shape (6,), not (5,)"),
        *((send_count(n), f"it reports {n} samples") for n in INVALID_COUNTS),
        (remove_count, "it did not send num-examples"),
        (remove_model, "it sent 0 models, not one"),
        (fail, "its ClientApp failed: <class 'ZeroDivisionError'>:<'by design'>"),
    ],
)
def test_invalid_update_is_rejected(change: ReplyChange, reason: str, tmp_path: Path) -> None:
    """The global model is the same as without this client."""
    grid, without = LocalGrid.with_small_app(tmp_path), LocalGrid.with_small_app(tmp_path)
    grid.alter_client(change)
    result = run_strategy(CADIS(seed=7, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = read_history(tmp_path)
    assert record.participants == [0, 1, 3, 4]
    assert [(r.client, r.reason) for r in record.rejected] == [(2, reason)]
    del without.nodes[1014]
    assert have_equal_arrays(
        result.arrays, run_strategy(CADIS(seed=7, fraction_evaluate=0), without, 1).arrays
    )


@pytest.mark.parametrize(
    ("options", "counts", "limited"),  # at most 2/5, 4/5 or 1/5 of the sum
    [
        ({}, [9, 11, 34, 15, 17], [2]),
        ({"count_limit": 4}, [9, 11, 4 * 52, 15, 17], [2]),
        ({"count_limit": 1}, [9, 9, 9, 9, 9], [1, 2, 3, 4]),
    ],
)
def test_number_of_examples_is_limited(
    options: dict[str, int],
    counts: list[int],
    limited: list[int],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = LocalGrid.with_small_app(tmp_path)
    grid.alter_client(send_count(10**9))
    run_strategy(
        FedAvg(seed=7, fraction_evaluate=0, out=tmp_path / "run", **options), grid, rounds=1
    )
    (record,) = read_history(tmp_path)
    assert (record.capped, record.rejected) == (limited, [])
    assert record.weights == pytest.approx([count / sum(counts) for count in counts])
    assert "Client 2 reports 1000000000 samples" in caplog.text
    assert f"they are counted as {counts[2]}" in caplog.text


@pytest.mark.parametrize("count", [float("nan"), 1.7e308, 0])
def test_evaluation_with_invalid_count_is_ignored(count: float, tmp_path: Path) -> None:
    app, altered = small_app(tmp_path / "state"), ClientApp()
    for register in (altered.train(), altered.query()):
        register(app)
    altered.evaluate()(lambda message, context: send_count(count)(app(message, context)))
    grid = LocalGrid.with_app(app)
    expected = run_strategy(FedAvg(seed=7), grid, rounds=1)
    for node in (1000, 1014):
        grid.nodes[node].app = altered
    result = run_strategy(FedAvg(seed=7), grid, rounds=1)
    accuracy = result.evaluate_metrics_clientapp[1]["accuracy"]
    assert isinstance(accuracy, float)
    assert 0 <= accuracy <= 1
    assert accuracy != expected.evaluate_metrics_clientapp[1]["accuracy"]


@pytest.mark.parametrize("silent", [True, False])
def test_client_that_is_late_or_offline_is_skipped(silent: bool, tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.with_app(app)

    def disconnect(message: Message) -> Message:
        grid.nodes[1014] = replace(grid.nodes[1014], online=silent, silent=silent)
        return message

    grid.nodes[1028].app = make_altered_app(app, disconnect)  # client 4 replies before client 2
    run_strategy(FedAvg(seed=7, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=2)
    last = read_history(tmp_path)[-1]
    assert last.participants == [0, 1, 3, 4]
    reasons = [(r.client, r.reason) for r in last.rejected]
    assert reasons == ([(2, "it did not reply within 9 seconds")] if silent else [])


def test_run_stops_after_repeated_failures_and_can_be_resumed(tmp_path: Path) -> None:
    app = small_app(tmp_path / "state")
    grid = LocalGrid.with_app(app)
    run_strategy(CADIS(seed=7, out=tmp_path / "run", fraction_evaluate=0), grid, rounds=2)
    for node in list(grid.nodes.values())[:3]:
        node.app = make_altered_app(app, fail)
    options = {"seed": 7, "out": tmp_path / "run", "fraction_evaluate": 0.0}
    strategy = CADIS(min_replies=3, attempts=2, resume=True, **options)
    expected = r"Round 3 failed \(attempts: 2\)\. Valid updates .*: 2; required: 3 .*by de"
    with pytest.raises(RunError, match=expected):
        run_strategy(strategy, grid, rounds=4)
    assert [node.message_types.count("train") for node in grid.nodes.values()] == [4] * 5
    assert len(read_history(tmp_path)) == 2
    for node in grid.nodes.values():
        node.app = app
    resumed = run_strategy(CADIS(min_replies=3, resume=True, **options), grid, rounds=4)
    whole = run_strategy(CADIS(seed=7, fraction_evaluate=0), LocalGrid.with_app(app), rounds=4)
    assert have_equal_arrays(resumed.arrays, whole.arrays)
