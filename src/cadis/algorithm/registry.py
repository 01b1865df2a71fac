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
        key: name of the kind, such as "server_optimizer". It is the name of the field of
            ``Algorithm``, of the option, and of the key in ``config.toml``.
        registry: classes of the built-in parts, by name.
        base: class that declares the attributes and functions of a part of this kind.
        default: names of the parts that are used by default.
        help: short description for help texts.
        allows_several: whether an algorithm has a list of parts of this kind, not just one part.
    """

    key: str
    registry: Mapping[str, type[Any]]
    base: type
    default: tuple[str, ...]
    help: str
    allows_several: bool = False

    @property
    def noun(self) -> str:
        """Singular noun for messages, such as "server optimizer"."""
        return self.key.replace("_", " ").removesuffix("s" if self.allows_several else "")

    @property
    def members(self) -> list[str]:
        """Public names of the attributes and functions that the base class declares."""
        names = dict.fromkeys([*self.base.__annotations__, *vars(self.base)])
        return [name for name in names if not name.startswith("_")]


KINDS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        Kind("method", METHODS, BaseMethod, ("cadis",), "Federated learning method"),
        Kind("sampler", SAMPLERS, BaseSampler, ("uniform",), "Chooses the participants of a round"),
        Kind(
            "server_optimizer",
            SERVER_OPTIMIZERS,
            ServerOptimizer,
            ("plain",),
            "Computes the next global model from the aggregated model",
        ),
        Kind(
            "transforms",
            TRANSFORMS,
            Transform,
            (),
            "Operations on the clients' updates (for images, see --augment), applied in the order "
            "that you give",
            True,
        ),
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
"""All kinds of parts by key."""

_DERIVE_FROM = {
    "method": ("cadis.algorithm.BaseMethod", "a name"),
    "sampler": ("cadis.algorithm.samplers.BaseSampler", "a name and choose"),
    "server_optimizer": ("cadis.algorithm.server_optimizers.ServerOptimizer", "a name and step"),
    "transforms": ("cadis.algorithm.transforms.Transform", "a name and apply"),
    "task": ("cadis.algorithm.tasks.Classification", "a name"),
    "local_optimizer": ("cadis.algorithm.local_optimizers.SGD", "a name"),
}
"""For each kind: the class to derive a user's part from, and the members that it must add."""

_MAX_LISTED = 5
"""Maximum number of missing members that an error message lists."""


def is_of_kind(kind: Kind, part: type[Any]) -> bool:
    """Return whether a class has all members that the base class of a kind declares."""
    return not _find_missing(kind, part)


def check_complete(kind: Kind, part: type[Any]) -> None:
    """Raise an error if a class lacks members that the base class of a kind declares."""
    if missing := _find_missing(kind, part):
        base, required = _DERIVE_FROM[kind.key]
        if len(missing) > _MAX_LISTED:
            missing = [*missing[:_MAX_LISTED], "more"]
        raise CadisError(
            f"{part.__name__} lacks {join_words(missing)}; derive it from {base}, which defines "
            f"all except {required}."
        )


def check_members(kind: Kind, part: type[Any]) -> None:
    """Raise an error if a class lacks a member, or misspells one, or has a wrong signature."""
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
    """Return the members of the base class that a class lacks, or has only as abstract ones."""
    field_names = {field.name for field in fields(part)} if is_dataclass(part) else set()
    members = {
        name
        for name, value in inspect.getmembers_static(part)
        if not getattr(value, "__isabstractmethod__", False)
    }
    return [name for name in kind.members if name not in field_names | members]


def _check_spelling(part: type[Any], known: list[str]) -> None:
    """Raise an error if the name of a function resembles a member, so is probably misspelled."""
    for name, value in vars(part).items():
        if not callable(value) or name.startswith("_") or name in known:
            continue
        if close := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            raise CadisError(
                f"{part.__name__} has a function '{name}', which is never called; rename it to "
                f"'{close[0]}', or choose a name that is less similar."
            )
