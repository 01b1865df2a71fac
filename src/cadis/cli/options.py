"""Options that are read from the classes that hold them: a new part has its options at once."""

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
from cadis.algorithm import KINDS, Kind, hints_of, is_list, is_list_of_names, names_of, own_classes
from cadis.algorithm.methods import METHODS
from cadis.errors import CadisError
from cadis.experiment import PARTITION, Part, Settings, as_option, our_parts, qualified
from cadis.options import OPTIONS, DatasetOptions, PartitionOptions, options_of_scope


class GeneratedOption(click.Option):
    """An option that stands for a field of a class; help lists it in its section."""

    def __init__(self, name: str, section: str, switch: bool = False, **attributes: Any) -> None:
        typed = as_option(name)
        super().__init__([f"{typed}/--no-{typed[2:]}" if switch else typed, name], **attributes)
        self.section = section


def run_options(
    own: Sequence[Part] = (), taken: Collection[str] = (), compared: bool = False
) -> list[GeneratedOption]:
    """Return options for the parts, the settings, and the parameters of all parts and partitions.

    Values stay as typed; they are checked when the experiment is put together, where values
    from files are checked too. ``own`` are parts of a user's own, ``taken`` the names of the
    command's further options; where methods are ``compared``, there are several.
    """
    options = {} if compared else {"method": _choice_of(KINDS["method"])}
    options |= {key: _choice_of(kind) for key, kind in KINDS.items() if key != "method"}
    options |= _options_of(Settings, "Experiment")
    ours = [part for part in our_parts() if part[0] is not PARTITION]
    partitions = [part for part in our_parts() if part[0] is PARTITION]
    _add_parameters(options, [*ours, *own, *partitions], taken, compared)
    return list(options.values())


def compare_options(own: Sequence[Part] = (), taken: Collection[str] = ()) -> list[GeneratedOption]:
    """Those of a run, but for the method: there are several."""
    return run_options(own, {"method", *taken}, compared=True)


def layer_options(*_: object) -> list[GeneratedOption]:
    """Return the options that matter to the training of single clients."""
    names = {*names_of(DatasetOptions), *options_of_scope("training", "machine")}
    return [option for option in run_options() if option.name in names]


def partition_options(*_: object) -> list[GeneratedOption]:
    """Options for the dataset, and who has what of it."""
    options = _options_of(PartitionOptions, "Federation")
    _add_parameters(options, [part for part in our_parts() if part[0] is PARTITION])
    return list(options.values())


def parts_in(arguments: Sequence[str]) -> list[Part]:
    """Return the parts of a user's own that a command line names, itself or by a file of options.

    The arguments are as they were typed: they cannot be parsed yet, since parts have options.
    """
    found: list[Part] = []
    files = [Path(argument) for argument in arguments if argument.endswith(".toml")]
    for name, value in _typed(arguments):
        varied, _, values = value.partition("=")
        if name == "grid":
            found += own_classes({varied.strip().replace("-", "_"): values})
        else:
            found += own_classes({"method" if name == "methods" else name: value})
        if name == "out" and "--resume" in arguments:
            files.append(Path(value) / "config.toml")
    for path in files:
        with suppress(CadisError):  # it is told when the experiment is put together
            found += own_classes(read_toml(path))
    return [(kind, part) for part, kind in {part: kind for kind, part in found}.items()]


def _typed(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names of options and their values, from both ``--name value`` and ``--name=value``."""
    for argument, following in pairwise([*arguments, ""]):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            yield name.replace("-", "_"), value if equals else following


def _choice_of(kind: Kind) -> GeneratedOption:
    meant = [
        f"{m.default_parts[kind.key]} with {m.name}"
        for m in METHODS.values()
        if kind.key in m.default_parts
    ]
    taken = "; ".join([",".join(kind.default), *meant])
    default = f"  [default: {taken}]" if taken else ""
    names = f"{', '.join(kind.registry)}, or FILE.py:CLASS".removeprefix(", or ")
    text = f"{kind.question}: {names}.{default}"
    metavar = "NAME,NAME,..." if kind.many else "NAME"
    return GeneratedOption(kind.key, "Algorithm", metavar=metavar, help=text)


def _options_of(kind: type, section: str) -> dict[str, GeneratedOption]:
    """Return an option for each field of a class of settings."""
    return {
        name: _made(name, name, [kind], section, _described(kind, name)) for name in names_of(kind)
    }


def _add_parameters(
    options: dict[str, GeneratedOption],
    parts: Sequence[Part],
    taken: Collection[str] = (),
    compared: bool = False,
) -> None:
    """An option for each parameter; with the part's name before it, always, but mostly hidden."""
    plain = {*options, *taken}
    owners: dict[str, list[Part]] = {}
    for kind, part in parts:
        for field in names_of(part):
            owners.setdefault(field, []).append((kind, part))
    for field, having in owners.items():
        if field not in plain:
            options[field] = _parameter(field, field, having)
        unclear = field in plain or _may_meet(having, compared)
        for kind, part in having:
            same = [each for each in having if each[1].name == part.name]
            named = {qualified(part, field): same}
            if len(same) > 1:  # parts of two kinds share a name
                named[qualified(part, field, kind)] = [(kind, part)]
            for name, meant in named.items():
                if name not in options and name not in taken:
                    hidden = not unclear or len(meant) > 1
                    options[name] = _parameter(name, field, meant, hidden)


def _may_meet(having: Sequence[Part], compared: bool) -> bool:
    kinds = [kind.key for kind, _ in having]
    several = {kind.key for kind, _ in having if kind.many or (compared and kind.key == "method")}
    return len(set(kinds)) > 1 or any(kinds.count(key) > 1 for key in several)


def _parameter(
    name: str, field: str, having: Sequence[Part], hidden: bool = False
) -> GeneratedOption:
    parts = [part for _, part in having]
    words: dict[str, list[str]] = {}
    for part in parts:
        words.setdefault(_described(part, field), []).append(part.name)
    text = " ".join(f"{', '.join(names)}: {said}" for said, names in words.items())
    return _made(name, field, parts, f"Parameters of the {having[0][0].noun}s", text, hidden)


def _made(
    name: str, field: str, kinds: Sequence[type], section: str, text: str, hidden: bool = False
) -> GeneratedOption:
    """The option that stands for a field of these classes; a flag if it is one in all of them."""
    hints = [hints_of(kind)[field] for kind in kinds]
    how: dict[str, Any] = {"metavar": _metavar(hints[0])}
    if all(hint is bool for hint in hints):
        switch = any(_default(kind, field) is True for kind in kinds)
        how = {"is_flag": True, "default": None, "switch": switch}
    return GeneratedOption(name, section, help=text, hidden=hidden, **how)


def _default(kind: type, name: str) -> Any:
    """The default of a field; MISSING if it must be given."""
    (field,) = (field for field in fields(kind) if field.name == name)
    made = field.default_factory
    return field.default if made is MISSING else made()


def _described(kind: type, name: str) -> str:
    """Return the help of an option, or what the docstring of a part says, and the default."""
    declared = OPTIONS.get(name) if issubclass(kind, PartitionOptions) else None
    text = described_attributes(kind).get(name, name.replace("_", " "))
    text = declared.help if declared else text
    default = _default(kind, name)
    if default is MISSING or default is None or default is False or default in ("", (), []):
        return text
    if isinstance(default, list | tuple):
        default = ("," if is_list_of_names(hints_of(kind)[name]) else ":").join(map(str, default))
    return f"{text}  [default: {default}]"


def described_attributes(kind: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of its attributes."""
    described: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__):
        joined = re.sub(r"\n {8,}", " ", inspect.cleandoc(ancestor.__doc__ or ""))
        described |= dict(re.findall(r"^ {4}(\w+): (.+)$", joined, re.MULTILINE))
    return described


def _metavar(hint: Any) -> str:
    """How a type is shown in help."""
    if get_origin(hint) is Annotated:
        return _metavar(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return "|".join(_metavar(part) for part in get_args(hint) if part is not type(None))
    if is_list(hint):
        return "NAME,NAME,..." if is_list_of_names(hint) else "N:N:..."
    return {int: "N", float: "X", str: "NAME", bool: "true|false"}.get(hint, "VALUE")
