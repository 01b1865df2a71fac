"""Parts by name: ours, and those of a user's own file, which are checked first."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

import tomli_w

from cadis._io import is_user_code, load_user_code
from cadis.algorithm.algorithm import Algorithm, parts_of
from cadis.algorithm.registry import KINDS, Kind, check_members
from cadis.algorithm.validation import check_names, names_of, validated
from cadis.errors import CadisError

_Part = TypeVar("_Part")

_AUTO = "auto"
"""What is typed for "what the method goes with"."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_typed_names: dict[type, str] = {}
"""How a user's own classes were named, such as ``mine.py:Mine``: they are stored by that."""


def names_in(value: object) -> list[Any]:
    """The entries of a list, which may be typed with commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def part_class(kind: Kind, name: object) -> type[Any]:
    """The class of a part: one of ours by its name, or a user's own by ``file.py:Class``."""
    if isinstance(name, str) and is_user_code(name):
        found = load_user_code(name)
        _check_class(kind, found, name)
        _typed_names[found] = name
        return found  # type: ignore[no-any-return]
    known = name.lower() if isinstance(name, str) else name
    check_names(kind.noun, [known], [*kind.registry, "FILE.py:CLASS"])
    return kind.registry[str(known)]


def classes_in(options: Mapping[str, Any]) -> dict[str, tuple[type[Any], ...]]:
    """Return the classes that options name, by kind; defaults where they name none, or "auto"."""
    return _find_each(options, part_class)


def _find_each(
    given: Mapping[str, Any], find: Callable[[Kind, Any], _Part]
) -> dict[str, tuple[_Part, ...]]:
    """Find all parts that are given, by kind.

    Where none is given, or "auto", it is what the method goes with, or else the kind's default.
    """
    kind = KINDS["method"]
    method: Any = find(kind, given.get(kind.key, kind.default[0]))
    found: dict[str, tuple[_Part, ...]] = {kind.key: (method,)}
    for key, kind in KINDS.items():
        if key == "method":
            continue
        some = given.get(key, _AUTO)
        names = names_in(some) if kind.many else [some]
        if isinstance(some, str) and some == _AUTO:
            meant = method.default_parts.get(key)
            names = list(kind.default) if meant is None else [meant]
        found[key] = tuple(find(kind, name) for name in names)
    return found


def own_classes(options: Mapping[str, Any]) -> list[tuple[Kind, type[Any]]]:
    """The classes of a user's own that options name, each with its kind."""
    return [
        (kind, part_class(kind, name))
        for key, kind in KINDS.items()
        for name in names_in(options.get(key, ()))
        if isinstance(name, str) and is_user_code(name)
    ]


def algorithm_of(
    classes: Mapping[str, Sequence[type[Any]]], tables: Mapping[str, Mapping[str, Any]]
) -> Algorithm:
    """Return an algorithm of parts of these classes, by kind, with parameters of their tables."""
    return _compose(
        {
            key: [validated(part, table_of(tables, key, part.name)) for part in chosen]
            for key, chosen in classes.items()
        }
    )


def given_algorithm(**given: Any) -> Algorithm:
    """Return the algorithm of parts that are given as they are or by name, all of them checked."""
    return _compose(_find_each(given, lambda kind, part: part_from(kind.key, part)))


def _compose(parts: Mapping[str, Sequence[Any]]) -> Algorithm:
    """Return the algorithm of parts that are given by kind; each may be given once."""
    for key, some in parts.items():
        if len(set(map(type, some))) < len(some):
            raise CadisError(f"One of the {key} is given twice; give each once.")
    given: dict[str, Any] = {
        key: tuple(some) if KINDS[key].many else some[0] for key, some in parts.items()
    }
    return Algorithm(**given)


def qualify(key: str, name: str) -> str:
    """Return the name of a part with its kind: kinds may have parts of the same name."""
    return f"{key}.{name}"


def table_of(options: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    """Return the parameters of a part in ``[kind.name]``, else ``[name]``; empty without both."""
    table = options.get(qualify(key, name), options.get(name))
    return table if isinstance(table, Mapping) else {}


def part_from(key: str, given: Any) -> Any:
    """Return a part that a user has made, checked, or one with its defaults, by name."""
    kind = KINDS[key]
    if isinstance(given, str):
        return validated(part_class(kind, given), {})
    if isinstance(given, type):
        raise CadisError(f"Give a {kind.noun} such as {given.__name__}(), not its class.")
    if given is None:
        raise CadisError(f"Give a {kind.noun}, or its name such as '{next(iter(kind.registry))}'.")
    parameters = parameters_of(given)
    check_members(kind, type(given))
    checked = validated(type(given), parameters)
    for name, value in parameters_of(checked).items():
        try:
            tomli_w.dumps({} if value is None else {name: value})
        except TypeError:
            raise CadisError(
                f"{name} of {checked.name} is a {type(value).__name__}, which config.toml cannot "
                "hold; make it a number, a string or a list of these."
            ) from None
    return checked


def with_metric(algorithm: Algorithm, metric: str) -> Algorithm:
    """The same algorithm, whose best round is told by another measure; "auto" is the task's own."""
    task = algorithm.task
    if metric == _AUTO:
        return algorithm
    if "metric" not in names_of(type(task)):
        raise CadisError(
            f"The task {task.name} has no metric to choose; its own is {task.headline}."
        )
    parameters = parameters_of(task) | {"metric": metric}
    return replace(algorithm, task=validated(type(task), parameters))


def parameters_of(part: Any) -> dict[str, Any]:
    """A part's parameters by name."""
    return {name: getattr(part, name) for name in names_of(type(part))}


def name_of(part: Any) -> str:
    """The name by which a part is stored and found again: a user's own as it was typed."""
    name: str = part.name
    return _typed_names.get(type(part), name)


def options_of(
    algorithm: Algorithm, settings: Mapping[str, Any], partitioner: Any = None
) -> dict[str, Any]:
    """Return what ``config.toml`` holds: names of parts, settings, and tables of parameters.

    The table of a part has the part's name; if two parts share it, the kind stands before it.

    Args:
        algorithm: its parts without parameters have no table, but for the method.
        settings: the other options.
        partitioner: what splits the dataset, if the settings name it.
    """
    names: dict[str, Any] = {key: [] for key in KINDS}
    having: list[tuple[str, Any]] = []
    for kind, part in parts_of(algorithm):
        names[kind.key].append(name_of(part))
        if kind.key == "method" or parameters_of(part):
            having.append((kind.key, part))
    having += [] if partitioner is None else [("partition", partitioner)]
    names = {key: found if KINDS[key].many else found[0] for key, found in names.items()}
    used = [part.name for _, part in having]
    tables = {
        part.name if used.count(part.name) == 1 else qualify(key, part.name): parameters_of(part)
        for key, part in having
    }
    if taken := tables.keys() & {*names, *settings}:
        raise CadisError(f"A part cannot be called '{min(taken)}': an option has that name.")
    return {**names, **settings, **tables}


def _check_class(kind: Kind, part: Any, typed: str) -> None:
    """Refuse what is no part of this kind: a user's own class is looked at before it is used."""
    if not isinstance(part, type):
        raise CadisError(f"{typed} is no class; a {kind.noun} is a frozen dataclass.")
    if not is_dataclass(part) or not part.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise CadisError(f"{typed} is no {kind.noun}; put @dataclass(frozen=True) before it.")
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or "name" in names_of(part):
        raise CadisError(
            f"{typed} has no name; give it one of letters, digits and hyphens, as in name: "
            f'ClassVar[str] = "{part.__name__.lower()}".'
        )
    if name.lower() in kind.registry or name in KINDS:
        raise CadisError(f"The name '{name}' of {typed} is taken; give it another.")
    check_members(kind, part)
