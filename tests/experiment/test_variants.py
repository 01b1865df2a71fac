import pytest

from cadis.errors import CadisError
from cadis.experiment import make_grid_variants, make_method_variants, parse_grid
from cadis.experiment.variants import ABLATIONS, choose_baseline, find_method_classes
from support import get_refusal


def test_parameters_apply_to_their_method() -> None:
    overrides = {"threshold": "0.8", "mu": "0.5", "rounds": "7", "ratio": "2:1"}
    fedavg, prox, cadis = make_method_variants(["fedavg", "FedProx", "cadis"], {}, overrides)
    assert prox.options["fedprox"] == {"mu": 0.5}
    assert cadis.options["cadis"]["threshold"] == 0.8
    assert "threshold" not in str(fedavg.options)
    for variant in (fedavg, prox, cadis):
        assert variant.options["rounds"] == 7
        assert variant.options["mc"]["ratio"] == [2, 1]
        assert "seed" not in variant.options


def test_each_ablation_changes_one_part() -> None:
    whole, *ablations = make_method_variants(["ablations"], {}, {"gamma": "0.3"})
    assert [variant.name for variant in ablations] == list(ABLATIONS)
    for variant in ablations:
        ablation = ABLATIONS[variant.name]
        assert variant.options["cadis"] == whole.options["cadis"] | dict(ablation.parameters)
        for kind in ("sampler", "server_optimizer"):
            assert variant.options[kind] == ablation.parts.get(kind, whole.options[kind])
        assert variant.options != whole.options


def test_each_method_has_its_default_parts() -> None:
    names = ["fedavg", "fedavgm", "cadis-paper", "cadis"]
    parts = [
        (v.options["sampler"], v.options["server_optimizer"])
        for v in make_method_variants(names, {}, {})
    ]
    assert [sampler for sampler, _ in parts] == [*["uniform"] * 3, "herding"]
    optimizers = [optimizer for _, optimizer in parts]
    assert optimizers == ["plain", "momentum", "plain", "damped-momentum"]
    variants = make_method_variants(names, {}, {"sampler": "uniform", "server_optimizer": "adam"})
    assert [v.options["server_optimizer"] for v in variants] == ["adam", "momentum", "adam", "adam"]
    assert {v.options["sampler"] for v in variants} == {"uniform"}


def test_samplers_with_fedavg_are_variants() -> None:
    names = ["power-of-choice", "fedcluster", "hics"]
    variants = make_method_variants(names, {}, {})
    assert {v.options["method"] for v in variants} == {"fedavg"}
    assert [v.options["sampler"] for v in variants] == names
    labels = [v.label for v in variants]
    samplers = ["power-of-choice", "FedCluster", "HiCS-FL"]
    assert labels == [f"FedAvg, {sampler} sampling" for sampler in samplers]


def test_cadis_paper_has_separate_parameters() -> None:
    file = {"cadis-paper": {"threshold": 0.975}}
    paper, now = make_method_variants(["cadis-paper", "cadis"], file, {})
    assert paper.options["cadis-paper"]["threshold"] == 0.975
    assert now.options["cadis"]["threshold"] == "auto"
    with pytest.raises(CadisError, match="write --cadis-paper-threshold or --cadis-threshold"):
        make_method_variants(["cadis-paper", "cadis"], {}, {"threshold": "0.8"})
    paper, now = make_method_variants(
        ["cadis-paper", "cadis"], {}, {"cadis_paper_threshold": "0.8"}
    )
    assert paper.options["cadis-paper"]["threshold"] == 0.8
    assert now.options["cadis"]["threshold"] == "auto"


def test_baseline_does_not_pool_clients() -> None:
    assert choose_baseline(find_method_classes(["cadis", "fedavg"])) == "fedavg"
    assert choose_baseline(find_method_classes(["singleset", "cadis-oracle"])) == "cadis-oracle"
    assert choose_baseline(find_method_classes(["singleset"])) == "singleset"


def test_repeated_method_is_compared_once() -> None:
    names = [
        variant.name for variant in make_method_variants(["cadis", "ablations", "cadis"], {}, {})
    ]
    assert names == ["cadis", *ABLATIONS]


def test_grid_has_every_combination() -> None:
    grid = parse_grid(["threshold=0.6, 0.8", "batch-size=4,8,4"])
    assert grid == {"threshold": ["0.6", "0.8"], "batch_size": ["4", "8"]}
    variants = make_grid_variants(grid, {"rounds": 3}, {})
    assert [variant.cell for variant in variants] == [
        ("0.6", "4"), ("0.6", "8"), ("0.8", "4"), ("0.8", "8"),
    ]  # fmt: skip
    last = variants[-1]
    assert last.label == "threshold=0.8, batch_size=8"
    assert (last.options["cadis"]["threshold"], last.options["batch_size"]) == (0.8, 8)
    assert len({variant.name for variant in variants}) == 4


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "Name an option to vary"),
        (["threshold"], "Write a grid as NAME=VALUE"),
        (["threshold="], "Write a grid as NAME=VALUE"),
        (["treshold=1"], "did you mean 'threshold'?"),
        (["lr=1", "lr=2"], "twice"),
        (["seed=1,2"], "--seeds"),
    ],
)
def test_wrong_grids_are_refused_in_one_sentence(texts: list[str], sentence: str) -> None:
    assert sentence in get_refusal(parse_grid, texts)
