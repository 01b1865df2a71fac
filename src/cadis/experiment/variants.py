"""Variants of a study: methods, ablations of CADIS, and values of parameters."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from cadis._io import is_user_code
from cadis.algorithm import KINDS, check_names, find_part_class, get_field_names, join_words
from cadis.algorithm.methods import METHODS, get_method_label
from cadis.errors import CadisError
from cadis.experiment.config import list_option_names, resolve
from cadis.experiment.parameters import (
    Part,
    find_field,
    find_owner,
    find_owners,
    list_builtin_parts,
    pair_with_kinds,
    qualify_parameter,
)
from cadis.store import Variant, format_cell_label, format_cell_name


@dataclass(frozen=True)
class NamedVariant:
    """Method with fixed parameters or parts.

    Attributes:
        label: the name in tables and figures.
        method: the name of the method.
        parameters: parameters of the method that differ from its defaults.
        parts: names of the other parts to use, by kind.
    """

    label: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


ABLATIONS: dict[str, NamedVariant] = {
    "cadis-uniform": NamedVariant("CADIS, uniform sampling", "cadis", parts={"sampler": "uniform"}),
    "cadis-no-momentum": NamedVariant(
        "CADIS, no server momentum", "cadis", parts={"server_optimizer": "plain"}
    ),
    "cadis-plain-weights": NamedVariant("CADIS, FedAvg weights", "cadis", {"weights": "samples"}),
    "cadis-no-distillation": NamedVariant("CADIS, no distillation", "cadis", {"distillation": 0.0}),
    "cadis-no-clustering": NamedVariant("CADIS, no clustering", "cadis", {"clusters": "none"}),
    "cadis-absent": NamedVariant(
        "CADIS, uniform sampling, old updates reused",
        "cadis",
        {"absent": 0.5},
        {"sampler": "uniform"},
    ),
    "cadis-hard-weights": NamedVariant(
        "CADIS, weights and sampling by clusters",
        "cadis",
        {"weights": "clusters"},
        {"sampler": "clusters"},
    ),
    "cadis-oracle": NamedVariant(
        "CADIS, true clusters", "cadis", {"clusters": "true"}, {"sampler": "clusters"}
    ),
}
"""Ablations: CADIS with one part removed or replaced, or with the true clusters."""

_WITH_OPTIMIZER: dict[str, NamedVariant] = {
    name: NamedVariant(get_method_label(name), name, parts=method.default_parts)
    for name, method in METHODS.items()
    if method.default_parts.keys() == {"server_optimizer"}
}
"""Methods that are defined by their server optimizer; --server-optimizer does not change it."""

VARIANTS: dict[str, NamedVariant] = {
    **_WITH_OPTIMIZER,
    "power-of-choice": NamedVariant(
        "FedAvg, power-of-choice sampling", "fedavg", parts={"sampler": "power-of-choice"}
    ),
    "fedcluster": NamedVariant(
        "FedAvg, FedCluster sampling", "fedavg", parts={"sampler": "fedcluster"}
    ),
    "hics": NamedVariant("FedAvg, HiCS-FL sampling", "fedavg", parts={"sampler": "hics"}),
    **ABLATIONS,
}
"""Variants of methods, by the name that ``cadis compare --methods`` takes."""

ALL = tuple(dict.fromkeys([*METHODS, *(name for name in VARIANTS if name not in ABLATIONS)]))
"""All methods and variants except ablations."""

_GROUPS = {"all": ALL, "ablations": ("cadis", *ABLATIONS)}
CHOICES = (*METHODS, *VARIANTS, *_GROUPS)
"""All names that can be compared; "ablations" is CADIS and all its ablations."""

MAX_RUNS = 1000
"""Maximum number of runs of one study."""


def make_method_variants(
    names: Iterable[str], file: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """Build one variant per method or ablation, with its options.

    Args:
        names: names of methods, of variants such as "cadis-uniform", and of groups: "all" and
            "ablations".
        file: the content of a TOML file.
        overrides: options of the command line. The parameters of a method apply only to that
            method.
    """
    classes = find_method_classes(names)
    methods = list(dict.fromkeys(classes.values()))
    _check_parameters(overrides, methods)
    return tuple(
        _make_method_variant(name, method, methods, file, overrides)
        for name, method in classes.items()
    )


def find_method_classes(names: Iterable[str]) -> dict[str, type[Any]]:
    """Return the class of each method and ablation by name; expand groups such as "all"."""
    given = [name.strip() if is_user_code(name) else name.strip().lower() for name in names]
    check_names("method", (n for n in given if not is_user_code(n)), [*CHOICES, "FILE.py:CLASS"])
    expanded = [member for name in given for member in _GROUPS.get(name, (name,))]
    classes = {
        name: find_part_class(KINDS["method"], VARIANTS[name].method if name in VARIANTS else name)
        for name in dict.fromkeys(expanded)
    }
    folders = [get_folder_name(name, method) for name, method in classes.items()]
    for name, folder in zip(classes, folders, strict=True):
        if folders.count(folder) > 1 or (is_user_code(name) and folder in CHOICES):
            raise CadisError(f"Two methods are called '{folder}'; give each a different name.")
    return classes


def choose_baseline(methods: Mapping[str, type[Any]]) -> str:
    """Return the baseline: FedAvg, or else the first method that keeps data at the clients."""
    federations = [name for name, method in methods.items() if not method.pools_clients]
    return "fedavg" if "fedavg" in methods else [*federations, *methods][0]


def make_grid_variants(
    grid: Mapping[str, Sequence[str]], file: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[Variant, ...]:
    """Build one variant per combination of the values in the grid."""
    check_run_count(prod(map(len, grid.values())))
    names = list(grid)
    return tuple(
        Variant(
            format_cell_name(names, values),
            format_cell_label(names, values),
            to_stored_options(resolve(file, options).to_dict()),
            values,
        )
        for values, options in _iter_cells(grid, overrides)
    )


def make_method_grid(
    names: Sequence[str],
    grid: Mapping[str, Sequence[str]],
    file: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> tuple[Variant, ...]:
    """Build the variants of several methods for every combination of the values in the grid."""
    if "method" in grid:
        raise CadisError("The grid cannot vary the method; name the methods with --methods.")
    check_run_count(prod(map(len, grid.values())) * len(names))
    return tuple(
        replace(
            variant,
            name=f"{format_cell_name(list(grid), values)}_{variant.name}",
            label=f"{variant.label} ({format_cell_label(list(grid), values)})",
            cell=values,
        )
        for values, options in _iter_cells(grid, overrides)
        for variant in make_method_variants(names, file, options)
    )


def _iter_cells(
    grid: Mapping[str, Sequence[str]], overrides: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every combination of values in the grid, with the options that it gives."""
    for values in itertools.product(*grid.values()):
        yield values, {**overrides, **dict(zip(grid, values, strict=True))}


def check_run_count(num_runs: int) -> None:
    """Raise an error if a study has too many runs, before they are planned."""
    if num_runs > MAX_RUNS:
        raise CadisError(
            f"This study would have {num_runs} runs, more than the maximum of {MAX_RUNS}; use "
            "fewer seeds, methods or values."
        )


def parse_grid(texts: Iterable[str], user_parts: Iterable[Part] = ()) -> dict[str, list[str]]:
    """Parse texts such as ``threshold=0.6,0.7`` into values by option.

    Args:
        texts: one text per option.
        user_parts: parts defined by the user, whose parameters are accepted too.
    """
    grid: dict[str, list[str]] = {}
    parts = [*list_builtin_parts(), *user_parts]
    short_names = dict.fromkeys(
        [*list_option_names(), *(name for _, part in parts for name in get_field_names(part))]
    )
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        choices = [value.strip() for value in values.split(",") if value.strip()]
        if not choices:
            raise CadisError(f"Write a grid as NAME=VALUE,VALUE,... instead of '{text}'.")
        if not find_owners(name, parts):
            check_names("option", [name], short_names)
        if name in grid:
            raise CadisError(f"The grid has '{name}' twice; list all its values in one --grid.")
        if name == "seed":
            raise CadisError("The grid cannot vary the seed; set the number of seeds with --seeds.")
        grid[name] = list(dict.fromkeys(choices))
    if not grid:
        raise CadisError("Name an option to vary, such as --grid threshold=0.6,0.7,0.8.")
    return grid


def get_folder_name(name: str, method: type[Any]) -> str:
    """Return the folder name of a variant; for a user's method, the name in its class."""
    return str(method.name) if is_user_code(name) else name


def get_variant(name: str, method: type[Any]) -> NamedVariant:
    """Return the variant of this name, or the plain method."""
    return VARIANTS.get(name, NamedVariant(method.label or method.__name__, name))


def _make_method_variant(
    name: str,
    method: type[Any],
    methods: Sequence[type[Any]],
    file: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> Variant:
    """Build the variant of one method; leave out parameters of the other methods."""
    variant = get_variant(name, method)
    parts, values = pair_with_kinds({"method": methods}), {}
    for option_name, value in overrides.items():
        owner = None if option_name in list_option_names() else find_owner(option_name, parts)
        is_fixed = owner is not None and find_field(owner, option_name) in variant.parameters
        if owner is None or (owner[1] is method and not is_fixed):
            values[option_name] = value
    for parameter, value in variant.parameters.items():
        values[qualify_parameter(method, parameter, KINDS["method"])] = value
    others = [other.name for other in methods if other is not method]
    tables = {key: v for key, v in file.items() if key.removeprefix("method.") not in others}
    config = resolve(tables, {**values, **variant.parts, "method": variant.method})
    options = to_stored_options(config.to_dict())
    return Variant(get_folder_name(name, method), variant.label, options)


def _check_parameters(overrides: Mapping[str, Any], methods: Sequence[type[Any]]) -> None:
    """Raise an error for a parameter of methods that are not compared."""
    others = [part for part in list_builtin_parts() if part[0].key != "method"]
    for name in overrides.keys() - list_option_names():
        owners = find_owners(name, pair_with_kinds({"method": METHODS.values()}))
        if owners and not find_owners(name, [*pair_with_kinds({"method": methods}), *others]):
            methods_text = join_words(part.name for _, part in owners)
            raise CadisError(
                f"'{name}' is a parameter of {methods_text}, which "
                f"{'is' if len(owners) == 1 else 'are'} not compared; leave it out, or add a "
                "method with this parameter to --methods."
            )


def to_stored_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options without the seed, after conversion to JSON and back."""
    without_seed = {key: value for key, value in options.items() if key != "seed"}
    plain: dict[str, Any] = json.loads(json.dumps(without_seed))
    return plain
