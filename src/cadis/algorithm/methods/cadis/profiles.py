"""Class profiles: what a client's update of the classifier layer says of each class, in a number.

The update of a class's row grows along the features of the samples that the client has of it, and
shrinks along those of all others (Proposition 1 of the paper). One number a class keeps that and
forgets the features. Profiles average over a client's own rounds, so two clients that never met
can be compared, and what the server remembers grows with the clients, not with their pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cadis._io import spread
from cadis.algorithm.vectors import unit

LONGEST = 20  # rounds of a client that its profile is the mean of; of more, older ones fade
_FEW = 4096  # clients that are always held in one table; of more, one in eight may be in the new


def class_profiles(weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """One number a class for each client, the vector of them of length 1.

    Its size is the fourth root of the norm of the row's update; its sign says whether the row moved
    towards or away from the mean features of the data, f. With one sample the update is the outer
    product of its residual and its features, so that the bias, which moves by the residuals, tells
    where f is: along the sum of all rows, each times its bias (without a bias, its own sum). The
    root makes a class that is learned already count hardly less than one that is not. The mean over
    the classes is taken off: residuals sum to 0, and roots of them would not.

    Args:
        weight: updates of the classifier's weight, (k, classes, features).
        bias: of its bias, (k, classes), if it has one.

    Returns:
        (k, classes); a row of zeros for a client whose layer did not move.
    """
    largest = weight.abs().amax(dim=(1, 2), keepdim=True)
    if bias is not None:
        largest = torch.maximum(largest, bias.abs().amax(dim=1)[:, None, None])
    largest = torch.where(largest > 0, largest, 1)  # (k, 1, 1); scaling avoids overflow
    weight = weight / largest
    moved = weight.sum(dim=2) if bias is None else bias / largest[:, 0]  # (k, classes)
    features = torch.einsum("kcd,kc->d", weight, unit(moved))
    along = weight @ unit(features)
    squares = weight.square().sum(dim=2)
    if bias is not None:
        along, squares = along + moved, squares + moved.square()
    profiles = along.sign() * squares.pow(0.125)
    return unit(profiles - profiles.mean(dim=1, keepdim=True))


@dataclass(frozen=True)
class Table:
    """Clients' mean profiles, in half precision, (n, classes), and counts of rounds, by key."""

    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float16))
    count: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))

    def find(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Where clients are in a table that is not empty, and whether they are, (k,) each."""
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return places, self.keys[places] == keys

    def merged(self, newer: "Table") -> "Table":
        """A table of both, where the newer one wins."""
        if not len(self.keys):
            return newer
        added = newer.keys[~self.find(newer.keys)[1]]
        before = torch.searchsorted(self.keys, added)
        kept = torch.ones(len(self.keys) + len(added), dtype=torch.bool)
        kept[before + torch.arange(len(added))] = False
        grown = Table(*(spread(tensor, kept) for tensor in vars(self).values()))
        grown.keys[~kept] = added
        places, _ = grown.find(newer.keys)
        for values, new in zip(vars(grown).values(), vars(newer).values(), strict=True):
            values[places] = new
        return grown


@dataclass(frozen=True)
class ClientProfiles:
    """The mean class profile of everybody who ever took part.

    It is a value: observing makes a new one and leaves this one as it is. Of many clients, most lie
    in a table that both share; what is new lies in a small one, until that has grown.
    """

    old: Table = field(default_factory=Table)  # most of many clients
    new: Table = field(default_factory=Table)  # those that were changed since

    def observe(self, keys: Tensor, profiles: Tensor) -> "ClientProfiles":
        """Fold in one round's profiles, of length 1 each, (k, classes)."""
        mean, count = self.of(keys, profiles.shape[1])
        times = count.clamp(max=LONGEST - 1)[:, None]
        return self.put(keys, mean + (profiles.float() - mean) / (times + 1), count + 1)

    def put(self, keys: Tensor, mean: Tensor, count: Tensor) -> "ClientProfiles":
        """The same with other mean profiles, (k, classes), and counts, (k,), of some clients."""
        order = keys.argsort()
        new = self.new.merged(Table(keys[order], mean.half()[order], count[order]))
        if len(new.keys) > max(_FEW, len(self.old.keys) // 8):
            return ClientProfiles(self.old.merged(new), Table())
        return ClientProfiles(self.old, new)

    def of(self, keys: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Mean profiles, (k, classes), and counts, (k,), of clients; 0 of those never seen."""
        mean = torch.zeros(len(keys), classes)
        count = torch.zeros(len(keys), dtype=torch.int32)
        for table in (self.old, self.new):
            if not len(table.keys):
                continue
            places, found = table.find(keys)
            mean[found] = table.mean[places[found]].float()
            count[found] = table.count[places[found]]
        return mean, count

    def some(self, most: int) -> tuple[Tensor, Tensor]:
        """Mean profiles, (n, classes), and counts, (n,), of all, or of an even choice of many.

        The choice hardly changes from round to round.
        """
        table = max(self.old, self.new, key=lambda table: len(table.keys))
        step = max(1, -(-len(table.keys) // most))
        return self.of(table.keys[::step].contiguous(), table.mean.shape[1])

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        tables = {"old": self.old, "new": self.new}
        return {f"{n}.{part}": t for n, table in tables.items() for part, t in vars(table).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ClientProfiles":
        """The inverse of :meth:`to_tensors`; of no tensors, nobody."""
        if "old.keys" not in tensors:
            return cls()
        parts = ("keys", "mean", "count")
        return cls(*(Table(*(tensors[f"{n}.{part}"] for part in parts)) for n in ("old", "new")))
