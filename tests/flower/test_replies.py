"""What becomes of the models that clients have sent."""

import gc
from collections.abc import Iterable
from pathlib import Path
from weakref import ref

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cadis.flower import CADIS
from flower_support import (
    COMPOSED,
    FEDERATED,
    OWN,
    SMALL,
    LocalGrid,
    small_app,
    small_arrays,
    train_small,
)
from support import small_model


class Watched(LocalGrid):
    """A grid that knows of every array that clients have sent, and what it was like."""

    def __init__(self, app: ClientApp, keeps: bool) -> None:
        super().__init__(LocalGrid.of(app).nodes)
        self.keeps = keeps
        self.kept: list[Message] = []
        self.sent: list[tuple[ref[Array], bytes]] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for reply in replies:
            for record in reply.content.array_records.values():
                self.sent += [(ref(a), bytes(bytearray(a.data))) for a in record.values()]
        self.kept += replies if self.keeps else []
        return replies


@pytest.mark.parametrize("name", [*FEDERATED, *COMPOSED])
def test_what_was_received_is_not_changed(name: str, tmp_path: Path) -> None:
    """Models are read where they lie, in memory that nobody may write to."""
    model, algorithm = small_model(batch_norm=True), {**FEDERATED, **COMPOSED}[name]
    grid = Watched(small_app(tmp_path, model=model, own=OWN), keeps=True)
    train_small(algorithm, grid, model)
    trained = sum(node.asked.count("train") for node in grid.nodes.values())
    assert trained == 9 or name == "fedcluster"  # of a small cluster fewer take part
    assert len(grid.sent) >= trained * len(model.state_dict()) > 0
    for array, before in grid.sent:
        now = array()
        assert now is not None
        assert now.data == before


def test_models_are_let_go_before_the_new_one_is_tested(tmp_path: Path) -> None:
    grid, alive = Watched(small_app(tmp_path), keeps=False), []

    def test(number: int, _arrays: ArrayRecord) -> MetricRecord:
        gc.collect()
        alive.append((number, sum(array() is not None for array, _ in grid.sent)))
        return MetricRecord({"accuracy": 0.5})

    strategy = CADIS(per_round=3, seed=7, fraction_evaluate=0)
    config = ConfigRecord(dict(SMALL))
    strategy.start(grid, small_arrays(), 3, train_config=config, evaluate_fn=test)
    assert alive == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert len(grid.sent) == 3 * 3 * len(small_arrays())


def test_ones_own_metrics_are_made_of_all_that_was_sent(tmp_path: Path) -> None:
    def metrics(contents: list[RecordDict], _key: str) -> MetricRecord:
        return MetricRecord({"arrays": sum(len(c.array_records["arrays"]) for c in contents)})

    strategy = CADIS(per_round=3, seed=7, fraction_evaluate=0, train_metrics_aggr_fn=metrics)
    grid = LocalGrid.of(small_app(tmp_path))
    result = strategy.start(grid, small_arrays(), 1, train_config=ConfigRecord(dict(SMALL)))
    assert result.train_metrics_clientapp[1]["arrays"] == 3 * len(small_arrays())
