"""Find the parts of an algorithm by name: built-in classes, and classes in users' files.

A part is a method, a sampler, a server optimizer, a transform, a task or a local optimizer. Each
kind of part is described in ``registry.py``. An :class:`Algorithm` consists of the parts of a run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

import tomli_w

from cadis._io import is_user_code, load_user_code
from cadis.algorithm.algorithm import Algorithm, list_parts
from cadis.algorithm.registry import KINDS, Kind, check_members
from cadis.algorithm.validation import check_names, get_field_names, validate
from cadis.errors import CadisError
from cadis.permission import permit_code

_Part = TypeVar("_Part")

_AUTO = "auto"
"""Value of an option that selects the default part of the method."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_user_class_names: dict[type, str] = {}
"""Names such as ``mine.py:Mine`` that ``config.toml`` stores for users' classes, by class."""


def split_names(value: object) -> list[Any]:
    """Return a list of names, given as a list, as one name, or as a string with commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def find_part_class(kind: Kind, name: object) -> type[Any]:
    """Return the class of a part.

    Args:
        kind: kind of the part.
        name: name of a built-in part, or ``file.py:Class`` for a user's class. A user's class that
            is not a part of this kind raises an error.
    """
    if isinstance(name, str) and is_user_code(name):
        part = load_user_code(name)
        _check_class(kind, part, name)
        _user_class_names[part] = name
        return part  # type: ignore[no-any-return]
    key = name.lower() if isinstance(name, str) else name
    check_names(kind.noun, [key], [*kind.registry, "FILE.py:CLASS"])
    return kind.registry[str(key)]


def find_part_classes(options: Mapping[str, Any]) -> dict[str, tuple[type[Any], ...]]:
    """Return the classes of all parts by kind.

    Args:
        options: names of parts by kind. If a kind is missing or "auto", the default part of the
            method is used; if the method has none, the default part of the kind.
    """
    return _find_parts(options, find_part_class)


def _find_parts(
    options: Mapping[str, Any], find: Callable[[Kind, Any], _Part]
) -> dict[str, tuple[_Part, ...]]:
    """Call ``find`` for the option of each kind; defaults are as in :func:`find_part_classes`."""
    kind = KINDS["method"]
    method: Any = find(kind, options.get(kind.key, kind.default[0]))
    parts: dict[str, tuple[_Part, ...]] = {kind.key: (method,)}
    for key, kind in KINDS.items():
        if key == "method":
            continue
        option = options.get(key, _AUTO)
        names = split_names(option) if kind.allows_several else [option]
        if isinstance(option, str) and option == _AUTO:
            default = method.default_parts.get(key)
            names = list(kind.default) if default is None else [default]
            permit_code(names)  # they are built in, or the user's method names them
        parts[key] = tuple(find(kind, name) for name in names)
    return parts


def find_user_classes(options: Mapping[str, Any]) -> list[tuple[Kind, type[Any]]]:
    """Return the users' classes that the options name, each with its kind."""
    return [
        (kind, find_part_class(kind, name))
        for key, kind in KINDS.items()
        for name in split_names(options.get(key, ()))
        if isinstance(name, str) and is_user_code(name)
    ]


def build_algorithm(
    classes: Mapping[str, Sequence[type[Any]]], tables: Mapping[str, Mapping[str, Any]]
) -> Algorithm:
    """Create an algorithm from options: classes of parts, and tables of their parameters.

    :func:`compose_algorithm` creates an algorithm from instances or names of parts instead.

    Args:
        classes: classes of the parts, by kind.
        tables: tables of parameters, by the name of the part, as in ``config.toml``.
    """
    return _assemble(
        {
            key: [validate(part, get_part_table(tables, key, part.name)) for part in parts]
            for key, parts in classes.items()
        }
    )


def compose_algorithm(**parts: Any) -> Algorithm:
    """Create an algorithm from instances or names of parts; check each part and its parameters.

    Args:
        parts: an instance of a part, or the name of a part, for each kind; defaults are as in
            :func:`find_part_classes`. Invalid parts and parameters raise an error.

    Example:
        >>> from cadis.algorithm import compose_algorithm
        >>> from cadis.algorithm.methods import FedProx
        >>> algorithm = compose_algorithm(method=FedProx(mu=0.1), server_optimizer="adam")
        >>> algorithm.server_optimizer.name
        'adam'
    """
    return _assemble(_find_parts(parts, lambda kind, part: resolve_part(kind.key, part)))


def _assemble(parts_by_kind: Mapping[str, Sequence[Any]]) -> Algorithm:
    """Return an algorithm with these instances of parts, which are valid already."""
    arguments: dict[str, Any] = {
        key: tuple(parts) if KINDS[key].allows_several else parts[0]
        for key, parts in parts_by_kind.items()
    }
    return Algorithm(**arguments)


def qualify_name(key: str, name: str) -> str:
    """Return ``kind.name``, which is unique even if parts of two kinds have the same name."""
    return f"{key}.{name}"


def get_part_table(options: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    """Return the parameters of a part: the table ``[kind.name]``, else ``[name]``, else empty."""
    table = options.get(qualify_name(key, name), options.get(name))
    return table if isinstance(table, Mapping) else {}


def resolve_part(key: str, part: Any) -> Any:
    """Return a part with valid parameters; invalid parameters raise an error.

    Args:
        key: key of the kind, such as "sampler".
        part: a part, or the name of a part, which then has its default parameters.
    """
    kind = KINDS[key]
    if isinstance(part, str):
        return validate(find_part_class(kind, part), {})
    if isinstance(part, type):
        raise CadisError(f"Give a {kind.noun} such as {part.__name__}(), not its class.")
    if part is None:
        raise CadisError(f"Give a {kind.noun}, or its name such as '{next(iter(kind.registry))}'.")
    parameters = get_parameters(part)
    check_members(kind, type(part))
    valid_part = validate(type(part), parameters)
    for name, value in get_parameters(valid_part).items():
        try:
            tomli_w.dumps({} if value is None else {name: value})
        except TypeError:
            raise CadisError(
                f"{name} of {valid_part.name} is a {type(value).__name__}, which config.toml "
                "cannot store; make it a number, a string or a list of these."
            ) from None
    return valid_part


def replace_metric(algorithm: Algorithm, metric: str) -> Algorithm:
    """Return the algorithm with another main metric of its task; "auto" changes nothing."""
    task = algorithm.task
    if metric == _AUTO:
        return algorithm
    if "metric" not in get_field_names(type(task)):
        raise CadisError(
            f"The task '{task.name}' has only the metric {task.main_metric}; leave out the option "
            "metric."
        )
    parameters = get_parameters(task) | {"metric": metric}
    return replace(algorithm, task=validate(type(task), parameters))


def get_parameters(part: Any) -> dict[str, Any]:
    """Return the parameters of a part by name."""
    return {name: getattr(part, name) for name in get_field_names(type(part))}


def get_part_name(part: Any) -> str:
    """Return the name of a part in ``config.toml``: ``file.py:Class`` for a user's class."""
    return get_class_name(type(part))


def get_class_name(part: type[Any]) -> str:
    """Return the name of the class of a part in options; ``file.py:Class`` for a user's class."""
    name: str = part.name
    return _user_class_names.get(part, name)


def to_options(
    algorithm: Algorithm, settings: Mapping[str, Any], partitioner: Any = None
) -> dict[str, Any]:
    """Return the content of ``config.toml``: names of parts, settings, and tables of parameters.

    The table of a part has the name of the part, or ``kind.name`` if two parts have the same name.
    A part without parameters has no table; only the method always has one.

    Args:
        algorithm: the algorithm.
        settings: all other options, by name.
        partitioner: object that splits the dataset among clients; None if the settings do not name
            a built-in partition.
    """
    names: dict[str, Any] = {key: [] for key in KINDS}
    with_table: list[tuple[str, Any]] = []
    for kind, part in list_parts(algorithm):
        names[kind.key].append(get_part_name(part))
        if kind.key == "method" or get_parameters(part):
            with_table.append((kind.key, part))
    with_table += [] if partitioner is None else [("partition", partitioner)]
    names = {
        key: entries if KINDS[key].allows_several else entries[0] for key, entries in names.items()
    }
    table_names = [part.name for _, part in with_table]
    tables = {}
    for key, part in with_table:
        is_unique = table_names.count(part.name) == 1
        tables[part.name if is_unique else qualify_name(key, part.name)] = get_parameters(part)
    if clashes := tables.keys() & {*names, *settings}:
        raise CadisError(
            f"A part cannot have the name '{min(clashes)}', because an option has this name; give "
            "the part another name."
        )
    return {**names, **settings, **tables}


def _check_class(kind: Kind, part: Any, path: str) -> None:
    """Raise an error if the user's class at ``file.py:Class`` is not a part of this kind."""
    if not isinstance(part, type):
        raise CadisError(f"{path} is not a class; a {kind.noun} is a frozen dataclass.")
    if not is_dataclass(part) or not part.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise CadisError(f"{path} is not a {kind.noun}; put @dataclass(frozen=True) before it.")
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or "name" in get_field_names(part):
        raise CadisError(
            f"{path} has no valid name; give it a name of letters, digits and hyphens, as in name: "
            f'ClassVar[str] = "{part.__name__.lower()}".'
        )
    if name.lower() in kind.registry or name in KINDS:
        raise CadisError(f"The name '{name}' of {path} is already used; choose another name.")
    check_members(kind, part)
