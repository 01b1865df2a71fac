"""Parts of different kinds with the same name: a local and a server optimizer."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from cadis._io import to_toml
from cadis.algorithm import find_user_classes
from cadis.algorithm.server_optimizers import Adam
from cadis.experiment import make_grid_variants, make_method_variants, parse_grid, resolve
from cadis.store import RunFolder
from cli_support import call, refuse, succeed
from support import get_refusal

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
def _write_local_adam(here: Path) -> None:
    (here / "mine.py").write_text(TEXT)


def resolve_taus(overrides: dict[str, Any], file: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """Return tau of the local and of the server optimizer."""
    algorithm = resolve(file or {}, overrides).algorithm
    return tuple(
        getattr(part, "tau", None)
        for part in (algorithm.local_optimizer, algorithm.server_optimizer)
    )  # type: ignore[return-value]


def test_ambiguous_parameters_are_qualified_with_the_kind() -> None:
    overrides = {"local_optimizer_adam_tau": "0.25", "server_optimizer_adam_tau": "0.125"}
    assert resolve_taus(BOTH | overrides) == (0.25, 0.125)
    assert resolve({}, BOTH | {"warmup": 3, "adam_beta1": "0.5"}).algorithm.server_optimizer == (
        Adam(beta1=0.5)
    )
    for name in ("tau", "adam_tau"):
        assert get_refusal(resolve, {}, BOTH | {name: "0.25"}) == (
            f"'{name}' is a parameter of the server optimizer adam and the local optimizer adam; "
            "write --server-optimizer-adam-tau or --local-optimizer-adam-tau."
        )
    assert resolve_taus(LOCAL | {"adam_tau": "0.25"}) == (0.25, None)  # only one part has this name
    assert resolve_taus({"server_optimizer": "adam", "adam_tau": "0.25"}) == (None, 0.25)


def test_ambiguous_tables_are_qualified_with_the_kind() -> None:
    overrides = {"local_optimizer_adam_tau": "0.25", "server_optimizer_adam_tau": "0.125"}
    config = resolve({}, BOTH | overrides)
    text = to_toml(config.to_dict())
    assert '["local_optimizer.adam"]' in text
    options = tomllib.loads(text)
    assert options["server_optimizer.adam"]["tau"] == 0.125
    assert "adam" not in options
    assert resolve(options, {}, trust=True) == config
    alone = resolve({}, LOCAL | {"tau": "0.25"}).to_dict()
    assert alone["adam"]["tau"] == 0.25
    assert not [name for name in alone if "." in name]


def test_tables_of_parts_with_the_same_name() -> None:
    one = {"adam": {"tau": 0.25}}
    assert resolve_taus(LOCAL, one) == (0.25, None)
    assert resolve_taus({"server_optimizer": "adam"}, one) == (None, 0.25)
    assert get_refusal(resolve, one, BOTH) == (
        "Two parts are called 'adam'; write the title of the table as "
        '["server_optimizer.adam"] or ["local_optimizer.adam"].'
    )
    nested = tomllib.loads("[local_optimizer.adam]\ntau = 0.25\n[server_optimizer.adam]\ntau = 4")
    assert resolve_taus(BOTH, nested) == (0.25, 4)
    for table, thing in (
        ("server_optimizer", "parameter of server_optimizer.adam 'warmup"),
        ("sampler", "part 'sampler.adam'"),
    ):
        file = BOTH | {f"{table}.adam": {"warmup": 3}}
        assert f"There is no {thing}" in get_refusal(resolve, file, {}, True)


def test_grids_and_comparisons_with_qualified_names() -> None:
    grid = parse_grid(["local-optimizer-adam-tau=1,2"], find_user_classes(BOTH))
    taus = [v.options["local_optimizer.adam"]["tau"] for v in make_grid_variants(grid, {}, BOTH)]
    assert taus == [1, 2]
    overrides = {**LOCAL, "local_optimizer_adam_tau": "0.25"}
    fedavg, adam = make_method_variants(["fedavg", "fedadam"], {}, overrides)
    assert fedavg.options["adam"]["tau"] == 0.25
    assert adam.options["local_optimizer.adam"]["tau"] == 0.25
    assert adam.options["server_optimizer.adam"]["tau"] == Adam().tau


def test_run_with_parts_of_the_same_name_can_be_resumed() -> None:
    overrides = ["--local-optimizer-adam-tau", "0.25", "--server-optimizer-adam-tau", "0.125"]
    succeed("run", *TYPED, *QUICK, *overrides, "--out", "run")
    config = RunFolder(Path("run")).read_config()
    assert config["local_optimizer.adam"]["tau"] == 0.25
    assert config["server_optimizer.adam"]["tau"] == 0.125
    succeed("run", "--resume", "--out", "run", "--rounds", "2")
    changed = ["--resume", "--out", "run", "--server-optimizer-adam-tau", "0.5"]
    assert "server_optimizer.adam.tau = 0.125, not 0.5" in refuse("run", *changed)


def test_help_shows_only_unambiguous_names() -> None:
    text = call("run", *TYPED, "--help").output
    assert "--local-optimizer-adam-tau X" in text
    assert "--server-optimizer-adam-tau X" in text
    assert " --adam-tau" not in text
    assert "--local-optimizer-adam" not in succeed("run", "--help")
