"""Parts and their parameters among the options of an experiment."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from cadis._io import to_toml
from cadis.algorithm import find_user_classes
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import FedAvg, FedDyn, FedFA, FedProx
from cadis.algorithm.samplers import Uniform
from cadis.algorithm.transforms import TRANSFORMS, TransformRound
from cadis.errors import CadisError
from cadis.experiment import make_grid_variants, make_method_variants, parse_grid, resolve
from cadis.types import Message
from support import get_refusal


@dataclass(frozen=True)
class Shrink:
    name: ClassVar[str] = "shrink-it"
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False
    bound: ClassVar[None] = None
    shrinkage: float = 1.0
    depth: int = 1

    def apply(self, update: Message, server_round: TransformRound) -> Message:  # noqa: ARG002
        return update


@dataclass(frozen=True)
class Blur(Shrink):
    name: ClassVar[str] = "blur"
    shrinkage: ClassVar[float] = 1.0  # type: ignore[misc]
    blurring: float = 2.0
    depth: int = 3


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(autouse=True)
def _add_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSFORMS, "shrink-it", Shrink)
    monkeypatch.setitem(TRANSFORMS, "blur", Blur)


def write_and_read(overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``config.toml``; check that reading them gives the same config."""
    config = resolve({}, overrides)
    options = tomllib.loads(to_toml(config.to_dict()))
    assert resolve(options, {}, trust=True) == config
    return options


def test_parameters_of_each_part_are_options() -> None:
    overrides = {
        "momentum": "0.9",
        "weight_decay": "5e-4",
        "sgd_lr_decay": "0.99",
        "method": "fedprox",
    }
    config = resolve({}, {**overrides, "mu": "0.3", "augment": "flip,crop"})
    assert config.algorithm.local_optimizer == SGD(0.9, 5e-4, 0.99)
    assert config.method == FedProx(mu=0.3)
    assert config.settings.augment == ("flip", "crop")
    assert config.settings.resolve_auto(9, (1, 8, 8)).to_engine_settings().local.augment == (
        "flip",
        "crop",
    )


def test_parameters_of_each_part_are_tables_of_a_file() -> None:
    file = {
        "method": "fedavg",
        "local_optimizer": "sgd",
        "transforms": ["blur", "shrink-it"],
        "augment": ["flip"],
        "sgd": {"momentum": 0.5},
        "blur": {"blurring": 3.0},
        "fedprox": {"mu": 0.4},
    }
    config = resolve(file, {"sgd_weight_decay": 0.1})
    assert config.algorithm.local_optimizer == SGD(0.5, 0.1)
    assert config.algorithm.transforms == (Blur(blurring=3.0), Shrink())
    assert config.settings.augment == ("flip",)
    assert resolve(file, {"transforms": "", "augment": ""}).algorithm.transforms == ()
    assert resolve(file, {"method": "fedprox"}).method == FedProx(mu=0.4)


def test_file_with_few_options_has_defaults() -> None:
    config = resolve({"method": "fedavg", "rounds": 3, "fedavg": {}}, {})
    assert config.algorithm.sampler == Uniform()
    assert config.algorithm.local_optimizer == SGD()
    assert config.algorithm.transforms == ()
    assert config.settings.augment == ()


def test_parameter_of_a_transform_selects_it() -> None:
    def resolve_transforms(**overrides: object) -> tuple[Any, ...]:
        return resolve({}, overrides).algorithm.transforms

    assert resolve_transforms(blurring="1", shrinkage="2") == (
        Shrink(shrinkage=2.0),
        Blur(blurring=1.0),
    )
    assert resolve_transforms(transforms="blur", shrinkage="2") == (Blur(), Shrink(shrinkage=2.0))
    assert resolve_transforms(shrink_it_depth="7") == (Shrink(depth=7),)
    assert resolve_transforms(transforms="blur", depth="7") == (Blur(depth=7),)
    assert resolve_transforms() == ()
    file = {"transforms": ["blur"], "shrink-it": {"shrinkage": 9.0}}
    with pytest.raises(CadisError, match="'shrink-it', which is not applied"):
        resolve(file, {})  # a table alone does not select the transform
    assert resolve(file, {"shrink_it_depth": 2}).algorithm.transforms == (Blur(), Shrink(9.0, 2))


def test_user_defined_parts() -> None:
    overrides = {
        "method": "own.py:Mine",
        "sampler": "own.py:AllClients",
        "transforms": "own.py:Halve",
    }
    options = write_and_read({**overrides, "parameter": "4", "eagerness": "0.5", "half": "0.25"})
    assert options["method"] == "own.py:Mine"
    assert options["transforms"] == ["own.py:Halve"]
    assert options["mine"]["parameter"] == 4
    assert options["all-clients"] == {"eagerness": 0.5}
    assert options["halve"] == {"half": 0.25}
    overrides = {"mine_levels": "3:4", "quick": "false"}
    parameters = resolve(options, overrides, trust=True).to_dict()["mine"]
    assert (parameters["levels"], parameters["quick"]) == ((3, 4), False)
    config = resolve(options, {"method": "fedavg"}, trust=True)
    assert config.method == FedAvg()  # the table is not used


def test_ambiguous_parameter_is_refused_with_both_names() -> None:
    user_parts = {"method": "own.py:Mine"}
    expected = "'momentum' is a parameter of mine and sgd; write --mine-momentum or --sgd-momentum."
    assert get_refusal(resolve, {}, user_parts | {"momentum": "0.9"}) == expected
    config = resolve({}, user_parts | {"sgd_momentum": "0.9", "mine_momentum": "0.1"})
    assert config.algorithm.local_optimizer == SGD(momentum=0.9)
    assert config.to_dict()["mine"]["momentum"] == 0.1
    assert (
        resolve({}, user_parts | {"lr": "0.5"}).settings.lr == 0.5
    )  # the name of an option is that
    assert resolve({}, user_parts | {"mine_lr": "0.5"}).to_dict()["mine"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("file", "overrides", "sentence"),
    [
        ({}, {"depth": "1"}, "of shrink-it and blur; write --shrink-it-depth or --blur-"),
        (
            {},
            {"momentum": "0.9", "sgd_momentum": "0.9"},
            "momentum of sgd is set twice; set it once",
        ),
        ({}, {"fedfa_alpha": "1"}, "'fedfa_alpha' is a parameter of fedfa, not of cadis;"),
        ({}, {"momentum": "1"}, "momentum should be less than 1, not '1'."),
        ({}, {"sampler": "unifrom"}, "There is no sampler 'unifrom'; did you mean 'uniform'?"),
        ({"sampler": ["uniform"]}, {}, "There is no sampler ['uniform']"),
        ({}, {"transforms": "blur,blur"}, "A transform is given twice: blur, blur; give each once"),
        ({}, {"augment": "flop"}, "There is no augmentation 'flop'; did you mean 'flip'?"),
        ({}, {"method": "own.py:Mine", "parameter": "-1"}, "parameter should be greater than or"),
        ({}, {"method": "own.py:Mine", "levels": "1:x"}, "levels should be a valid integer"),
        ({}, {"method": "own.py:Yours"}, "The file own.py has no function or class 'Yours'."),
        ({}, {"parameter": "3"}, "There is no option 'parameter'"),
        ({"mine": {"parameter": 3}}, {}, "There is no part 'mine'"),
        ({"method": "own.py:Mine", "mine": {"x": 3}}, {}, "There is no parameter of mine 'x'"),
        ({"momentum": 0.9}, {}, "'momentum' is a parameter of sgd; move it to the table [sgd]."),
        ({"task": {"x": 1}}, {}, "There is no part 'task'"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(
    file: dict[str, Any], overrides: dict[str, Any], sentence: str
) -> None:
    assert sentence in get_refusal(resolve, file, overrides, True)


def test_user_defined_method_is_compared_with_built_in_ones() -> None:
    file = {"mine": {"parameter": 5}, "fedprox": {"mu": 0.25}}
    overrides = {"levels": "7", "sgd_momentum": "0.9", "lr": "0.2"}
    mine, prox = make_method_variants(["own.py:Mine", "FedProx"], file, overrides)
    assert (mine.name, mine.label) == ("mine", "Mine")
    assert mine.options["method"] == "own.py:Mine"
    assert (mine.options["mine"]["parameter"], mine.options["mine"]["levels"]) == (5, [7])
    assert prox.options["fedprox"] == {"mu": 0.25}
    assert "mine" not in prox.options
    for variant in (mine, prox):
        assert variant.options["sgd"]["momentum"] == 0.9
        assert variant.options["lr"] == 0.2  # also a parameter of Mine


def test_parameter_of_two_compared_methods_must_be_qualified() -> None:
    expected = "'alpha' is a parameter of fedfa and feddyn; write --fedfa-alpha or --feddyn-alpha."
    assert (
        get_refusal(make_method_variants, ["fedfa", "feddyn", "fedavg"], {}, {"alpha": "0.3"})
        == expected
    )
    (fa, _) = make_method_variants(["fedfa", "fedavg"], {}, {"alpha": "0.3"})
    assert fa.options["fedfa"]["alpha"] == 0.3
    both = {"fedfa_alpha": "0.3", "feddyn_alpha": "0.2"}
    fa, dyn = make_method_variants(["fedfa", "feddyn"], {}, both)
    assert fa.options["fedfa"] == {"alpha": 0.3, "beta": FedFA().beta}
    assert dyn.options["feddyn"] == {"alpha": 0.2}
    assert FedDyn().alpha != 0.2


def test_ablations_override_the_parameter_that_they_change() -> None:
    for overrides in ({"distillation": "0.5"}, {"cadis_distillation": "0.5"}):
        whole, ablation = make_method_variants(["cadis", "cadis-no-distillation"], {}, overrides)
        assert whole.options["cadis"]["distillation"] == 0.5
        assert ablation.options["cadis"]["distillation"] == 0.0


@pytest.mark.parametrize(
    ("names", "overrides", "sentence"),
    [
        (["fedavg"], {"fedprox_mu": "1"}, "'fedprox_mu' is a parameter of fedprox, which is not"),
        (["own.py:Mine", "./own.py:Mine"], {}, "Two methods are called 'mine'"),
        (["own.py:Mine", "fedavg"], {"momentum": "0.1"}, "a parameter of mine and sgd; write"),
        (["fedavgg"], {}, "There is no method 'fedavgg'; did you mean 'fedavg'?"),
        (["fedavg"], {"tiers": "1"}, "'tiers' is a parameter of fedat, which is not compared;"),
        (["fedavg", "cadis"], {"threshold": "2"}, "threshold should be less than"),
        (["fedavg"], {"colour": "red"}, "There is no option 'colour'"),
        (["oracle.py:Mine"], {}, "Two methods are called 'cadis-oracle'"),
        (["own.py:AllClients"], {}, "AllClients lacks "),
    ],
)
def test_wrong_comparisons_are_refused_in_one_sentence(
    names: list[str], overrides: dict[str, Any], sentence: str, here: Path
) -> None:
    text = (here / "own.py").read_text()
    (here / "oracle.py").write_text(text.replace('"mine"', '"cadis-oracle"'))
    assert sentence in get_refusal(make_method_variants, names, {}, overrides)


def test_grids_of_parts_and_qualified_parameters() -> None:
    method = {"method": "own.py:Mine"}
    user_parts = find_user_classes(method)
    grid = parse_grid(["parameter=1,2", "mine-momentum=0.5", "shrinkage=3"], user_parts)
    assert list(grid) == ["parameter", "mine_momentum", "shrinkage"]
    one, two = make_grid_variants(grid, {}, method)
    assert [v.options["mine"]["parameter"] for v in (one, two)] == [1, 2]
    assert one.options["shrink-it"]["shrinkage"] == 3
    methods = make_grid_variants(parse_grid(["method=fedavg,own.py:Mine"]), {}, {})
    assert [variant.options["method"] for variant in methods] == ["fedavg", "own.py:Mine"]
    assert methods[1].name == "method=own.py-Mine"
    with pytest.raises(CadisError, match="There is no option 'parameter'"):
        parse_grid(["parameter=1"])
