"""Class profiles: vectors that summarize an update of the classifier layer, one number per class.

Each class has a row of weights in the classifier layer. In training, the row moves towards the
features of the client's samples of this class, and away from the features of all other samples
(Proposition 1 of the paper). The number of a class in the profile is the signed size of this
change. Profiles of a client are averaged over its rounds. So clients can be compared even if they
never took part in the same round, and the state of the server grows with the number of clients, not
with the number of pairs. Profiles are not in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cadis._io import scatter_rows
from cadis.algorithm.vectors import normalize

PROFILE_WINDOW = 20  # after so many rounds of a client, the weight of older rounds decays
_MIN_REPEATABILITY = 0.5  # of earlier profiles of a client, to recognize that its classes changed
_MIN_MERGED_CLIENTS = 4096  # merge the table of recent changes only when it has more clients


def compute_class_profiles(weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the class profile of each client, a vector of norm 1. Not in the paper.

    The entry of class c is ``sign(<dw_c, f> + db_c) * (||dw_c||^2 + db_c^2)^(1/8)``, minus the mean
    over the classes. Here dw_c and db_c are the updates of the row and the bias of class c, and f
    is the direction of the mean features, estimated as follows. For a single sample, the update of
    the weight is the outer product of its residuals (label minus prediction, per class) and its
    features, and the update of the bias is its residuals. So f is the sum of all rows of the
    update, each multiplied by its bias update (or, without a bias, by the sum of the row).

    The fourth root of the norm makes the entries of well-learned classes, whose updates are small,
    about as large as the entries of new classes. The mean is subtracted because residuals sum to 0
    over the classes, but their roots do not.

    Args:
        weight: updates of the weight of the classifier layer, (k, classes, features).
        bias: updates of its bias, (k, classes); None if the layer has no bias.

    Returns:
        Profiles, (k, classes); zeros for a client whose layer did not change.
    """
    largest = weight.abs().amax(dim=(1, 2), keepdim=True)
    if bias is not None:
        largest = torch.maximum(largest, bias.abs().amax(dim=1)[:, None, None])
    largest = torch.where(largest > 0, largest, 1)  # (k, 1, 1); scaling avoids overflow
    weight = weight / largest
    residuals = weight.sum(dim=2) if bias is None else bias / largest[:, 0]  # (k, classes)
    features = torch.einsum("kcd,kc->d", weight, normalize(residuals))
    projection = weight @ normalize(features)
    squares = weight.square().sum(dim=2)
    if bias is not None:
        projection, squares = projection + residuals, squares + residuals.square()
    profiles = projection.sign() * squares.pow(0.125)
    return normalize(profiles - profiles.mean(dim=1, keepdim=True))


def sum_cosines(mean_profiles: Tensor, num_rounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of cosines between profiles of a client from different rounds.

    The norms of the mean profiles are sufficient to compute it. The squared norm of the mean of m
    unit vectors is the mean of their m^2 cosines, and m of these are cosines of a vector with
    itself, which are 1.

    Args:
        mean_profiles: mean profiles, (n, classes).
        num_rounds: number of rounds of each client, (n,).

    Returns:
        The sum for each client, at least 0, (n,), and the number of its pairs of rounds, (n,).
    """
    rounds = num_rounds.double().clamp(max=PROFILE_WINDOW)
    squares = mean_profiles.double().square().sum(dim=1)
    return (rounds.square() * squares - rounds).clamp(min=0), rounds * (rounds - 1)


def find_changed_clients(profiles: Tensor, mean_profiles: Tensor, num_rounds: Tensor) -> Tensor:
    """Return which clients have new classes, (k,), bool.

    The earlier profiles of such a client resemble each other, but the new one has a negative cosine
    with their mean.

    Args:
        profiles: profiles of the participants in this round, (k, classes).
        mean_profiles: their mean profiles before this round, (k, classes).
        num_rounds: number of their earlier rounds, (k,).
    """
    sums, pairs = sum_cosines(mean_profiles, num_rounds)
    is_repeatable = (pairs > 0) & (sums > _MIN_REPEATABILITY * pairs)
    return is_repeatable & ((profiles * mean_profiles).sum(dim=1) < 0)


@dataclass(frozen=True)
class ProfileTable:
    """Mean profiles of clients, sorted by key. Checkpoints contain the field names."""

    keys: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # (n,)
    mean: Tensor = field(  # half precision, (n, classes)
        default_factory=lambda: torch.zeros(0, 0, dtype=torch.float16)
    )
    count: Tensor = field(  # number of rounds, (n,)
        default_factory=lambda: torch.zeros(0, dtype=torch.int32)
    )

    def find(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row of each client, (k,), and a mask of the clients in the table, (k,).

        The table must not be empty. The row of a client that is not in the table is arbitrary.
        """
        rows = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return rows, self.keys[rows] == keys

    def merge(self, newer: "ProfileTable") -> "ProfileTable":
        """Return the union of two tables; for clients in both, the newer row is kept."""
        if not len(self.keys):
            return newer
        added = newer.keys[~self.find(newer.keys)[1]]
        before = torch.searchsorted(self.keys, added)
        is_old = torch.ones(len(self.keys) + len(added), dtype=torch.bool)
        is_old[before + torch.arange(len(added))] = False
        union = ProfileTable(*(scatter_rows(tensor, is_old) for tensor in vars(self).values()))
        union.keys[~is_old] = added
        rows, _ = union.find(newer.keys)
        for values, new in zip(vars(union).values(), vars(newer).values(), strict=True):
            values[rows] = new
        return union


@dataclass(frozen=True)
class ClientProfiles:
    """The mean class profile of every client that ever took part.

    Objects are immutable: an update returns a new object. To avoid a copy of all profiles in every
    round, recent changes are in a small second table, which is merged only when it has grown.
    """

    old: ProfileTable = field(default_factory=ProfileTable)  # shared by successive objects
    new: ProfileTable = field(default_factory=ProfileTable)  # clients changed since the last merge

    @property
    def num_classes(self) -> int:
        """Return the number of classes; 0 before the first observation."""
        return max(table.mean.shape[1] for table in (self.old, self.new))

    def observe(self, keys: Tensor, profiles: Tensor) -> "ClientProfiles":
        """Add the profiles of a round, (k, classes), to the mean profiles of k clients.

        If the classes of a client have changed, its earlier rounds are forgotten.
        """
        mean, count = self.get(keys, profiles.shape[1])
        count = torch.where(find_changed_clients(profiles, mean, count), 0, count)
        times = count.clamp(max=PROFILE_WINDOW - 1)[:, None]
        return self.update(keys, mean + (profiles.float() - mean) / (times + 1), count + 1)

    def update(self, keys: Tensor, mean: Tensor, count: Tensor) -> "ClientProfiles":
        """Replace the mean profiles, (k, classes), and counts, (k,), of some clients."""
        order = keys.argsort()
        new = self.new.merge(ProfileTable(keys[order], mean.half()[order], count[order]))
        if len(new.keys) > max(_MIN_MERGED_CLIENTS, len(self.old.keys) // 8):
            return ClientProfiles(self.old.merge(new), ProfileTable())
        return ClientProfiles(self.old, new)

    def get(self, keys: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Return mean profiles, (k, classes), and counts, (k,); zeros for unknown clients."""
        mean = torch.zeros(len(keys), classes)
        count = torch.zeros(len(keys), dtype=torch.int32)
        for table in (self.old, self.new):
            if not len(table.keys):
                continue
            rows, is_known = table.find(keys)
            mean[is_known] = table.mean[rows[is_known]].float()
            count[is_known] = table.count[rows[is_known]]
        return mean, count

    def subsample(self, max_clients: int) -> tuple[Tensor, Tensor]:
        """Return the mean profiles, (n, classes), and counts, (n,), of at most ``max_clients``.

        If there are more clients, the result contains every m-th client in the order of the keys,
        which hardly changes from round to round.
        """
        table = max(self.old, self.new, key=lambda table: len(table.keys))
        step = max(1, -(-len(table.keys) // max_clients))
        return self.get(table.keys[::step].contiguous(), table.mean.shape[1])

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tables as named tensors for a checkpoint."""
        tables = {"old": self.old, "new": self.new}
        return {f"{n}.{part}": t for n, table in tables.items() for part, t in vars(table).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ClientProfiles":
        """Restore the result of :meth:`to_tensors`; without these tensors, there are no clients."""
        if "old.keys" not in tensors:
            return cls()
        old, new = (
            ProfileTable(*(tensors[f"{name}.{part}"] for part in ("keys", "mean", "count")))
            for name in ("old", "new")
        )
        return cls(old, new)
