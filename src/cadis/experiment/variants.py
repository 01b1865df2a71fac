"""What is compared: methods, CADIS without one of its parts, or values of parameters."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from cadis._io import is_user_code
from cadis.algorithm import KINDS, check_names, listed, names_of, part_class
from cadis.algorithm.methods import METHODS, label_of
from cadis.errors import CadisError
from cadis.experiment.config import plain_names, resolve
from cadis.experiment.parameters import (
    Part,
    field_of,
    only_owner,
    our_parts,
    owners_of,
    pairs_of,
    qualified,
)
from cadis.store import Variant, cell_label, cell_name


@dataclass(frozen=True)
class NamedVariant:
    """A method with some parameters or parts of its own.

    Attributes:
        label: as people read it.
        method: its name.
        parameters: those of the method that are changed.
        parts: other parts that it goes with, by kind.
    """

    label: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


ABLATIONS: dict[str, NamedVariant] = {
    "cadis-uniform": NamedVariant(
        "CADIS, participants drawn uniformly", "cadis", parts={"sampler": "uniform"}
    ),
    "cadis-no-momentum": NamedVariant(
        "CADIS, no server momentum", "cadis", parts={"server_optimizer": "plain"}
    ),
    "cadis-plain-weights": NamedVariant(
        "CADIS, weights of FedAvg", "cadis", {"weights": "samples"}
    ),
    "cadis-no-distillation": NamedVariant("CADIS, no distillation", "cadis", {"distillation": 0.0}),
    "cadis-no-clustering": NamedVariant("CADIS, no clustering", "cadis", {"clusters": "none"}),
    "cadis-absent": NamedVariant(
        "CADIS, drawn uniformly, absent clusters remembered",
        "cadis",
        {"absent": 0.5},
        {"sampler": "uniform"},
    ),
    "cadis-oracle": NamedVariant("CADIS, true clusters given", "cadis", {"clusters": "true"}),
}
"""CADIS without one of its parts, or with another, and with the clusters given."""

_OPTIMIZED: dict[str, NamedVariant] = {
    name: NamedVariant(label_of(name), name, parts=method.default_parts)
    for name, method in METHODS.items()
    if method.default_parts.keys() == {"server_optimizer"}
}
"""Methods that are named by their server optimiser keep it, whichever all others are to have."""

VARIANTS: dict[str, NamedVariant] = {
    **_OPTIMIZED,
    "power-of-choice": NamedVariant(
        "FedAvg, power of choice", "fedavg", parts={"sampler": "power-of-choice"}
    ),
    "fedcluster": NamedVariant("FedAvg, FedCluster", "fedavg", parts={"sampler": "fedcluster"}),
    "hics": NamedVariant("FedAvg, HiCS-FL", "fedavg", parts={"sampler": "hics"}),
    **ABLATIONS,
}
"""What can be compared besides the methods as they are."""

ALL = tuple(dict.fromkeys([*METHODS, *(name for name in VARIANTS if name not in ABLATIONS)]))
"""Everything but ablations."""

_GROUPS = {"all": ALL, "ablations": ("cadis", *ABLATIONS)}
CHOICES = (*METHODS, *VARIANTS, *_GROUPS)
"""What can be compared; "ablations" is CADIS and all its ablations."""

_MOST_RUNS = 1000
"""Runs of one study that are begun by one command, at the most."""


def method_variants(
    names: Iterable[str], file: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """Return methods and ablations, each with the options that are its own.

    ``file`` is the content of a TOML file. Of the ``given`` options, which are as a user types
    them, a method's parameters go to the methods that they belong to.
    """
    classes = classes_by_name(names)
    methods = list(dict.fromkeys(classes.values()))
    _check_wanted(given, methods)
    return tuple(
        _method_variant(name, method, methods, file, given) for name, method in classes.items()
    )


def classes_by_name(names: Iterable[str]) -> dict[str, type[Any]]:
    """Return the class of each method and ablation, by name; groups such as "all" are expanded."""
    wanted = [name.strip() if is_user_code(name) else name.strip().lower() for name in names]
    check_names("method", (n for n in wanted if not is_user_code(n)), [*CHOICES, "FILE.py:CLASS"])
    expanded = [each for name in wanted for each in _GROUPS.get(name, (name,))]
    classes = {
        name: part_class(KINDS["method"], VARIANTS[name].method if name in VARIANTS else name)
        for name in dict.fromkeys(expanded)
    }
    folders = [folder_name(name, method) for name, method in classes.items()]
    for name, folder in zip(classes, folders, strict=True):
        if folders.count(folder) > 1 or (is_user_code(name) and folder in CHOICES):
            raise CadisError(f"Two methods are called '{folder}'; give each a name of its own.")
    return classes


def choose_baseline(methods: Mapping[str, type[Any]]) -> str:
    """Choose what the others are compared with: FedAvg, else the first that is a federation."""
    federations = [name for name, method in methods.items() if not method.pools_clients]
    return "fedavg" if "fedavg" in methods else [*federations, *methods][0]


def grid_variants(
    grid: Mapping[str, Sequence[str]], file: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """Every combination of the values of some options."""
    check_runs(prod(map(len, grid.values())))
    names = list(grid)
    return tuple(
        Variant(
            cell_name(names, values),
            cell_label(names, values),
            plain_options(resolve(file, options).to_dict()),
            values,
        )
        for values, options in _cells(grid, given)
    )


def gridded_methods(
    names: Sequence[str],
    grid: Mapping[str, Sequence[str]],
    file: Mapping[str, Any],
    given: Mapping[str, Any],
) -> tuple[Variant, ...]:
    """Methods as in :func:`method_variants`, in every combination of the values of some options."""
    if "method" in grid:
        raise CadisError("Name the methods by --methods; a grid varies other options.")
    check_runs(prod(map(len, grid.values())) * len(names))
    return tuple(
        replace(
            variant,
            name=f"{cell_name(list(grid), values)}_{variant.name}",
            label=f"{variant.label} ({cell_label(list(grid), values)})",
            cell=values,
        )
        for values, options in _cells(grid, given)
        for variant in method_variants(names, file, options)
    )


def _cells(
    grid: Mapping[str, Sequence[str]], given: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every combination of the values of a grid, and the options with it."""
    for values in itertools.product(*grid.values()):
        yield values, {**given, **dict(zip(grid, values, strict=True))}


def check_runs(number: int) -> None:
    """Refuse more runs than anybody waits for, before they are planned."""
    if number > _MOST_RUNS:
        raise CadisError(
            f"These are {number} runs, and {_MOST_RUNS} are the most at a time; ask for fewer "
            "seeds or values."
        )


def parse_grid(texts: Iterable[str], own: Iterable[Part] = ()) -> dict[str, list[str]]:
    """Read options and their values from ``name=value,value``.

    The parameters of a user's own parts may be varied, too.
    """
    grid: dict[str, list[str]] = {}
    parts = [*our_parts(), *own]
    bare = dict.fromkeys([*plain_names(), *(name for _, part in parts for name in names_of(part))])
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        given = [value.strip() for value in values.split(",") if value.strip()]
        if not given:
            raise CadisError(f"Write a grid as name=value,value,... , not '{text}'.")
        if not owners_of(name, parts):
            check_names("option", [name], bare)
        if name in grid:
            raise CadisError(f"The grid has '{name}' twice; give all its values at once.")
        if name == "seed":
            raise CadisError("Seeds are no part of a grid; ask for several by --seeds.")
        grid[name] = list(dict.fromkeys(given))
    if not grid:
        raise CadisError("Say what to vary, such as --grid threshold=0.6,0.7,0.8.")
    return grid


def folder_name(name: str, method: type[Any]) -> str:
    """Return the name of a variant's folder: of a user's own method, the name in its class."""
    return str(method.name) if is_user_code(name) else name


def named_variant(name: str, method: type[Any]) -> NamedVariant:
    """Return an ablation or variant of ours, or a method as it is."""
    return VARIANTS.get(name, NamedVariant(method.label or method.__name__, name))


def _method_variant(
    name: str,
    method: type[Any],
    methods: Sequence[type[Any]],
    file: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Variant:
    """Return one of the methods that are compared, with what belongs to it or to all."""
    named = named_variant(name, method)
    own = {}
    for typed, value in given.items():
        owner = None if typed in plain_names() else only_owner(typed, pairs_of({"method": methods}))
        changed = owner is not None and field_of(owner, typed) in named.parameters
        if owner is None or (owner[1] is method and not changed):
            own[typed] = value
    for parameter, value in named.parameters.items():
        own[qualified(method, parameter, KINDS["method"])] = value
    theirs = [other.name for other in methods if other is not method]
    tables = {key: v for key, v in file.items() if key.removeprefix("method.") not in theirs}
    config = resolve(tables, {**own, **named.parts, "method": named.method})
    return Variant(folder_name(name, method), named.label, plain_options(config.to_dict()))


def _check_wanted(given: Mapping[str, Any], methods: Sequence[type[Any]]) -> None:
    """Refuse a parameter of methods that are not compared."""
    others = [part for part in our_parts() if part[0].key != "method"]
    for name in given.keys() - plain_names():
        owners = owners_of(name, pairs_of({"method": METHODS.values()}))
        if owners and not owners_of(name, [*pairs_of({"method": methods}), *others]):
            raise CadisError(
                f"'{name}' is a parameter of {listed(part.name for _, part in owners)}, which "
                "is not compared."
            )


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options but the seed, as they come back from a file."""
    without_seed = {key: value for key, value in options.items() if key != "seed"}
    plain: dict[str, Any] = json.loads(json.dumps(without_seed))
    return plain
