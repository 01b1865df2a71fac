"""A federated algorithm: a method and the parts that can be combined with every method."""

from dataclasses import dataclass, field
from typing import Any

from cadis._io import format_value
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.local_optimizers import SGD, LocalOptimizer
from cadis.algorithm.methods import METHODS, FedAvg
from cadis.algorithm.registry import KINDS, Kind, check_complete
from cadis.algorithm.samplers import BaseSampler, Uniform
from cadis.algorithm.server_optimizers import Plain, ServerOptimizer
from cadis.algorithm.tasks import Classification, Task
from cadis.algorithm.transforms import Transform, check_transforms
from cadis.errors import CadisError


@dataclass(frozen=True)
class Algorithm:
    """All parts of a federated algorithm. Parts that cannot be combined raise an error.

    Attributes:
        method: computes the local loss of the clients, and aggregates their models.
        sampler: chooses the participants of a round.
        server_optimizer: computes the next global model from the aggregated model.
        transforms: change the update of a client, in this order, for example clip its norm.
        task: defines the loss, the prediction and the metrics.
        local_optimizer: optimizer that clients use for local training.

    Example:
        >>> from cadis.algorithm import Algorithm
        >>> from cadis.algorithm.methods import FedProx
        >>> from cadis.algorithm.server_optimizers import Adam
        >>> algorithm = Algorithm(FedProx(mu=0.1), server_optimizer=Adam())
        >>> algorithm.sampler
        Uniform()
    """

    method: BaseMethod = field(default_factory=FedAvg)
    sampler: BaseSampler = field(default_factory=Uniform)
    server_optimizer: ServerOptimizer = field(default_factory=Plain)
    transforms: tuple[Transform, ...] = ()
    task: Task = field(default_factory=Classification)
    local_optimizer: LocalOptimizer = field(default_factory=SGD)

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, tuple | list):
            raise CadisError(f"transforms should be a list, not {format_value(self.transforms)}.")
        for kind, part in list_parts(self):
            if isinstance(part, type):
                raise CadisError(f"Give a {kind.noun} such as {part.__name__}(), not its class.")
            check_complete(kind, type(part))
        if self.sampler.needs_clusters and not self.method.finds_clusters:
            raise CadisError(
                f"The sampler '{self.sampler.name}' needs the clusters of clients, but the method "
                f"'{self.method.name}' does not find clusters with these parameters; choose "
                "another sampler, such as uniform."
            )
        if self.sampler.needs_profiles and not self.method.has_profiles:
            raise CadisError(
                f"The sampler '{self.sampler.name}' needs the profiles of clients, but the method "
                f"'{self.method.name}' does not compute them with these parameters; choose another "
                "sampler, such as uniform, or the method cadis."
            )
        if self.method.needs_class_outputs and self.task.num_outputs(2) != 2:
            raise CadisError(
                f"The method '{self.method.name}' needs a model with one output per class, but the "
                f"task '{self.task.name}' needs other outputs; choose another task or method."
            )
        names = [transform.name for transform in self.transforms]
        if len(set(names)) < len(names):
            raise CadisError(f"A transform is given twice: {', '.join(names)}; give each once.")
        for transform in self.transforms:
            if transform.side not in ("client", "server"):
                raise CadisError(
                    f"The side of the transform '{transform.name}' must be client or server, not "
                    f"{transform.side!r}."
                )
        check_transforms(self.transforms)

    def find_part_needing_head(self) -> str:
        """Return the part that needs the classifier layer, for error messages; "" if none does."""
        if self.method.needs_head or self.method.needs_representation:
            return f"The method '{self.method.name}'"
        return f"The sampler '{self.sampler.name}'" if self.sampler.needs_head else ""

    def check_head(self, has_head: bool) -> None:
        """Raise an error if a part needs the classifier layer and the model has none."""
        if (part := self.find_part_needing_head()) and not has_head:
            others = [
                name
                for name, method in METHODS.items()
                if not Algorithm(method()).find_part_needing_head()
            ]
            raise CadisError(
                f"{part} needs the classifier layer of the model, but no nn.Linear layer computes "
                "the output of this model; name the layer with the option head, or choose a method "
                f"that does not need it: {', '.join(others)}."
            )

    def get_transforms(self, side: str) -> tuple[Transform, ...]:
        """Return the transforms that run on one side, "client" or "server"."""
        return tuple(transform for transform in self.transforms if transform.side == side)


def list_parts(algorithm: Algorithm) -> list[tuple[Kind, Any]]:
    """Return all parts of an algorithm, each with its kind.

    Example:
        >>> from cadis.algorithm import Algorithm, list_parts
        >>> [(kind.key, part.name) for kind, part in list_parts(Algorithm())][:2]
        [('method', 'fedavg'), ('sampler', 'uniform')]
    """
    return [
        (kind, part)
        for key, kind in KINDS.items()
        for part in (getattr(algorithm, key) if kind.allows_several else [getattr(algorithm, key)])
    ]
