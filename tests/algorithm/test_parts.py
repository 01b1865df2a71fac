"""Parts by name: built-in parts, classes of the user, and their form in ``config.toml``."""

import itertools
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cadis._io import to_toml
from cadis.algorithm import (
    KINDS,
    Algorithm,
    BaseMethod,
    build_algorithm,
    compose_algorithm,
    find_part_class,
    find_part_classes,
    get_part_name,
    resolve_part,
    to_options,
)
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import CADIS, FedAvg, FedProx
from cadis.algorithm.samplers import BaseSampler
from cadis.data.partition import MultiCluster
from cadis.errors import CadisError
from cadis.experiment import PARTITION
from own_parts import write_parts


@pytest.fixture(autouse=True)
def change_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_parts(tmp_path)
    return tmp_path


def store_options(algorithm: Algorithm, *parts: Any, **settings: Any) -> dict[str, Any]:
    """Write the options of an algorithm as TOML and read them back."""
    return tomllib.loads(to_toml(to_options(algorithm, settings, *parts)))


def test_names_of_built_in_parts_are_unique() -> None:
    registries = [kind.registry for kind in (*KINDS.values(), PARTITION)]
    for one, other in itertools.combinations(registries, 2):
        assert not one.keys() & other.keys()


def test_each_kind_is_a_field_of_an_algorithm_with_a_default() -> None:
    assert list(vars(Algorithm())) == list(KINDS)
    for kind in KINDS.values():
        assert all(name in kind.registry for name in kind.default)
        assert kind.allows_several or len(kind.default) == 1


def test_names_of_built_in_parts_ignore_case() -> None:
    assert find_part_class(KINDS["method"], "FedProx") is FedProx
    assert resolve_part("method", "cadis") == CADIS()
    assert resolve_part("local_optimizer", SGD(momentum=0.5)) == SGD(momentum=0.5)


def test_class_of_the_user_is_stored_by_its_file_and_found_again() -> None:
    kind = find_part_class(KINDS["method"], "own.py:Mine")
    algorithm = Algorithm(kind(parameter=4), local_optimizer=SGD(momentum=0.9))
    options = store_options(algorithm, rounds=3)
    assert options["method"] == "own.py:Mine"
    assert options["mine"]["parameter"] == 4
    assert get_part_name(algorithm.method) == "own.py:Mine"
    assert build_algorithm(find_part_classes(options), options) == algorithm


def test_content_of_config_toml() -> None:
    algorithm = Algorithm(FedAvg(), local_optimizer=SGD(momentum=0.9))
    assert store_options(algorithm, MultiCluster(ratio=(2, 1)), rounds=3) == {
        "method": "fedavg",
        "sampler": "uniform",
        "server_optimizer": "plain",
        "transforms": [],
        "task": "classification",
        "local_optimizer": "sgd",
        "rounds": 3,
        "fedavg": {},  # other parts without parameters have no table
        "classification": {"metric": "accuracy"},
        "sgd": {"momentum": 0.9, "weight_decay": 0.0, "lr_decay": 1.0},
        "mc": {"ratio": [2, 1], "classes_per_cluster": "auto", "size_deviation": 0.2, "fuzzy": 0.0},
    }


HEAD = """
from dataclasses import dataclass
from typing import ClassVar
from cadis.algorithm import BaseMethod
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.samplers import Uniform
"""
FROZEN = "@dataclass(frozen=True)\nclass Mine"


@pytest.mark.parametrize(
    ("key", "body", "sentence"),
    [
        ("method", "Mine = 3", "bad.py:Mine is not a class; a method is a frozen dataclass."),
        ("method", "class Mine(BaseMethod): name = 'x'", "put @dataclass(frozen=True) before it."),
        ("method", "@dataclass\nclass Mine(BaseMethod): name = 'x'", "put @dataclass(frozen=True)"),
        ("method", f"{FROZEN}(BaseMethod): pass", "Mine has no valid name; give"),
        ("method", f"{FROZEN}(BaseMethod): name = 'a b'", "has no valid name"),
        ("method", f"{FROZEN}(BaseMethod): name = 3", "has no valid name; give"),
        ("method", f"{FROZEN}(BaseMethod): name: str = 'x'", "has no valid name"),
        (
            "method",
            f"{FROZEN}(BaseMethod):\n name = 'x'\n def wiegh(self): pass",
            "Mine has a function 'wiegh', which is never called; rename it to 'weigh'",
        ),
        ("method", f"{FROZEN}(FedAvg): pass", "'fedavg' of bad.py:Mine"),
        ("method", f"{FROZEN}(FedAvg): name = 'CFL'", "'CFL' of bad.py"),
        ("method", f"{FROZEN}(FedAvg): name = 'task'", "is already used; choose"),
        (
            "method",
            f"{FROZEN}:\n name = 'x'\n def local(self, client): pass",
            "Mine lacks pools_clients, needs_head, needs_clock, needs_scalars, needs_tensors "
            "and more; derive it from cadis.algorithm.BaseMethod, which defines all except a name.",
        ),
        (
            "sampler",
            f"{FROZEN}:\n name = 'x'\n def choose(self): pass",
            "Mine lacks needs_clusters, needs_profiles, needs_head and learn; derive it from "
            "cadis.algorithm.samplers.BaseSampler, which defines all except a name and choose.",
        ),
        (
            "sampler",
            f"{FROZEN}(Uniform):\n name = 'x'\n def learn(self, updates, report, state): pass",
            "Mine.learn must take the parameters self, feedback and state; "
            "cadis.algorithm.samplers.BaseSampler ",
        ),
        (
            "method",
            f"{FROZEN}(BaseMethod):\n name = 'x'\n def local(self): pass",
            "Mine.local must take the parameters self and client; cadis.algorithm.BaseMethod "
            "documents them.",
        ),
        (
            "transforms",
            f"{FROZEN}:\n name = 'x'\n def apply(self): pass",
            "Mine lacks side, needs_bound and bound; derive it from cadis.algorithm.transforms.Tr",
        ),
        (
            "server_optimizer",
            f"{FROZEN}:\n name = 'x'",
            "Mine lacks averaging and step; derive it from cadis.algorithm.server_optimizers.Ser",
        ),
    ],
)
def test_incomplete_classes_are_rejected_with_one_sentence(
    key: str, body: str, sentence: str, change_folder: Path
) -> None:
    (change_folder / "bad.py").write_text(HEAD + body)
    with pytest.raises(CadisError) as caught:
        find_part_class(KINDS[key], "bad.py:Mine")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "parameters",
    ["self, feedback, state", "self, a, b, c=3", "self, *anything", "self, feedback, **state"],
)
def test_functions_with_compatible_signatures_are_accepted(
    parameters: str, change_folder: Path
) -> None:
    body = f"(Uniform):\n  name = 'x'\n  def learn({parameters}): pass"
    (change_folder / "good.py").write_text(HEAD + FROZEN + body)
    assert find_part_class(KINDS["sampler"], "good.py:Mine").name == "x"


@pytest.mark.parametrize(
    ("key", "name", "sentence"),
    [
        ("sampler", "unifrom", "There is no sampler 'unifrom'; did you mean 'uniform'?"),
        ("server_optimizer", "none", "There is no server optimizer 'none'; there are: plain"),
        ("transforms", "xyz", "There is no transform 'xyz'; there are: "),
        ("task", 3, "There is no task 3; there are: classification"),
        ("local_optimizer", "own.py", "'own.py' does not name a class or function"),
        (
            "local_optimizer",
            "own.py:Mine",
            "Mine lacks is_plain, compute_lr and step; derive it from "
            "cadis.algorithm.local_optimizers.SGD",
        ),
    ],
)
def test_unknown_names_are_rejected_with_one_sentence(
    key: str, name: object, sentence: str
) -> None:
    with pytest.raises(CadisError) as caught:
        find_part_class(KINDS[key], name)
    assert sentence in str(caught.value)


@dataclass(frozen=True)
class Namesake(BaseMethod):
    name: ClassVar[str] = "sgd"


@dataclass(frozen=True)
class Rounds(BaseMethod):
    name: ClassVar[str] = "rounds"


@dataclass(frozen=True)
class Unsampled(BaseSampler):
    name: ClassVar[str] = "unsampled"


class Bare:
    name: ClassVar[str] = "bare"


@pytest.mark.parametrize(
    ("key", "part", "sentence"),
    [
        ("method", CADIS, "Give a method such as CADIS(), not its class."),
        ("sampler", Unsampled(), "lacks choose; derive it from cadis"),  # type: ignore[abstract]
        ("local_optimizer", SGD(momentum=1.5), "momentum should be less than 1, not 1.5."),
        ("local_optimizer", SGD(lr_decay=float("nan")), "lr_decay should be"),
    ],
)
def test_each_part_of_an_algorithm_is_checked(key: str, part: Any, sentence: str) -> None:
    with pytest.raises(CadisError) as caught:
        compose_algorithm(**vars(Algorithm()) | {key: part})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("key", KINDS)
def test_algorithm_rejects_objects_that_are_not_parts(key: str) -> None:
    arguments: dict[str, Any] = {key: (Bare(),) if KINDS[key].allows_several else Bare()}
    with pytest.raises(CadisError, match=r"^Bare lacks .*; derive it from cadis.algorithm"):
        Algorithm(**arguments)


def test_parts_of_different_kinds_may_have_the_same_name() -> None:
    options = store_options(compose_algorithm(**vars(Algorithm(Namesake()))))
    assert options["method.sgd"] == {}
    assert options["local_optimizer.sgd"]["momentum"] == 0.0
    assert "sgd" not in options


def test_a_part_cannot_have_the_name_of_an_option() -> None:
    with pytest.raises(CadisError, match="A part cannot have the name 'rounds', because"):
        to_options(Algorithm(Rounds()), {"rounds": 3})
