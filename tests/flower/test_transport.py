"""Bad answers, and none, on a grid in this process; what becomes of the good ones."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Array, Message
from flwr.clientapp import ClientApp

from cadis.errors import RunError
from cadis.flower import CADIS, FedAvg
from flower_support import Change, LocalGrid, equal, history, small_app, spoilt, start


def biased(bias: torch.Tensor) -> Change:
    """Sends another bias of the classifier."""

    def change(message: Message) -> Message:
        message.content.array_records["arrays"]["7.bias"] = Array(bias)
        return message

    return change


def telling(count: float) -> Change:
    """Says that it has so many samples."""

    def change(message: Message) -> Message:
        message.content.metric_records["metrics"]["num-examples"] = count
        return message

    return change


WRONG_COUNTS = (0, -3, 2.5, 1.7e308, 2**53 + 1, float("nan"), float("inf"))


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
        (biased(torch.full((5,), torch.nan)), "its model is infinite or not a number"),
        (biased(torch.zeros(6)), "its 7.bias has shape (6,), not (5,)"),
        *((telling(n), f"it says that it has {n} samples") for n in WRONG_COUNTS),
        (uncounted, "it did not send num-examples"),
        (no_model, "it sent 0 models, not one"),
        (broken, "its app failed: <class 'ZeroDivisionError'>:<'by design'>"),
    ],
)
def test_a_bad_update_is_left_out_by_name(change: Change, reason: str, tmp_path: Path) -> None:
    """And the rest gives what it gives without that client."""
    grid, without = LocalGrid.small(tmp_path), LocalGrid.small(tmp_path)
    grid.spoil(change)
    found = start(CADIS(seed=7, fraction_evaluate=0, out=tmp_path / "run"), grid, rounds=1)
    (record,) = history(tmp_path)
    assert record.participants == [0, 1, 3, 4]
    assert [(r.client, r.reason) for r in record.rejected] == [(2, reason)]
    del without.nodes[1014]
    assert equal(found.arrays, start(CADIS(seed=7, fraction_evaluate=0), without, 1).arrays)


@pytest.mark.parametrize(
    ("options", "counts", "capped"),  # the median of 9, 11, 15, 17 and 10^9 is 15
    [({}, [9, 11, 100 * 15, 15, 17], [2]), ({"count_limit": 1}, [9, 11, 15, 15, 15], [2, 4])],
)
def test_who_says_too_much_counts_for_no_more_than_the_limit(
    options: dict[str, int],
    counts: list[int],
    capped: list[int],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = LocalGrid.small(tmp_path)
    grid.spoil(telling(10**9))
    start(FedAvg(seed=7, fraction_evaluate=0, out=tmp_path / "run", **options), grid, rounds=1)
    (record,) = history(tmp_path)
    assert (record.capped, record.rejected) == (capped, [])
    assert record.weights == pytest.approx([count / sum(counts) for count in counts])
    told = f"Client 2 says that it has 1000000000 samples, and counts as if it had {counts[2]}"
    assert told in caplog.text


@pytest.mark.parametrize("count", [float("nan"), 1.7e308, 0])
def test_a_test_on_no_samples_does_not_count(count: float, tmp_path: Path) -> None:
    app, liar = small_app(tmp_path / "state"), ClientApp()
    for register in (liar.train(), liar.query()):
        register(app)
    liar.evaluate()(lambda message, context: telling(count)(app(message, context)))
    grid = LocalGrid.of(app)
    honest = start(FedAvg(seed=7), grid, rounds=1)
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
    last = history(tmp_path)[-1]
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
    assert len(history(tmp_path)) == 2
    for node in grid.nodes.values():
        node.app = app
    resumed = start(CADIS(min_replies=3, resume=True, **options), grid, rounds=4)
    whole = start(CADIS(seed=7, fraction_evaluate=0), LocalGrid.of(app), rounds=4)
    assert equal(resumed.arrays, whole.arrays)
