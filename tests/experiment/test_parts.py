"""Parts and their parameters among the options of an experiment."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from cadis._io import to_toml
from cadis.algorithm import own_classes
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import FedAvg, FedDyn, FedFA, FedProx
from cadis.algorithm.samplers import Uniform
from cadis.algorithm.transforms import TRANSFORMS, TransformRound
from cadis.errors import CadisError
from cadis.experiment import grid_variants, method_variants, parse_grid, resolve
from cadis.types import Message
from support import refused


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
def _transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSFORMS, "shrink-it", Shrink)
    monkeypatch.setitem(TRANSFORMS, "blur", Blur)


def again(given: dict[str, Any]) -> dict[str, Any]:
    """The options as ``config.toml`` holds them; they are the same when they are read back."""
    config = resolve({}, given)
    options = tomllib.loads(to_toml(config.to_dict()))
    assert resolve(options, {}) == config
    return options


def test_parameters_of_every_part_are_options() -> None:
    given = {"momentum": "0.9", "weight_decay": "5e-4", "sgd_lr_decay": "0.99", "method": "fedprox"}
    config = resolve({}, {**given, "mu": "0.3", "augment": "flip,crop"})
    assert config.algorithm.local_optimizer == SGD(0.9, 5e-4, 0.99)
    assert config.method == FedProx(mu=0.3)
    assert config.settings.augment == ("flip", "crop")
    assert config.settings.resolve_auto(9, (1, 8, 8)).for_engine().local.augment == ("flip", "crop")


def test_they_are_keys_and_tables_of_a_file() -> None:
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


def test_a_file_that_names_few_options_has_defaults() -> None:
    config = resolve({"method": "fedavg", "rounds": 3, "fedavg": {}}, {})
    assert config.algorithm.sampler == Uniform()
    assert config.algorithm.local_optimizer == SGD()
    assert config.algorithm.transforms == ()
    assert config.settings.augment == ()


def test_a_parameter_of_a_transform_chooses_it() -> None:
    def chosen(**given: object) -> tuple[Any, ...]:
        return resolve({}, given).algorithm.transforms

    assert chosen(blurring="1", shrinkage="2") == (Shrink(shrinkage=2.0), Blur(blurring=1.0))
    assert chosen(transforms="blur", shrinkage="2") == (Blur(), Shrink(shrinkage=2.0))
    assert chosen(shrink_it_depth="7") == (Shrink(depth=7),)
    assert chosen(transforms="blur", depth="7") == (Blur(depth=7),)
    assert chosen() == ()
    file = {"transforms": ["blur"], "shrink-it": {"shrinkage": 9.0}}
    with pytest.raises(CadisError, match="'shrink-it', which is not applied"):
        resolve(file, {})  # a table alone chooses nothing
    assert resolve(file, {"shrink_it_depth": 2}).algorithm.transforms == (Blur(), Shrink(9.0, 2))


def test_parts_of_a_users_own() -> None:
    given = {"method": "own.py:Mine", "sampler": "own.py:Everybody", "transforms": "own.py:Halve"}
    options = again({**given, "parameter": "4", "eagerness": "0.5", "half": "0.25"})
    assert options["method"] == "own.py:Mine"
    assert options["transforms"] == ["own.py:Halve"]
    assert options["mine"]["parameter"] == 4
    assert options["everybody"] == {"eagerness": 0.5}
    assert options["halve"] == {"half": 0.25}
    written = resolve(options, {"mine_levels": "3:4", "quick": "false"}).to_dict()["mine"]
    assert (written["levels"], written["quick"]) == ((3, 4), False)
    assert resolve(options, {"method": "fedavg"}).method == FedAvg()  # the table stays unused


def test_of_a_name_that_two_chosen_parts_have_both_are_named() -> None:
    own = {"method": "own.py:Mine"}
    expected = "'momentum' is a parameter of mine and sgd; write --mine-momentum or --sgd-momentum."
    assert refused(resolve, {}, own | {"momentum": "0.9"}) == expected
    config = resolve({}, own | {"sgd_momentum": "0.9", "mine_momentum": "0.1"})
    assert config.algorithm.local_optimizer == SGD(momentum=0.9)
    assert config.to_dict()["mine"]["momentum"] == 0.1
    assert resolve({}, own | {"lr": "0.5"}).settings.lr == 0.5  # the name of an option is that
    assert resolve({}, own | {"mine_lr": "0.5"}).to_dict()["mine"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("file", "given", "sentence"),
    [
        ({}, {"depth": "1"}, "of shrink-it and blur; write --shrink-it-depth or --blur-"),
        ({}, {"momentum": "0.9", "sgd_momentum": "0.9"}, "momentum of sgd is given twice; give it"),
        ({}, {"fedfa_alpha": "1"}, "'fedfa_alpha' is a parameter of fedfa, not of cadis."),
        ({}, {"momentum": "1"}, "momentum should be less than 1, not '1'."),
        ({}, {"sampler": "unifrom"}, "There is no sampler 'unifrom'; did you mean 'uniform'?"),
        ({"sampler": ["uniform"]}, {}, "There is no sampler ['uniform']"),
        ({}, {"transforms": "blur,blur"}, "One of the transforms is given twice; give each once."),
        ({}, {"augment": "flop"}, "There is no augmentation 'flop'; did you mean 'flip'?"),
        ({}, {"method": "own.py:Mine", "parameter": "-1"}, "parameter should be greater than or"),
        ({}, {"method": "own.py:Mine", "levels": "1:x"}, "levels should be a valid integer"),
        ({}, {"method": "own.py:Yours"}, "The file own.py has no function or class 'Yours'."),
        ({}, {"parameter": "3"}, "There is no option 'parameter'"),
        ({"mine": {"parameter": 3}}, {}, "There is no part 'mine'"),
        ({"method": "own.py:Mine", "mine": {"x": 3}}, {}, "There is no parameter of mine 'x'"),
        ({"momentum": 0.9}, {}, "'momentum' belongs to sgd; put it into a table of that name."),
        ({"task": {"x": 1}}, {}, "There is no part 'task'"),
    ],
)
def test_mistakes_are_one_sentence(
    file: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    assert sentence in refused(resolve, file, given)


def test_a_users_own_method_is_compared_with_ours() -> None:
    file = {"mine": {"parameter": 5}, "fedprox": {"mu": 0.25}}
    given = {"levels": "7", "sgd_momentum": "0.9", "lr": "0.2"}
    mine, prox = method_variants(["own.py:Mine", "FedProx"], file, given)
    assert (mine.name, mine.label) == ("mine", "Mine")
    assert mine.options["method"] == "own.py:Mine"
    assert (mine.options["mine"]["parameter"], mine.options["mine"]["levels"]) == (5, [7])
    assert prox.options["fedprox"] == {"mu": 0.25}
    assert "mine" not in prox.options
    for variant in (mine, prox):
        assert variant.options["sgd"]["momentum"] == 0.9
        assert variant.options["lr"] == 0.2  # also the name of a parameter


def test_in_a_comparison_a_parameter_of_two_methods_must_say_whose_it_is() -> None:
    expected = "'alpha' is a parameter of fedfa and feddyn; write --fedfa-alpha or --feddyn-alpha."
    assert refused(method_variants, ["fedfa", "feddyn", "fedavg"], {}, {"alpha": "0.3"}) == expected
    (fa, _) = method_variants(["fedfa", "fedavg"], {}, {"alpha": "0.3"})
    assert fa.options["fedfa"]["alpha"] == 0.3
    both = {"fedfa_alpha": "0.3", "feddyn_alpha": "0.2"}
    fa, dyn = method_variants(["fedfa", "feddyn"], {}, both)
    assert fa.options["fedfa"] == {"alpha": 0.3, "beta": FedFA().beta}
    assert dyn.options["feddyn"] == {"alpha": 0.2}
    assert FedDyn().alpha != 0.2


def test_ablations_change_their_thing_whatever_it_is_called() -> None:
    for given in ({"distillation": "0.5"}, {"cadis_distillation": "0.5"}):
        whole, less = method_variants(["cadis", "cadis-no-distillation"], {}, given)
        assert whole.options["cadis"]["distillation"] == 0.5
        assert less.options["cadis"]["distillation"] == 0.0


@pytest.mark.parametrize(
    ("names", "given", "sentence"),
    [
        (["fedavg"], {"fedprox_mu": "1"}, "'fedprox_mu' is a parameter of fedprox, which is not"),
        (["own.py:Mine", "./own.py:Mine"], {}, "Two methods are called 'mine'"),
        (["own.py:Mine", "fedavg"], {"momentum": "0.1"}, "a parameter of mine and sgd; write"),
        (["fedavgg"], {}, "There is no method 'fedavgg'; did you mean 'fedavg'?"),
        (["fedavg"], {"tiers": "1"}, "'tiers' is a parameter of fedat, which is not compared."),
        (["fedavg", "cadis"], {"threshold": "2"}, "threshold should be less than"),
        (["fedavg"], {"colour": "red"}, "There is no option 'colour'"),
        (["oracle.py:Mine"], {}, "Two methods are called 'cadis-oracle'"),
        (["own.py:Everybody"], {}, "Everybody lacks "),
    ],
)
def test_wrong_comparisons_are_one_sentence(
    names: list[str], given: dict[str, Any], sentence: str, here: Path
) -> None:
    text = (here / "own.py").read_text()
    (here / "oracle.py").write_text(text.replace('"mine"', '"cadis-oracle"'))
    assert sentence in refused(method_variants, names, {}, given)


def test_grids_of_parts_and_of_parameters_in_both_forms() -> None:
    chosen = {"method": "own.py:Mine"}
    own = own_classes(chosen)
    grid = parse_grid(["parameter=1,2", "mine-momentum=0.5", "shrinkage=3"], own)
    assert list(grid) == ["parameter", "mine_momentum", "shrinkage"]
    one, two = grid_variants(grid, {}, chosen)
    assert [v.options["mine"]["parameter"] for v in (one, two)] == [1, 2]
    assert one.options["shrink-it"]["shrinkage"] == 3
    methods = grid_variants(parse_grid(["method=fedavg,own.py:Mine"]), {}, {})
    assert [variant.options["method"] for variant in methods] == ["fedavg", "own.py:Mine"]
    assert methods[1].name == "method=own.py-Mine"
    with pytest.raises(CadisError, match="There is no option 'parameter'"):
        parse_grid(["parameter=1"])
