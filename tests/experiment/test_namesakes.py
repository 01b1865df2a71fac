"""Two chosen parts of different kinds may share a name: here, a local and a server optimiser."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from cadis._io import to_toml
from cadis.algorithm import own_classes
from cadis.algorithm.server_optimizers import Adam
from cadis.experiment import grid_variants, method_variants, parse_grid, resolve
from cadis.store import RunFolder
from cli_support import call, refuse, succeed
from support import refused

TEXT = '''
from dataclasses import dataclass
from typing import ClassVar

from cadis.algorithm.local_optimizers import SGD


@dataclass(frozen=True)
class LocalAdam(SGD):
    """SGD under another name.

    Attributes:
        tau: of the client.
        warmup: steps before it.
    """

    name: ClassVar[str] = "adam"
    tau: float = 0.5
    warmup: int = 1
'''
LOCAL = {"local_optimizer": "mine.py:LocalAdam"}
BOTH = {**LOCAL, "server_optimizer": "adam", "method": "fedavg"}
QUICK = ["--rounds", "1", "--epochs", "1", "--clients", "6", "--per-round", "2", "--workers", "1"]
TYPED = ["--method", "fedavg", "--local-optimizer", "mine.py:LocalAdam", "--server-optimizer=adam"]


@pytest.fixture(autouse=True)
def _local_adam(here: Path) -> None:
    (here / "mine.py").write_text(TEXT)


def parameters(given: dict[str, Any], file: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """tau of the client's and of the server's optimiser."""
    algorithm = resolve(file or {}, given).algorithm
    return tuple(
        getattr(part, "tau", None)
        for part in (algorithm.local_optimizer, algorithm.server_optimizer)
    )  # type: ignore[return-value]


def test_parameters_are_typed_with_the_kind_if_the_name_is_not_enough() -> None:
    given = {"local_optimizer_adam_tau": "0.25", "server_optimizer_adam_tau": "0.125"}
    assert parameters(BOTH | given) == (0.25, 0.125)
    assert resolve({}, BOTH | {"warmup": 3, "adam_beta1": "0.5"}).algorithm.server_optimizer == (
        Adam(beta1=0.5)
    )
    for name in ("tau", "adam_tau"):
        assert refused(resolve, {}, BOTH | {name: "0.25"}) == (
            f"'{name}' is a parameter of the server optimizer adam and the local optimizer adam; "
            "write --server-optimizer-adam-tau or --local-optimizer-adam-tau."
        )
    assert parameters(LOCAL | {"adam_tau": "0.25"}) == (0.25, None)  # only one is chosen
    assert parameters({"server_optimizer": "adam", "adam_tau": "0.25"}) == (None, 0.25)


def test_tables_have_the_kind_in_their_names_only_if_the_name_is_not_enough() -> None:
    given = {"local_optimizer_adam_tau": "0.25", "server_optimizer_adam_tau": "0.125"}
    config = resolve({}, BOTH | given)
    text = to_toml(config.to_dict())
    assert '["local_optimizer.adam"]' in text
    options = tomllib.loads(text)
    assert options["server_optimizer.adam"]["tau"] == 0.125
    assert "adam" not in options
    assert resolve(options, {}) == config
    alone = resolve({}, LOCAL | {"tau": "0.25"}).to_dict()
    assert alone["adam"]["tau"] == 0.25
    assert not [name for name in alone if "." in name]


def test_tables_of_a_file() -> None:
    one = {"adam": {"tau": 0.25}}
    assert parameters(LOCAL, one) == (0.25, None)
    assert parameters({"server_optimizer": "adam"}, one) == (None, 0.25)
    assert refused(resolve, one, BOTH) == (
        "Two chosen parts are called 'adam'; name their tables "
        '["server_optimizer.adam"] and ["local_optimizer.adam"].'
    )
    nested = tomllib.loads("[local_optimizer.adam]\ntau = 0.25\n[server_optimizer.adam]\ntau = 4")
    assert parameters(BOTH, nested) == (0.25, 4)
    for table, what in (
        ("server_optimizer", "parameter of server_optimizer.adam 'warmup"),
        ("sampler", "part 'sampler.adam'"),
    ):
        file = BOTH | {f"{table}.adam": {"warmup": 3}}
        assert f"There is no {what}" in refused(resolve, file, {})


def test_grids_and_comparisons() -> None:
    grid = parse_grid(["local-optimizer-adam-tau=1,2"], own_classes(BOTH))
    taus = [v.options["local_optimizer.adam"]["tau"] for v in grid_variants(grid, {}, BOTH)]
    assert taus == [1, 2]
    given = {**LOCAL, "local_optimizer_adam_tau": "0.25"}
    average, adam = method_variants(["fedavg", "fedadam"], {}, given)
    assert average.options["adam"]["tau"] == 0.25
    assert adam.options["local_optimizer.adam"]["tau"] == 0.25
    assert adam.options["server_optimizer.adam"]["tau"] == Adam().tau


def test_a_run_on_the_command_line_that_is_resumed() -> None:
    given = ["--local-optimizer-adam-tau", "0.25", "--server-optimizer-adam-tau", "0.125"]
    succeed("run", *TYPED, *QUICK, *given, "--out", "run")
    config = RunFolder(Path("run")).read_config()
    assert config["local_optimizer.adam"]["tau"] == 0.25
    assert config["server_optimizer.adam"]["tau"] == 0.125
    succeed("run", "--resume", "--out", "run", "--rounds", "2")
    changed = ["--resume", "--out", "run", "--server-optimizer-adam-tau", "0.5"]
    assert "server_optimizer.adam.tau = 0.125, not 0.5" in refuse("run", *changed)


def test_help_shows_the_clear_names_alone() -> None:
    text = call("run", *TYPED, "--help").output
    assert "--local-optimizer-adam-tau X" in text
    assert "--server-optimizer-adam-tau X" in text
    assert " --adam-tau" not in text
    assert "--local-optimizer-adam" not in succeed("run", "--help")
