"""A resumed run must have the same method, dataset and other parts."""

from pathlib import Path

import pytest

from cadis.algorithm.methods import CADIS
from cadis.errors import CadisError
from cadis.store import check_same_parts
from cli_support import refuse
from fabricated import write_run

OPTIONS = {"method": "cadis", "sampler": "clusters", "dataset": "images:here", "model": "mlp"}


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"method": "fedavg"}, "started with the method CADIS, but you ask for the method FedAvg;"),
        ({"sampler": "uniform"}, "the sampler clusters, but you ask for the sampler uniform;"),
        ({"dataset": "mnist"}, "the dataset images:here, but you ask for the dataset mnist;"),
        ({"model": "small-cnn", "method": "fedavg"}, "but you ask for the method FedAvg;"),
    ],
)
def test_another_name_is_an_error(typed: dict[str, str], sentence: str) -> None:
    with pytest.raises(CadisError, match="The run in here was started with") as caught:
        check_same_parts(Path("here"), OPTIONS, typed)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "typed",
    [
        {},
        {"method": "CADIS", "sampler": "auto"},
        {"dataset": "images:there"},  # a folder may have moved
        {"method": "mine.py:Mine"},  # its name is known after it is loaded
        {"rounds": 9},
    ],
)
def test_same_name_and_names_resolved_later_are_accepted(typed: dict[str, object]) -> None:
    check_same_parts(Path("here"), OPTIONS, typed)


def test_command_checks_names_before_loading_data(tmp_path: Path) -> None:
    write_run(tmp_path / "run", CADIS(), finished=False)
    arguments = ["run", "--resume", "--out", str(tmp_path / "run"), "--method", "fedavg"]
    assert refuse(*arguments) == (
        f"cadis: The run in {tmp_path / 'run'} was started with the method CADIS, but you ask for "
        "the method FedAvg; resume it with the same options, or start a new run in another "
        "folder.\n"
    )
