"""What the records of a run say about how alike its clients are.

A method tells it by arrays of these names, whatever method it is: ``clusters``, the cluster of each
participant, (k,); ``similarity``, how alike they are, (k, k), or ``profile``, the class profile of
each, (k, classes); ``threshold``, how alike neighbours in the Q-matrix must be, or ``cut``, how
alike the clients of a cluster are on the average, with its ``confidence``; ``gamma``, the largest
deviation of a transitive estimate. Where it tells clusters and not how alike clients are, a number
must mean the same cluster in all rounds. What has one of these names but is something else is
passed over.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cadis.algorithm import cosines, unit
from cadis.algorithm.methods.cadis import (
    ClientProfiles,
    SimilarityMatrix,
    average_linkage,
    cluster,
    rescale,
    running_mean,
    update_profiles,
)
from cadis.server import PackedMatrix, RoundRecord
from cadis.types import ClientId, client_keys

_LARGEST = 2**53
"""The largest count that every program reads as what it is."""
_COSINE = 1.001
"""The largest similarity, with what rounding may add."""
_KNOWN = ("threshold", "cut", "confidence", "gamma")
"""The single numbers that are known here."""
_MAJORITY = 0.501
"""The threshold in the Q-matrix where the method tells similarities, but no threshold."""


def clusters_of(record: RoundRecord) -> list[int] | None:
    """The cluster of each participant, counted from 0; None if the method told none."""
    labels = record.report.get("clusters")
    if not isinstance(labels, list) or _unfit_clusters(labels, len(record.participants)):
        return None
    return [int(label) for label in labels]  # type: ignore[arg-type]


def similarity_of(record: RoundRecord) -> Tensor | None:
    """How alike the participants are, (k, k); None if the method did not tell."""
    found = _similarity(record)
    return None if isinstance(found, str) else torch.tensor(found, dtype=torch.float32)


def threshold_of(record: RoundRecord) -> float | None:
    """How alike neighbours had to be in the Q-matrix; None if the method did not tell."""
    return scalar_of(record, "threshold")


def profile_of(record: RoundRecord) -> Tensor | None:
    """The class profile of each participant, (k, classes); None if the method did not tell."""
    if not isinstance(record.report.get("profile"), list | PackedMatrix):
        return None
    try:
        profiles = record.array("profile")
    except (OverflowError, ValueError, TypeError):
        return None
    if profiles is None or profiles.ndim != 2 or len(profiles) != len(record.participants):
        return None
    sound = (np.linalg.norm(profiles, axis=1) <= _COSINE).all()  # NaN is not
    return torch.tensor(profiles, dtype=torch.float32) if sound else None


def confidence_of(record: RoundRecord) -> float | None:
    """How sure the method was that there are clusters; None if it did not tell."""
    return scalar_of(record, "confidence")


def gamma_of(record: RoundRecord) -> float | None:
    """The largest deviation of a transitive estimate; None if nothing was estimated."""
    return scalar_of(record, "gamma")


def scalar_of(record: RoundRecord, name: str) -> float | None:
    """A single number that the method told; None if it did not."""
    value = record.report.get(name)
    return float(value) if isinstance(value, int | float) else None


def told_scalars(record: RoundRecord) -> list[str]:
    """Names of the single numbers that the method told, but for those that are known here."""
    arrays = (list, PackedMatrix)
    single = (name for name, value in record.report.items() if not isinstance(value, arrays))
    return [name for name in single if name not in _KNOWN]


def unfit(record: RoundRecord) -> list[str]:
    """What is wrong with arrays whose names are known, in words."""
    report, found = record.report, list[str]()
    if "clusters" in report:
        found += _unfit_clusters(report["clusters"], len(record.participants))
    if "similarity" in report and isinstance(wrong := _similarity(record), str):
        found.append(wrong)
    if "profile" in report and profile_of(record) is None:
        found.append("profile has not one vector, of length 1 at the most, for each participant")
    given = [name for name in _KNOWN if name in report and scalar_of(record, name) is None]
    return found + [f"{name} is no number" for name in given]


def _unfit_clusters(labels: Any, size: int) -> list[str]:
    """What is wrong with labels, if anything is."""
    if not isinstance(labels, list):
        return ["clusters is no list"]
    if len(labels) != size:
        return [f"clusters has {len(labels)} entries, not {size}"]
    counted = all(isinstance(n, int) and 0 <= n <= _LARGEST for n in labels)
    return [] if counted else ["clusters are not counted from 0"]


def _similarity(record: RoundRecord) -> NDArray[Any] | str:
    """How alike the participants are, (k, k), or what is wrong with what was told, in words."""
    told, size = record.report.get("similarity"), len(record.participants)
    if isinstance(told, PackedMatrix):
        lengths = [told.shape[1]] * told.shape[0]
    elif isinstance(told, list) and all(isinstance(row, list) for row in told):
        lengths = [len(row) for row in told]  # type: ignore[arg-type]
    else:
        return "similarity is no matrix"
    if len(lengths) != size:
        return f"similarity has {len(lengths)} entries, not {size}"
    if wrong := [length for length in lengths if length != size]:
        return f"a row of similarity has {wrong[0]} entries, not {size}"
    try:
        matrix = record.array("similarity")
    except OverflowError:
        matrix = None
    if matrix is None or not (np.abs(matrix) <= _COSINE).all():  # NaN is not, either
        return "a similarity is not between -1 and 1"
    return matrix


Alikeness = Callable[[RoundRecord], Tensor | None]
"""How alike the participants of a round are, (k, k), if it tells."""


def tells_profiles(history: Sequence[RoundRecord]) -> bool:
    """Whether clients are compared by profiles in these rounds, and not by pairs."""
    return any(profile_of(record) is not None for record in history)


def alikeness(history: Sequence[RoundRecord]) -> Alikeness:
    """What tells how alike the participants of each of these rounds are.

    Similarities do, or those of profiles; where a method tells clusters only, who is in one cluster
    with whom does, the mean of which over rounds is the part of their common rounds that two
    clients were together.
    """
    for told in (similarity_of, _by_profile):
        if any(told(record) is not None for record in history):
            return told
    return _together


def _by_profile(record: RoundRecord) -> Tensor | None:
    """Cosines of the participants' profiles, (k, k)."""
    profiles = profile_of(record)
    return None if profiles is None else cosines(profiles)


def _together(record: RoundRecord) -> Tensor | None:
    """1 for participants in one cluster, else 0, (k, k)."""
    clusters = clusters_of(record)
    if clusters is None:
        return None
    labels = torch.tensor(clusters)
    return (labels[:, None] == labels).float()


def grouped(matrix: SimilarityMatrix, history: Sequence[RoundRecord]) -> Tensor:
    """The clusters of clients as alike as this, as the method told them by the last round, (n,).

    Where it tells clusters only, those that clients were in when they took part last: what they
    were in before, a method such as CFL may have split since. Else cut at the similarity that it
    told, or at its threshold in the Q-matrix.
    """
    record = history[-1]
    if alikeness(history) is _together:
        return _last_told(matrix.client_ids, history)
    cut = scalar_of(record, "cut")
    if cut is not None:
        return average_linkage(torch.where(matrix.known, matrix.mean, -1), cut)
    threshold = threshold_of(record)
    least = _MAJORITY if threshold is None else threshold
    return cluster(rescale(matrix.mean, matrix.known), least)


def _last_told(clients: Sequence[ClientId], history: Sequence[RoundRecord]) -> Tensor:
    """The cluster that each client was in when it took part last, counted from 0, (n,)."""
    told: dict[ClientId, int] = {}
    for record in history:
        labels = clusters_of(record)
        told.update(zip(record.participants, labels or (), strict=labels is not None))
    number = {label: place for place, label in enumerate(sorted(set(told.values())))}
    return torch.tensor([number[told[client]] for client in clients], dtype=torch.long)


class SeenProfiles:
    """The mean class profile of everybody seen so far, by record, as the server has it."""

    def __init__(self) -> None:
        self._profiles = ClientProfiles()
        self._seen: dict[ClientId, None] = {}

    def add(self, record: RoundRecord) -> None:
        """Fold in a round, if it tells profiles."""
        profiles = profile_of(record)
        if profiles is not None:
            keys = client_keys(record.participants)
            self._profiles = update_profiles(self._profiles, keys, profiles)
            self._seen.update(dict.fromkeys(record.participants))

    def matrix(self, clients: Collection[ClientId] | None = None) -> SimilarityMatrix:
        """How alike clients are, in the order in which they joined; everybody unless told."""
        chosen = tuple(c for c in self._seen if clients is None or c in clients)
        keys = client_keys(chosen)
        classes = max(self._profiles.old.mean.shape[1], self._profiles.new.mean.shape[1])
        mean, count = self._profiles.of(keys, classes)
        similarity = cosines(unit(mean))
        times = torch.minimum(count[:, None], count)
        return SimilarityMatrix(chosen, similarity, times, torch.ones_like(times, dtype=torch.bool))


class Observations:
    """Running means of how alike everybody seen is to some clients (Eq. 12), by record.

    They are changed in place: a round costs the pairs that took part, while a
    :class:`~cadis.algorithm.methods.cadis.SimilarityMatrix`, which is a value, copies all pairs
    there are. The numbers are the same, bit for bit. Rows and columns are in the order in which
    clients joined; there is a column for each client that is given, by default for everybody.
    """

    def __init__(
        self, history: Sequence[RoundRecord], clients: Collection[ClientId] | None = None
    ) -> None:
        self.client_ids = joined(history)
        chosen = [c for c in self.client_ids if clients is None or c in clients]
        self._alikeness = alikeness(history)
        self._row = {client: row for row, client in enumerate(self.client_ids)}
        self._column = {client: column for column, client in enumerate(chosen)}
        self._seen: set[ClientId] = set()
        self.mean = torch.zeros(len(self._row), len(chosen))
        self.count = torch.zeros(len(self._row), len(chosen), dtype=torch.int32)

    def add(self, record: RoundRecord) -> None:
        """Fold in a round, if it tells how alike its participants are."""
        similarity = self._alikeness(record)
        if similarity is None:
            return
        who = record.participants
        self._seen.update(who)
        places = [place for place, client in enumerate(who) if client in self._column]
        rows = torch.tensor([self._row[client] for client in who], dtype=torch.long)
        columns = torch.tensor([self._column[who[place]] for place in places], dtype=torch.long)
        block = (rows[:, None], columns)
        new = similarity[:, places]
        self.mean[block] = running_mean(self.mean[block], self.count[block], new)
        self.count[block] += 1

    def chosen_rows(self) -> Tensor:
        """The rows of those who have a column, in the order of the columns, (n,)."""
        return torch.tensor([self._row[client] for client in self._column], dtype=torch.long)

    def direct(self) -> Tensor:
        """Everybody seen so far by the chosen clients seen so far, NaN where nothing was observed.

        (p, n), as ``SimilarityMatrix.estimate_missing`` wants its helpers.
        """
        columns = sum(client in self._seen for client in self._column)
        seen = slice(len(self._seen)), slice(columns)
        return torch.where(self.count[seen] > 0, self.mean[seen], torch.nan)


def joined(history: Sequence[RoundRecord]) -> tuple[ClientId, ...]:
    """All clients of whom it was told how alike they are, in the order in which they joined."""
    told = alikeness(history)
    measured = (record.participants for record in history if told(record) is not None)
    return tuple(dict.fromkeys(client for participants in measured for client in participants))
