"""The kinds of parts that an algorithm is composed of, and what a part of each kind must have."""

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
from cadis.algorithm.validation import listed
from cadis.errors import CadisError


@dataclass(frozen=True)
class Kind:
    """A kind of part.

    Attributes:
        key: the field of ``Algorithm``, the option, and the key in ``config.toml``.
        registry: our own, by name.
        base: declares what a part of this kind must have.
        default: the names of those that are taken if nobody says.
        question: what it is about, for help texts.
        many: whether there may be any number of them, in order, instead of one.
    """

    key: str
    registry: Mapping[str, type[Any]]
    base: type
    default: tuple[str, ...]
    question: str
    many: bool = False

    @property
    def noun(self) -> str:
        """One of them, in a sentence."""
        return self.key.replace("_", " ").removesuffix("s" if self.many else "")

    @property
    def members(self) -> list[str]:
        """The public names that the base declares."""
        names = dict.fromkeys([*self.base.__annotations__, *vars(self.base)])
        return [name for name in names if not name.startswith("_")]


KINDS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        Kind("method", METHODS, BaseMethod, ("cadis",), "How to learn"),
        Kind("sampler", SAMPLERS, BaseSampler, ("uniform",), "Who takes part in a round"),
        Kind(
            "server_optimizer",
            SERVER_OPTIMIZERS,
            ServerOptimizer,
            ("plain",),
            "From the aggregated model to the next global one",
        ),
        Kind("transforms", TRANSFORMS, Transform, (), "What is done to updates, in order", True),
        Kind("task", TASKS, Task, ("classification",), "What the model's outputs mean"),
        Kind("local_optimizer", LOCAL_OPTIMIZERS, LocalOptimizer, ("sgd",), "How clients step"),
    )
}
"""By key. Each is a field of ``Algorithm`` of the same name; a new kind is one line here."""

_DERIVE_FROM = {
    "method": ("cadis.algorithm.BaseMethod", "a name"),
    "sampler": ("cadis.algorithm.samplers.BaseSampler", "a name and choose"),
    "server_optimizer": ("cadis.algorithm.server_optimizers.ServerOptimizer", "a name and step"),
    "transforms": ("cadis.algorithm.transforms.Transform", "a name and apply"),
    "task": ("cadis.algorithm.tasks.Classification", "a name"),
    "local_optimizer": ("cadis.algorithm.local_optimizers.SGD", "a name"),
}
"""What a part of one's own may leave most things to, by kind, and what that does not have."""

_NAMED = 5
"""How many of the things that a class lacks are named."""


def is_of_kind(kind: Kind, part: type[Any]) -> bool:
    """Return whether a class has all that the base of a kind declares."""
    return not _missing(kind, part)


def check_complete(kind: Kind, part: type[Any]) -> None:
    """Refuse a class without all that the base of a kind declares."""
    if lacking := _missing(kind, part):
        base, rest = _DERIVE_FROM[kind.key]
        if len(lacking) > _NAMED:
            lacking = [*lacking[:_NAMED], "more"]
        raise CadisError(
            f"{part.__name__} lacks {listed(lacking)}; derive it from {base}, which has all but "
            f"{rest}."
        )


def check_members(kind: Kind, part: type[Any]) -> None:
    """Refuse a class that lacks something, or has a function misspelt or with other parameters."""
    check_complete(kind, part)
    _check_spelling(part, kind.members)
    for name, function in inspect.getmembers(kind.base, inspect.isfunction):
        own = getattr(part, name, None)
        if name.startswith("_") or not inspect.isfunction(own):
            continue
        wanted, taken = (inspect.signature(f).parameters.values() for f in (function, own))
        needed = [each for each in taken if each.default is each.empty]
        anything = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in taken)
        if not anything and not len(needed) <= len(wanted) <= len(taken):
            raise CadisError(
                f"{part.__name__}.{name} must take {listed(each.name for each in wanted)}; "
                f"{_DERIVE_FROM[kind.key][0]} says what they are."
            )


def _missing(kind: Kind, part: type[Any]) -> list[str]:
    """Return the names of the base that a class does not have, or has from it as abstract."""
    declared = {field.name for field in fields(part)} if is_dataclass(part) else set()
    written = {
        name
        for name, value in inspect.getmembers_static(part)
        if not getattr(value, "__isabstractmethod__", False)
    }
    return [name for name in kind.members if name not in declared | written]


def _check_spelling(part: type[Any], known: list[str]) -> None:
    """Refuse a function that would never be called, where another one was probably meant."""
    for name, value in vars(part).items():
        if not callable(value) or name.startswith("_") or name in known:
            continue
        if close := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            raise CadisError(
                f"{part.__name__} has a function '{name}'; if '{close[0]}' is meant, correct it, "
                "else call it otherwise."
            )
