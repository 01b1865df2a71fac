"""Parts by name: ours, and those of a user's own file, which are checked first."""

import difflib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import tomli_w

from cadis._io import is_user_code, load_user_code
from cadis.algorithm.algorithm import Algorithm
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.registry import KINDS, Kind
from cadis.algorithm.validation import check_names, listed, names_of, validated
from cadis.errors import CadisError

_AUTO = "auto"
"""What is typed for "what the method goes with"."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_typed_names: dict[type, str] = {}
"""How a user's own classes were named, such as ``mine.py:Mine``: they are stored by that."""


_TO_DERIVE_FROM = {
    "method": "cadis.algorithm.BaseMethod, which has all but a name",
    "sampler": "cadis.algorithm.samplers.BaseSampler, which has all but a name and choose",
    "task": "cadis.algorithm.tasks.Classification, which has all but a name",
    "local_optimizer": "cadis.algorithm.local_optimizers.SGD, which has all but a name",
}
"""What a part of one's own may leave most things to, by kind."""


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


def default_names(kind: Kind, method: Any) -> tuple[str, ...]:
    """What is taken of a kind if nobody says: what the method goes with, or the kind's default.

    Args:
        kind: any but the method's.
        method: the method, or its class.
    """
    meant = method.default_parts.get(kind.key)
    return kind.default if meant is None else (meant,)


def classes_in(options: Mapping[str, Any]) -> dict[str, tuple[type[Any], ...]]:
    """The classes that options name, by kind; the defaults where they name none, or "auto"."""
    kind = KINDS["method"]
    method = part_class(kind, options.get(kind.key, kind.default[0]))
    found: dict[str, tuple[type[Any], ...]] = {kind.key: (method,)}
    for key, kind in KINDS.items():
        if key != "method":
            given = options.get(key, _AUTO)
            listed_names = names_in(given) if kind.many else [given]
            names = default_names(kind, method) if given == _AUTO else listed_names
            found[key] = tuple(part_class(kind, name) for name in names)
    return found


def own_classes(options: Mapping[str, Any]) -> list[tuple[Kind, type[Any]]]:
    """The classes of a user's own that options name, each with its kind."""
    return [
        (kind, part_class(kind, name))
        for key, kind in KINDS.items()
        for name in names_in(options.get(key, ()))
        if isinstance(name, str) and is_user_code(name)
    ]


def composed(parts: Mapping[str, Sequence[Any]]) -> Algorithm:
    """Return the algorithm of parts that are given by kind; each may be given once."""
    for key, some in parts.items():
        if len(set(map(type, some))) < len(some):
            raise CadisError(f"One of the {key} is given twice; give each once.")
    given: dict[str, Any] = {
        key: tuple(some) if KINDS[key].many else some[0] for key, some in parts.items()
    }
    return Algorithm(**given)


def algorithm_of(
    classes: Mapping[str, tuple[type[Any], ...]], tables: Mapping[str, Mapping[str, Any]]
) -> Algorithm:
    """An algorithm of parts of these classes, by kind, with the parameters in their tables."""
    return composed(
        {
            key: [validated(part, table_of(tables, key, part.name)) for part in chosen]
            for key, chosen in classes.items()
        }
    )


def qualify(key: str, name: str) -> str:
    """Return the name of a part with its kind: kinds may have parts of the same name."""
    return f"{key}.{name}"


def table_of(options: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    """Return the parameters of a part in ``[kind.name]``, else in ``[name]``; empty without both.

    Args:
        options: the content of a TOML file.
        key: the kind of the part, such as "server_optimizer".
        name: the part's name.
    """
    table = options.get(qualify(key, name), options.get(name))
    return table if isinstance(table, Mapping) else {}


def part_from(key: str, given: object) -> Any:
    """A part that was given, or one of ours or of a user's own with its defaults, by name."""
    kind = KINDS[key]
    if isinstance(given, str):
        return validated(part_class(kind, given), {})
    return checked_part(kind, given)


def given_algorithm(**given: Any) -> Algorithm:
    """The algorithm of parts that are given as they are or by name, all of them checked."""
    method = part_from("method", given["method"])
    parts = {"method": [method]}
    for key, kind in KINDS.items():
        if key != "method":
            chosen = given[key]
            if isinstance(chosen, str) and chosen == _AUTO:
                chosen = default_names(kind, method)
            some = names_in(chosen) if kind.many or isinstance(chosen, tuple) else [chosen]
            parts[key] = [part_from(key, part) for part in some]
    return composed(parts)


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


def parts_of(algorithm: Algorithm) -> list[tuple[Kind, Any]]:
    """All parts of an algorithm, each with its kind."""
    return [
        (kind, part)
        for key, kind in KINDS.items()
        for part in (getattr(algorithm, key) if kind.many else [getattr(algorithm, key)])
    ]


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


def checked_part(kind: Kind, part: Any) -> Any:
    """A part that a user has made, with its parameters checked."""
    if isinstance(part, type):
        raise CadisError(f"Give a {kind.noun} such as {part.__name__}(), not its class.")
    if part is None:
        raise CadisError(f"Give a {kind.noun}, or its name such as '{next(iter(kind.registry))}'.")
    parameters = parameters_of(part)
    _check_members(kind, type(part), part)
    checked = validated(type(part), parameters)
    for name, value in parameters_of(checked).items():
        try:
            tomli_w.dumps({} if value is None else {name: value})
        except TypeError:
            raise CadisError(
                f"{name} of {checked.name} is a {type(value).__name__}, which config.toml cannot "
                "hold; make it a number, a string or a list of these."
            ) from None
    return checked


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
    _check_members(kind, part, part)


def _check_members(kind: Kind, part: type[Any], holder: Any) -> None:
    """Refuse a class without all that its protocol asks for, or with a function misspelt."""
    wanted, lacking = _members(kind), _missing(kind, part, holder)
    where = kind.protocol.__module__.rpartition(".")[0]
    if not lacking:
        _check_spelling(part, {*wanted, *(dir(BaseMethod) if kind.key == "method" else ())})
        _check_parameters(kind, part, where)
        return
    rest = (
        f"derive it from {_TO_DERIVE_FROM[kind.key]}"
        if kind.key in _TO_DERIVE_FROM
        else f"{where}.{kind.protocol.__name__} says what a {kind.noun} has"
    )
    raise CadisError(f"{part.__name__} lacks {listed(lacking)}; {rest}.")


def is_of_kind(kind: Kind, part: type[Any]) -> bool:
    """Return whether a class has all that the protocol of a kind asks for."""
    return not _missing(kind, part, part)


def _members(kind: Kind) -> list[str]:
    """Return the names that the protocol of a kind declares."""
    functions = [name for name in vars(kind.protocol) if not name.startswith("_")]
    return [*kind.protocol.__annotations__, *functions]


def _missing(kind: Kind, part: type[Any], holder: Any) -> list[str]:
    """Return the names of the protocol that a class, or a part of it, does not have."""
    declared = [field.name for field in fields(part)] if is_dataclass(part) else []
    return [n for n in _members(kind) if not hasattr(holder, n) and n not in declared]


def _check_parameters(kind: Kind, part: type[Any], where: str) -> None:
    """Refuse a function that does not take what its protocol says."""
    for name, function in inspect.getmembers(kind.protocol, inspect.isfunction):
        own = getattr(part, name, None)
        if name.startswith("_") or not inspect.isfunction(own):
            continue
        wanted, taken = (inspect.signature(f).parameters.values() for f in (function, own))
        needed = [each for each in taken if each.default is each.empty]
        anything = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in taken)
        if not anything and not len(needed) <= len(wanted) <= len(taken):
            raise CadisError(
                f"{part.__name__}.{name} must take {listed(each.name for each in wanted)}; "
                f"{where}.{kind.protocol.__name__} says what they are."
            )


def _check_spelling(part: type[Any], known: set[str]) -> None:
    """Refuse a function that would never be called, where another one was probably meant."""
    public = [name for name in known if not name.startswith("_")]
    strange = [
        name
        for name, value in vars(part).items()
        if callable(value) and not name.startswith("_") and name not in known
    ]
    for name in strange:
        if close := difflib.get_close_matches(name, public, n=1, cutoff=0.8):
            raise CadisError(
                f"{part.__name__} has a function '{name}'; if '{close[0]}' is meant, correct it, "
                "else call it otherwise."
            )
