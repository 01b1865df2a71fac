"""Options from files and overrides."""

import tomllib
from pathlib import Path

import pytest

from cadis._io import read_toml, to_toml
from cadis.algorithm import build_algorithm, find_part_classes
from cadis.algorithm.methods import CADIS, METHODS, FedDyn, FedProx
from cadis.data.partition import BalancedCluster, Dirichlet, MultiCluster, UnbalancedCluster
from cadis.errors import CadisError
from cadis.experiment import Settings, resolve
from support import get_refusal


def test_defaults_of_all_options() -> None:
    config = resolve({}, {})
    assert config.method == CADIS()
    assert config.settings == Settings()


def test_overrides_replace_options_of_the_file() -> None:
    file = {"method": "cadis", "rounds": 3, "lr": 0.2, "cadis": {"gamma": 0.2, "distillation": 0.5}}
    config = resolve(file, {"rounds": "5", "gamma": "0.3"})
    assert config.settings == Settings(rounds=5, lr=0.2)
    assert config.method == CADIS(gamma=0.3, distillation=0.5)


def test_file_may_have_parameters_of_several_methods() -> None:
    file = {"fedprox": {"mu": 0.5}, "feddyn": {"alpha": 0.1}}
    assert resolve(file, {"method": "fedprox"}).method == FedProx(mu=0.5)
    assert resolve(file, {"method": "feddyn"}).method == FedDyn(alpha=0.1)
    assert resolve(file, {}).method == CADIS()


def test_values_are_parsed_from_strings() -> None:
    overrides = {"ratio": "2:1", "workers": "2", "device": "cpu"}
    config = resolve({}, overrides | {"bandwidth": "0.5", "scope": "federation"})
    assert config.partitioner == MultiCluster(ratio=(2, 1))
    assert config.settings.partition == "mc"
    assert config.settings.workers == 2
    assert config.method == CADIS(bandwidth=0.5, scope="federation")
    assert resolve({}, {"method": "CADIS"}) == resolve({}, {})
    assert resolve({}, {"workers": "auto", "bandwidth": "mean"}) == resolve({}, {})


def test_partitions_and_their_parameters() -> None:
    assert resolve({}, {"partition": "bc"}).partitioner == BalancedCluster()
    file = {"partition": "dirichlet", "dirichlet": {"concentration": 0.1}, "uc": {"majority": 0.9}}
    assert resolve(file, {}).partitioner == Dirichlet(0.1)
    assert resolve(file, {"concentration": "0.2"}).partitioner == Dirichlet(0.2)
    assert resolve(file, {"partition": "uc"}).partitioner == UnbalancedCluster(majority=0.9)
    assert resolve({}, {"classes_per_cluster": "2"}).partitioner == MultiCluster((3, 3, 2, 1, 1), 2)


def test_flags_are_booleans() -> None:
    assert resolve({}, {"offline": True}).settings.offline
    assert not resolve({"offline": True}, {"offline": "false"}).settings.offline


@pytest.mark.parametrize("name", METHODS)
def test_config_is_written_and_read_back(name: str) -> None:
    config = resolve({}, {"method": name, "seed": "4", "ratio": "2:1"})
    options = tomllib.loads(to_toml(config.to_dict()))
    assert resolve(options, {}) == config
    assert build_algorithm(find_part_classes(options), options) == config.algorithm


@pytest.mark.parametrize(
    ("file", "overrides", "sentence"),
    [
        ({}, {"method": "cadiss"}, "There is no method 'cadiss'; did you mean 'cadis'?"),
        ({}, {"method": "magic"}, "There is no method 'magic'; there are: cadis, fedavg"),
        ({"roundz": 3}, {}, "There is no option 'roundz'; did you mean 'rounds'?"),
        ({"cadis": {"gama": 3}}, {}, "no parameter of cadis 'gama'; did you mean 'gamma'?"),
        ({"nothing": {"x": 3}}, {}, "There is no part 'nothing'"),
        ({}, {"method": "fedavg", "mu": "1"}, "'mu' is a parameter of fedprox, moon and fedat"),
        ({}, {"alpha": "1"}, "'alpha' is a parameter of fedfa, feddyn, fedrs, fedadp and fedfv"),
        (
            {"gamma": 0.1},
            {},
            "'gamma' is a parameter of cadis and cadis-paper; move it to the table [cadis] or "
            "[cadis-paper].",
        ),
        ({}, {"gama": "1"}, "There is no option 'gama'; did you mean 'gamma'?"),
        ({}, {"rounds": "0"}, "rounds should be greater than 0, not '0'."),
        ({}, {"rounds": "many"}, "rounds should be a valid integer"),
        ({"lr": "fast"}, {}, "lr should be a valid number"),
        ({}, {"lr": "-1"}, "lr should be greater than 0"),
        ({}, {"device": "tpu"}, "device should be 'auto', 'cpu', 'cuda' or 'mps', not 'tpu'."),
        ({}, {"transitive": "yes"}, "transitive should be 'mean', 'sample' or 'off'"),
        ({}, {"ratio": "3:x"}, "ratio should be a valid integer"),
        ({}, {"dataset": "digit"}, "no dataset 'digit'; did you mean 'digits'?"),
        ({}, {"model": "gpt"}, "There is no model 'gpt'"),
        ({}, {"threshold": "0.99"}, "The threshold 0.99 is above its maximum 0.985"),
        ({}, {"threshold": "1.5"}, "threshold should be less than or equal to 1"),
        ({}, {"distillation": "nan"}, "distillation should be"),
        ({}, {"partition": "mcc"}, "There is no partition 'mcc'; did you mean 'mc'?"),
        ({}, {"partition": "iid", "ratio": "2:1"}, "mc, overlap and soft, not of iid;"),
        ({}, {"concentration": "1"}, "soft and dirichlet, not of auto;"),
        ({"ratio": [2, 1]}, {}, "soft; move it to the table [mc] or "),
        ({"mc": {"ration": [2, 1]}}, {}, "no parameter of mc 'ration'; did you mean 'ratio'?"),
        ({}, {"partition": "bc", "majority": "2"}, "majority should be less than or equal to 1"),
        ({}, {"clients": "few"}, "clients should be"),
        ({}, {"image_size": "2"}, "image_size should be greater than or equal to 8"),
        ({}, {"image_size": "9999"}, "image_size should be less than or equal to 1024"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(
    file: dict[str, object], overrides: dict[str, str], sentence: str
) -> None:
    assert sentence in get_refusal(resolve, file, overrides)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = ")
    with pytest.raises(CadisError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")
