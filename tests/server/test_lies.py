"""One lying client among ten, with every method: the run ends, and no lie has a large weight."""

from math import isinf
from pathlib import Path

import pytest

from lying_clients import list_methods, make_liar, make_lies, run

METHODS = list_methods()


@pytest.mark.parametrize("name", METHODS)
def test_no_lie_ends_a_run_or_dominates_it(name: str, tmp_path: Path) -> None:
    method = METHODS[name]
    honest = run(method, tmp_path, rounds=2)
    assert honest.reasons == []
    limit = 1.0 if isinf(method.largest_share) else method.largest_share / 10
    for lie_name, lie in make_lies(method).items():
        ending = run(make_liar(method, lie), tmp_path, rounds=2)
        assert ending.is_finite, lie_name
        assert ending.largest_share <= limit + 1e-9, lie_name
        assert ending.accuracy >= honest.accuracy - 0.1, lie_name


def test_lies_of_every_kind_are_tried() -> None:
    names = [name for method in METHODS.values() for name in make_lies(method)]
    for name in ("tensors 1e+19", "received_loss 1000", "received_accuracy 0", "train_loss 1000"):
        assert name in names
