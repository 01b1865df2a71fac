"""All cases: every method in every way of training, every part, every kind of data."""

from itertools import product
from pathlib import Path
from typing import Any

from goldens.inputs import write_code, write_images, write_table
from goldens.running import Case, make_case, make_data_case
from goldens.studies import STUDIES

_EXAMPLES = Path(__file__).parents[2] / "examples" / "methods"

METHODS = (
    *("cadis", "fedavg", "fedprox", "fedfa", "feddyn", "singleset", "cadis-paper", "scaffold"),
    *("fednova", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "fedlc", "fedrs", "fedntd"),
    *("balancefl", "moon", "fedat", "fedadp", "fedcav", "fedfv", "feddrl", "ifca", "cfl", "flhc"),
    *("cadis-clusters",),
)
VARIANTS = (
    *("power-of-choice", "fedcluster", "hics", "cadis-uniform", "cadis-no-momentum"),
    *("cadis-plain-weights", "cadis-no-distillation", "cadis-no-clustering", "cadis-absent"),
    *("cadis-hard-weights", "cadis-oracle"),
)
"""What ``cadis compare --methods`` takes besides the methods.

Both lists are written out, so that the cases do not depend on the module that holds the registry;
``test_goldens.py`` compares them with it.
"""

_STACK = {"stacked": True, "one-by-one": False}
_WORKERS = (1, 2)

_METHOD_CASES = [
    make_case(f"method/{name}/{how}/workers-{workers}", name, stack=_STACK[how], workers=workers)
    for how, workers, name in product(_STACK, _WORKERS, (*METHODS, *VARIANTS))
]

_PARTS: dict[str, dict[str, Any]] = {
    "sampler/uniform": {"method": "cadis", "sampler": "uniform"},
    "sampler/clusters": {"method": "ifca", "sampler": "clusters", "newcomers": 0.25},
    "sampler/herding": {"method": "cadis", "sampler": "herding", "weights": "soft"},
    "sampler/coverage": {"method": "cadis", "sampler": "coverage", "weights": "soft"},
    "sampler/power-of-choice": {"sampler": "power-of-choice", "candidates": 8},
    "sampler/fedcluster": {
        "method": "cadis",
        "sampler": "fedcluster",
        "num_clusters": 2,
    },
    "sampler/hics": {"sampler": "hics", "annealing": 5, "rounds": 5},
    "server-optimizer/plain": {"method": "cadis", "server_optimizer": "plain"},
    "server-optimizer/damped-momentum": {"server_optimizer": "damped-momentum"},
    "server-optimizer/momentum": {"server_optimizer": "momentum", "server_momentum": 0.9},
    "server-optimizer/adam": {"server_optimizer": "adam", "server_lr": 0.03},
    "server-optimizer/yogi": {"server_optimizer": "yogi", "beta1": 0.8},
    "server-optimizer/adagrad": {"server_optimizer": "adagrad", "tau": 0.01},
    "transform/top-k": {"transforms": "top-k", "keep": 0.2},
    "transform/clip": {"transforms": "clip", "clip": 0.1},
    "transform/noise": {"transforms": "clip,noise", "noise": 0.05},
    "transform/norm-bound": {"transforms": "norm-bound", "max_norm": 0.2},
    "transform/all": {"method": "feddyn", "transforms": "top-k,clip,noise,norm-bound"},
    "local-optimizer/sgd": {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.9},
    "task/classification": {"metric": "f1"},
    "augment/flip": {"augment": "flip", "model": "small-cnn"},
    "augment/crop": {"augment": "crop", "model": "small-cnn"},
    "precision/bf16": {"precision": "bf16", "method": "cadis"},
    "model/small-cnn": {"model": "small-cnn", "method": "cadis"},
    "model/resnet9": {"model": "resnet9", "rounds": 1, "clients": 8, "per_round": 2},
    "clients/client-test": {"client_test": 0.2, "method": "cadis-clusters"},
    "clients/speeds": {"speeds": "10:1000", "method": "fedat"},
    "clients/per-round": {"per_round": 0.3, "eval_every": 2},
    "seed/3": {"seed": 3, "method": "cadis"},
}
"""Options of a case; the method is fedavg if none is named."""

_PARAMETERS: dict[str, dict[str, Any]] = {
    "cadis/head": {"signature": "head", "threshold": 0.8, "sampler": "uniform"},
    "cadis/not-true": {"distil": "not-true", "distillation": 1.0, "threshold": 0.5},
    "cadis/federation": {"scope": "federation", "bandwidth": 2.0, "absent": 0.5, "rounds": 5},
    "cadis-paper/growth": {"threshold_growth": 0.1, "threshold_max": 0.9, "scope": "federation"},
    "cadis-paper/auto": {"threshold": "auto", "transitive": "sample", "gamma": 0.5},
    "cadis-paper/off": {"transitive": "off", "signature": "profile"},
    "fedfa/beta": {"alpha": 0.5, "beta": 0.5},
    "balancefl/unbalanced": {"balanced": False, "inheritance": 0.5},
    "fedat/tiers": {"tiers": 2, "speeds": "10:1000", "rounds": 5},
    "fedcav/majority": {"detection": "majority", "rounds": 4},
    "fedfv/tau": {"alpha": 0.5, "tau": 2, "rounds": 4},
    "feddrl/learning": {"learning_steps": 2, "actor_lr": 0.01, "rounds": 8},
    "ifca/models": {"num_models": 2, "spread": 0.1, "rounds": 4},
    "cfl/split": {"eps1": 10.0, "eps2": 0.01, "rounds": 4},
    "flhc/warmup": {"warmup": 1, "distance": 0.5},
    "cadis-clusters/warmup": {"warmup": 1, "rounds": 4, "client_test": 0.2},
}
"""Parameters of methods that take other branches than the defaults, or take them earlier."""

_PARTITIONS: dict[str, dict[str, Any]] = {
    "mc": {"ratio": "3:2:1"},
    "bc": {"majority": 0.5},
    "uc": {"classes_per_client": 3},
    "overlap": {"fuzzy": 0.2},
    "soft": {"concentration": 0.5, "samples_per_client": 40},
    "pa": {"exponent": 0.8},
    "iid": {},
    "dirichlet": {"concentration": 0.3},
}

_PART_CASES = [make_case(name, **options) for name, options in _PARTS.items()]
_PART_CASES += [
    make_case(f"parameters/{name}", name.partition("/")[0], **options)
    for name, options in _PARAMETERS.items()
]
_PART_CASES += [
    make_case(f"partition/{name}/run", partition=name, **options)
    for name, options in _PARTITIONS.items()
]
_PART_CASES += [
    make_case(f"example/{path}", **{kind: f"{_EXAMPLES / path}.py:{name}"})
    for kind, path, name in (
        ("method", "fedcm", "FedCM"),
        ("method", "fesem", "FeSEM"),
        ("sampler", "round_robin", "RoundRobin"),
    )
]

_TABLE: dict[str, Any] = {"client_column": "site", "label_column": "outcome", "predict": True}
_DATA_CASES = [
    make_data_case("dataset/images", write_images, "images:{}", image_size=16, cache=False),
    make_data_case("dataset/table", write_table, "csv:{}", **_TABLE),
    make_data_case(
        "task/binary", write_table, "csv:{}", task="binary", positive_weight=2.0, **_TABLE
    ),
    make_data_case("dataset/function", write_code, "{}:load"),
    make_data_case("model/function", write_code, "{}:load", model="{}:net"),
]

CASES: tuple[Case, ...] = (*_METHOD_CASES, *_PART_CASES, *_DATA_CASES, *STUDIES)
"""All of them, by what they are about."""
