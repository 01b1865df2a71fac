"""The kinds of parts of an algorithm, and checks that a class is a complete part."""

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.local_optimizers import LOCAL_OPTIMIZERS, LocalOptimizer
from cadis.algorithm.methods import METHODS
from cadis.algorithm.samplers import SAMPLERS, BaseSampler
from cadis.algorithm.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from cadis.algorithm.tasks import TASKS, Task
from cadis.algorithm.transforms import TRANSFORMS, Transform
from cadis.algorithm.validation import join_words
from cadis.errors import CadisError


@dataclass(frozen=True)
class Kind:
    """A kind of part, such as method or sampler.

    Attributes:
        key: field of ``Algorithm``, name of the option, and key in ``config.toml``.
        registry: built-in parts by name.
        base: class that declares the attributes and methods of a part of this kind.
        default: names of the parts that are used by default.
        help: short description for help texts.
        many: True if an algorithm has a list of such parts instead of one.
    """

    key: str
    registry: Mapping[str, type[Any]]
    base: type
    default: tuple[str, ...]
    help: str
    many: bool = False

    @property
    def noun(self) -> str:
        """Singular noun for messages, such as "server optimizer"."""
        return self.key.replace("_", " ").removesuffix("s" if self.many else "")

    @property
    def members(self) -> list[str]:
        """Public names that the base class declares."""
        names = dict.fromkeys([*self.base.__annotations__, *vars(self.base)])
        return [name for name in names if not name.startswith("_")]


KINDS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        Kind("method", METHODS, BaseMethod, ("cadis",), "Federated learning method"),
        Kind("sampler", SAMPLERS, BaseSampler, ("uniform",), "Selection of participants"),
        Kind(
            "server_optimizer",
            SERVER_OPTIMIZERS,
            ServerOptimizer,
            ("plain",),
            "Step from the aggregated model to the next global model",
        ),
        Kind("transforms", TRANSFORMS, Transform, (), "Changes of updates, in this order", True),
        Kind("task", TASKS, Task, ("classification",), "Loss, prediction and metrics"),
        Kind(
            "local_optimizer",
            LOCAL_OPTIMIZERS,
            LocalOptimizer,
            ("sgd",),
            "Optimizer of the clients",
        ),
    )
}
"""All kinds of parts by key; each is a field of ``Algorithm``."""

_DERIVE_FROM = {
    "method": ("cadis.algorithm.BaseMethod", "a name"),
    "sampler": ("cadis.algorithm.samplers.BaseSampler", "a name and choose"),
    "server_optimizer": ("cadis.algorithm.server_optimizers.ServerOptimizer", "a name and step"),
    "transforms": ("cadis.algorithm.transforms.Transform", "a name and apply"),
    "task": ("cadis.algorithm.tasks.Classification", "a name"),
    "local_optimizer": ("cadis.algorithm.local_optimizers.SGD", "a name"),
}
"""Class that users derive their parts from, by kind, and the members that they must add."""

_MAX_LISTED = 5
"""Maximum number of missing members that an error message lists."""


def is_of_kind(kind: Kind, part: type[Any]) -> bool:
    """Return whether a class has all members that the base of a kind declares."""
    return not _find_missing(kind, part)


def check_complete(kind: Kind, part: type[Any]) -> None:
    """Raise an error if a class lacks members that the base of a kind declares."""
    if missing := _find_missing(kind, part):
        base, rest = _DERIVE_FROM[kind.key]
        if len(missing) > _MAX_LISTED:
            missing = [*missing[:_MAX_LISTED], "more"]
        raise CadisError(
            f"{part.__name__} lacks {join_words(missing)}; derive it from {base}, which has all "
            f"but {rest}."
        )


def check_members(kind: Kind, part: type[Any]) -> None:
    """Raise an error if a class lacks members, or has a misspelled or incompatible method."""
    check_complete(kind, part)
    _check_spelling(part, kind.members)
    for name, function in inspect.getmembers(kind.base, inspect.isfunction):
        override = getattr(part, name, None)
        if name.startswith("_") or not inspect.isfunction(override):
            continue
        expected, actual = (inspect.signature(f).parameters.values() for f in (function, override))
        required = [p for p in actual if p.default is p.empty]
        is_variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in actual)
        if not is_variadic and not len(required) <= len(expected) <= len(actual):
            raise CadisError(
                f"{part.__name__}.{name} must take the parameters "
                f"{join_words(p.name for p in expected)}; {_DERIVE_FROM[kind.key][0]} documents "
                "them."
            )


def _find_missing(kind: Kind, part: type[Any]) -> list[str]:
    """Return the members of the base that a class does not have or has only as abstract."""
    field_names = {field.name for field in fields(part)} if is_dataclass(part) else set()
    members = {
        name
        for name, value in inspect.getmembers_static(part)
        if not getattr(value, "__isabstractmethod__", False)
    }
    return [name for name in kind.members if name not in field_names | members]


def _check_spelling(part: type[Any], known: list[str]) -> None:
    """Raise an error if a method is probably a misspelled hook, which would never be called."""
    for name, value in vars(part).items():
        if not callable(value) or name.startswith("_") or name in known:
            continue
        if close := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            raise CadisError(
                f"{part.__name__} has a method '{name}', which is never called; rename it to "
                f"'{close[0]}', or to a name that is less similar."
            )
