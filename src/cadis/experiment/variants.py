"""What is compared: methods, CADIS without one of its parts, or values of parameters."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from cadis.core import CadisError
from cadis.experiment.config import PARTS, ExperimentConfig, resolve
from cadis.experiment.settings import Settings
from cadis.methods import METHODS, label_of
from cadis.options import check_names, names_of
from cadis.runs import Variant

ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "cadis-no-distillation": ("CADIS, no distillation", {"distillation": 0.0}),
    "cadis-no-clustering": ("CADIS, no clustering", {"clusters": "none"}),
    "cadis-no-transitive": ("CADIS, no transitive learning", {"transitive": "off"}),
    "cadis-oracle": ("CADIS, true clusters given", {"clusters": "true"}),
}
"""CADIS without one of its parts, and with the clusters given: label, and what is changed."""

CHOICES = (*METHODS, *ABLATIONS, "ablations")
"""What can be compared; "ablations" is CADIS and all its ablations."""


_MOST_RUNS = 1000
"""Runs of one study that are begun by one command, at the most."""


def method_variants(
    names: Iterable[str], file: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """Methods and ablations, each with the options that are its own.

    Args:
        names: as users type them.
        file: a TOML file's content.
        given: options as a user types them; a method's parameters go to whom they belong.
    """
    wanted = [name.strip().lower() for name in names]
    check_names("method", wanted, CHOICES)
    expanded = [
        each
        for name in wanted
        for each in (["cadis", *ABLATIONS] if name == "ablations" else [name])
    ]
    unique = list(dict.fromkeys(expanded))
    kinds = {METHODS[_method_of(name)] for name in unique}
    _check_wanted(given, kinds)
    return tuple(_method_variant(name, file, given) for name in unique)


def baseline_of(variants: Sequence[Variant]) -> str:
    """Whom the others are compared with: FedAvg; else the first that is a federation."""
    names = [variant.name for variant in variants]
    federations = [name for name in names if not METHODS[_method_of(name)].pools_clients]
    return "fedavg" if "fedavg" in names else [*federations, *names][0]


def grid_variants(
    grid: Mapping[str, Sequence[str]], file: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """Every combination of the values of some options."""
    check_runs(prod(len(values) for values in grid.values()))
    variants = []
    for values in itertools.product(*grid.values()):
        cell = dict(zip(grid, values, strict=True))
        label = ", ".join(f"{name}={value}" for name, value in cell.items())
        options = _options(resolve(file, {**given, **cell}))
        variants.append(Variant(_folder_name(cell), label, options, tuple(values)))
    return tuple(variants)


def check_runs(number: int) -> None:
    """Refuse more runs than anybody waits for, before they are planned."""
    if number > _MOST_RUNS:
        raise CadisError(
            f"These are {number} runs, and {_MOST_RUNS} are the most at a time; ask for fewer "
            "seeds or values."
        )


def parse_grid(texts: Iterable[str]) -> dict[str, list[str]]:
    """Options and their values from ``name=value,value``."""
    grid: dict[str, list[str]] = {}
    parts: list[type[Any]] = [Settings, *PARTS.values()]
    known = dict.fromkeys(name for kind in parts for name in names_of(kind))
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        given = [value.strip() for value in values.split(",") if value.strip()]
        if not given:
            raise CadisError(f"Write a grid as name=value,value,... , not '{text}'.")
        check_names("option", [name], known)
        if name in grid:
            raise CadisError(f"The grid has '{name}' twice; give all its values at once.")
        if name == "seed":
            raise CadisError("Seeds are no part of a grid; ask for several by --seeds.")
        grid[name] = list(dict.fromkeys(given))
    if not grid:
        raise CadisError("Say what to vary, such as --grid threshold=0.6,0.7,0.8.")
    return grid


def _method_of(name: str) -> str:
    return "cadis" if name in ABLATIONS else name


def _method_variant(name: str, file: Mapping[str, Any], given: Mapping[str, Any]) -> Variant:
    label, changes = ABLATIONS.get(name, (label_of(name), {}))
    method = _method_of(name)
    others = _parameters(METHODS.values()) - _parameters([METHODS[method]])
    own = {key: value for key, value in given.items() if key not in others}
    return Variant(name, label, _options(resolve(file, {**own, **changes, "method": method})))


def _parameters(methods: Iterable[type[Any]]) -> set[str]:
    return {name for method in methods for name in names_of(method)}


def _check_wanted(given: Mapping[str, Any], kinds: Iterable[type[Any]]) -> None:
    """Refuse a parameter of methods that are not compared."""
    for name in given:
        if name in _parameters(METHODS.values()) - _parameters(kinds):
            owners = [method for method, kind in METHODS.items() if name in names_of(kind)]
            raise CadisError(
                f"'{name}' is a parameter of {' and '.join(owners)}, which is not compared."
            )


def _options(config: ExperimentConfig) -> dict[str, Any]:
    """All options but the seed, as they come back from a file."""
    options = {key: value for key, value in config.to_dict().items() if key != "seed"}
    plain: dict[str, Any] = json.loads(json.dumps(options))
    return plain


def _folder_name(cell: Mapping[str, str]) -> str:
    text = "_".join(f"{name}={value}" for name, value in cell.items())
    return "".join(letter if letter.isalnum() or letter in "_=.-" else "-" for letter in text)
