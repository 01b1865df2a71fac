"""What the records of a run say about how alike its clients are."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from cadis.core import ClientId
from cadis.runs.record import RoundRecord


class Observations:
    """Running means of the similarities of everybody seen to some clients (Eq. 12), by record.

    They are changed in place: a round costs the pairs that took part, while a
    :class:`~cadis.core.SimilarityMatrix`, which is a value, copies all pairs there are. The numbers
    are the same, bit for bit. Rows and columns are in the order in which clients joined.

    Args:
        history: all rounds that there will be.
        clients: whom to keep a column for; everybody unless told.
    """

    def __init__(
        self, history: Sequence[RoundRecord], clients: Collection[ClientId] | None = None
    ) -> None:
        self.client_ids = joined(history)
        chosen = [c for c in self.client_ids if clients is None or c in clients]
        self._row = {client: row for row, client in enumerate(self.client_ids)}
        self._column = {client: column for column, client in enumerate(chosen)}
        self._seen: set[ClientId] = set()
        self.mean = torch.zeros(len(self._row), len(chosen))
        self.count = torch.zeros(len(self._row), len(chosen), dtype=torch.int32)

    def add(self, record: RoundRecord) -> None:
        """Fold in a round, if it measured similarities."""
        if record.similarity is None:
            return
        who = record.participants
        self._seen.update(who)
        places = [place for place, client in enumerate(who) if client in self._column]
        rows = torch.tensor([self._row[client] for client in who], dtype=torch.long)
        columns = torch.tensor([self._column[who[place]] for place in places], dtype=torch.long)
        block = (rows[:, None], columns)
        times = self.count[block].to(self.mean.dtype)
        new = torch.tensor(record.similarity)[:, places]
        self.mean[block] = times / (times + 1) * self.mean[block] + new / (times + 1)
        self.count[block] += 1

    def direct(self) -> Tensor:
        """Everybody seen so far by the chosen clients seen so far, NaN where nothing was observed.

        (p, n), as :meth:`~cadis.core.SimilarityMatrix.estimate_missing` wants its helpers.
        """
        columns = sum(client in self._seen for client in self._column)
        seen = slice(len(self._seen)), slice(columns)
        return torch.where(self.count[seen] > 0, self.mean[seen], torch.nan)


def joined(history: Sequence[RoundRecord]) -> tuple[ClientId, ...]:
    """All clients whose similarities were measured, in the order in which they joined."""
    measured = (record.participants for record in history if record.similarity is not None)
    return tuple(dict.fromkeys(client for participants in measured for client in participants))
