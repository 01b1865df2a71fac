"""Whose a parameter is that a user types: ``alpha``, or ``fedfa_alpha`` where that is not clear.

Each kind of part has names of its own. If two kinds have a part of one name, the kind goes first:
``local_optimizer_adam_lr``, and ``["local_optimizer.adam"]`` as the table of a file.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from cadis.algorithm import KINDS, Kind, check_names, listed, names_of, qualify
from cadis.data.partition import PARTITIONERS, Partitioner
from cadis.errors import CadisError

_QUESTION = "How training data are split among clients"
PARTITION = Kind("partition", PARTITIONERS, Partitioner, ("mc",), _QUESTION)
"""Partitions have parameters as parts do, but are none: an algorithm does not know of them."""

ALL_KINDS = {**KINDS, PARTITION.key: PARTITION}
"""Everything that has parameters, by key."""

Part: TypeAlias = tuple[Kind, type[Any]]
"""The class of a part, and its kind."""


def our_parts() -> list[Part]:
    """Return all parts and partitions of ours."""
    return pairs_of({key: kind.registry.values() for key, kind in ALL_KINDS.items()})


def pairs_of(classes: Mapping[str, Iterable[type[Any]]]) -> list[Part]:
    """Return classes that are given by kind, each with its kind."""
    return [(ALL_KINDS[key], part) for key, some in classes.items() for part in some]


def qualified(part: type[Any], field: str, kind: Kind | None = None) -> str:
    """Return a parameter's name with that of its part, and with the kind's before if it is given.

    With the kind, the name is always clear.
    """
    name = f"{part.name}_{field}" if kind is None else f"{kind.key}_{part.name}_{field}"
    return name.replace("-", "_")


def as_option(name: str) -> str:
    """Return a name as it is typed on the command line."""
    return f"--{name.replace('_', '-')}"


def field_of(part: Part, typed: str) -> str | None:
    """Return the parameter of a part that a user means, None if it has none of that name."""
    kind, cls = part
    for field in names_of(cls):
        if typed in (field, qualified(cls, field), qualified(cls, field, kind)):
            return field
    return None


def owners_of(typed: str, parts: Iterable[Part]) -> list[Part]:
    """Return the parts that have a parameter of this name, be it with the part's own before it."""
    having = [part for part in parts if field_of(part, typed) is not None]
    return [part for part in having if typed in names_of(part[1])] or having


def only_owner(typed: str, parts: Iterable[Part]) -> Part | None:
    """Return the part that a parameter belongs to, None if to none; refuse if to several."""
    owners = owners_of(typed, parts)
    if len(owners) > 1:
        names = [cls.name for _, cls in owners]
        shared = len(set(names)) < len(names)
        whose = listed(
            f"the {kind.noun} {cls.name}" if shared else cls.name for kind, cls in owners
        )
        ways = " or ".join(
            as_option(qualified(cls, str(field_of((kind, cls), typed)), kind if shared else None))
            for kind, cls in owners
        )
        raise CadisError(f"'{typed}' is a parameter of {whose}; write {ways}.")
    return owners[0] if owners else None


def with_implied_transforms(
    classes: Mapping[str, tuple[type[Any], ...]], typed: Iterable[str]
) -> dict[str, tuple[type[Any], ...]]:
    """Return the chosen classes, and the transforms that a parameter is given of.

    They come after those that were named, in the order of the registry.
    """
    chosen = pairs_of(classes)
    others = [
        part
        for part in pairs_of({"transforms": KINDS["transforms"].registry.values()})
        if part not in chosen
    ]
    implied = [only_owner(name, others) for name in typed if not owners_of(name, chosen)]
    added = tuple(part[1] for part in others if part in implied)
    return {**classes, "transforms": (*classes["transforms"], *added)}


def tables_of(
    given: Mapping[str, Any], chosen: Mapping[str, Iterable[type[Any]]], names: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return typed parameters by the parts that they belong to, as ``kind.name``.

    Both the classes of the chosen parts and what the user called them, for sentences, are by kind.
    """
    parts = pairs_of(chosen)
    tables: dict[str, dict[str, Any]] = {qualify(kind.key, cls.name): {} for kind, cls in parts}
    for typed, value in given.items():
        owner = only_owner(typed, parts) or _refuse(typed, parts, names)
        kind, cls = owner
        field, table = str(field_of(owner, typed)), tables[qualify(kind.key, cls.name)]
        if field in table:
            raise CadisError(f"{field} of {cls.name} is given twice; give it once.")
        table[field] = value
    return tables


def _refuse(typed: str, parts: Iterable[Part], names: Mapping[str, str]) -> NoReturn:
    """Refuse a parameter that no part has, or only parts that were not chosen."""
    owners = owners_of(typed, our_parts())
    if not owners:
        check_names("option", [typed], [name for _, cls in parts for name in names_of(cls)])
    whose = listed(cls.name for _, cls in owners)
    raise CadisError(f"'{typed}' is a parameter of {whose}, not of {names[owners[0][0].key]}.")
