"""Whose a parameter is that a user types: ``alpha``, or ``fedfa_alpha`` where that is not clear."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from cadis.algorithm import KINDS, Kind, check_names, listed, names_of
from cadis.data.partition import PARTITIONERS, Partitioner
from cadis.errors import CadisError

PARTITION = Kind("partition", PARTITIONERS, Partitioner, ("mc",), "Who has what")
"""Partitions have parameters as parts do, but are none: an algorithm does not know of them."""


def our_parts() -> dict[str, type[Any]]:
    """All parts and partitions of ours, by name."""
    return {
        name: part for kind in (*KINDS.values(), PARTITION) for name, part in kind.registry.items()
    }


def qualified(part: type[Any], field: str) -> str:
    """A parameter's name with that of its part: always clear."""
    return f"{part.name}_{field}".replace("-", "_")


def as_option(name: str) -> str:
    """A name as it is typed on the command line."""
    return f"--{name.replace('_', '-')}"


def field_of(part: type[Any], typed: str) -> str | None:
    """The parameter of a part that a user means, None if it has none of that name."""
    for field in names_of(part):
        if typed in (field, qualified(part, field)):
            return field
    return None


def owners_of(typed: str, parts: Iterable[type[Any]]) -> list[type[Any]]:
    """The parts that have a parameter of this name, be it with the part's own before it."""
    having = [part for part in parts if field_of(part, typed) is not None]
    return [part for part in having if typed in names_of(part)] or having


def only_owner(typed: str, parts: Iterable[type[Any]]) -> type[Any] | None:
    """The part that a parameter belongs to, None if to none; refused if to several."""
    owners = owners_of(typed, parts)
    if len(owners) > 1:
        names = listed(part.name for part in owners)
        ways = " or ".join(as_option(qualified(part, typed)) for part in owners)
        raise CadisError(f"'{typed}' is a parameter of {names}; write {ways}.")
    return owners[0] if owners else None


def with_implied_transforms(
    classes: Mapping[str, tuple[type[Any], ...]], typed: Iterable[str]
) -> dict[str, tuple[type[Any], ...]]:
    """The chosen classes, and the transforms that a parameter is given of.

    They come after those that were named, in the order of the registry.
    """
    chosen = [part for parts in classes.values() for part in parts]
    registry = KINDS["transforms"].registry.values()
    others = [part for part in registry if part not in chosen]
    implied = {only_owner(name, others) for name in typed if not owners_of(name, chosen)}
    added = tuple(part for part in others if part in implied)
    return {**classes, "transforms": (*classes["transforms"], *added)}


def tables_of(
    given: Mapping[str, Any], chosen: Mapping[str, Iterable[type[Any]]], names: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Typed parameters in the tables of the parts that they belong to.

    Args:
        given: parameters as a user types them.
        chosen: the classes of the chosen parts, and of the partition, by kind.
        names: what the user chose, by kind, for sentences.
    """
    parts = [part for some in chosen.values() for part in some]
    tables: dict[str, dict[str, Any]] = {part.name: {} for part in parts}
    for typed, value in given.items():
        owner = only_owner(typed, parts) or _refuse(typed, parts, names)
        field = str(field_of(owner, typed))
        if field in tables[owner.name]:
            raise CadisError(f"{field} of {owner.name} is given twice; give it once.")
        tables[owner.name][field] = value
    return tables


def _refuse(typed: str, parts: Iterable[type[Any]], names: Mapping[str, str]) -> NoReturn:
    """A parameter that nobody has, or only those who were not chosen."""
    owners = {
        kind.key: found
        for kind in (*KINDS.values(), PARTITION)
        if (found := owners_of(typed, kind.registry.values()))
    }
    if not owners:
        check_names("option", [typed], [name for part in parts for name in names_of(part)])
    whose = listed(part.name for found in owners.values() for part in found)
    raise CadisError(f"'{typed}' is a parameter of {whose}, not of {names[next(iter(owners))]}.")
