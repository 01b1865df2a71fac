"""Find the part to which a parameter belongs.

A parameter has the name ``alpha``, or ``fedfa_alpha`` if several parts have it. The names of parts
are unique within a kind. If parts of two kinds have the same name, the kind is a further prefix:
``local_optimizer_adam_lr`` as an option, ``["local_optimizer.adam"]`` as a table.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from cadis.algorithm import KINDS, Kind, check_names, get_field_names, join_words, qualify_name
from cadis.data.partition import PARTITIONERS, Partitioner
from cadis.errors import CadisError

_HELP = "How training data are split among clients"
PARTITION = Kind("partition", PARTITIONERS, Partitioner, ("mc",), _HELP)
"""Partitions have parameters like parts, but are not parts of an algorithm."""

ALL_KINDS = {**KINDS, PARTITION.key: PARTITION}
"""All kinds that have parameters, by key."""

Part: TypeAlias = tuple[Kind, type[Any]]
"""Kind and class of a part."""


def list_builtin_parts() -> list[Part]:
    """Return all built-in parts and partitions."""
    return pair_with_kinds({key: kind.registry.values() for key, kind in ALL_KINDS.items()})


def pair_with_kinds(classes: Mapping[str, Iterable[type[Any]]]) -> list[Part]:
    """Return pairs of kind and class from the classes by kind."""
    return [(ALL_KINDS[key], part) for key, parts in classes.items() for part in parts]


def qualify_parameter(part: type[Any], field: str, kind: Kind | None = None) -> str:
    """Prefix the name of a parameter with the name of its part, such as ``fedfa_alpha``.

    Args:
        part: the class of the part.
        field: the name of the parameter.
        kind: a further prefix; with the kind, the name is always unique.
    """
    name = f"{part.name}_{field}" if kind is None else f"{kind.key}_{part.name}_{field}"
    return name.replace("-", "_")


def to_option_name(name: str) -> str:
    """Return the command-line option of a name: ``--per-round`` for ``per_round``."""
    return f"--{name.replace('_', '-')}"


def find_field(part: Part, option_name: str) -> str | None:
    """Return the parameter of a part that an option sets, or None."""
    kind, cls = part
    for field in get_field_names(cls):
        names = field, qualify_parameter(cls, field), qualify_parameter(cls, field, kind)
        if option_name in names:
            return field
    return None


def find_owners(option_name: str, parts: Iterable[Part]) -> list[Part]:
    """Return the parts with a parameter that this option sets."""
    owners = [part for part in parts if find_field(part, option_name) is not None]
    return [part for part in owners if option_name in get_field_names(part[1])] or owners


def find_owner(option_name: str, parts: Iterable[Part]) -> Part | None:
    """Return the part whose parameter this option sets, or None.

    Raises:
        CadisError: if several parts have the parameter.
    """
    owners = find_owners(option_name, parts)
    if len(owners) > 1:
        names = [cls.name for _, cls in owners]
        is_ambiguous = len(set(names)) < len(names)
        parts_text = join_words(
            f"the {kind.noun} {cls.name}" if is_ambiguous else cls.name for kind, cls in owners
        )
        options = []
        for kind, cls in owners:
            field = str(find_field((kind, cls), option_name))
            name = qualify_parameter(cls, field, kind if is_ambiguous else None)
            options.append(to_option_name(name))
        raise CadisError(
            f"'{option_name}' is a parameter of {parts_text}; write {' or '.join(options)}."
        )
    return owners[0] if owners else None


def add_implied_transforms(
    classes: Mapping[str, tuple[type[Any], ...]], option_names: Iterable[str]
) -> dict[str, tuple[type[Any], ...]]:
    """Add the transforms that have a parameter among these options, in the registry's order."""
    chosen_parts = pair_with_kinds(classes)
    others = [
        part
        for part in pair_with_kinds({"transforms": KINDS["transforms"].registry.values()})
        if part not in chosen_parts
    ]
    unused_names = [name for name in option_names if not find_owners(name, chosen_parts)]
    implied_parts = [find_owner(name, others) for name in unused_names]
    implied_classes = tuple(part[1] for part in others if part in implied_parts)
    return {**classes, "transforms": (*classes["transforms"], *implied_classes)}


def group_parameters(
    parameters: Mapping[str, Any],
    chosen_classes: Mapping[str, Iterable[type[Any]]],
    names: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Group parameters by part.

    Args:
        parameters: values by the name of the option.
        chosen_classes: the classes of the chosen parts, by kind.
        names: the chosen parts as text for error messages, by kind.

    Returns:
        One table of parameters per chosen part, by "kind.name".
    """
    parts = pair_with_kinds(chosen_classes)
    tables: dict[str, dict[str, Any]] = {
        qualify_name(kind.key, cls.name): {} for kind, cls in parts
    }
    for option_name, value in parameters.items():
        owner = find_owner(option_name, parts) or _raise_unknown(option_name, parts, names)
        kind, cls = owner
        field, table = str(find_field(owner, option_name)), tables[qualify_name(kind.key, cls.name)]
        if field in table:
            raise CadisError(f"The parameter {field} of {cls.name} is set twice; set it once.")
        table[field] = value
    return tables


def _raise_unknown(option_name: str, parts: Iterable[Part], names: Mapping[str, str]) -> NoReturn:
    """Raise an error about a parameter that none of the chosen parts has."""
    owners = find_owners(option_name, list_builtin_parts())
    if not owners:
        known = [field for _, cls in parts for field in get_field_names(cls)]
        check_names("option", [option_name], known)
    kind, parts_text = owners[0][0], join_words(cls.name for _, cls in owners)
    raise CadisError(
        f"'{option_name}' is a parameter of {parts_text}, not of {names[kind.key]}; leave it out, "
        f"or choose another {kind.noun}."
    )
