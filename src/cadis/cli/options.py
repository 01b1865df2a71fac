"""Command-line options that are generated from the fields of settings and parts."""

import inspect
import re
import types
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click

from cadis._io import is_file, read_toml, to_printable
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
from cadis.permission import check_code
from cadis.store import find_code, permit_signed_code

_SECTIONS = {
    "data": "Data",
    "federation": "Rounds and evaluation",
    "training": "Local training",
    "machine": "Machine",
}
"""Title of a section of the help text, by the scope of its options."""

_CLIENT_TEST_OPTIONS = ("client_test", "own_tests", "test_clients")
"""Options of tests on clients' own data, which the help text lists together."""

_METAVARS = {"data_dir": "FOLDER", "speeds": "LOW:HIGH"}
_NAME_NOTES = {"singleset": "centralized training, for comparison"}
_MAX_LISTED = 8
"""Maximum number of names of parts that the help text of an option lists."""


class GeneratedOption(click.Option):
    """Option for a field of settings or of a part.

    Attributes:
        section: title of the section of the help text that lists the option.
        part_names: names of the parts under which the section lists the option; "" for settings.
    """

    def __init__(
        self,
        name: str,
        section: str,
        part_names: str = "",
        shown_name: str = "",
        switch: bool = False,
        **attributes: Any,
    ) -> None:
        """Create an option.

        Args:
            name: the name of the option in Python.
            section: the title of its section.
            part_names: the names of the parts that have this parameter.
            shown_name: another name for the same parameter, which the help text shows.
            switch: whether the option also has a negative form, such as ``--no-cache``.
            attributes: arguments of ``click.Option``.
        """
        flag = to_option_name(name)
        super().__init__([f"{flag}/--no-{flag[2:]}" if switch else flag, name], **attributes)
        self.section, self.part_names, self._shown_name = section, part_names, shown_name or name

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option as the help text shows it, and its description."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        names, text = record
        own, shown = (to_option_name(n)[2:] for n in (str(self.name), self._shown_name))
        return re.sub(rf"(?<=-){re.escape(own)}(?![\w-])", shown, names), text


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
    _add_parameters(options, [*parts, *user_parts, *partitions], reserved)
    return list(options.values())


def compare_options(
    user_parts: Sequence[Part] = (), reserved: Collection[str] = ()
) -> list[GeneratedOption]:
    """Return the options of a run without ``--method``."""
    return run_options(user_parts, {"method", *reserved}, is_comparison=True)


def layer_options(*_: object) -> list[GeneratedOption]:
    """Return the options that affect the training of a single client."""
    names = {*get_field_names(DatasetOptions), *find_options_by_scope("training", "machine")}
    names.remove("profiles")
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
    for name, value in _split_arguments(arguments):
        varied, _, values = value.partition("=")
        if name == "grid":
            parts += find_user_classes({varied.strip().replace("-", "_"): values})
        else:
            parts += find_user_classes({"method" if name == "methods" else name: value})
    for path in _list_option_files(arguments):
        with suppress(CadisError):  # reported when the options are resolved
            options = read_toml(path)
            permit_signed_code(path.parent, options)
            parts += find_user_classes(options)
    return [(kind, part) for part, kind in {part: kind for kind, part in parts}.items()]


def check_files(arguments: Sequence[str]) -> None:
    """Raise an error if a file of options on the command line names code that is not allowed."""
    for path in _list_option_files(arguments):
        check_code(*find_code(read_toml(path)), source=to_printable(path))


def _list_option_files(arguments: Sequence[str]) -> list[Path]:
    """Return the files of options that a command line names."""
    files = [Path(argument) for argument in arguments if argument.endswith(".toml")]
    if "--resume" in arguments:
        folders = (value for name, value in _split_arguments(arguments) if name == "out")
        files += [Path(folder) / "config.toml" for folder in folders]
    return [path for path in files if is_file(path)]


def _split_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of ``--name value`` and ``--name=value``."""
    for argument, next_argument in pairwise([*arguments, ""]):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            yield name.replace("-", "_"), value if equals else next_argument


def _make_part_option(kind: Kind) -> GeneratedOption:
    """Return the option that chooses the part of a kind."""
    names = [f"{n} ({_NAME_NOTES[n]})" if n in _NAME_NOTES else n for n in kind.registry]
    if len(names) > _MAX_LISTED:
        names = [*names[:_MAX_LISTED], f"... (list all: 'cadis {kind.key}s')"]
    default, method = ",".join(kind.default), METHODS[KINDS["method"].default[0]]
    if kind.key in method.default_parts:
        default = f"{method.default_parts[kind.key]} for {method.name}, {default} for most others"
    text = f"{kind.help}: {', '.join(names)}, or FILE.py:CLASS.{_format_note(default)}"
    metavar = "NAME,..." if kind.allows_several else "NAME"
    return GeneratedOption(kind.key, "Algorithm", metavar=metavar, help=text)


def _make_settings_options(settings: type) -> dict[str, GeneratedOption]:
    """Return one option per field of a class of settings, ordered by section."""
    names = [n for n in get_field_names(settings) if n not in _CLIENT_TEST_OPTIONS]
    names += [n for n in _CLIENT_TEST_OPTIONS if n in get_field_names(settings)]
    options = {}
    for scope, section in _SECTIONS.items():
        for name in names:
            if scope == _get_scope(name):
                text = OPTIONS[name].help + _format_note(_format_default(settings, name))
                options[name] = _make_option(name, name, [settings], section, help=text)
    return options


def _get_scope(name: str) -> str:
    """Return the scope under which the help text lists an option."""
    if name == "seed":  # it also decides the partition, and "cadis partition" has no training
        return "data"
    return "federation" if name in _CLIENT_TEST_OPTIONS else OPTIONS[name].scope


def _add_parameters(
    options: dict[str, GeneratedOption], parts: Sequence[Part], reserved: Collection[str] = ()
) -> None:
    """Add two options per parameter: its name, and its name with the name of its part as prefix.

    The help text lists each parameter once per part. It shows the short name, unless another
    option has this name, or a part of another kind has the name of the part.
    """
    other_names = {*options, *reserved}
    for kind, part in parts:
        for field in get_field_names(part):
            owners = [owner for owner in parts if field in get_field_names(owner[1])]
            classes = [owner for _, owner in owners]
            shown_name = "" if field in other_names else field
            if shown_name and field not in options:
                options[field] = _make_option(field, field, classes, "", hidden=True)
            name = qualify_parameter(part, field)
            namesakes = [owner for owner in classes if owner.name == part.name]
            if len(namesakes) > 1:  # parts of two kinds have the same name
                if name not in options and name not in reserved:
                    options[name] = _make_option(name, field, namesakes, "", hidden=True)
                name, shown_name = qualify_parameter(part, field, kind), ""
            if name not in options and name not in reserved:
                options[name] = _make_parameter(name, field, kind, part, owners, shown_name)


def _make_parameter(
    name: str, field: str, kind: Kind, part: type[Any], owners: Sequence[Part], shown_name: str
) -> GeneratedOption:
    """Return the option for a parameter of a part, with the part in its name.

    A part with the same parameters as an earlier part, such as cadis-paper, is listed with it.
    """
    descriptions: list[tuple[type[Any], dict[str, str]]] = [
        (owner, _describe_fields(owner))  # type: ignore[arg-type]  # hashable
        for owner_kind, owner in owners
        if owner_kind is kind
    ]
    described = dict(descriptions)[part]
    same = [owner for owner, texts in descriptions if texts == described]
    text = f"{described[field]}{_format_note(_format_defaults(same, field))}"
    return _make_option(
        name,
        field,
        [part],
        section=f"Parameters of the {kind.noun}s",
        part_names=", ".join(p.name for p in same),
        shown_name=shown_name,
        hidden=same[0] is not part,
        help=text,
    )


@cache
def _describe_fields(part: type[Any]) -> dict[str, str]:
    """Return the description of each parameter of a part; without one, its name."""
    texts = parse_attribute_docs(part)
    return {field: texts.get(field, field.replace("_", " ")) for field in get_field_names(part)}


def _make_option(
    name: str, field: str, classes: Sequence[type], section: str, **attributes: Any
) -> GeneratedOption:
    """Return an option for a field of these classes; a flag if it is boolean in all of them."""
    hints = [get_field_types(cls)[field] for cls in classes]
    if all(hint is bool for hint in hints):
        switch = any(_get_default(cls, field) is True for cls in classes)
        attributes |= {"is_flag": True, "default": None, "switch": switch}
    else:
        attributes["metavar"] = _METAVARS.get(name) or _format_type(hints[0])
    return GeneratedOption(name, section, **attributes)


def _get_default(cls: type, name: str) -> Any:
    """Return the default of a field, or MISSING."""
    (field,) = (field for field in fields(cls) if field.name == name)
    factory = field.default_factory
    return field.default if factory is MISSING else factory()


def _format_note(default: str) -> str:
    return f"  [default: {default}]" if default else ""


def _format_defaults(parts: Sequence[type[Any]], field: str) -> str:
    """Return the default of the first part, and the different defaults of the others."""
    default, *others = (_format_default(part, field) for part in parts)
    different = [
        f"{other} for {part.name}"
        for part, other in zip(parts[1:], others, strict=True)
        if other != default
    ]
    return "; ".join([default, *different])


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
