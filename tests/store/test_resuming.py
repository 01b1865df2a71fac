"""Going on with another method, dataset and so on is refused in words, at once."""

from pathlib import Path

import pytest

from cadis.algorithm.methods import CADIS
from cadis.errors import CadisError
from cadis.store import check_named
from cli_support import refuse
from fabricated import write_run

BEFORE = {"method": "cadis", "sampler": "clusters", "dataset": "images:here", "model": "mlp"}


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"method": "fedavg"}, "begun with the method CADIS, and you ask for the method FedAvg;"),
        ({"sampler": "uniform"}, "the sampler clusters, and you ask for the sampler uniform;"),
        ({"dataset": "mnist"}, "the dataset images:here, and you ask for the dataset mnist;"),
        ({"model": "small-cnn", "method": "fedavg"}, "and you ask for the method FedAvg;"),
    ],
)
def test_another_name_is_refused(typed: dict[str, str], sentence: str) -> None:
    with pytest.raises(CadisError, match="The run in here was begun with") as no:
        check_named(Path("here"), BEFORE, typed)
    assert sentence in str(no.value)


@pytest.mark.parametrize(
    "typed",
    [
        {},
        {"method": "CADIS", "sampler": "auto"},
        {"dataset": "images:there"},  # a folder may have moved
        {"method": "mine.py:Mine"},  # what that is, is known later
        {"rounds": 9},
    ],
)
def test_the_same_and_what_is_settled_later_is_let_through(typed: dict[str, object]) -> None:
    check_named(Path("here"), BEFORE, typed)


def test_the_command_says_it_before_all_else(tmp_path: Path) -> None:
    write_run(tmp_path / "run", CADIS(), finished=False)
    arguments = ["run", "--resume", "--out", str(tmp_path / "run"), "--method", "fedavg"]
    assert refuse(*arguments) == (
        f"cadis: The run in {tmp_path / 'run'} was begun with the method CADIS, and you ask for "
        "the method FedAvg; resume it as it was begun, or start a new run in another folder.\n"
    )
