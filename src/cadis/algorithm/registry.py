"""The kinds of parts that an algorithm is composed of: a new kind is one line here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cadis.algorithm.local_optimizers import LOCAL_OPTIMIZERS, LocalOptimizer
from cadis.algorithm.method import Method
from cadis.algorithm.methods import METHODS
from cadis.algorithm.samplers import SAMPLERS, Sampler
from cadis.algorithm.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from cadis.algorithm.tasks import TASKS, Task
from cadis.algorithm.transforms import TRANSFORMS, Transform


@dataclass(frozen=True)
class Kind:
    """A kind of part.

    Attributes:
        key: the field of ``Algorithm``, the option, and the key in ``config.toml``.
        registry: our own, by name.
        protocol: what a part of this kind must have.
        default: the names of those that are taken if nobody says.
        question: what it is about, for help texts.
        many: whether there may be any number of them, in order, instead of one.
    """

    key: str
    registry: Mapping[str, type[Any]]
    protocol: type
    default: tuple[str, ...]
    question: str
    many: bool = False

    @property
    def noun(self) -> str:
        """One of them, in a sentence."""
        return self.key.replace("_", " ").removesuffix("s" if self.many else "")


KINDS: dict[str, Kind] = {
    kind.key: kind
    for kind in (
        Kind("method", METHODS, Method, ("cadis",), "How to learn"),
        Kind("sampler", SAMPLERS, Sampler, ("uniform",), "Who takes part in a round"),
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
"""By key. Each is a field of ``Algorithm`` of the same name."""
