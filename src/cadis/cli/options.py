"""Command-line options that are generated from the fields of settings and parts."""

import inspect
import re
import types
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click

from cadis._io import read_toml
from cadis.algorithm import (
    KINDS,
    Kind,
    find_user_classes,
    get_field_names,
    get_field_types,
    is_list_type,
    is_name_list_type,
)
from cadis.algorithm.methods import METHODS
from cadis.errors import CadisError
from cadis.experiment import (
    PARTITION,
    Part,
    Settings,
    list_builtin_parts,
    qualify_parameter,
    to_option_name,
)
from cadis.options import OPTIONS, DatasetOptions, PartitionOptions, find_options_by_scope

_SECTIONS = {
    "data": "Data",
    "federation": "Rounds and evaluation",
    "training": "Local training",
    "machine": "Machine",
}
"""Title of a section of the help text, by the scope of its options."""

_METAVARS = {"data_dir": "FOLDER", "speeds": "LOW:HIGH"}
_MAX_LISTED = 8
"""Number of parts that the help text lists; of more, it names the first few."""


class GeneratedOption(click.Option):
    """Option for a field of a class, listed in a section of the help text."""

    def __init__(self, name: str, section: str, switch: bool = False, **attributes: Any) -> None:
        typed = to_option_name(name)
        super().__init__([f"{typed}/--no-{typed[2:]}" if switch else typed, name], **attributes)
        self.section = section


def run_options(
    user_parts: Sequence[Part] = (), reserved: Collection[str] = (), is_comparison: bool = False
) -> list[GeneratedOption]:
    """Return options for parts, settings, and the parameters of parts and partitions.

    Values remain strings; they are validated together with the values of files.

    Args:
        user_parts: parts defined by the user, whose parameters become options too.
        reserved: names of further options of the command.
        is_comparison: whether the command runs several methods.
    """
    options = {} if is_comparison else {"method": _make_part_option(KINDS["method"])}
    options |= {key: _make_part_option(kind) for key, kind in KINDS.items() if key != "method"}
    options |= _make_settings_options(Settings)
    parts = [part for part in list_builtin_parts() if part[0] is not PARTITION]
    partitions = [part for part in list_builtin_parts() if part[0] is PARTITION]
    _add_parameters(options, [*parts, *user_parts, *partitions], reserved, is_comparison)
    return list(options.values())


def compare_options(
    user_parts: Sequence[Part] = (), reserved: Collection[str] = ()
) -> list[GeneratedOption]:
    """Return the options of a run without ``--method``."""
    return run_options(user_parts, {"method", *reserved}, is_comparison=True)


def layer_options(*_: object) -> list[GeneratedOption]:
    """Return the options that affect the training of a single client."""
    names = {*get_field_names(DatasetOptions), *find_options_by_scope("training", "machine")}
    return [option for option in run_options() if option.name in names]


def partition_options(*_: object) -> list[GeneratedOption]:
    """Return options for the dataset and its partition."""
    options = _make_settings_options(PartitionOptions)
    _add_parameters(options, [part for part in list_builtin_parts() if part[0] is PARTITION])
    return list(options.values())


def find_user_parts(arguments: Sequence[str]) -> list[Part]:
    """Return the user-defined parts that a command line or its file of options names.

    The arguments are not parsed yet, since the parameters of these parts are options.
    """
    parts: list[Part] = []
    files = [Path(argument) for argument in arguments if argument.endswith(".toml")]
    for name, value in _split_arguments(arguments):
        varied, _, values = value.partition("=")
        if name == "grid":
            parts += find_user_classes({varied.strip().replace("-", "_"): values})
        else:
            parts += find_user_classes({"method" if name == "methods" else name: value})
        if name == "out" and "--resume" in arguments:
            files.append(Path(value) / "config.toml")
    for path in files:
        with suppress(CadisError):  # reported when the options are resolved
            parts += find_user_classes(read_toml(path))
    return [(kind, part) for part, kind in {part: kind for kind, part in parts}.items()]


def _split_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of ``--name value`` and ``--name=value``."""
    for argument, next_argument in pairwise([*arguments, ""]):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            yield name.replace("-", "_"), value if equals else next_argument


def _make_part_option(kind: Kind) -> GeneratedOption:
    """Return the option that chooses the part of a kind."""
    methods: dict[str, list[str]] = {}
    for method in METHODS.values():
        if kind.key in method.default_parts:
            methods.setdefault(method.default_parts[kind.key], []).append(method.name)
    defaults = [",".join(kind.default)]
    defaults += [f"{part} for {', '.join(names)}" for part, names in methods.items()]
    default = f"  [default: {'; '.join(defaults)}]" if defaults != [""] else ""
    names = [*kind.registry]
    if len(names) > _MAX_LISTED:
        names = [*names[:_MAX_LISTED], f"... (all: cadis {kind.key}s)"]
    text = f"{kind.help}: {', '.join(names)}, or FILE.py:CLASS.{default}"
    metavar = "NAME,..." if kind.many else "NAME"
    return GeneratedOption(kind.key, "Algorithm", metavar=metavar, help=text)


def _make_settings_options(settings: type) -> dict[str, GeneratedOption]:
    """Return one option per field of a class of settings, ordered by section."""
    options = {}
    for scope, section in _SECTIONS.items():
        for name in get_field_names(settings):
            # The seed also decides the partition, and "cadis partition" has no training.
            if scope == ("data" if name == "seed" else OPTIONS[name].scope):
                default = _format_default(settings, name)
                text = f"{OPTIONS[name].help}  [default: {default}]" if default else ""
                text = text or OPTIONS[name].help
                options[name] = _make_option(name, name, [settings], section, text)
    return options


def _add_parameters(
    options: dict[str, GeneratedOption],
    parts: Sequence[Part],
    reserved: Collection[str] = (),
    is_comparison: bool = False,
) -> None:
    """Add two options per parameter: its name, and its name with that of the part.

    The help text shows the longer name only if the short one may be ambiguous.
    """
    other_names = {*options, *reserved}
    owners: dict[str, list[Part]] = {}
    for kind, part in parts:
        for field in get_field_names(part):
            owners.setdefault(field, []).append((kind, part))
    for field, field_owners in owners.items():
        if field not in other_names:
            options[field] = _make_parameter(field, field, field_owners)
        is_ambiguous = field in other_names or _may_conflict(field_owners, is_comparison)
        for kind, part in field_owners:
            namesakes = [owner for owner in field_owners if owner[1].name == part.name]
            qualified = {qualify_parameter(part, field): namesakes}
            if len(namesakes) > 1:  # parts of two kinds have the same name
                qualified[qualify_parameter(part, field, kind)] = [(kind, part)]
            for name, meant in qualified.items():
                if name not in options and name not in reserved:
                    hidden = not is_ambiguous or len(meant) > 1
                    is_explained = field not in other_names
                    options[name] = _make_parameter(name, field, meant, hidden, is_explained)


def _may_conflict(owners: Sequence[Part], is_comparison: bool) -> bool:
    """Return whether two of these parts may be chosen at the same time."""
    kinds = [kind.key for kind, _ in owners]
    several = {k.key for k, _ in owners if k.many or (is_comparison and k.key == "method")}
    return len(set(kinds)) > 1 or any(kinds.count(key) > 1 for key in several)


def _make_parameter(
    name: str,
    field: str,
    owners: Sequence[Part],
    hidden: bool = False,
    is_explained: bool = False,
) -> GeneratedOption:
    """Return an option for a parameter; ``is_explained`` if the help has another option for it."""
    classes = [part for _, part in owners]
    texts: dict[str, list[type[Any]]] = {}
    for part in classes:
        text = parse_attribute_docs(part).get(field, field.replace("_", " "))
        text = f"{to_option_name(field)} of {part.name}." if is_explained else text
        texts.setdefault(text, []).append(part)
    sentences = []
    for text, parts in texts.items():
        names = "" if is_explained else f"{', '.join(part.name for part in parts)}: "
        sentences.append(f"{names}{text}{_format_defaults(parts, field)}")
    section = f"Parameters of the {owners[0][0].noun}s"
    return _make_option(name, field, classes, section, " ".join(sentences), hidden)


def _make_option(
    name: str, field: str, classes: Sequence[type], section: str, text: str, hidden: bool = False
) -> GeneratedOption:
    """Return an option for a field of these classes; a flag if it is boolean in all of them."""
    hints = [get_field_types(cls)[field] for cls in classes]
    attributes: dict[str, Any] = {"metavar": _METAVARS.get(name) or _format_type(hints[0])}
    if all(hint is bool for hint in hints):
        switch = any(_get_default(cls, field) is True for cls in classes)
        attributes = {"is_flag": True, "default": None, "switch": switch}
    return GeneratedOption(name, section, help=text, hidden=hidden, **attributes)


def _get_default(cls: type, name: str) -> Any:
    """Return the default of a field, or MISSING."""
    (field,) = (field for field in fields(cls) if field.name == name)
    factory = field.default_factory
    return field.default if factory is MISSING else factory()


def _format_defaults(parts: Sequence[type[Any]], field: str) -> str:
    """Return the defaults of a parameter as text; if they differ, with the names of the parts."""
    parts_by_default: dict[str, list[str]] = {}
    for part in parts:
        parts_by_default.setdefault(_format_default(part, field), []).append(part.name)
    if len(parts_by_default) == 1:
        (default,) = parts_by_default
        return f"  [default: {default}]" if default else ""
    texts = [f"{value} for {', '.join(names)}" for value, names in parts_by_default.items()]
    return f"  [default: {'; '.join(texts)}]"


def _format_default(cls: type, name: str) -> str:
    """Return the default of a field as a user types it; "" if there is none to show."""
    default = _get_default(cls, name)
    if default is MISSING or default is None or default is False or default in ("", (), []):
        return ""
    if default is True:
        return "on"
    if isinstance(default, list | tuple):
        separator = "," if is_name_list_type(get_field_types(cls)[name]) else ":"
        return separator.join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def parse_attribute_docs(cls: type) -> dict[str, str]:
    """Return the texts of "Attributes" in the docstrings of a class and its bases, by name."""
    texts: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        joined = re.sub(r"\n {8,}", " ", inspect.cleandoc(ancestor.__doc__ or ""))
        texts |= dict(re.findall(r"^ {4}(\w+): (.+)$", joined, re.MULTILINE))
    return texts


def _format_type(hint: Any) -> str:
    """Return a type as help texts show it."""
    if get_origin(hint) is Annotated:
        return _format_type(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return "|".join(_format_type(part) for part in get_args(hint) if part is not type(None))
    if is_list_type(hint):
        return "NAME,..." if is_name_list_type(hint) else "N:N:..."
    return {int: "N", float: "X", str: "NAME", bool: "true|false"}.get(hint, "VALUE")
