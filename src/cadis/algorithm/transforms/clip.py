"""A limit to the norm of updates: kept by clients, or enforced by the server."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from cadis.algorithm.transforms.protocol import TransformRound
from cadis.algorithm.transforms.update import limited
from cadis.types import Message


@dataclass(frozen=True)
class Clip:
    """Scales an update that is longer than the limit down to it, before it is sent.

    An update is everything floating that the client changed: the parameters and buffers of its
    models minus those received, and the further tensors that it sends, as one vector with one
    norm. Integer counters, scalars and the number of samples are sent as they are: nothing limits
    what they tell.

    Attributes:
        clip: the largest norm that an update may have.
    """

    name: ClassVar[str] = "clip"
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False
    clip: Annotated[float, Gt(0)] = 1.0

    @property
    def bound(self) -> float | None:
        """The largest norm of an update afterwards."""
        return self.clip

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update times min(1, clip / its norm)."""
        return limited(update, server_round.received, self.clip)


@dataclass(frozen=True)
class NormBound:
    """The server's own guard: what :class:`Clip` does, for clients that cannot be trusted to.

    No single client can then move the model by more than its weight times the limit. It says
    nothing about the direction, nor about scalars and the number of samples, which the weights are
    made from.

    Attributes:
        max_norm: the largest norm that an update has when it is aggregated.
    """

    name: ClassVar[str] = "norm-bound"
    side: ClassVar[Literal["client", "server"]] = "server"
    needs_bound: ClassVar[bool] = False
    max_norm: Annotated[float, Gt(0)] = 1.0

    @property
    def bound(self) -> float | None:
        """The largest norm of an update afterwards."""
        return self.max_norm

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update times min(1, max_norm / its norm)."""
        return limited(update, server_round.received, self.max_norm)
