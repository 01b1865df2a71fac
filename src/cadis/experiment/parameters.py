"""Find the part to which a parameter belongs: ``alpha``, or ``fedfa_alpha`` if ambiguous.

The names of parts are unique within a kind. If two kinds have a part of the same name, the kind is
the prefix: ``local_optimizer_adam_lr`` as an option, ``["local_optimizer.adam"]`` as a table.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from cadis.algorithm import KINDS, Kind, check_names, get_field_names, join_words, qualify_name
from cadis.data.partition import PARTITIONERS, Partitioner
from cadis.errors import CadisError

_QUESTION = "How training data are split among clients"
PARTITION = Kind("partition", PARTITIONERS, Partitioner, ("mc",), _QUESTION)
"""Partitions have parameters like parts, but are not parts of an algorithm."""

ALL_KINDS = {**KINDS, PARTITION.key: PARTITION}
"""All kinds that have parameters, by key."""

Part: TypeAlias = tuple[Kind, type[Any]]
"""Kind and class of a part."""


def list_builtin_parts() -> list[Part]:
    """Return all built-in parts and partitions."""
    return pair_with_kinds({key: kind.registry.values() for key, kind in ALL_KINDS.items()})


def pair_with_kinds(classes: Mapping[str, Iterable[type[Any]]]) -> list[Part]:
    """Return the classes of a mapping by kind, each paired with its kind."""
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


def find_field(part: Part, typed: str) -> str | None:
    """Return the parameter of a part that the typed name means, or None."""
    kind, cls = part
    for field in get_field_names(cls):
        if typed in (field, qualify_parameter(cls, field), qualify_parameter(cls, field, kind)):
            return field
    return None


def find_owners(typed: str, parts: Iterable[Part]) -> list[Part]:
    """Return the parts with a parameter of this name, which may be qualified."""
    owners = [part for part in parts if find_field(part, typed) is not None]
    return [part for part in owners if typed in get_field_names(part[1])] or owners


def find_owner(typed: str, parts: Iterable[Part]) -> Part | None:
    """Return the part with this parameter, or None; refuse a name that several parts have."""
    owners = find_owners(typed, parts)
    if len(owners) > 1:
        names = [cls.name for _, cls in owners]
        is_ambiguous = len(set(names)) < len(names)
        parts_text = join_words(
            f"the {kind.noun} {cls.name}" if is_ambiguous else cls.name for kind, cls in owners
        )
        options = []
        for kind, cls in owners:
            field = str(find_field((kind, cls), typed))
            name = qualify_parameter(cls, field, kind if is_ambiguous else None)
            options.append(to_option_name(name))
        raise CadisError(f"'{typed}' is a parameter of {parts_text}; write {' or '.join(options)}.")
    return owners[0] if owners else None


def add_implied_transforms(
    classes: Mapping[str, tuple[type[Any], ...]], typed: Iterable[str]
) -> dict[str, tuple[type[Any], ...]]:
    """Add the transforms of which a parameter is set, in the order of the registry."""
    chosen = pair_with_kinds(classes)
    others = [
        part
        for part in pair_with_kinds({"transforms": KINDS["transforms"].registry.values()})
        if part not in chosen
    ]
    implied = [find_owner(name, others) for name in typed if not find_owners(name, chosen)]
    added = tuple(part[1] for part in others if part in implied)
    return {**classes, "transforms": (*classes["transforms"], *added)}


def group_parameters(
    parameters: Mapping[str, Any],
    chosen: Mapping[str, Iterable[type[Any]]],
    names: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Group typed parameters by part.

    Args:
        parameters: values by the name that the user typed.
        chosen: the classes of the chosen parts, by kind.
        names: the chosen parts as text for error messages, by kind.

    Returns:
        One table of parameters per chosen part, by "kind.name".
    """
    parts = pair_with_kinds(chosen)
    tables: dict[str, dict[str, Any]] = {
        qualify_name(kind.key, cls.name): {} for kind, cls in parts
    }
    for typed, value in parameters.items():
        owner = find_owner(typed, parts) or _refuse(typed, parts, names)
        kind, cls = owner
        field, table = str(find_field(owner, typed)), tables[qualify_name(kind.key, cls.name)]
        if field in table:
            raise CadisError(f"The parameter {field} of {cls.name} is set twice; set it once.")
        table[field] = value
    return tables


def _refuse(typed: str, parts: Iterable[Part], names: Mapping[str, str]) -> NoReturn:
    """Refuse a parameter that none of the chosen parts has."""
    owners = find_owners(typed, list_builtin_parts())
    if not owners:
        check_names("option", [typed], [name for _, cls in parts for name in get_field_names(cls)])
    kind, parts_text = owners[0][0], join_words(cls.name for _, cls in owners)
    raise CadisError(
        f"'{typed}' is a parameter of {parts_text}, not of {names[kind.key]}; leave it out, or "
        f"choose another {kind.noun}."
    )
