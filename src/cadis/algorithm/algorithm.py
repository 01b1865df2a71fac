"""A federated algorithm: a method, and the parts that compose with every method."""

from dataclasses import dataclass, field, fields
from typing import Any

from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.local_optimizers import SGD, LocalOptimizer
from cadis.algorithm.methods import METHODS, FedAvg
from cadis.algorithm.registry import KINDS, Kind, check_complete
from cadis.algorithm.samplers import BaseSampler, Uniform
from cadis.algorithm.server_optimizers import Plain, ServerOptimizer
from cadis.algorithm.tasks import Classification, Task
from cadis.algorithm.transforms import Transform, check_chain
from cadis.errors import CadisError


@dataclass(frozen=True)
class Algorithm:
    """How a federation learns.

    Attributes:
        method: what clients add to their loss, and how their models are aggregated.
        sampler: who takes part in a round.
        server_optimizer: from the aggregated model to the next global one.
        transforms: what is done to updates, in this order.
        task: loss, prediction and measures.
        local_optimizer: how clients step.
    """

    method: BaseMethod = field(default_factory=FedAvg)
    sampler: BaseSampler = field(default_factory=Uniform)
    server_optimizer: ServerOptimizer = field(default_factory=Plain)
    transforms: tuple[Transform, ...] = ()
    task: Task = field(default_factory=Classification)
    local_optimizer: LocalOptimizer = field(default_factory=SGD)

    def __post_init__(self) -> None:
        for kind, part in parts_of(self):
            check_complete(kind, part if isinstance(part, type) else type(part))
        if self.sampler.needs_clusters and not self.method.finds_clusters:
            raise CadisError(
                f"The sampler '{self.sampler.name}' draws from the clusters of all clients, which "
                f"{self.method.name} does not find as it is set; choose another sampler, such as "
                "uniform."
            )
        if self.method.needs_class_outputs and self.task.num_outputs(2) != 2:
            raise CadisError(
                f"{self.method.name} compares the outputs of the classes, but models of the task "
                f"'{self.task.name}' do not have one for each; choose another task or method."
            )
        names = [transform.name for transform in self.transforms]
        if len(set(names)) < len(names):
            raise CadisError(f"A transform is given twice, of: {', '.join(names)}.")
        for transform in self.transforms:
            if transform.side not in ("client", "server"):
                raise CadisError(
                    f"The side of the transform '{transform.name}' must be client or server, not "
                    f"{transform.side!r}."
                )
        check_chain(self.transforms)

    def looks_at_head(self) -> str:
        """The part that looks at the classifier layer or at what goes into it; "" if none does."""
        if self.method.compares_heads or self.method.needs_representation:
            return self.method.name
        return f"the sampler '{self.sampler.name}'" if self.sampler.needs_head else ""

    def check_head(self, found: bool) -> None:
        """Refuse a model without a classifier layer, if a part looks at it."""
        if (part := self.looks_at_head()) and not found:
            others = [n for n, kind in METHODS.items() if not Algorithm(kind()).looks_at_head()]
            raise CadisError(
                f"{part} looks at the model's classifier layer, and no nn.Linear layer makes this "
                "model's output; name one as head, or choose a method that does not look at it: "
                f"{', '.join(others)}."
            )

    def parts(self) -> dict[str, Any]:
        """Its parts by kind, as whoever takes an algorithm apart is given them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def transforms_of(self, side: str) -> tuple[Transform, ...]:
        """The transforms of the client's or the server's side."""
        return tuple(transform for transform in self.transforms if transform.side == side)


def parts_of(algorithm: Algorithm) -> list[tuple[Kind, Any]]:
    """Return all parts of an algorithm, each with its kind."""
    return [
        (kind, part)
        for key, kind in KINDS.items()
        for part in (getattr(algorithm, key) if kind.many else [getattr(algorithm, key)])
    ]
