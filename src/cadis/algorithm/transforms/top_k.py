"""Only the largest numbers of an update (top-k sparsification; Aji and Heafield, 2017)."""

from dataclasses import dataclass
from math import ceil
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt, Le

from cadis.algorithm.transforms.protocol import TransformRound
from cadis.algorithm.transforms.update import differences, pairs, replaced
from cadis.types import Message


@dataclass(frozen=True)
class TopK:
    """Keeps the numbers of an update that are largest in magnitude; the others do not change.

    They are chosen among all floating numbers of the update together, and what is kept is kept
    bit for bit. What is dropped is lost: clients do not remember it for their next round. Integer
    counters and scalars are sent as they are. Messages do not become shorter, as vectors travel
    whole: this tells what sparse updates would do to the accuracy.

    Attributes:
        keep: the part of the numbers of an update that is kept.
    """

    name: ClassVar[str] = "top-k"
    side: ClassVar[Literal["client", "server"]] = "client"
    needs_bound: ClassVar[bool] = False
    keep: Annotated[float, Gt(0), Le(1)] = 0.1

    @property
    def bound(self) -> float | None:
        """It limits no norm."""
        return None

    def apply(self, update: Message, server_round: TransformRound) -> Message:
        """The update with zeros for all but its ceil(keep * n) largest numbers of n."""
        numbers = differences(update, server_round.received)
        if not numbers:
            return update
        magnitudes = torch.cat([vector.abs() for vector in numbers.values()])  # (n,)
        kept = torch.zeros_like(magnitudes, dtype=torch.bool)
        kept[magnitudes.topk(ceil(self.keep * len(magnitudes))).indices] = True
        masks = kept.split([len(vector) for vector in numbers.values()])
        both = pairs(update, server_round.received)
        return replaced(
            update,
            {
                path: torch.where(mask, vector, start.to(vector.dtype))
                for mask, (path, (vector, start)) in zip(masks, both.items(), strict=True)
            },
        )
